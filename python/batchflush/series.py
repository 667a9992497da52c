# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the project as a patch series against QEMU, and verify it.

graft/series.toml says what goes into which patch; the lines that go into QEMU's own files are
those of graft/qemu.toml. The series holds what is committed, not what is being edited.
"""

import argparse
import dataclasses
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from batchflush import build, configure, graft, paths, processes, progress, source
from batchflush.errors import BatchflushError

NAME = "series"
HELP = "write the project as a patch series for QEMU"

FOLDER = paths.BUILD / "series"
TABLE = "graft/series.toml"
TITLE = "batchflush: emulate write caches and flushes"

# Where QEMU's list of maintainers gets our section.
MAINTAINERS_ANCHOR = "\nblkdebug\n"


@dataclasses.dataclass(frozen=True)
class Patch:
    """One patch: its message, what it inserts, and what it adds (from where, to where)."""

    subject: str
    body: str
    insertions: tuple[graft.Insertion, ...]
    files: tuple[tuple[str, str], ...]


# What goes into which patch


def patches(project: Path, tree: Path) -> list[Patch]:
    """The series; every insertion and every link of the graft is in exactly one patch."""
    table = tomllib.loads((project / TABLE).read_text())["patch"]
    grafted = graft.load(project / "graft/qemu.toml", tree)
    left = list(grafted.insertions)
    added: set[str] = set()
    result = []
    for entry in table:
        insertions = [one for one in left if _wanted(one, entry.get("insert", ()))]
        left = [one for one in left if one not in insertions]
        files = [pair for name in entry.get("add", ()) for pair in _files(project, name)]
        files = [(come, go) for come, go in files if go not in added]
        added |= {go for _, go in files}
        edits = [graft.Insertion(**edit) for edit in entry.get("edit", ())]
        result.append(
            Patch(
                entry["subject"], entry["body"].strip(), (*insertions, *edits), tuple(sorted(files))
            )
        )
    _nothing_is_left(left, grafted.links, added, project)
    return result


def _wanted(insertion: graft.Insertion, names: Sequence[str]) -> bool:
    for name in names:
        file, _, text = name.partition("#")
        if insertion.file == file and text in insertion.lines:
            return True
    return False


def _files(project: Path, name: str) -> Iterator[tuple[str, str]]:
    come, _, go = name.partition(" -> ")
    path = project / come
    if not path.exists():
        raise BatchflushError(f"{TABLE}: there is no {come}")
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            plain = str(file.relative_to(project))
            yield plain, plain.replace(come, go or come, 1)


def _nothing_is_left(
    insertions: Sequence[graft.Insertion],
    links: Sequence[graft.Link],
    added: set[str],
    project: Path,
) -> None:
    for insertion in insertions:
        raise BatchflushError(
            f"{TABLE}: the insertion into {insertion.file} at {insertion.anchor.strip()!r} "
            "is in no patch"
        )
    for link in links:
        for plain, _ in _files(project, link.to):
            if plain not in added:
                raise BatchflushError(f"{TABLE}: {plain} is in no patch")


# Writing the series


def write(output: Path) -> list[Path]:
    """Make the patches of what is committed; returns their files."""
    tree = source.prepare(configure.own_tree())
    shutil.rmtree(FOLDER, ignore_errors=True)
    project, repository = FOLDER / "project", FOLDER / "repository"
    _export(project)
    series = patches(project, tree)
    with progress.step("Writing the series") as step:
        _base(repository, tree, series)
        section: list[str] = []
        for number, patch in enumerate(series):
            step.update(number, len(series), patch.subject)
            section += _patterns(patch)
            _commit(repository, project, patch, _maintainers(section))
        _empty(output)
        _git(
            repository, "format-patch", "--quiet", "--signoff", "--no-signature",
            "--cover-letter", "-o", str(output.resolve()), "base..",
        )  # fmt: skip
    files = sorted(output.glob("*.patch"))
    _fill_cover(files[0], configure.tree_version(tree))
    return files[1:]


def _empty(output: Path) -> None:
    """Make room for the patches; only an older series is removed."""
    output.mkdir(parents=True, exist_ok=True)
    for file in output.iterdir():
        if file.suffix != ".patch":
            raise BatchflushError(f"--output={output} holds {file.name}, which is no patch")
        file.unlink()


def _export(project: Path) -> None:
    project.mkdir(parents=True)
    archive = FOLDER / "project.tar"
    _git(paths.ROOT, "archive", "-o", str(archive), "HEAD")
    subprocess.run(["tar", "-xf", archive, "-C", project], check=True)


def _base(repository: Path, tree: Path, series: Sequence[Patch]) -> None:
    """A repository that holds, as they were before the graft, the files that are changed."""
    names = {insertion.file for patch in series for insertion in patch.insertions}
    undone = graft.recorded(tree).insertions
    for name in sorted({*names, "MAINTAINERS"}):
        text = (tree / name).read_text()
        for insertion in undone:
            if insertion.file == name:
                text = insertion.undo(text)
        if name in names and name != "MAINTAINERS" and graft.MARK in text.lower():
            raise BatchflushError(f"{name} is not as it was before the graft", "extract QEMU anew")
        _put(repository / name, text)
    _git(repository, "init", "--quiet", "--initial-branch=master")
    for key in ("user.name", "user.email"):
        _git(repository, "config", key, _identity(key))
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "-m", "base")
    _git(repository, "tag", "base")
    _git(repository, "checkout", "--quiet", "-b", "batchflush")


def _identity(key: str) -> str:
    try:
        return _git(paths.ROOT, "config", key).strip()
    except BatchflushError:
        raise BatchflushError(
            f"git does not know your {key}, which a patch needs",
            f"git config {key} VALUE",
        ) from None


def _commit(repository: Path, project: Path, patch: Patch, section: str) -> None:
    for insertion in patch.insertions:
        file = repository / insertion.file
        file.write_text(insertion.apply(file.read_text()))
    for come, go in patch.files:
        target = repository / go
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project / come, target)
    if section:
        base = _git(repository, "show", "base:MAINTAINERS")
        if base.count(MAINTAINERS_ANCHOR) != 1:
            raise BatchflushError("QEMU's MAINTAINERS has no section blkdebug to stand before")
        _put(
            repository / "MAINTAINERS",
            base.replace(MAINTAINERS_ANCHOR, f"\n{section}{MAINTAINERS_ANCHOR}"),
        )
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "-m", f"{patch.subject}\n\n{patch.body}")


def _patterns(patch: Patch) -> list[str]:
    """What the patch adds, as MAINTAINERS names it: folders, and files outside of them."""
    names = set()
    for _, go in patch.files:
        folder = re.match(r".*?\bbatchflush/(?:model/|store/)?", go)
        names.add(folder[0] if folder else go)
    return sorted(names)


def _maintainers(patterns: Sequence[str]) -> str:
    if not patterns:
        return ""
    people = dict.fromkeys(re.findall(r"^\tM: (.*)|^M: (.*)", _own_maintainers(), re.M))
    people = [next(filter(None, pair)) for pair in people]
    lines = [f"M: {who}" for who in people if "FullName" not in who]
    # The folder of the driver, once it is there, stands for those inside.
    told = dict.fromkeys(patterns)
    lines += ["L: qemu-block@nongnu.org", "S: Maintained"]
    lines += [f"F: {one}" for one in told if not any(one != o and one.startswith(o) for o in told)]
    return "\n".join(["batchflush", *lines, ""])


def _own_maintainers() -> str:
    return (FOLDER / "project/MAINTAINERS").read_text()


def _fill_cover(cover: Path, version: str) -> None:
    text = cover.read_text()
    text = text.replace("*** SUBJECT HERE ***", TITLE)
    text = text.replace(
        "*** BLURB HERE ***",
        "A block driver that emulates storage hardware as people who work on fsync need\n"
        "it: flush latency, write caches, coalescing of flushes and power cuts. The model\n"
        "decides when, the store decides what, the driver is thin.\n\n"
        f"Made for QEMU {version}.",
    )
    cover.write_text(text)


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise BatchflushError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


# Verifying it


def checkpatch(files: Sequence[Path]) -> list[str]:
    """What QEMU's checkpatch says about the patches, one line each."""
    tree = source.prepare(configure.own_tree())
    said = []
    with progress.step("Checking the patches with checkpatch") as step:
        for number, file in enumerate(files):
            step.update(number, len(files), file.name)
            done = subprocess.run(
                ["perl", tree / "scripts/checkpatch.pl", "--terse", "--no-summary", file.resolve()],
                capture_output=True, text=True, cwd=tree,
            )  # fmt: skip
            said += done.stdout.splitlines()
    return said


def verify(files: Sequence[Path]) -> None:
    """Apply the patches one by one to QEMU's source as it came, and build after each."""
    tree = FOLDER / "verify/source"
    shutil.rmtree(tree.parent, ignore_errors=True)
    grafted = source.prepare(configure.own_tree())
    with progress.step("Copying QEMU's source"):
        shutil.copytree(
            grafted, tree, symlinks=True, ignore=shutil.ignore_patterns(".git", "__pycache__")
        )
        # Its links point into the project, from where it was copied.
        graft.undo(tree)
    folder = FOLDER / "verify/build"
    folder.mkdir()
    _configure(tree, folder)
    targets: tuple[Any, ...] = build.PROGRAMS
    for number, file in enumerate(files, 1):
        done = subprocess.run(
            ["git", "apply", "--verbose", file.resolve()],
            cwd=tree, capture_output=True, text=True,
            env={"GIT_CEILING_DIRECTORIES": str(tree.parent), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        if done.returncode != 0:
            raise BatchflushError(f"{file.name} does not apply: {done.stderr.strip()}")
        if all((tree / f"{name}.c").exists() for name in build.QTESTS):
            targets = (*build.PROGRAMS, *build.QTESTS)
        _build(folder, targets, f"Building with patch {number} of {len(files)}")


def _configure(tree: Path, folder: Path) -> None:
    with progress.step("Configuring QEMU") as step:
        processes.run_logged(
            [tree / "configure", f"--python={paths.VENV_PYTHON}", *configure.QEMU_ARGUMENTS],
            FOLDER / "configure.log",
            "configuring QEMU",
            on_line=step.say,
            cwd=folder,
        )


def _build(folder: Path, targets: Sequence[str], title: str) -> None:
    with progress.step(title) as step:

        def show(line: str) -> None:
            match = re.match(r"\[(\d+)/(\d+)\] (.*)", line)
            if match:
                step.update(int(match[1]), int(match[2]), match[3].split("/")[-1])

        processes.run_logged(
            ["ninja", "-C", folder, *targets],
            FOLDER / "build.log",
            title[0].lower() + title[1:],
            on_line=show,
        )


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output", metavar="DIR", type=Path, default=FOLDER / "patches",
        help="where the patches go; what is there is replaced (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--verify", action="store_true",
        help="apply them to QEMU's source as it came, and build after each: takes long",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    files = write(args.output)
    said = checkpatch(files)
    for line in said:
        print(line)
    if args.verify:
        verify(files)
    print(f"{len(files)} patches in {paths.shown(args.output.resolve())}; checkpatch: {len(said)}")
    return 1 if said else 0
