# SPDX-License-Identifier: GPL-2.0-or-later
"""Look at our C files with QEMU's checkpatch and clang's thread-safety analysis.

The analysis proves, from QEMU's annotations, that the graph lock is held where they say so. It
needs no build of its own: clang reads each file with the flags of QEMU's build.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from batchflush import paths, progress

# Of the suffix that Debian 12 and 13 have; older ones do not see a lock that its scope releases.
CLANG = "clang-19"
# In Linux' form, and programs that do without QEMU.
NOT_QEMU = ("lab/", "python/")

# What of a compiler's flags says what a file means; clang does not know all others of gcc.
_WITH_VALUE = ("-isystem", "-iquote", "-include", "-I")
_KEPT = ("-I", "-D", "-U", "-std=", "-m")


def run_all(tree: Path) -> Iterator[tuple[str, str]]:
    """Each look at a file, and what is wrong with it (nothing: "")."""
    yield from _each("checkpatch", sources(), lambda file: checkpatch(tree, file))
    known = commands()
    files = [file for file in sources() if file in known]
    yield from _each("thread safety", files, lambda file: analyse(known[file]))


def _each(
    what: str, files: Sequence[Path], look: Callable[[Path], str]
) -> Iterator[tuple[str, str]]:
    with progress.step(f"Looking at {len(files)} files: {what}") as step:
        for number, file in enumerate(files):
            name = str(file.relative_to(paths.ROOT))
            step.update(number, len(files), name)
            yield f"{what}: {name}", look(file)


def sources() -> list[Path]:
    """The C files and headers that go into QEMU, or are in its form."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.c", "*.h"],
        cwd=paths.ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [name for name in listed.stdout.split() if not name.startswith(NOT_QEMU)]
    return [paths.ROOT / name for name in names if (paths.ROOT / name).exists()]


def checkpatch(tree: Path, file: Path) -> str:
    """What QEMU's checkpatch says of a file."""
    done = subprocess.run(
        ["perl", tree / "scripts/checkpatch.pl", "--no-tree", "--terse", "--no-summary",
         # Of tests it knows by this name that they may assert.
         "--file", file.relative_to(paths.ROOT)],
        capture_output=True, text=True, cwd=paths.ROOT,
    )  # fmt: skip
    return (done.stdout + done.stderr).strip() if done.returncode else ""


def analyse(command: dict[str, str]) -> str:
    """What clang's thread-safety analysis says of what QEMU's build does with a command."""
    done = subprocess.run(
        [CLANG, "-fsyntax-only", "-Werror", "-Wthread-safety", *meaning(command), command["file"]],
        capture_output=True, text=True, cwd=command["directory"],
    )  # fmt: skip
    return done.stderr.strip() if done.returncode else ""


def meaning(command: dict[str, str]) -> list[str]:
    """The flags of a compiler's command that say what the file means."""
    words = iter(shlex.split(command["command"])[1:])
    kept = []
    for word in words:
        if word in _WITH_VALUE:
            kept += [word, next(words)]
        elif word.startswith(_KEPT):
            kept.append(word)
    return kept


def commands() -> dict[Path, dict[str, str]]:
    """How QEMU's build compiles each file."""
    listed = json.loads((paths.QEMU_BUILD / "compile_commands.json").read_text())
    return {(Path(one["directory"]) / one["file"]).resolve(): one for one in listed}
