# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine moves to another QEMU, on one image, with a dirty cache: nothing is lost.

BF_REPEAT=N runs each test N times.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import Image
from load import CACHES, SEED, SIZE, Load, times
from oracle import Oracle
from programs import Program, disk, file, promptly
from test_machine import export, machine

CONTROL = ["-device", "batchflush-control,nodes=disk"]


class Pair:
    """The two ends. Both have our disk on one image."""

    def __init__(self, folder: Path, path: Path, cache: str, choose: random.Random) -> None:
        self._socket = f"unix:{folder / 'migration'}"
        self._folders = [folder / "source", folder / "destination"]
        large = {**CACHES[cache], "cache_size": 2 * SIZE} if cache != "none" else {}
        options = choose.choice((CACHES[cache], {**CACHES[cache], **large}))
        self.nodes = [disk(file(path), **options, **times(choose)) for _ in range(2)]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[Program, Program]]:
        for folder in self._folders:
            folder.mkdir()
        source, destination = self._folders
        incoming = [*CONTROL, "-incoming", "defer"]
        async with (
            machine(source, self.nodes[0], *CONTROL) as one,
            machine(destination, self.nodes[1], *incoming, serve=False) as other,
        ):
            await other.execute("migrate-incoming", uri=self._socket)
            paused = {"capability": "pause-before-switchover", "state": True}
            await one.execute("migrate-set-capabilities", capabilities=[paused])
            yield one, other

    async def move(self, source: Program) -> None:
        """The memory, and then, with the machine stopped, no more."""
        await source.execute("migrate", uri=self._socket)

    async def go_on(self, source: Program, destination: Program) -> None:
        await source.execute("migrate-continue", state="pre-switchover")
        await migrates(source, "completed")
        await migrates(destination, "completed")
        while not (await destination.execute("query-status"))["running"]:
            await asyncio.sleep(0.002)


async def migrates(program: Program, state: str) -> None:
    while (told := await program.execute("query-migrate")).get("status") != state:
        assert told.get("status") != "failed", told
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("cache", CACHES)
async def test_a_dirty_cache_moves(cache: str, turn: int, image: Image, tmp_path: Path) -> None:
    print(f"BF_SEED={SEED}")
    choose = random.Random(f"{SEED} {cache} {turn}")
    path = image(size=SIZE)
    load = Load(Oracle(bytearray(SIZE)), choose, cache == "none", tmp_path / "source")
    pair = Pair(tmp_path, path, cache, choose)
    async with pair.running() as (source, destination):
        async with load.connected(), load.at_work():
            await load.goes_on()
            await pair.move(source)
            await migrates(source, "pre-switchover")
            # The machine has stopped, and flushed; the server of QEMU has not.
            await load.goes_on()
        await source.execute("nbd-server-stop")
        await pair.go_on(source, destination)
        assert path.read_bytes() == load.oracle.data
        statistics = await destination.statistics()
        assert (statistics["flush-arrivals"], statistics["destaged-bytes"]) == (0, 0)
        load.folder = tmp_path / "destination"
        await export(destination, load.folder)
        async with load.connected():
            await load.check()
            async with load.at_work():
                await load.goes_on()
            await load.check()
        for program in (source, destination):
            assert await promptly(program.quit()) == 0
            assert program.said() == ""
    assert path.read_bytes() == load.oracle.data


@pytest.mark.parametrize("cache", ["volatile", "battery"])
async def test_a_disk_without_power_stays(
    cache: str, turn: int, image: Image, tmp_path: Path
) -> None:
    """What its cache holds is not on the image; the machine runs on where it is."""
    path = image(size=SIZE)
    pair = Pair(tmp_path, path, cache, random.Random(f"{SEED} {cache} {turn}"))
    async with pair.running() as (source, _):
        await source.execute("batchflush-power-cut", node_name="disk", guest="run")
        await source.execute("nbd-server-stop")
        await pair.move(source)
        while (await source.execute("query-migrate"))["status"] != "failed":
            await asyncio.sleep(0.002)
        await source.execute("batchflush-power-restore", node_name="disk")
        assert (await source.execute("query-status"))["running"]
        assert await promptly(source.quit()) == 0
