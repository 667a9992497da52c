# SPDX-License-Identifier: GPL-2.0-or-later
"""Graft the project into a foreign source tree: insert lines, link folders; verify; undo.

What belongs where stands in a table (graft/qemu.toml, graft/linux.toml). What was done to a tree
is recorded in the tree, so that it can be verified and undone exactly, also
after the table has changed. A tree is changed only if everything fits.
"""

import argparse
import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from batchflush import paths
from batchflush.errors import BatchflushError

NAME = "graft"
HELP = "apply, verify or undo batchflush's insertions in a source tree of QEMU or Linux"

RECORD = ".batchflush-graft.json"
# Every insertion names it, in whichever case, and no file of the tree does without an insertion.
MARK = "batchflush"

Version = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Insertion:
    """Lines that stand next to the only place where an anchor occurs in a file."""

    file: str
    anchor: str
    position: str
    lines: str

    def apply(self, text: str) -> str:
        where = self._where(text)
        if self._stands_at(text, where):
            return text
        return text[:where] + self.lines + text[where:]

    def undo(self, text: str) -> str:
        """The text without the lines, if they stand there."""
        if not self.stands(text):
            return text
        where = self._where(text)
        if self.position == "before":
            return text[: where - len(self.lines)] + text[where:]
        return text[:where] + text[where + len(self.lines) :]

    def stands(self, text: str) -> bool:
        return text.count(self.anchor) == 1 and self._stands_at(text, self._where(text))

    def _where(self, text: str) -> int:
        """The beginning of the line before or after which the lines belong."""
        count = text.count(self.anchor)
        if count != 1:
            found = "is missing" if count == 0 else f"occurs {count} times instead of once"
            raise BatchflushError(
                f"{self.file}: the anchor {self.anchor.strip()!r} {found}",
                "this version differs from those that the table in graft/ was made for",
            )
        first = text.index(self.anchor)
        if self.position == "before":
            return text.rfind("\n", 0, first) + 1
        last = first + len(self.anchor) - 1
        return text.index("\n", last) + 1

    def _stands_at(self, text: str, where: int) -> bool:
        if self.position == "before":
            return text.endswith(self.lines, 0, where)
        return text.startswith(self.lines, where)


@dataclasses.dataclass(frozen=True)
class Link:
    """A new name in the tree that points into the project."""

    at: str
    to: str

    def target(self, tree: Path) -> Path:
        project = paths.ROOT / self.to
        # A tree inside the project moves together with it.
        if tree.is_relative_to(paths.ROOT):
            return Path(os.path.relpath(project, (tree / self.at).parent))
        return project

    def stands(self, tree: Path) -> bool:
        at = tree / self.at
        return at.is_symlink() and at.readlink() == self.target(tree)


@dataclasses.dataclass(frozen=True)
class Graft:
    """All that is put into one tree."""

    insertions: tuple[Insertion, ...] = ()
    links: tuple[Link, ...] = ()

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Graft":
        kept = json.loads(text)
        return cls(
            tuple(Insertion(**insertion) for insertion in kept["insertions"]),
            tuple(Link(**link) for link in kept["links"]),
        )


# The three things that can be done to a tree


def apply(tree: Path, table: Path = paths.GRAFT_QEMU) -> Graft:
    """Put the graft into the tree, in place of an older one; harmless if it is there."""
    wanted = load(table, tree)
    old = recorded(tree)
    before = _texts(tree, (*wanted.insertions, *old.insertions))
    texts = _without(before, (*old.insertions, *wanted.insertions))
    for insertion in wanted.insertions:
        texts[insertion.file] = insertion.apply(texts[insertion.file])
    for link in wanted.links:
        _may_link(tree, link)
    if old != wanted:
        _unlink(tree, old.links)
    # The record comes first: what is interrupted can still be undone.
    _write_if_changed(tree / RECORD, wanted.to_json())
    _write_changes(tree, before, texts)
    for link in wanted.links:
        if not link.stands(tree):
            (tree / link.at).unlink(missing_ok=True)
            (tree / link.at).symlink_to(link.target(tree))
    return wanted


def check(tree: Path, table: Path = paths.GRAFT_QEMU) -> list[str]:
    """What is not as the table says, one sentence each; an empty list means all is well."""
    wanted = load(table, tree)
    texts = _texts(tree, wanted.insertions)
    problems = [
        f"{insertion.file}: the lines at the anchor {insertion.anchor.strip()!r} are not there"
        for insertion in wanted.insertions
        if not insertion.stands(texts[insertion.file])
    ]
    problems += [
        f"{link.at}: does not point to {link.to}" for link in wanted.links if not link.stands(tree)
    ]
    return problems


def undo(tree: Path) -> Graft:
    """Take out of the tree what was put into it."""
    old = recorded(tree)
    before = _texts(tree, old.insertions)
    texts = _without(before, old.insertions)
    _write_changes(tree, before, texts)
    _unlink(tree, old.links)
    (tree / RECORD).unlink(missing_ok=True)
    return old


def recorded(tree: Path) -> Graft:
    """What was put into the tree so far."""
    record = tree / RECORD
    return Graft.from_json(record.read_text()) if record.exists() else Graft()


# The table


def load(table: Path, tree: Path) -> Graft:
    """The part of the table that is for the tree's version."""
    content = tomllib.loads(table.read_text())
    version = tree_version(content["tree"], tree)
    return Graft(
        tuple(Insertion(**_checked(entry)) for entry in _fitting(content["insert"], version)),
        tuple(Link(**entry) for entry in _fitting(content["link"], version)),
    )


def tree_version(described: dict[str, str], tree: Path) -> Version:
    name = described["name"]
    file = tree / described["version-file"]
    if not file.is_file():
        raise BatchflushError(f"{tree} is no {name} source tree: it has no {file.name}")
    text = file.read_text()
    pattern = described.get("version-pattern")
    if pattern is not None:
        # The parts of the version are the groups of the pattern.
        match = re.search(pattern, text)
        if match is None:
            raise BatchflushError(f"{file} does not tell a version of {name}")
        text = ".".join(match.groups())
    version = _version(text)
    lowest, highest = described["min-version"], described.get("max-version")
    text = text.strip()
    if highest is not None and version > _version(highest):
        raise BatchflushError(f"{tree} holds {name} {text}, but its graft ends with {highest}")
    if version < _version(lowest):
        raise BatchflushError(f"{tree} holds {name} {text}, but batchflush needs {lowest} or newer")
    return version


def _version(text: str) -> Version:
    try:
        major, minor = text.strip().split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise BatchflushError(f"{text.strip()!r} is no version number") from None


def _fitting(entries: Iterable[dict[str, Any]], version: Version) -> Iterator[dict[str, Any]]:
    for entry in entries:
        rest = dict(entry)
        lowest, highest = rest.pop("min-version", "0.0"), rest.pop("max-version", "999.0")
        if _version(lowest) <= version <= _version(highest):
            yield rest


def _checked(entry: dict[str, str]) -> dict[str, str]:
    anchor, lines, position = entry["anchor"], entry["lines"], entry["position"]
    if position not in ("before", "after"):
        raise BatchflushError(f"graft: position {position!r} is neither 'before' nor 'after'")
    if not anchor.strip() or anchor in lines or MARK not in lines.lower() or lines[-1] != "\n":
        raise BatchflushError(f"graft: the entry with the anchor {anchor!r} makes no sense")
    return entry


# The tree


def _texts(tree: Path, insertions: Iterable[Insertion]) -> dict[str, str]:
    texts = {}
    for name in {insertion.file for insertion in insertions}:
        try:
            texts[name] = (tree / name).read_text()
        except OSError as error:
            raise BatchflushError(f"cannot read {tree / name}: {error.strerror}") from error
    return texts


def _without(texts: dict[str, str], insertions: Iterable[Insertion]) -> dict[str, str]:
    """The files without insertions; stops where one has been changed by hand."""
    texts = dict(texts)
    for insertion in insertions:
        texts[insertion.file] = insertion.undo(texts[insertion.file])
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if MARK in line.lower():
                raise BatchflushError(
                    f"{name}: these are not the lines that batchflush inserted: {line.strip()!r}",
                    f"restore the original of {name} (it is near line {number}) and try again",
                )
    return texts


def _write_changes(tree: Path, before: dict[str, str], after: dict[str, str]) -> None:
    for name, text in after.items():
        if text != before[name]:
            (tree / name).write_text(text)


def _write_if_changed(file: Path, text: str) -> None:
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def _may_link(tree: Path, link: Link) -> None:
    at = tree / link.at
    if not (paths.ROOT / link.to).exists():
        raise BatchflushError(f"{link.to}, which {at} shall point to, does not exist")
    if at.exists() and not at.is_symlink():
        raise BatchflushError(f"{at} exists already and is not a link of batchflush")


def _unlink(tree: Path, links: Iterable[Link]) -> None:
    for link in links:
        if (tree / link.at).is_symlink():
            (tree / link.at).unlink()


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "tree", metavar="DIR", type=Path, nargs="?", default=paths.QEMU_SOURCE,
        help="source tree (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--table", metavar="FILE", type=Path, default=paths.GRAFT_QEMU,
        help="what goes where (default: %(default)s)",
    )  # fmt: skip
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="verify, change nothing")
    action.add_argument("--undo", action="store_true", help="restore the tree as it was")


def run(args: argparse.Namespace) -> int:
    tree = args.tree.resolve()
    if args.check:
        problems = check(tree, args.table)
        if problems:
            listed = "".join(f"\n    {problem}" for problem in problems)
            raise BatchflushError(
                f"the graft in {paths.shown(tree)} is not complete:{listed}",
                f"./batchflush graft {paths.shown(tree)} completes it",
            )
        print(f"the graft in {paths.shown(tree)} is complete")
        return 0
    done = undo(tree) if args.undo else apply(tree, args.table)
    what = "taken out of" if args.undo else "in"
    print(
        f"{len(done.insertions)} insertions and {len(done.links)} links are "
        f"{what} {paths.shown(tree)}"
    )
    return 0
