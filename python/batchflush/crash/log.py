# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading a write log; docs/specs/batchflush-log.rst describes the format.

A log whose QEMU was killed, or that was damaged, is read up to its last good record: what
was logged before is as true as ever. Only a file whose beginning makes no sense is refused.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batchflush.errors import BatchflushError

SECTOR = 512
MAGIC = b"batchflush log\r\n"
VERSION = 1
HEADER_BYTES = 512
ALIGN = 64

WRITE, ZERO, DISCARD, FLUSH, DONE, INDEX, END = range(1, 8)
FUA = 1
NONE, VOLATILE, BATTERY = range(3)

_HEADER = struct.Struct("<16sIIQII")
_INDEX_PLACE = struct.Struct("<QI")
_RECORD = struct.Struct("<4sHHQQQQIIQII")
_INDEX_ENTRY = struct.Struct("<QQ")
_RECORD_MAGIC = b"BFLR"


@dataclass(frozen=True, slots=True)
class Record:
    """One record; offset and length in bytes, but see the format for DONE, INDEX and END.

    place: where it is in the file; its data follows it.
    """

    kind: int
    flags: int
    position: int
    time_ns: int
    offset: int
    length: int
    data_length: int
    flush: int
    place: int

    @property
    def data_place(self) -> int:
        return self.place + _RECORD.size

    @property
    def next_place(self) -> int:
        return self.data_place + -(-self.data_length // ALIGN) * ALIGN


@dataclass(frozen=True)
class Flush:
    """Where a flush was issued: position in the order, place in the file."""

    position: int
    place: int


class Log:
    """An open log. The file may still grow; what it holds by now is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as stream:
                self.size = path.stat().st_size
                self.bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise BatchflushError(f"{path} is empty, so it is no write log") from error
        except OSError as error:
            raise BatchflushError(f"{path} cannot be read: {error.strerror}") from error
        self._read_header()

    def _read_header(self) -> None:
        if self.size < HEADER_BYTES or self.bytes[: len(MAGIC)] != MAGIC:
            raise BatchflushError(f"{self.path} is no write log", "a node with log=FILE writes one")
        _, version, sector, self.disk_size, self.write_cache, crc = _HEADER.unpack_from(self.bytes)
        if zlib.crc32(self.bytes[: _HEADER.size - 4]) != crc:
            raise BatchflushError(f"{self.path} is damaged in its header")
        if (version, sector) != (VERSION, SECTOR):
            raise BatchflushError(
                f"{self.path} is of version {version} with sectors of {sector} bytes; "
                f"known is version {VERSION} with {SECTOR}"
            )

    def record(self, place: int) -> Record | None:
        """The record at a place, None if there is no good one."""
        if place < HEADER_BYTES or place + _RECORD.size > self.size:
            return None
        raw = self.bytes[place : place + _RECORD.size]
        fields = _RECORD.unpack(raw)
        magic, kind, flags, position, time_ns, offset, length, data_length = fields[:8]
        if magic != _RECORD_MAGIC or zlib.crc32(raw[:-4]) != fields[11]:
            return None
        record = Record(
            kind, flags, position, time_ns, offset, length, data_length, fields[9], place
        )
        if record.next_place > self.size or zlib.crc32(self.data(record)) != fields[8]:
            return None
        return record

    def data(self, record: Record) -> bytes:
        return self.bytes[record.data_place : record.data_place + record.data_length]

    def records(self, place: int = HEADER_BYTES) -> Iterator[Record]:
        """All good records from a place on, until the first that is not."""
        while record := self.record(place):
            yield record
            place = record.next_place

    def closed(self) -> bool:
        """Whether its node was closed; else QEMU runs, was killed, or could not write."""
        end = self.record(self.size - _RECORD.size)
        return end is not None and end.kind == END

    def flush(self, number: int) -> Flush | None:
        """The flush of this number, from 0 on: found by the index, without reading the log.

        What has no index yet, at most 1024 flushes, is read.
        """
        index = self._last_index()
        if index is None or number >= _beyond(index):
            return self._flush_after(index, number)
        while index.length > number:
            # It stands behind the one that it names: this comes to an end.
            before = self._index(index.offset) if index.offset < index.place else None
            if before is None:
                return self._flush_after(None, number)
            index = before
        if number >= _beyond(index):
            return self._flush_after(None, number)
        first = index.data_place + (number - index.length) * _INDEX_ENTRY.size
        return Flush(*_INDEX_ENTRY.unpack_from(self.bytes, first))

    def _index(self, place: int) -> Record | None:
        record = self.record(place)
        return record if record and record.kind == INDEX else None

    def _last_index(self) -> Record | None:
        place, crc = _INDEX_PLACE.unpack_from(self.bytes, _HEADER.size)
        good = zlib.crc32(self.bytes[_HEADER.size : _HEADER.size + 8]) == crc
        return self._index(place) if good and place else None

    def _flush_after(self, index: Record | None, number: int) -> Flush | None:
        place, count = HEADER_BYTES, 0
        if index:
            place, count = index.next_place, _beyond(index)
        for record in self.records(place):
            if record.kind == FLUSH:
                if count == number:
                    return Flush(record.position, record.place)
                count += 1
        return None


def _beyond(index: Record) -> int:
    """The number of the first flush that an index does not have any more."""
    return index.length + index.data_length // _INDEX_ENTRY.size
