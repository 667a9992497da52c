# SPDX-License-Identifier: GPL-2.0-or-later
"""What a file system owes to those who synced: the witness's marks, held against its files.

witness.c explains the marks. Whatever it acknowledged before a power cut has to be there
after it; what it had begun and not acknowledged may be there or not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchflush.crash.history import Mark

DIRECTORY = "witness"
RECORD_BYTES = 1000
REPLACED_BYTES = {"replace": 6000, "small": 3000}
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Promise:
    """verb "append" with a number of records, "replace" with a version, or "gone"."""

    verb: str
    number: int = 0


def promises(marks: Sequence[Mark]) -> dict[str, Promise]:
    """What is owed after these marks, by name of the file."""
    owed: dict[str, Promise] = {}
    for mark in marks:
        match = re.fullmatch(r"(append|replace|drop|gone) (\S+)(?: (\d+))?", mark.text)
        if not match:
            continue
        verb, name, number = match.groups()
        if verb == "drop":
            owed.pop(name, None)
        else:
            owed[name] = Promise(verb, int(number or 0))
    return owed


@functools.lru_cache(maxsize=20_000)
def content(size: int, name: str, version: int) -> bytes:
    """The bytes of a version of a file, or of a record of it, as witness.c makes them."""
    x = 0xCBF29CE484222325
    for byte in name.encode():
        x = (x ^ byte) * 0x100000001B3 & _MASK
    x ^= version * 0x9E3779B97F4A7C15 & _MASK
    words = bytearray()
    for _ in range(-(-size // 8)):
        x = (x * 6364136223846793005 + 1442695040888963407) & _MASK
        words += x.to_bytes(8, "little")
    head = f"{name} {version}\n".encode()
    return (head + words[len(head) :])[:size]


@dataclass(frozen=True)
class Held:
    """What a file holds: good records from its beginning on; a version, if it is a whole one."""

    records: int
    version: int | None


def held(name: str, data: bytes) -> Held:
    """The same that `witness tell` says of a file."""
    records = 0
    while data[records * RECORD_BYTES :].startswith(content(RECORD_BYTES, name, records)):
        records += 1
    size = REPLACED_BYTES.get(name.split(".")[0], 0)
    head = re.match(rb"\S+ (\d{1,9})\n", data)
    whole = head and data == content(size, name, int(head[1]))
    return Held(records, int(head[1]) if head and whole else None)


def broken(owed: Mapping[str, Promise], files: Mapping[str, Held]) -> list[str]:
    """The promises that the files do not keep, a sentence each."""
    found = (_broken(name, promise, files.get(name)) for name, promise in owed.items())
    return [sentence for sentence in found if sentence]


def _broken(name: str, promise: Promise, file: Held | None) -> str:
    if promise.verb == "gone":
        return f"{name} is there again, deleted and synced before" if file else ""
    if file is None:
        return f"{name} is not there, synced before"
    if promise.verb == "append":
        if file.records < promise.number:
            return f"{name} has {file.records} good records of {promise.number} that were synced"
    elif file.version is None:
        return f"{name} is not whole, version {promise.number} having been synced"
    elif file.version < promise.number:
        return f"{name} has version {file.version}, version {promise.number} was synced"
    return ""


def read_directory(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
