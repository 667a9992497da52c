# SPDX-License-Identifier: GPL-2.0-or-later
"""Random requests from several writers at once: no data is lost, and none comes back.

The cache is so small that writers stall and data is destaged all the time. BF_SEED=N repeats
the requests of a run, though not the moments at which they meet.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import Image
from oracle import SECTOR, Oracle
from programs import Options, Program, daemon, disk, file

from batchflush.nbd import Connection, ConnectionEnded, connected

SEED = int(os.environ.get("BF_SEED") or random.randrange(1 << 32))
KIB = 1024
WRITERS = 4
ROUNDS = 4
REQUESTS = 400
REOPEN_SECONDS = 0.02
KILLS = 10
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
class Trial:
    """Writers at work on a disk. limit: the size of the disk, so far as it is used."""

    oracle: Oracle
    random: random.Random
    every_write_is_durable: bool
    folder: Path
    requests: int = 0
    killed: bool = False
    connections: list[Connection] = field(default_factory=list)

    async def writer(self, index: int, requests: int) -> None:
        for _ in range(requests):
            await self.step(self.connections[index], index)
            self.requests += 1

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


@contextlib.asynccontextmanager
async def connections(trial: Trial) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        trial.connections = [
            await stack.enter_async_context(connected(trial.folder / "nbd")) for _ in range(WRITERS)
        ]
        yield


async def work(trial: Trial, program: Program, reopened: Callable[[], Options]) -> None:
    """The writers, and beside them reopens with other times."""
    writers = [asyncio.create_task(trial.writer(i, REQUESTS)) for i in range(WRITERS)]
    try:
        pending = set(writers)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=REOPEN_SECONDS)
            if pending:
                await program.execute("blockdev-reopen", options=[reopened()])
        await asyncio.gather(*writers)
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)


async def resize(trial: Trial, program: Program, iothread: bool) -> None:
    """Cut or grow the disk; QEMU's NBD server cannot do it while it exports the disk."""
    await program.execute("block-export-del", id="disk", mode="hard")
    while await program.execute("query-block-exports"):
        await asyncio.sleep(0.002)
    size = trial.random.choice((SIZE, SIZE, trial.random.randrange(40 * KIB, SIZE) // 512 * 512))
    await program.execute("block_resize", node_name="disk", size=size)
    trial.oracle.resize(size)
    export = {"type": "nbd", "id": "disk", "node-name": "disk", "writable": True}
    await program.execute(
        "block-export-add", **export, **({"iothread": "thread"} if iothread else {})
    )


@pytest.fixture(params=["", "iothread"], ids=["main", "iothread"])
def iothread(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=[{}, MARKS], ids=["no-marks", "marks"])
def marks(request: pytest.FixtureRequest) -> Options:
    return request.param


def start(image: Image, folder: Path, cache: str, name: str) -> tuple[Trial, Path]:
    print(f"BF_SEED={SEED}")
    path = image(size=SIZE, pattern=0xAA)
    choose = random.Random(f"{SEED} {name}")
    oracle = Oracle(bytearray(path.read_bytes()))
    return Trial(oracle, choose, cache == "none", folder), path


@pytest.mark.limit(60)
@pytest.mark.parametrize("cache", CACHES)
async def test_a_clean_end(
    cache: str, marks: Options, iothread: bool, image: Image, tmp_path: Path
) -> None:
    """The file holds what was written last, whatever was reopened or resized meanwhile."""
    trial, path = start(image, tmp_path, cache, f"{cache} {marks} {iothread}")
    medium = {**file(path), "node-name": "medium", "discard": "unmap"}

    def node() -> Options:
        return disk("medium", discard="unmap", **CACHES[cache], **{**marks, **times(trial.random)})

    async with daemon(tmp_path, medium, node(), iothread=iothread) as program:
        for _ in range(ROUNDS):
            async with connections(trial):
                await work(trial, program, node)
            await resize(trial, program, iothread)
        async with connections(trial):
            assert await trial.connections[0].read(0, len(trial.oracle.data)) == trial.oracle.data
        assert await program.quit() == 0
        assert program.said() == ""
    assert path.read_bytes() == trial.oracle.data


@pytest.mark.limit(60)
@pytest.mark.parametrize("cache", ["none", "volatile"])
async def test_a_kill(
    cache: str, marks: Options, iothread: bool, image: Image, tmp_path: Path
) -> None:
    """Every completed flush and FUA write is in the file, whenever the process dies."""
    for turn in range(KILLS):
        trial, path = start(image, tmp_path, cache, f"{cache} {marks} {iothread} {turn}")
        medium = {**file(path), "node-name": "medium", "discard": "unmap"}
        node = disk("medium", discard="unmap", **CACHES[cache], **{**marks, **times(trial.random)})
        async with (
            daemon(tmp_path, medium, node, iothread=iothread) as program,
            connections(trial),
        ):
            await killed_at(trial, program, trial.random.randrange(50, 400))
        assert trial.oracle.lost(path.read_bytes()) == []
        (tmp_path / "nbd").unlink()


async def killed_at(trial: Trial, program: Program, requests: int) -> None:
    """Kill the program once so many requests are done, others being under way."""
    writers = [asyncio.create_task(trial.writer(i, requests)) for i in range(WRITERS)]
    while trial.requests < requests and not any(writer.done() for writer in writers):
        await asyncio.sleep(0.0005)
    await program.terminate(signal.SIGKILL)
    for result in await asyncio.gather(*writers, return_exceptions=True):
        if result is not None and not isinstance(result, ConnectionEnded):
            raise result
