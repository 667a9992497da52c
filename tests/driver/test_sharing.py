# SPDX-License-Identifier: GPL-2.0-or-later
"""Flushes that come at once, over several connections: who shares, and what drain does."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import Image
from programs import LONG_NS, Options, Program, daemon, disk, file, promptly

from batchflush.nbd import Connection, ConnectionEnded, connected

MS = 1_000_000
CONNECTIONS = 4
BLOCK = 4096
VOLATILE = {"write_cache": "volatile", "cache_size": 1 << 20}
FOR_EVER = {**VOLATILE, "flush_latency_ns": LONG_NS, "coalesce_max_wait_ns": LONG_NS}
MODES = ["off", "on", "auto"]


@contextlib.asynccontextmanager
async def served(
    folder: Path, path: Path, **options: object
) -> AsyncIterator[tuple[Program, list[Connection]]]:
    """A daemon with the disk, and connections to it."""
    medium = {**file(path), "node-name": "medium"}
    async with (
        daemon(folder, medium, disk("medium", **options)) as program,
        contextlib.AsyncExitStack() as stack,
    ):
        yield (
            program,
            [
                await stack.enter_async_context(connected(folder / "nbd"))
                for _ in range(CONNECTIONS)
            ],
        )


async def write_and_flush(connection: Connection, index: int) -> None:
    await connection.write(index * BLOCK, bytes([index + 1]) * BLOCK)
    await connection.flush()


@contextlib.asynccontextmanager
async def in_flight(
    program: Program, connections: list[Connection]
) -> AsyncIterator[list[asyncio.Task]]:
    """One written block and one flush under way per connection."""
    for index, connection in enumerate(connections):
        await connection.write(index * BLOCK, bytes([index + 1]) * BLOCK)
    tasks = [asyncio.create_task(connection.flush()) for connection in connections]
    try:
        await program.until(lambda statistics: statistics["flush-arrivals"] == len(tasks))
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def blocks(path: Path) -> list[int]:
    data = path.read_bytes()
    assert all(len(set(data[i * BLOCK : (i + 1) * BLOCK])) == 1 for i in range(CONNECTIONS))
    return [data[i * BLOCK] for i in range(CONNECTIONS)]


WRITTEN = [1, 2, 3, 4]
REOPENS = 30


@pytest.mark.parametrize("mode", MODES)
async def test_who_shares(mode: str, image: Image, tmp_path: Path) -> None:
    """Closed-loop writers share their flushes, unless coalesce=off says that none does."""
    path = image()
    slow = {"flush_latency_ns": 20 * MS, "coalesce": mode, "flush_concurrency": "serial"}
    async with served(tmp_path, path, **VOLATILE, **slow) as (program, connections):

        async def loop(connection: Connection, index: int) -> None:
            for _ in range(5):
                await write_and_flush(connection, index)

        await asyncio.gather(*(loop(c, i) for i, c in enumerate(connections)))
        statistics = await program.statistics()
        assert statistics["flush-arrivals"] == 20
        issued, joined = statistics["flushes-issued"], statistics["flushes-joined"]
        assert issued + joined == 20
        assert sum(bucket["count"] for bucket in statistics["batch-sizes"]) == issued
        assert sum(record["members"] for record in statistics["ledger"]) == 20
        if mode == "off":
            assert (issued, joined, statistics["flushes-alone"]) == (20, 0, 20)
        else:
            assert joined >= 10
        assert blocks(path) == WRITTEN


async def test_coalesce_on_collects_all_that_come_in_time(image: Image, tmp_path: Path) -> None:
    wait = {"flush_latency_ns": 300 * MS, "coalesce_max_wait_ns": 300 * MS, "coalesce": "on"}
    async with served(tmp_path, image(), **VOLATILE, **wait) as (program, connections):
        await asyncio.gather(*(write_and_flush(c, i) for i, c in enumerate(connections)))
        statistics = await program.statistics()
        assert statistics["flushes-issued"] == 1
        assert statistics["flushes-joined"] == CONNECTIONS - 1
        assert statistics["ledger"][0]["members"] == CONNECTIONS
        assert statistics["ledger"][0]["dirty-bytes"] == CONNECTIONS * BLOCK
        assert statistics["ledger"][0]["wait-ns"] > 0
        assert statistics["ledger"][0]["flush-ns"] >= 300 * MS


async def test_a_flush_takes_its_time(image: Image, tmp_path: Path) -> None:
    """The emulated time is served over NBD, so that the prompt ones below mean something."""
    slow = {"flush_latency_ns": 200 * MS, "coalesce": "off"}
    async with served(tmp_path, image(), **VOLATILE, **slow) as (_, connections):
        clock = asyncio.get_running_loop().time
        begin = clock()
        await write_and_flush(connections[0], 0)
        assert clock() - begin >= 0.2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("concurrency", ["exclusive", "serial", "concurrent"])
async def test_reopen_ends_the_waits(
    mode: str, concurrency: str, image: Image, tmp_path: Path
) -> None:
    """blockdev-reopen drains: flushes under way complete at once, and cover what they should."""
    path = image()
    options = {**FOR_EVER, "coalesce": mode, "flush_concurrency": concurrency}
    async with served(tmp_path, path, **options) as (program, connections):
        async with in_flight(program, connections) as flushes:
            node = disk("medium", **options)
            await promptly(program.execute("blockdev-reopen", options=[node]))
            await promptly(asyncio.gather(*flushes))
            assert blocks(path) == WRITTEN
            statistics = await program.statistics()
            assert statistics["flushes-issued"] + statistics["flushes-joined"] >= CONNECTIONS
        assert await promptly(program.quit()) == 0


@pytest.mark.parametrize("concurrency", ["exclusive", "serial"])
async def test_times_that_a_drain_cut_short_are_forgotten(
    concurrency: str, image: Image, tmp_path: Path
) -> None:
    """Afterwards the hardware is idle, and the options as reopened hold at once."""
    options = {**FOR_EVER, "coalesce": "off", "flush_concurrency": concurrency}
    async with served(tmp_path, image(), **options) as (program, connections):
        async with in_flight(program, connections) as flushes:
            node = disk("medium", **{**options, "flush_latency_ns": 0})
            await promptly(program.execute("blockdev-reopen", options=[node]))
            await promptly(asyncio.gather(*flushes))
        await promptly(write_and_flush(connections[0], 0))


@pytest.mark.parametrize("mode", MODES)
async def test_reopen_under_load_loses_no_flush(mode: str, image: Image, tmp_path: Path) -> None:
    """Every flush completes once, and covers its write, while the options keep changing."""
    path = image()
    options = {**VOLATILE, "flush_latency_ns": 2 * MS, "coalesce": mode}
    async with served(tmp_path, path, **options) as (program, connections):
        done = asyncio.Event()

        async def loop(connection: Connection, index: int) -> int:
            count = 0
            while not done.is_set():
                count += 1
                await connection.write(index * BLOCK, bytes([count % 255 + 1]) * BLOCK)
                await connection.flush()
                assert path.read_bytes()[index * BLOCK] == count % 255 + 1
            return count

        loops = [asyncio.create_task(loop(c, i)) for i, c in enumerate(connections)]
        for turn in range(REOPENS):
            changed = {
                **options,
                "coalesce": MODES[turn % 3],
                "flush_concurrency": ["exclusive", "serial", "concurrent"][turn // 3 % 3],
                "flush_latency_ns": turn % 5 * MS,
                "coalesce_wait": ["delta", "average"][turn % 2],
            }
            await promptly(program.execute("blockdev-reopen", options=[disk("medium", **changed)]))
            before = (await program.statistics())["flush-arrivals"]
            await program.until(lambda s, before=before: s["flush-arrivals"] >= before + 8)
        done.set()
        counts = await promptly(asyncio.gather(*loops))
        statistics = await program.statistics()
        # To reopen a node, QEMU flushes it.
        assert statistics["flush-arrivals"] == sum(counts) + REOPENS
        issued, joined = statistics["flushes-issued"], statistics["flushes-joined"]
        assert issued + joined == sum(counts) + REOPENS


async def test_the_average_is_not_moved_by_a_drain(image: Image, tmp_path: Path) -> None:
    """A flush that drain cut short says nothing about the device's flush time."""
    options = {**VOLATILE, "flush_latency_ns": 40 * MS, "coalesce": "off"}
    async with served(tmp_path, image(), **options) as (program, connections):
        await write_and_flush(connections[0], 0)
        before = (await program.statistics())["flush-average-ns"]
        assert before >= 40 * MS
        flush = asyncio.create_task(write_and_flush(connections[0], 0))
        await program.until(lambda statistics: statistics["flush-arrivals"] == 2)
        await program.execute("blockdev-reopen", options=[disk("medium", **options)])
        await flush
        assert (await program.statistics())["flush-average-ns"] >= 40 * MS


@pytest.mark.parametrize("mode", MODES)
async def test_a_snapshot_ends_the_waits(mode: str, image: Image, tmp_path: Path) -> None:
    path, above = image(), image(name="above")
    overlay = {**file(above), "node-name": "overlay-file"}
    async with served(tmp_path, path, **FOR_EVER, coalesce=mode) as (program, connections):
        async with in_flight(program, connections) as flushes:
            await program.execute("blockdev-add", **overlay)
            create = {"driver": "qcow2", "file": "overlay-file", "size": 1 << 20}
            await program.execute("blockdev-create", job_id="create", options=create)
            while (await program.execute("query-jobs"))[0]["status"] != "concluded":
                await asyncio.sleep(0.005)
            node = {
                "driver": "qcow2",
                "node-name": "overlay",
                "file": "overlay-file",
                "backing": None,
            }
            await program.execute("blockdev-add", **node)
            await promptly(program.execute("blockdev-snapshot", node="disk", overlay="overlay"))
            await promptly(asyncio.gather(*flushes))
            assert blocks(path) == WRITTEN
        # What is written from now on goes to the overlay.
        await promptly(connections[0].write(0, b"\xff" * BLOCK))
        assert await connections[1].read(0, 2 * BLOCK) == b"\xff" * BLOCK + b"\2" * BLOCK
        assert blocks(path) == WRITTEN
        assert await promptly(program.quit()) == 0


async def test_a_backup_sees_the_cache(image: Image, tmp_path: Path) -> None:
    """Nobody reads the medium behind our back, not even while flushes are under way."""
    path, copy = image(), image(name="copy")
    slow = {"flush_latency_ns": 50 * MS, "coalesce": "on"}
    async with (
        served(tmp_path, path, **VOLATILE, **slow) as (program, connections),
        in_flight(program, connections) as flushes,
    ):
        await program.execute("blockdev-add", **file(copy), node_name="copy")
        await connections[0].write(8 * BLOCK, b"\x77" * BLOCK)
        backup = {"device": "disk", "target": "copy", "sync": "full", "job_id": "backup"}
        await program.execute("blockdev-backup", **backup)
        await asyncio.gather(*flushes)
        while await program.execute("query-jobs"):
            await asyncio.sleep(0.005)
        assert blocks(copy) == WRITTEN
        assert copy.read_bytes()[8 * BLOCK : 9 * BLOCK] == b"\x77" * BLOCK


@pytest.mark.parametrize(
    ("how", "mode"),
    [("quit", "off"), ("quit", "on"), ("SIGTERM", "auto"), ("nbd-server-stop", "on")],
)
async def test_the_end_of_an_export_ends_the_waits(
    how: str, mode: str, image: Image, tmp_path: Path
) -> None:
    path = image()
    async with (
        served(tmp_path, path, **FOR_EVER, coalesce=mode) as (program, connections),
        in_flight(program, connections) as flushes,
    ):
        if how == "nbd-server-stop":
            await promptly(program.execute("nbd-server-stop"))
            assert await promptly(program.quit()) == 0
        elif how == "quit":
            assert await promptly(program.quit()) == 0
        else:
            assert await promptly(program.terminate(signal.Signals[how])) == 0
        await asyncio.wait(flushes)
        assert all(isinstance(flush.exception(), ConnectionEnded) for flush in flushes)
        assert blocks(path) == WRITTEN


async def test_a_connection_that_dies_takes_nobody_along(image: Image, tmp_path: Path) -> None:
    """The leader's client goes away while it waits for company; the others still complete."""
    path = image()
    wait = {"flush_latency_ns": 300 * MS, "coalesce_max_wait_ns": 300 * MS, "coalesce": "on"}
    async with served(tmp_path, path, **VOLATILE, **wait) as (program, connections):
        first = asyncio.create_task(write_and_flush(connections[0], 0))
        await program.until(lambda statistics: statistics["flush-arrivals"] == 1)
        others = [write_and_flush(c, i + 1) for i, c in enumerate(connections[1:])]
        connections[0]._writer.transport.abort()
        await asyncio.gather(*others)
        with pytest.raises(ConnectionEnded):
            await first
        assert blocks(path) == WRITTEN


async def test_power_cut_with_flushes_in_flight(image: Image, tmp_path: Path) -> None:
    """All fail at once; after power is restored the disk works again."""
    path = image()
    async with served(tmp_path, path, **FOR_EVER, coalesce="on") as (program, connections):
        async with in_flight(program, connections) as flushes:
            await promptly(program.execute("batchflush-power-cut", node_name="disk"))
            await promptly(asyncio.wait(flushes))
            assert all(isinstance(flush.exception(), OSError) for flush in flushes)
        await program.execute("batchflush-power-restore", node_name="disk")
        assert (await program.statistics())["dirty-bytes"] == 0
        changed: Options = disk("medium", **{**FOR_EVER, "flush_latency_ns": 0})
        await program.execute("blockdev-reopen", options=[changed])
        await promptly(write_and_flush(connections[0], 0))
        assert path.read_bytes()[:BLOCK] == b"\1" * BLOCK
