# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of the series: nothing of what goes into QEMU is left out, or there twice."""

import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from batchflush import graft, paths, series
from batchflush.errors import BatchflushError

# What QEMU would take.
FOR_QEMU = ("block/batchflush", "hw/batchflush", "qapi", "tests/qtest", "docs/specs")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "VERSION").write_text("10.0.0\n")
    return tmp_path


def test_every_file_is_in_exactly_one_patch(tree: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", *FOR_QEMU], cwd=paths.ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    files = [come for patch in series.patches(paths.ROOT, tree) for come, _ in patch.files]
    twice = [name for name, count in Counter(files).items() if count > 1]
    assert not twice
    missing = {name for name in listed if (paths.ROOT / name).exists()} - set(files)
    assert not missing, f"add them to {series.TABLE}"


def test_a_name_stands_in_one_patch_only() -> None:
    table = tomllib.loads((paths.ROOT / series.TABLE).read_text())["patch"]
    names = [name for patch in table for name in patch.get("add", ())]
    assert len(names) == len(set(names))


def test_every_insertion_is_in_exactly_one_patch(tree: Path) -> None:
    wanted = graft.load(paths.GRAFT_QEMU, tree).insertions
    inserted = [one for patch in series.patches(paths.ROOT, tree) for one in patch.insertions]
    assert Counter(one for one in inserted if one in wanted) == Counter(wanted)


def test_what_is_left_out_stops_the_series(tmp_path: Path, tree: Path) -> None:
    project = tmp_path / "project"
    (project / "graft").mkdir(parents=True)
    for name in ("block", "docs", "hw", "qapi", "tests"):
        (project / name).symlink_to(paths.ROOT / name)
    (project / "graft/series-index.rst").touch()
    (project / "graft/qemu.toml").write_text(paths.GRAFT_QEMU.read_text())
    text = (paths.ROOT / series.TABLE).read_text()
    (project / series.TABLE).write_text(text.replace('"hw/Kconfig", ', ""))
    with pytest.raises(BatchflushError, match=r"hw/Kconfig.* is in no patch"):
        series.patches(project, tree)
