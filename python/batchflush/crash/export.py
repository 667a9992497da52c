# SPDX-License-Identifier: GPL-2.0-or-later
"""A write log as Linux's dm-log-writes would have written it, for replay-log and its like.

The format, from the kernel's Documentation/admin-guide/device-mapper/log-writes.rst and
drivers/md/dm-log-writes.c: a superblock and then entries, each in a sector of its own,
followed by the data of a write. All numbers are little endian.

The order: a write that completed is logged once a flush that was issued after its completion
has completed, just before that flush; a FUA write when it completes. What was completed and
never flushed comes last, as when the device is removed. Marks stand where they were issued.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from batchflush.crash import log as log_module
from batchflush.crash.history import MARK, MARK_BYTES
from batchflush.crash.log import SECTOR, Log, Record
from batchflush.errors import BatchflushError, UsageError

MAGIC = 0x6A736677736872
VERSION = 1
FLUSH, FUA, DISCARD, MARKED = 1, 2, 4, 8
# The most that one entry writes of zeroes, which we log without data.
ZEROES = 1 << 20

_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")


@dataclass(frozen=True)
class Entry:
    """sector and count in sectors. text: of a mark."""

    sector: int
    count: int
    flags: int
    data: bytes = b""
    text: bytes = b""


def dm_log_writes(log: Log, path: Path) -> int:
    """Write the log into a new file; returns the number of entries."""
    if path.exists():
        raise UsageError(f"--dm-log-writes={path} exists; allowed is a file that does not")
    try:
        with path.open("wb") as stream:
            return _write(stream, entries(log))
    except OSError as error:
        raise BatchflushError(f"{path} cannot be written: {error.strerror}") from error


def _write(stream: IO[bytes], wanted: Iterator[Entry]) -> int:
    stream.seek(SECTOR)
    count = 0
    for entry in wanted:
        head = _ENTRY.pack(entry.sector, entry.count, entry.flags, len(entry.text))
        stream.write((head + entry.text).ljust(SECTOR, b"\0"))
        stream.write(entry.data)
        count += 1
    stream.seek(0)
    stream.write(_SUPER.pack(MAGIC, VERSION, count, SECTOR).ljust(SECTOR, b"\0"))
    return count


def entries(log: Log) -> Iterator[Entry]:
    """The log's entries in dm-log-writes' order."""
    issued: dict[int, Record] = {}
    completed: list[Record] = []
    logged = 0
    covered: dict[int, int] = {}
    for record in log.records():
        if record.kind == log_module.FLUSH:
            covered[record.position] = logged + len(completed)
        elif record.kind in (log_module.WRITE, log_module.ZERO, log_module.DISCARD):
            mark = _mark(log, record)
            if mark:
                yield mark
            else:
                issued[record.position] = record
        elif record.kind == log_module.DONE and record.length == 0:
            if record.offset in covered:
                ready = max(0, covered.pop(record.offset) - logged)
                for write in completed[:ready]:
                    yield from _entries(log, write)
                del completed[:ready]
                logged += ready
                yield Entry(0, 0, FLUSH)
            elif record.offset in issued:
                write = issued.pop(record.offset)
                if write.flags & log_module.FUA:
                    yield from _entries(log, write)
                else:
                    completed.append(write)
    for write in completed:
        yield from _entries(log, write)


def _mark(log: Log, record: Record) -> Entry | None:
    data = log.data(record) if record.data_length == MARK_BYTES else b""
    if not data.startswith(MARK):
        return None
    text = data.rstrip(b"\0")[len(MARK) :][: SECTOR - _ENTRY.size]
    return Entry(0, 0, MARKED, text=text)


def _entries(log: Log, write: Record) -> Iterator[Entry]:
    flags = FUA if write.flags & log_module.FUA else 0
    sector, count = write.offset // SECTOR, write.length // SECTOR
    if write.kind == log_module.WRITE:
        yield Entry(sector, count, flags, log.data(write))
    elif write.kind == log_module.DISCARD:
        yield Entry(sector, count, flags | DISCARD)
    else:
        for start in range(0, count, ZEROES // SECTOR):
            part = min(ZEROES // SECTOR, count - start)
            yield Entry(sector + start, part, flags, bytes(part * SECTOR))
