# SPDX-License-Identifier: GPL-2.0-or-later
import shutil
from pathlib import Path

import pytest

from batchflush import graft, paths
from batchflush.errors import BatchflushError

TABLE = """
[tree]
name = "QEMU"
version-file = "VERSION"
min-version = "10.0"

[[link]]
at = "block/batchflush"
to = "driver"

[[insert]]
file = "block/meson.build"
anchor = "('export')"
position = "before"
lines = '''
subdir('batchflush')
'''

[[insert]]
file = "list"
anchor = \"\"\"
  'b',
  'c',
\"\"\"
position = "after"
lines = '''
  'batchflush',
'''

[[insert]]
file = "list"
min-version = "10.1"
anchor = "  'new',"
position = "after"
lines = '''
  'batchflush-new',
'''
"""
LIST = "  'a',\n  'b',\n  'c',\n  'd',\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    (root / "driver").mkdir(parents=True)
    (root / "table.toml").write_text(TABLE)
    monkeypatch.setattr(paths, "ROOT", root)
    return root


@pytest.fixture
def table(project: Path) -> Path:
    return project / "table.toml"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "qemu"
    (tree / "block").mkdir(parents=True)
    (tree / "VERSION").write_text("10.0.13\n")
    (tree / "block/meson.build").write_text("first\nsubdir('export')\nlast\n")
    (tree / "list").write_text(LIST)
    return tree


def contents(tree: Path) -> dict[str, str]:
    return {
        str(file.relative_to(tree)): str(file.readlink()) if file.is_symlink() else file.read_text()
        for file in tree.rglob("*")
        if file.is_symlink() or file.is_file()
    }


def test_lines_stand_before_and_after_their_anchors(tree: Path, table: Path) -> None:
    graft.apply(tree, table)
    assert (tree / "block/meson.build").read_text() == (
        "first\nsubdir('batchflush')\nsubdir('export')\nlast\n"
    )
    assert (tree / "list").read_text() == "  'a',\n  'b',\n  'c',\n  'batchflush',\n  'd',\n"
    assert graft.check(tree, table) == []


def test_applying_twice_changes_nothing_more(tree: Path, table: Path) -> None:
    graft.apply(tree, table)
    once = contents(tree)
    written = (tree / "list").stat().st_mtime_ns
    graft.apply(tree, table)
    assert contents(tree) == once
    # A file written again would be compiled again.
    assert (tree / "list").stat().st_mtime_ns == written


def test_undo_restores_every_byte(tree: Path, table: Path) -> None:
    before = contents(tree)
    graft.apply(tree, table)
    assert contents(tree) != before
    graft.undo(tree)
    assert contents(tree) == before


def test_undo_of_a_tree_without_graft_changes_nothing(tree: Path) -> None:
    before = contents(tree)
    graft.undo(tree)
    assert contents(tree) == before


@pytest.mark.parametrize(("text", "found"), [("nothing\n", "missing"), (LIST * 2, "2 times")])
def test_an_anchor_that_does_not_fit_is_named_and_nothing_is_changed(
    tree: Path, table: Path, text: str, found: str
) -> None:
    (tree / "list").write_text(text)
    before = contents(tree)
    with pytest.raises(BatchflushError) as caught:
        graft.apply(tree, table)
    assert "list" in caught.value.message
    assert "'b'," in caught.value.message
    assert found in caught.value.message
    assert contents(tree) == before


def test_check_names_what_is_not_there(tree: Path, table: Path) -> None:
    graft.apply(tree, table)
    (tree / "list").write_text(LIST)
    (tree / "block/batchflush").unlink()
    problems = graft.check(tree, table)
    assert len(problems) == 2
    assert "list" in problems[0]
    assert "block/batchflush" in problems[1]


def test_a_changed_table_replaces_the_old_graft(tree: Path, table: Path) -> None:
    before = contents(tree)
    graft.apply(tree, table)
    table.write_text(TABLE.replace("'batchflush',", "'batchflush-renamed',"))
    graft.apply(tree, table)
    assert (tree / "list").read_text() == LIST.replace("  'd',", "  'batchflush-renamed',\n  'd',")
    graft.undo(tree)
    assert contents(tree) == before


def test_an_insertion_edited_by_hand_is_not_doubled(tree: Path, table: Path) -> None:
    graft.apply(tree, table)
    edited = (tree / "list").read_text().replace("  'batchflush',", "  'batchflush', # mine")
    (tree / "list").write_text(edited)
    with pytest.raises(BatchflushError, match="# mine"):
        graft.apply(tree, table)
    assert (tree / "list").read_text() == edited


def test_a_file_restored_by_hand_is_grafted_again(tree: Path, table: Path) -> None:
    graft.apply(tree, table)
    wanted = contents(tree)
    (tree / "list").write_text(LIST)
    graft.apply(tree, table)
    assert contents(tree) == wanted


def test_entries_for_other_versions_are_left_out(tree: Path, table: Path) -> None:
    (tree / "VERSION").write_text("10.1.0\n")
    (tree / "list").write_text(LIST + "  'new',\n")
    graft.apply(tree, table)
    assert (tree / "list").read_text().endswith("  'new',\n  'batchflush-new',\n")


def test_an_old_version_is_refused_in_one_sentence(tree: Path, table: Path) -> None:
    (tree / "VERSION").write_text("9.2.4\n")
    with pytest.raises(BatchflushError) as caught:
        graft.apply(tree, table)
    assert "QEMU 9.2.4" in caught.value.message
    assert "10.0 or newer" in caught.value.message


def test_another_folder_is_no_source_tree(tmp_path: Path, table: Path) -> None:
    with pytest.raises(BatchflushError, match="no QEMU source tree"):
        graft.apply(tmp_path, table)


def test_a_link_reaches_the_project(tree: Path, table: Path, project: Path) -> None:
    graft.apply(tree, table)
    assert (tree / "block/batchflush").resolve() == (project / "driver").resolve()


def test_a_link_to_nothing_is_refused(tree: Path, table: Path, project: Path) -> None:
    (project / "driver").rmdir()
    with pytest.raises(BatchflushError, match="driver"):
        graft.apply(tree, table)
    assert (tree / "list").read_text() == LIST


def test_a_tree_inside_the_project_moves_with_it(tree: Path, table: Path, project: Path) -> None:
    inside = project / "build/qemu"
    shutil.copytree(tree, inside)
    graft.apply(inside, table)
    moved = project.with_name("moved")
    project.rename(moved)
    assert (moved / "build/qemu/block/batchflush").resolve() == (moved / "driver").resolve()


def test_a_file_in_the_way_of_a_link_is_not_overwritten(tree: Path, table: Path) -> None:
    (tree / "block/batchflush").write_text("somebody's own")
    with pytest.raises(BatchflushError, match="exists already"):
        graft.apply(tree, table)
    assert (tree / "block/batchflush").read_text() == "somebody's own"
    assert (tree / "list").read_text() == LIST


def test_an_insertion_that_could_not_be_found_again_is_refused(tree: Path, table: Path) -> None:
    table.write_text(TABLE.replace("'batchflush',", "'unnamed',"))
    with pytest.raises(BatchflushError, match="makes no sense"):
        graft.apply(tree, table)


def test_the_table_for_qemu_links_what_the_project_has(tree: Path) -> None:
    root = Path(graft.__file__).resolve().parents[2]
    described = graft.load(root / "graft/qemu.toml", tree)
    assert described.insertions
    for link in described.links:
        assert (root / link.to).exists(), link.to


LINUX_TREE = """
[tree]
name = "Linux"
version-file = "VERSION"
version-pattern = 'VERSION = (\\d+)\\nPATCHLEVEL = (\\d+)\\n'
min-version = "6.1"
max-version = "6.1"
"""


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 176\n", ""),
        ("VERSION = 6\nPATCHLEVEL = 0\nSUBLEVEL = 1\n", "Linux 6.0, but batchflush needs 6.1"),
        ("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n", "Linux 6.12, but its graft ends with 6.1"),
        ("6.1.176\n", "does not tell a version"),
    ],
)
def test_a_version_is_read_by_a_pattern(tree: Path, table: Path, version: str, found: str) -> None:
    table.write_text(LINUX_TREE + TABLE[TABLE.index("[[link]]") :])
    (tree / "VERSION").write_text(version)
    if not found:
        graft.apply(tree, table)
        return
    with pytest.raises(BatchflushError) as caught:
        graft.apply(tree, table)
    assert found in caught.value.message


def test_every_entry_for_linux_makes_sense_and_links_what_the_project_has(tmp_path: Path) -> None:
    root = Path(graft.__file__).resolve().parents[2]
    (tmp_path / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 1\n")
    described = graft.load(root / "graft/linux.toml", tmp_path)
    assert described.insertions
    for link in described.links:
        assert (root / link.to).exists(), link.to
