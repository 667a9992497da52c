# SPDX-License-Identifier: GPL-2.0-or-later
"""What a crash state is held against. A checker returns findings, a sentence each.

guest     a guest mounts the state, checks it and reads the witness's files: any file system
fsck      ext4's own check, here on the host, after it has replayed the journal
witness   what was acknowledged to the witness before the power cut is there: ext4, on the host
COMMAND   anything: run with the path of the state as its last argument

They run in that order on the same state, so the witness reads what fsck has replayed; the
guest changes only a copy.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from batchflush.crash import overlay, witness
from batchflush.crash.guest_check import GuestCheck
from batchflush.crash.history import Mark
from batchflush.crash.image import Image
from batchflush.crash.loads import FILE_SYSTEMS
from batchflush.errors import UsageError

GUEST, FSCK, WITNESS = "guest", "fsck", "witness"
BUILT_IN = (GUEST, FSCK, WITNESS)

Checker = Callable[[Image, str, Sequence[Mark]], list[str]]

# What e2fsck says of a file system that only has to replay its journal. ext4 does not
# journal the sums of free blocks and inodes in its superblock; they are counted anew when
# it is mounted. A deleted file that was still open is an orphan, which mount deletes, too.
HARMLESS = re.compile(
    r"""$
    | e2fsck\ [\d.]+\ \(
    | \S+:\ recovering\ journal$
    | Pass\ \d
    | Free\ (blocks|inodes)\ count\ wrong\ \(\d+,\ counted=\d+\)\.$
    | [A-Z][^.:]*\?\ yes$                   # the answer to what stands before
    | \S+:\ (Clearing|Truncating)\ orphaned\ inode\ \d+
    | (Clearing|Truncating)\ orphaned\ inode\ \d+
    | (\S+:\ )?\*+\ FILE\ SYSTEM\ WAS\ MODIFIED\ \*+$
    | \S+:\ \d+/\d+\ files\ \(
    """,
    re.VERBOSE,
)
# Bits of e2fsck's exit code beyond "errors corrected".
NOT_CORRECTED = ~3


def find(names: Sequence[str], file_system: str | None) -> list[Checker]:
    """The checkers of these names."""
    found: list[Checker] = []
    for name in sorted(names, key=lambda n: (*BUILT_IN, n).index(n)):
        if name == GUEST and file_system not in FILE_SYSTEMS:
            raise UsageError(
                f"--check={name} needs a log that crash run has recorded; "
                "allowed is --check=COMMAND"
            )
        if name in (FSCK, WITNESS) and file_system != "ext4":
            raise UsageError(
                f"--check={name} needs a log recorded on ext4, this one is of {file_system}; "
                "allowed are --check=guest and --check=COMMAND"
            )
        if name == GUEST:
            assert file_system is not None
            found.append(GuestCheck(file_system))
        elif name == FSCK:
            found.append(e2fsck)
        elif name == WITNESS:
            found.append(witness_of_ext4)
        else:
            found.append(_command(name))
    return found


def e2fsck(image: Image, state: str, marks: Sequence[Mark]) -> list[str]:
    del state, marks
    command = [overlay.program("e2fsck", "e2fsprogs"), "-f", "-y", image.path]
    code, output = overlay.run(image, command)
    if code == overlay.TIMED_OUT:
        return [f"e2fsck did not end within {overlay.LIMIT_SECONDS} s"]
    findings = [line for line in output.splitlines() if not HARMLESS.match(line)]
    if code < 0 or code & NOT_CORRECTED:
        findings.append(f"e2fsck ended with exit code {code}")
    return [f"e2fsck: {line.replace(str(image.path), 'state')}" for line in findings]


def witness_of_ext4(image: Image, state: str, marks: Sequence[Mark]) -> list[str]:
    del state
    owed = witness.promises(marks)
    if not owed:
        return []
    folder = Path(tempfile.mkdtemp(prefix="batchflush-files-"))
    try:
        request = f"rdump /{witness.DIRECTORY} {folder}"
        overlay.run(image, [overlay.program("debugfs", "e2fsprogs"), "-R", request, image.path])
        files = folder / witness.DIRECTORY
        there = witness.read_directory(files) if files.is_dir() else {}
        return witness.broken(owed, {name: witness.held(name, there[name]) for name in there})
    finally:
        shutil.rmtree(folder)


def _command(text: str) -> Checker:
    words = shlex.split(text)
    if not words or shutil.which(words[0], path=overlay.PLACES) is None:
        raise UsageError(f"--check={text} is neither a command nor one of {', '.join(BUILT_IN)}")

    def check(image: Image, state: str, marks: Sequence[Mark]) -> list[str]:
        with tempfile.NamedTemporaryFile("w", prefix="batchflush-marks-") as told:
            told.writelines(f"{mark.text}\n" for mark in marks)
            told.flush()
            variables = {"BATCHFLUSH_STATE": state, "BATCHFLUSH_MARKS": told.name}
            code, output = overlay.run(image, [*words, image.path], variables)
        if code == 0:
            return []
        lines = output.strip().splitlines()
        said = f": {lines[-1]}" if lines else ""
        if code == overlay.TIMED_OUT:
            return [f"{words[0]} did not end within {overlay.LIMIT_SECONDS} s"]
        return [f"{words[0]} ended with exit code {code}{said}"]

    return check
