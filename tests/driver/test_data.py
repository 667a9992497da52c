# SPDX-License-Identifier: GPL-2.0-or-later
"""Random requests from several writers at once: no data is lost, and none comes back."""

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Image
from load import CACHES, KIB, MARKS, SEED, SIZE, WRITERS, Load, times
from oracle import Oracle
from programs import Options, Program, daemon, disk, file

from batchflush.nbd import ConnectionEnded

ROUNDS = 4
REQUESTS = 400
REOPEN_SECONDS = 0.02
KILLS = 10


async def work(load: Load, program: Program, reopened: Callable[[], Options]) -> None:
    """The writers, and beside them reopens with other times."""
    writers = [asyncio.create_task(load.writer(i, REQUESTS)) for i in range(WRITERS)]
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


async def resize(load: Load, program: Program, iothread: bool) -> None:
    """Cut or grow the disk; QEMU's NBD server cannot do it while it exports the disk."""
    await program.execute("block-export-del", id="disk", mode="hard")
    while await program.execute("query-block-exports"):
        await asyncio.sleep(0.002)
    size = load.random.choice((SIZE, SIZE, load.random.randrange(40 * KIB, SIZE) // 512 * 512))
    await program.execute("block_resize", node_name="disk", size=size)
    load.oracle.resize(size)
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


def start(image: Image, folder: Path, cache: str, name: str) -> tuple[Load, Path]:
    print(f"BF_SEED={SEED}")
    path = image(size=SIZE, pattern=0xAA)
    choose = random.Random(f"{SEED} {name}")
    oracle = Oracle(bytearray(path.read_bytes()))
    return Load(oracle, choose, cache == "none", folder), path


def medium_of(path: Path) -> Options:
    """The file; the page cache of the host is as good as its disk, for a process that ends."""
    return {
        **file(path), "node-name": "medium", "discard": "unmap", "cache": {"no-flush": True},
    }  # fmt: skip


@pytest.mark.limit(60)
@pytest.mark.parametrize("cache", CACHES)
async def test_a_clean_end(
    cache: str, marks: Options, iothread: bool, image: Image, tmp_path: Path
) -> None:
    """The file holds what was written last, whatever was reopened or resized meanwhile."""
    load, path = start(image, tmp_path, cache, f"{cache} {marks} {iothread}")
    medium = medium_of(path)

    def node() -> Options:
        return disk("medium", discard="unmap", **CACHES[cache], **{**marks, **times(load.random)})

    async with daemon(tmp_path, medium, node(), iothread=iothread) as program:
        for _ in range(ROUNDS):
            async with load.connected():
                await work(load, program, node)
            await resize(load, program, iothread)
        async with load.connected():
            await load.check()
        assert await program.quit() == 0
        assert program.said() == ""
    assert path.read_bytes() == load.oracle.data


@pytest.mark.limit(60)
@pytest.mark.parametrize("cache", ["none", "volatile"])
async def test_a_kill(
    cache: str, marks: Options, iothread: bool, image: Image, tmp_path: Path
) -> None:
    """Every completed flush and FUA write is in the file, whenever the process dies."""
    for turn in range(KILLS):
        load, path = start(image, tmp_path, cache, f"{cache} {marks} {iothread} {turn}")
        medium = medium_of(path)
        node = disk("medium", discard="unmap", **CACHES[cache], **{**marks, **times(load.random)})
        async with (
            daemon(tmp_path, medium, node, iothread=iothread) as program,
            load.connected(),
        ):
            await killed_at(load, program, load.random.randrange(50, 400))
        assert load.oracle.lost(path.read_bytes()) == []
        (tmp_path / "nbd").unlink()


async def killed_at(load: Load, program: Program, requests: int) -> None:
    """Kill the program once so many requests are done, others being under way."""
    writers = [asyncio.create_task(load.writer(i, requests)) for i in range(WRITERS)]
    while load.requests < requests and not any(writer.done() for writer in writers):
        await asyncio.sleep(0.0005)
    await program.terminate(signal.SIGKILL)
    for result in await asyncio.gather(*writers, return_exceptions=True):
        if result is not None and not isinstance(result, ConnectionEnded):
            raise result
