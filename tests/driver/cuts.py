# SPDX-License-Identifier: GPL-2.0-or-later
"""Power cuts under a load that verifies: what is left has to be what the contract permits."""

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import Image
from load import SIZE, WRITERS, Load, times
from oracle import SECTOR, Covered, Oracle
from programs import Options, Program, daemon, disk, file

from batchflush import paths
from batchflush.nbd import RequestError

CUTS = int(os.environ.get("BF_CUTS") or 25)
POLICIES = ("drop-all", "prefix", "subset", "torn")
# A cut that waits for its moment comes after at most so many requests, or after this time.
COUNT = 12
SOON_NS = 2_000_000
# Rarely, everything is made durable and the disk's times change.
REOPEN_ONE_IN = 8


@dataclass
class BatteryOracle(Oracle):
    """A battery holds what was completed; should it give up, nothing that it held is durable."""

    def complete(self, offset: int, length: int, durable: bool) -> None:
        super().complete(offset, length, False)

    def flushed(self, covered: Covered) -> None:
        pass

    def lost_of_completed(self, medium: bytes) -> list[int]:
        return [
            index
            for index, sector in self.sectors.items()
            if medium[index * SECTOR : (index + 1) * SECTOR]
            not in sector.values[sector.complete - sector.first :]
        ]


@dataclass
class Found:
    """What a campaign of cuts has seen."""

    cuts: int = 0
    kept_bytes: int = 0
    lost_bytes: int = 0
    hold_ups_over: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Campaign:
    """Cuts of one disk in one process, with writers at work at each of them."""

    program: Program
    load: Load
    found: Found
    battery: bool

    @property
    def random(self) -> random.Random:
        return self.load.random

    def order(self) -> dict[str, Any]:
        """A cut: when, and what is to survive."""
        when = self.random.choice(("now", "now", "flush", "write", "in-flush", "time"))
        order: dict[str, Any] = {
            "guest": "run",
            "when": when,
            "policy": self.random.choice(POLICIES),
            "seed": self.random.randrange(1 << 32),
        }
        if when in ("flush", "write", "in-flush"):
            order["count"] = self.random.randint(1, COUNT)
        if when == "time":
            order["ns"] = self.random.randrange(SOON_NS)
        return order

    async def writer(self, index: int) -> None:
        """Works until the power is gone."""
        while True:
            try:
                await self.load.step(self.load.connections[index], index)
            except RequestError:
                return
            except AssertionError as error:
                self.found.wrong.append(f"a read: {error}")
            self.load.requests += 1

    async def cut(self) -> None:
        """One cut, the end of the hold-up perhaps, the power's return, and a look at all."""
        order = self.order()
        enough = self.load.requests + self.random.randrange(60)
        with self.program.monitor.listener("BATCHFLUSH_POWER_CUT") as events:
            writers = [asyncio.create_task(self.writer(i)) for i in range(WRITERS)]
            while self.load.requests < enough and not any(w.done() for w in writers):
                await asyncio.sleep(0)
            await self.program.execute("batchflush-power-cut", node_name="disk", **order)
            await asyncio.gather(*writers)
            self.count((await events.get())["data"]["nodes"])
        held = self.battery
        if self.battery and self.random.random() < 0.5:
            await self.end_hold_up()
            held = False
        await self.program.execute("batchflush-power-restore")
        await self.look(order, held)

    def count(self, nodes: Sequence[dict[str, Any]]) -> None:
        self.found.cuts += 1
        self.found.kept_bytes += nodes[0]["kept-bytes"]
        self.found.lost_bytes += nodes[0]["lost-bytes"]

    async def end_hold_up(self) -> None:
        with self.program.monitor.listener("BATCHFLUSH_HOLD_UP_OVER") as events:
            await self.program.execute("batchflush-battery", state="failed")
            await events.get()
        await self.program.execute("batchflush-battery", state="charged")
        self.found.hold_ups_over += 1

    async def look(self, order: dict[str, Any], held: bool) -> None:
        oracle = self.load.oracle
        data = await self.load.connections[0].read(0, len(oracle.data))
        lost = oracle.lost(data)
        if held and isinstance(oracle, BatteryOracle):
            lost += oracle.lost_of_completed(data)
        if lost:
            self.found.wrong.append(f"cut {self.found.cuts}, {order}: sectors {lost}")
        oracle.data[:] = data
        # Without a battery that is durable now; with one, what was destaged is older.
        if not held:
            oracle.sectors.clear()
        for index in list(oracle.sectors):
            sector = oracle.sectors[index]
            sector.values.append(data[index * SECTOR : (index + 1) * SECTOR])
            sector.complete = sector.first + len(sector.values) - 1


async def cut_often(
    folder: Path,
    image: Image,
    options: Options,
    cuts: int,
    seed: str,
    *,
    until_wrong: bool = False,
    iothread: bool = False,
    program: Path = paths.STORAGE_DAEMON,
) -> Found:
    """Cut a disk's power that often. until_wrong: until something is lost that may not be."""
    choose = random.Random(seed)
    path = image(size=SIZE, pattern=0xAA)
    battery = options["write_cache"] == "battery"
    oracle = (BatteryOracle if battery else Oracle)(bytearray(path.read_bytes()))
    load = Load(oracle, choose, options["write_cache"] == "none", folder)
    medium = {**file(path), "node-name": "medium", "discard": "unmap"}

    def node() -> Options:
        slow = {"flush_latency_ns": 300_000, "write_latency_ns": 20_000}
        return disk("medium", discard="unmap", **{**times(choose), **slow, **options})

    found = Found()
    async with daemon(folder, medium, node(), iothread=iothread, program=program) as started:
        async with load.connected():
            campaign = Campaign(started, load, found, battery)
            while found.cuts < cuts and not (until_wrong and found.wrong):
                await campaign.cut()
                if found.cuts % REOPEN_ONE_IN == 0:
                    # It drains the disk, and so what any cache holds is durable.
                    await started.execute("blockdev-reopen", options=[node()])
                    oracle.sectors.clear()
        assert await started.quit() == 0
        assert started.said() == ""
    if not found.wrong:
        assert path.read_bytes() == oracle.data
    return found
