# SPDX-License-Identifier: GPL-2.0-or-later
"""A crash state as a program sees it: a clean base, and an overlay with what differs.

The base holds what is durable in one epoch; going to a later epoch adds what has become
durable, and it is never changed by a state. The overlay holds the pages that a state adds
to it. overlay.c shows both as one file. All live in memory that belongs to this process, so
nothing of them is left behind, however it ends.

The hash of a state is a sum over its sectors of a hash of place and content, in which
what equals the disk's first content counts nothing. So it is known from the writes of a
state alone, and equal states have equal hashes whichever writes made them.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from batchflush.crash.history import Epoch, History, Write
from batchflush.crash.log import SECTOR, Log
from batchflush.crash.states import State, Unit, lost_units, parts
from batchflush.errors import UsageError

PAGE = 4096
SECTORS = PAGE // SECTOR
HASH_MASK = (1 << 64) - 1


class Contents:
    """The data of a log's writes, and its hashes, computed when first asked for."""

    def __init__(self, log: Log, first: Path | None = None) -> None:
        """first: an image of what the disk held at first; without it, zeroes."""
        self._bytes = log.bytes
        self._hashes: dict[int, np.ndarray] = {}
        self._first = first.open("rb") if first else None

    def data(self, write: Write, sector: int, count: int) -> bytes:
        if write.place is None:
            return bytes(count * SECTOR)
        start = write.place + (sector - write.first) * SECTOR
        return self._bytes[start : start + count * SECTOR]

    def hashes(self, write: Write) -> np.ndarray:
        """One number for each sector of a write."""
        known = self._hashes.get(write.number)
        if known is None:
            data = self.data(write, write.first, write.count)
            known = np.fromiter(
                (
                    self._hash(write.first + i, data[i * SECTOR : (i + 1) * SECTOR])
                    for i in range(write.count)
                ),
                np.uint64,
                write.count,
            )
            self._hashes[write.number] = known
        return known

    def _hash(self, sector: int, content: bytes) -> int:
        if content == self._at_first(sector):
            return 0
        digest = hashlib.blake2b(content, digest_size=8, key=sector.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")

    def _at_first(self, sector: int) -> bytes:
        if self._first is None:
            return _ZEROES
        self._first.seek(sector * SECTOR)
        return self._first.read(SECTOR)


_ZEROES = bytes(SECTOR)


class Image:
    """A base that goes from epoch to epoch, and the overlay of one state."""

    def __init__(
        self,
        log: Log,
        history: History,
        atomic: int,
        first: Path | None = None,
        *,
        data: bool = True,
        hashes: bool = True,
    ) -> None:
        """data, hashes: whether states are to be shown, and whether their hash is wanted."""
        self._with_data, self._with_hashes = data, hashes
        self.history, self.atomic = history, atomic
        self.contents = Contents(log, first)
        self.size = log.disk_size
        if first and first.stat().st_size != self.size:
            raise UsageError(
                f"--base={first} has {first.stat().st_size} bytes; allowed is what the log's disk "
                f"has, {self.size}"
            )
        self._first = first
        self._sectors = log.disk_size // SECTOR
        pages = -(-self.size // PAGE)
        self.base, self.overlay, self._page_file, self._empty = (
            os.memfd_create(f"batchflush {name}") for name in ("base", "overlay", "pages", "state")
        )
        for file in (self.base, self.overlay, self._empty):
            os.truncate(file, self.size)
        os.truncate(self._page_file, pages)
        self.pages = mmap.mmap(self._page_file, pages)
        # Where overlay.c shows the state; without it, an empty file of the disk's size.
        self.path = _path(self._empty)
        self._reset()

    def close(self) -> None:
        self.pages.close()
        for file in (self.base, self.overlay, self._page_file, self._empty):
            os.close(file)

    def _reset(self) -> None:
        """Back to the disk's first content."""
        self.epoch: Epoch | None = None
        # Of each sector: number of the write that made it, hash of its content.
        self.versions = np.full(self._sectors, -1, np.int64)
        self.hashes = np.zeros(self._sectors, np.uint64)
        self.base_hash = 0
        os.truncate(self.base, 0)
        os.truncate(self.base, self.size)
        if self._first:
            with self._first.open("rb") as stream:
                copy_data(stream.fileno(), self.base, self.size)

    def go_to(self, epoch: Epoch) -> None:
        """Let the base hold what is durable in an epoch. Forward is quick."""
        if self.epoch is not None and epoch.number < self.epoch.number:
            self._reset()
        start = self.epoch.number + 1 if self.epoch is not None else 0
        for step in self.history.epochs[start : epoch.number + 1]:
            for write in step.durable:
                self._make_durable(write)
        self.epoch = epoch

    def _make_durable(self, write: Write) -> None:
        stop = write.first + write.count
        versions = self.versions[write.first : stop]
        newer = versions < write.number
        every = bool(newer.all())
        if self._with_hashes:
            hashes, old = self.contents.hashes(write), self.hashes[write.first : stop]
            change = hashes - old
            total = change.sum() if every else change[newer].sum()
            self.base_hash = (self.base_hash + int(total)) & HASH_MASK
            old[newer] = hashes[newer]
        versions[newer] = write.number
        if self._with_data:
            for first, count in [(0, write.count)] if every else runs(newer):
                sector = write.first + first
                os.pwrite(self.base, self.contents.data(write, sector, count), sector * SECTOR)

    def kept(self, state: State) -> list[tuple[Write, int, int]]:
        """The pieces that a state keeps, in order: write, first sector, number of sectors."""
        assert self.epoch is not None
        optional = self.history.optional(state.position, self.epoch)
        return kept_pieces(optional, lost_units(state, optional, self.atomic), self.atomic)

    def hash(self, pieces: Sequence[tuple[Write, int, int]]) -> int:
        """The hash of the state that these pieces make of the base."""
        if not pieces:
            return self.base_hash
        sectors, hashes, numbers = [], [], []
        for write, first, count in pieces:
            sectors.append(np.arange(first, first + count))
            start = first - write.first
            hashes.append(self.contents.hashes(write)[start : start + count])
            numbers.append(np.full(count, write.number))
        where, what = np.concatenate(sectors), np.concatenate(hashes)
        newer = np.concatenate(numbers) > self.versions[where]
        # Of several versions of a sector the last one counts.
        where, what = where[newer][::-1], what[newer][::-1]
        unique, index = np.unique(where, return_index=True)
        change = (what[index] - self.hashes[unique]).sum()
        return (self.base_hash + int(change)) & HASH_MASK

    def show(self, pieces: Sequence[tuple[Write, int, int]]) -> None:
        """Make the overlay hold what the pieces add to the base."""
        self.pages[:] = bytes(len(self.pages))
        for write, first, count in pieces:
            newer = self.versions[first : first + count] < write.number
            for start, length in [(0, count)] if newer.all() else runs(newer):
                sector = first + start
                self._write(sector, self.contents.data(write, sector, length))

    def _write(self, sector: int, data: bytes) -> None:
        offset = sector * SECTOR
        first, last = offset // PAGE, (offset + len(data) - 1) // PAGE
        for page in {first, last}:
            if not self.pages[page]:
                os.pwrite(self.overlay, os.pread(self.base, PAGE, page * PAGE), page * PAGE)
        os.pwrite(self.overlay, data, offset)
        self.pages[first : last + 1] = b"\1" * (last + 1 - first)

    def read(self, offset: int, length: int) -> bytes:
        """What the state holds, with what programs have written to it."""
        parts_read = []
        while length:
            page = offset // PAGE
            part = min(length, PAGE - offset % PAGE)
            parts_read.append(
                os.pread(self.overlay if self.pages[page] else self.base, part, offset)
            )
            offset, length = offset + part, length - part
        return b"".join(parts_read)

    def environment(self, library: Path) -> dict[str, str]:
        """The variables with which a program sees the state at self.path."""
        files = {"BASE": self.base, "DATA": self.overlay, "PAGES": self._page_file}
        return {
            "LD_PRELOAD": str(library),
            "OVERLAY_PATH": str(self.path),
            "OVERLAY_WORKER": str(os.getpid()),
            **{f"OVERLAY_{name}": str(_path(file)) for name, file in files.items()},
        }


def _path(file: int) -> Path:
    """Where other processes find a file that has no name."""
    return Path(f"/proc/{os.getpid()}/fd/{file}")


def kept_pieces(
    optional: Collection[Write], lost: frozenset[Unit], atomic: int
) -> list[tuple[Write, int, int]]:
    """What is left of the writes once the units are lost, in order of issue."""
    torn = {unit.number for unit in lost if unit.part >= 0}
    pieces = []
    for write in optional:
        if Unit(write.number) in lost:
            continue
        if write.number not in torn:
            pieces.append((write, write.first, write.count))
            continue
        for index, (first, count) in enumerate(parts(write, atomic)):
            if Unit(write.number, index) not in lost:
                pieces.append((write, first, count))
    return pieces


def runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """Start and length of each run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [(int(a), int(b - a)) for a, b in edges.reshape(-1, 2)]


def copy_data(source: int, target: int, size: int) -> None:
    """From file to file, what is no hole."""
    start = 0
    while start < size:
        try:
            start = os.lseek(source, start, os.SEEK_DATA)
        except OSError:
            return  # nothing but a hole
        stop = os.lseek(source, start, os.SEEK_HOLE)
        while start < stop:
            data = os.pread(source, min(stop - start, 1 << 20), start)
            os.pwrite(target, data, start)
            start += len(data)
