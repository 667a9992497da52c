# SPDX-License-Identifier: GPL-2.0-or-later
"""A load that verifies: writers that send random requests and know what the disk must hold.

The cache is so small that writers stall and data is destaged all the time. BF_SEED=N repeats
the requests of a run, though not the moments at which they meet.
"""

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from oracle import SECTOR, Oracle
from programs import Options

from batchflush.nbd import Connection, connected

SEED = int(os.environ.get("BF_SEED") or random.randrange(1 << 32))
KIB = 1024
WRITERS = 4
# A writer's own sectors: in the first part of the disk a few in turn, so that writers meet in
# the 4 KiB blocks of the cache; the rest in one piece, with room for more than fits the cache.
STRIPE = 5 * SECTOR
STRIPED = 128 * STRIPE
PIECE = 96 * KIB
SIZE = STRIPED + WRITERS * PIECE
LARGEST = 80 * KIB

CACHES = {
    "none": {"write_cache": "none"},
    "volatile": {"write_cache": "volatile", "cache_size": 64 * KIB},
    "battery": {"write_cache": "battery", "cache_size": 64 * KIB},
}
MARKS = {"destage_high_percent": 60, "destage_low_percent": 20}


@dataclass
class Load:
    """Writers on a disk, over connections of their own to folder/nbd.

    The part of the disk that the oracle's data covers is the one that is used.
    """

    oracle: Oracle
    random: random.Random
    every_write_is_durable: bool
    folder: Path
    requests: int = 0
    connections: list[Connection] = field(default_factory=list)
    _writers: list[asyncio.Task[None]] = field(default_factory=list)
    _held: asyncio.Event = field(default_factory=asyncio.Event)
    _go: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _busy: int = 0

    @contextlib.asynccontextmanager
    async def connected(self, export: str = "disk") -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            self.connections = [
                await stack.enter_async_context(connected(self.folder / "nbd", export))
                for _ in range(WRITERS)
            ]
            yield

    async def writer(self, index: int, requests: int) -> None:
        for _ in range(requests):
            await self.step(self.connections[index], index)
            self.requests += 1

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """The writers work until the block ends; a mistake that one finds ends the test."""
        self._go.set()
        self._stop.clear()
        self._writers = [asyncio.create_task(self._work(i)) for i in range(WRITERS)]
        try:
            yield
            await self.stop()
        finally:
            for writer in self._writers:
                writer.cancel()
            await asyncio.gather(*self._writers, return_exceptions=True)

    async def stop(self) -> None:
        """The writers have nothing in flight, and begin nothing any more."""
        self._stop.set()
        await asyncio.gather(*self._writers)

    async def _work(self, index: int) -> None:
        while not self._stop.is_set():
            await self._go.wait()
            self._busy += 1
            try:
                await self.step(self.connections[index], index)
                self.requests += 1
            finally:
                self._busy -= 1
                self._held.set()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Nothing is in flight while the block lasts."""
        self._go.clear()
        while self._busy:
            self._held.clear()
            await self._held.wait()
        self._complain()
        yield
        self._go.set()

    async def goes_on(self, requests: int = 20) -> None:
        """Wait until so many more are done."""
        enough = self.requests + requests
        while self.requests < enough:
            self._complain()
            await asyncio.sleep(0.001)

    def _complain(self) -> None:
        for writer in self._writers:
            if writer.done():
                writer.result()

    async def check(self) -> None:
        """The whole disk, while no writer is at work."""
        assert await self.connections[0].read(0, len(self.oracle.data)) == self.oracle.data

    async def step(self, connection: Connection, index: int) -> None:
        offset, length = self.extent(index)
        kinds = ("write", "fua", "zero", "discard", "read", "flush")
        kind = self.random.choices(kinds, (40, 6, 8, 5, 29, 12))[0]
        if kind == "read":
            data = await connection.read(offset, length)
            assert data == self.oracle.data[offset : offset + length], f"{offset} {length}"
        elif kind == "flush":
            covered = self.oracle.flush()
            await connection.flush()
            self.oracle.flushed(covered)
        elif kind == "discard":
            await self.discard(connection, offset, length)
        else:
            await self.change(connection, kind, offset, length)

    async def change(self, connection: Connection, kind: str, offset: int, length: int) -> None:
        fua = kind == "fua" or (kind == "zero" and self.random.random() < 0.2)
        data = bytes(length) if kind == "zero" else self.random.randbytes(length)
        self.oracle.issue(offset, data)
        if kind == "zero":
            await connection.zero(offset, length, fua, hole=self.random.random() < 0.5)
        else:
            await connection.write(offset, data, fua)
        self.oracle.complete(offset, length, fua or self.every_write_is_durable)

    async def discard(self, connection: Connection, offset: int, length: int) -> None:
        """It may do nothing, for any byte; else that reads as zero from now on."""
        before = bytes(self.oracle.data[offset : offset + length])
        self.oracle.issue(offset, bytes(length))
        await connection.discard(offset, length)
        after = await connection.read(offset, length)
        assert all(new in (0, old) for new, old in zip(after, before, strict=True))
        self.oracle.issue(offset, after)
        self.oracle.complete(offset, length, False)

    def extent(self, index: int) -> tuple[int, int]:
        """A place among a writer's own sectors: often unaligned, mostly small."""
        if self.random.random() < 0.6 or len(self.oracle.data) < SIZE:
            stripes = min(len(self.oracle.data), STRIPED) // STRIPE // WRITERS
            start = (self.random.randrange(stripes) * WRITERS + index) * STRIPE
            size = largest = STRIPE
        else:
            start, size = STRIPED + index * PIECE, PIECE
            largest = self.random.choice((SECTOR, 4 * KIB, 4 * KIB, 16 * KIB, LARGEST))
        grain = self.random.choice((1, SECTOR, SECTOR, 4 * KIB))
        offset = self.random.randrange(size) // grain * grain
        length = self.random.randint(1, min(largest, size - offset))
        return start + offset, min(-(-length // grain) * grain, size - offset)


def times(choose: random.Random) -> Options:
    """Options that may be changed at any time."""
    short = (0, 0, 50_000, 300_000)
    return {
        **{
            f"{kind}_latency_ns": choose.choice(short)
            for kind in ("read", "write", "destage", "flush", "flush_clean")
        },
        "bandwidth": choose.choice((0, 0, 500_000_000)),
        "flush_concurrency": choose.choice(("exclusive", "serial", "concurrent")),
        "coalesce": choose.choice(("off", "on", "auto")),
        "coalesce_wait": choose.choice(("delta", "average")),
        "coalesce_max_wait_ns": choose.choice((1000, 500_000)),
        "coalesce_min_flush_ns": choose.choice((0, 2_000_000)),
    }
