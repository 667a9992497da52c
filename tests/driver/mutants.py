# SPDX-License-Identifier: GPL-2.0-or-later
"""Drivers with a mistake, for testing the tests: a line of the source is another one.

A mutant is a storage daemon of its own. The source and the programs that are built from it stay
as they are.
"""

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from batchflush import paths

DAEMON = "storage-daemon/qemu-storage-daemon"


@dataclass(frozen=True)
class Mutant:
    """A file of the driver in which one text, which occurs once, is replaced."""

    name: str
    file: str
    text: str
    replacement: str

    def build(self, folder: Path) -> Path:
        """A storage daemon with the mistake."""
        source = paths.ROOT / "block/batchflush" / self.file
        right = source.read_text()
        assert right.count(self.text) == 1, f"{self.name}: {self.file} has changed"
        wrong = folder / self.file
        wrong.write_text(right.replace(self.text, self.replacement))
        mutated, daemon = folder / "mutant.o", folder / "daemon"
        compiler, its_object = _compiler(source)
        _run([*compiler, "-iquote", source.parent, "-o", mutated, "-c", wrong])
        link = [str(mutated) if part == its_object else part for part in _linker()]
        assert str(mutated) in link
        link[link.index("-o") + 1] = str(daemon)
        _run(link)
        return daemon


def _compiler(source: Path) -> tuple[list[str], str]:
    """The command that compiles a file, without file and target, and the object it makes."""
    for entry in json.loads((paths.QEMU_BUILD / "compile_commands.json").read_text()):
        if (paths.QEMU_BUILD / entry["file"]).resolve() == source.resolve():
            command = shlex.split(entry["command"])
            break
    else:
        raise AssertionError(f"QEMU's build does not know {source}")
    for option in ("-o", "-MF", "-MQ", "-c"):
        at = command.index(option)
        argument = command[at + 1]
        del command[at : at + 2]
        if option == "-o":
            target = argument
    command.remove("-MD")
    return command, target


def _linker() -> list[str]:
    command = ["ninja", "-C", paths.QEMU_BUILD, "-t", "commands", DAEMON]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return shlex.split(done.stdout.splitlines()[-1])


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, cwd=paths.QEMU_BUILD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


FORGETFUL_FLUSH = Mutant(
    "a flush forgets a range",
    "destage.c",
    "        if (ret == 0) {\n            ret = bdrv_co_pwrite(",
    "        if (ret == 0 && offset / 4096 % 8 != 3) {\n            ret = bdrv_co_pwrite(",
)
CACHED_FUA = Mutant(
    "FUA that is not",
    "io.c",
    "return !(flags & BDRV_REQ_FUA) ||",
    "return true ||",
)
FORGIVING_CUT = Mutant(
    "a flush in flight at a cut succeeds",
    "flush.c",
    "        part->ret = -EIO;\n",
    "        part->ret = 0;\n",
)
ALL = (FORGETFUL_FLUSH, CACHED_FUA, FORGIVING_CUT)
