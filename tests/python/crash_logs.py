# SPDX-License-Identifier: GPL-2.0-or-later
"""Write logs made by hand, and what a power cut may leave of them, worked out naively."""

import itertools
import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
WRITE, ZERO, DISCARD, FLUSH, DONE, INDEX, END = range(1, 8)
FUA = 1
VOLATILE = 1


@dataclass
class Maker:
    """Writes a log as docs/specs/batchflush-log.rst has it."""

    sectors: int = 16
    write_cache: int = VOLATILE
    out: bytearray = field(default_factory=bytearray)
    position: int = 0
    flush_place: int = 0
    index_place: int = 0
    indexed: int = 0
    flushes: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out += bytes(512)

    def write(self, sector: int, data: bytes, flags: int = 0) -> int:
        return self._record(WRITE, flags, sector * SECTOR, len(data), data)

    def zero(self, sector: int, count: int, kind: int = ZERO) -> int:
        return self._record(kind, 0, sector * SECTOR, count * SECTOR)

    def flush(self) -> int:
        return self._record(FLUSH, 0, 0, 0)

    def done(self, issued: int, error: int = 0) -> int:
        return self._record(DONE, 0, issued, error)

    def index(self) -> None:
        """An index of the flushes since the last one."""
        data = b"".join(struct.pack("<QQ", *flush) for flush in self.flushes)
        place = len(self.out)
        self._append(INDEX, 0, self.index_place, self.indexed, data)
        self.index_place, self.indexed = place, self.indexed + len(self.flushes)
        self.flushes.clear()

    def end(self) -> None:
        self.index()
        self._append(END, 0, self.index_place, 0, b"")

    def save(self, path: Path) -> Path:
        head = struct.pack(
            "<16sIIQI", b"batchflush log\r\n", 1, SECTOR, self.sectors * SECTOR, self.write_cache
        )
        head += struct.pack("<I", zlib.crc32(head))
        index = struct.pack("<Q", self.index_place)
        head += index + struct.pack("<I", zlib.crc32(index))
        path.write_bytes(head.ljust(512, b"\0") + self.out[512:])
        return path

    def _record(self, kind: int, flags: int, offset: int, length: int, data: bytes = b"") -> int:
        place = len(self.out)
        self._append(kind, flags, offset, length, data)
        if kind == FLUSH:
            self.flushes.append((self.position, place))
            self.flush_place = place
        self.position += 1
        return self.position - 1

    def _append(self, kind: int, flags: int, offset: int, length: int, data: bytes) -> None:
        head = struct.pack(
            "<4sHHQQQQIIQI", b"BFLR", kind, flags, self.position, self.position * 1000, offset,
            length, len(data), zlib.crc32(data), self.flush_place, 0,
        )  # fmt: skip
        self.out += head + struct.pack("<I", zlib.crc32(head)) + data
        self.out += bytes(-len(self.out) % 64)


@dataclass
class Request:
    """What the naive reading of a log knows of a write."""

    number: int
    first: int
    data: bytes
    fua: bool
    done: int | None = None
    failed: bool = False


def random_log(draw: random.Random, requests: int, sectors: int = 16) -> tuple[Maker, list]:
    """A log of overlapping requests, some of them under way at once, and its plain story.

    The story is a list of ("issue", Request), ("done", Request), ("flush", number) and
    ("flushed", number of the flush).
    """
    maker, story = Maker(sectors), []
    open_writes: list[Request] = []
    open_flushes: list[int] = []
    for _ in range(requests):
        choice = draw.random()
        if choice < 0.4:
            first = draw.randrange(sectors - 1)
            count = draw.randint(1, min(4, sectors - first))
            fua = draw.random() < 0.15
            if draw.random() < 0.15:
                request = Request(maker.zero(first, count), first, bytes(count * SECTOR), False)
            else:
                # Few different contents, so that states meet.
                data = b"".join(bytes([draw.randrange(3)]) * SECTOR for _ in range(count))
                request = Request(maker.write(first, data, FUA if fua else 0), first, data, fua)
            open_writes.append(request)
            story.append(("issue", request))
        elif choice < 0.7 and open_writes:
            request = open_writes.pop(draw.randrange(len(open_writes)))
            request.failed = draw.random() < 0.1
            request.done = maker.done(request.number, 5 if request.failed else 0)
            story.append(("done", request))
        elif choice < 0.85:
            open_flushes.append(maker.flush())
            story.append(("flush", open_flushes[-1]))
        elif open_flushes:
            number = open_flushes.pop(draw.randrange(len(open_flushes)))
            failed = draw.random() < 0.1
            position = maker.done(number, 5 if failed else 0)
            story.append(("flush-failed" if failed else "flushed", number, position))
    maker.end()
    return maker, story


def at(story: list, position: int) -> tuple[list[Request], list[Request]]:
    """Durable and optional writes before a position, in the order of issue: the contract."""
    issued = [r for kind, r, *_ in story if kind == "issue" and r.number < position]
    flushed = [n for kind, n, *at in story if kind == "flushed" and at[0] < position]
    durable = [
        r
        for r in issued
        if r.done is not None
        and not r.failed
        and ((r.fua and r.done < position) or any(r.done < flush for flush in flushed))
    ]
    return durable, [r for r in issued if r not in durable]


def image_of(requests: list[Request], sectors: int) -> bytes:
    """All these writes applied in the order of issue."""
    image = bytearray(sectors * SECTOR)
    for request in sorted(requests, key=lambda r: r.number):
        image[request.first * SECTOR : request.first * SECTOR + len(request.data)] = request.data
    return bytes(image)


def all_images(story: list, position: int, sectors: int) -> set[bytes]:
    """Every image that losing any whole writes can leave."""
    durable, optional = at(story, position)
    return {
        image_of(durable + list(kept), sectors)
        for n in range(len(optional) + 1)
        for kept in itertools.combinations(optional, n)
    }


def permitted(story: list, position: int, sector: int, sectors: int) -> set[bytes]:
    """What a sector may hold: its last durable value, or that of any later write."""
    durable, optional = at(story, position)

    def touches(request: Request) -> bool:
        return request.first <= sector < request.first + len(request.data) // SECTOR

    def value(request: Request) -> bytes:
        start = (sector - request.first) * SECTOR
        return request.data[start : start + SECTOR]

    last = max((r.number for r in durable if touches(r)), default=-1)
    base = image_of(durable, sectors)[sector * SECTOR : (sector + 1) * SECTOR]
    return {base} | {value(r) for r in optional if touches(r) and r.number > last}


def positions(story: list) -> Iterator[int]:
    """All positions of a log."""
    last = 0
    for _, item, *rest in story:
        last = max(last, item.number if isinstance(item, Request) else item, *rest, 0)
        if isinstance(item, Request) and item.done is not None:
            last = max(last, item.done)
    yield from range(last + 2)
