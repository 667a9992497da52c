# SPDX-License-Identifier: GPL-2.0-or-later
from pathlib import Path

import pytest

from batchflush import apt, graft, paths, processes, source


class Extraction:
    """Stands for dpkg-source."""

    def __init__(self) -> None:
        self.times = 0
        self.interrupted = False

    def __call__(self, command: processes.Command, *_args, **_options) -> None:
        assert command[0] == "dpkg-source"
        self.times += 1
        into = Path(command[-1])
        into.mkdir()
        if self.interrupted:
            raise KeyboardInterrupt
        (into / "VERSION").write_text("10.0.13\n")


@pytest.fixture
def extraction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Extraction:
    extraction = Extraction()
    monkeypatch.setattr(paths, "BUILD", tmp_path)
    monkeypatch.setattr(paths, "QEMU_SOURCE", tmp_path / "qemu-source")
    monkeypatch.setattr(apt, "download_source", lambda *_: tmp_path / "qemu_10.0.13.dsc")
    monkeypatch.setattr(processes, "run_logged", extraction)
    monkeypatch.setattr(graft, "apply", lambda _tree: None)
    return extraction


def test_the_source_is_extracted_once(extraction: Extraction) -> None:
    tree = source.prepare(None)
    assert (tree / "VERSION").read_text() == "10.0.13\n"
    assert source.prepare(None) == tree
    assert extraction.times == 1


def test_an_interrupted_extraction_is_begun_anew(extraction: Extraction) -> None:
    extraction.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        source.prepare(None)
    extraction.interrupted = False
    assert (source.prepare(None) / "VERSION").exists()
    assert extraction.times == 2


def test_a_tree_of_ones_own_is_taken_as_it_is(extraction: Extraction, tmp_path: Path) -> None:
    assert source.prepare(tmp_path / "mine") == tmp_path / "mine"
    assert extraction.times == 0
