# SPDX-License-Identifier: GPL-2.0-or-later
"""A wrong class file is refused in one sentence with file, class and key, at every door.

The doors: QEMU's build (profile-gen.py), and the commands that take --classes.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from class_files import GOOD

from batchflush import cli, paths

KEY = "flush-latency-ns = { value = 9000000"
SOURCED = ", grade = 'folk', source = 'us' }"
DEVICE = 'device = { value = "virtio-blk-pci", grade = "folk", source = "us" }'
FRONT_END_CACHE = 'write-cache = { value = "on", grade = "folk", source = "us" }'


def instead(key: str, value: str) -> tuple[str, str]:
    """Another setting with grade and source, in place of the flush's."""
    return KEY, f"{key} = {{ value = {value}"


# What is replaced in GOOD, by what, and what is said behind the file's name.
WRONG = {
    "no-source": (', source = "page 3"', "", "[disk.node] flush-latency-ns has no source"),
    "empty-source": (
        'source = "page 3"', 'source = " "', "[disk.node] flush-latency-ns has no source",
    ),
    "source-is-no-text": (
        'source = "page 3"', "source = 3", "[disk.node] flush-latency-ns has no source",
    ),
    "no-grade": (', grade = "data sheet"', "", "[disk.node] flush-latency-ns has no grade"),
    "unknown-grade": (
        '"data sheet"', '"rumour"',
        "[disk.node] flush-latency-ns has the grade 'rumour'; allowed is one of measured,",
    ),
    "no-value": ("value = 9000000, ", "", "[disk.node] flush-latency-ns has no value"),
    "bare-value": (
        KEY + ', grade = "data sheet", source = "page 3" }', "flush-latency-ns = 9000000",
        "[disk.node] flush-latency-ns must be a table with value, grade, source",
    ),
    "unknown-key": (
        *instead("seek-time", "1"), "[disk.node] seek-time is not known",
    ),
    "key-of-a-table-inside": (
        'source = "page 3"', 'source = "p", unit = "ms"',
        "[disk.node] flush-latency-ns has an unknown key unit; known are value, grade, source",
    ),
    "unknown-table": ("[disk.node]", "[disk.nodes]", "[disk] has no node"),
    "one-table-too-many": (
        "[disk.node]", "[disk.more]\n[disk.node]", "[disk] has an unknown key more",
    ),
    "wrong-unit-in-the-key": (
        *instead("flush-latency-ms", "9"), "[disk.node] flush-latency-ms is not known",
    ),
    "no-unit-in-the-key": (
        *instead("flush-latency", "9"), "[disk.node] flush-latency is not known",
    ),
    "unit-in-the-value": (
        "9000000", '"9 ms"',
        "[disk.node] flush-latency-ns is '9 ms'; allowed is a whole number of ns, 0 to",
    ),
    "suffix-in-the-value": (
        *instead("cache-size", "'64M'"),
        "[disk.node] cache-size is '64M'; allowed is a whole number of bytes",
    ),
    "fraction": (
        "9000000", "9.5", "[disk.node] flush-latency-ns is 9.5; allowed is a whole number of ns",
    ),
    "truth": ("9000000", "true", "[disk.node] flush-latency-ns is True; allowed is"),
    "negative": ("9000000", "-1", "[disk.node] flush-latency-ns is -1; allowed is"),
    "too-large": (
        "9000000", "60000000001",
        "[disk.node] flush-latency-ns is 60000000001; allowed is a whole number of ns, "
        "0 to 60000000000",
    ),
    "unknown-word": (
        '"volatile"', '"lazy"',
        "[disk.node] write-cache is 'lazy'; allowed is one of none, volatile, battery",
    ),
    "spread-of-no-kind": (
        *instead("flush-spread", "'gauss:5'"), "[disk.node] flush-spread is 'gauss:5', which",
    ),
    "impossible-uniform": (
        *instead("latency-spread", "'uniform:101'"),
        "[disk.node] latency-spread is 'uniform:101', which is out of range",
    ),
    "impossible-normal": (
        *instead("flush-spread", "'normal:90'"),
        "[disk.node] flush-spread is 'normal:90', which is out of range; "
        "allowed are normal:0 to normal:33",
    ),
    "pareto-without-a-mean": (
        *instead("latency-spread", "'pareto:1'"),
        "[disk.node] latency-spread is 'pareto:1', which is out of range",
    ),
    "spread-for-a-time": (
        "9000000", '"table:50=1"', "[disk.node] flush-latency-ns is 'table:50=1'; allowed is",
    ),
    "number-for-a-spread": (*instead("flush-spread", "5"), "[disk.node] flush-spread is 5, which"),
    "percentiles-out-of-order": (
        *instead("flush-spread", "'table:99=1/50=2'"),
        "[disk.node] flush-spread is 'table:99=1/50=2', which is out of order at 50=2",
    ),
    "percentile-twice": (
        *instead("flush-spread", "'table:50=1/50=2'"),
        "[disk.node] flush-spread is 'table:50=1/50=2', which is out of order at 50=2",
    ),
    "factors-out-of-order": (
        *instead("flush-spread", "'table:50=1/99=0.5'"),
        "[disk.node] flush-spread is 'table:50=1/99=0.5', which is out of order at 99=0.5",
    ),
    "percentile-beyond-100": (
        *instead("flush-spread", "'table:101=1'"), "[disk.node] flush-spread is 'table:101=1'",
    ),
    "option-without-its-company": (
        *instead("rpm", "7200"), "[disk.node] rpm=7200 needs bandwidth",
    ),
    "marks-out-of-order": (
        KEY, f"destage-high-percent = {{ value = 10{SOURCED}\n"
        f"destage-low-percent = {{ value = 20{SOURCED}\n{KEY}",
        "[disk.node] destage-low-percent=20 is not below destage-high-percent=10",
    ),
    "no-device": (DEVICE, "", "[disk.front-end] device is missing"),
    "unknown-device": (
        '"virtio-blk-pci"', '"floppy"', "[disk.front-end] device is 'floppy'; allowed is one of",
    ),
    "no-word-on-the-cache": (FRONT_END_CACHE, "", "[disk.front-end] write-cache is missing"),
    "rotation-of-what-has-none": (
        "[disk.front-end]", f"[disk.front-end]\nrotation-rate = {{ value = 7200{SOURCED}",
        "[disk.front-end] rotation-rate is given, but of QEMU's disks only scsi-hd has one",
    ),
    "no-title": ('title = "a disk"', "", "[disk] has no title"),
    "no-class": ("[disk]", "[other]\n[disk]", "[other] has no title"),
    "no-name": ("[disk]\n", "['my disk']\n", "[my disk] is no name of a class"),
    "no-toml": ("[disk]", "[disk", "is not TOML"),
}  # fmt: skip


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file, and how its refusal begins."""
    old, new, said = WRONG[request.param]
    assert GOOD.count(old) >= 1
    file = tmp_path / "classes.toml"
    file.write_text(GOOD.replace(old, new, 1))
    between = " " if said.startswith("is not") else ": "
    return file, f"{file}{between}{said}"


def build(file: Path) -> subprocess.CompletedProcess[str]:
    generator = paths.PROFILES.with_name("profile-gen.py")
    return subprocess.run(
        [sys.executable, generator, file, file.with_suffix(".h")], capture_output=True, text=True
    )


def test_the_build_refuses_it(wrong: tuple[Path, str]) -> None:
    file, said = wrong
    done = build(file)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not file.with_suffix(".h").exists()


@pytest.mark.parametrize(
    "command",
    [
        lambda file: ["profiles", "--classes", str(file)],
        lambda file: ["run", "--classes", str(file), "--class", "disk", "--", "true"],
    ],
    ids=["profiles", "run"],
)
def test_a_command_refuses_it(
    command: Callable[[Path], list[str]],
    wrong: tuple[Path, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, said = wrong
    assert cli.main(command(file)) != 0
    told = capsys.readouterr()
    # The terminal breaks lines where it likes.
    assert "".join(said.split()) in "".join(told.err.split())
    assert "Traceback" not in told.err


def test_without_a_mistake_it_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "classes.toml"
    file.write_text(GOOD)
    done = build(file)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"disk"' in file.with_suffix(".h").read_text()
    assert cli.main(["profiles", "--classes", str(file), "disk"]) == 0
