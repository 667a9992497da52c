# SPDX-License-Identifier: GPL-2.0-or-later
"""Does a disk of a class do what the class states? At the node, and as a guest sees it.

What a class states is computed from its options: by hand where its latencies are fixed, so that
the model is checked too, else by the model alone (bf-curve). It is compared with two things,
each in virtual time:

- the node on a stepped clock, exactly (stepped.py), and
- fio in a guest, less what the same guest takes on a disk without times. Loads that take less
  than ten times that are left to the node. Where several requests are under way, the guest's
  own work is done beside the disk's, so nothing is taken off.
"""

import asyncio
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rich.table import Table

from batchflush import build, paths, profiles, progress
from batchflush.bench import Number
from batchflush.benchmarks import classes_guest, figures, stepped
from batchflush.errors import BatchflushError
from batchflush.guest import packages
from batchflush.guest.command_line import Disk
from batchflush.profiles import Profile

NAME = "classes"
HELP = "IOPS, bandwidth and flush time of each class, stated and measured at node and guest"

DISK_BYTES = 256 << 20
BLOCK = 4096
LARGE_BLOCK = 256 << 10
DEEP = 32
SEQUENTIAL_DEPTH = 4
# Of what a guest takes on a disk without times; what is faster is checked at the node.
SLOW_ENOUGH = 10
LIMIT_PERCENT = 5
RESULTS = paths.BENCH / "classes.json"
CURVE = paths.MODEL_BUILD / "tests/unit/bf-curve"

# Options of a class that is not computed by hand.
BY_MODEL = ("rpm", "latency-spread", "flush-spread", "interface-bandwidth")


@dataclass(frozen=True)
class Load:
    """How a disk is used; what it takes is told per request, a flush included."""

    name: str
    write: bool
    depth: int = 1
    block: int = BLOCK
    sequential: bool = False
    flush: bool = False

    def told(self, ns: float) -> str:
        if self.flush:
            return f"{ns / 1000:,.1f} µs"
        if self.sequential:
            return f"{self.block / ns * 1000:,.1f} MB/s"
        return f"{1e9 / ns:,.0f} /s"


READ = Load("read", write=False)
READ_DEEP = Load("read, deep", write=False, depth=DEEP)
STREAM = Load("stream", write=False, depth=SEQUENTIAL_DEPTH, block=LARGE_BLOCK, sequential=True)
DURABLE = Load("write + flush", write=True, flush=True)
WRITE = Load("write", write=True)
WRITE_DEEP = Load("write, deep", write=True, depth=DEEP)
# In this order on one disk: reads before anything is cached, a flush while little is dirty.
LOADS = (READ, READ_DEEP, STREAM, DURABLE, WRITE, WRITE_DEEP)


@dataclass(frozen=True)
class Cell:
    """A load on a class, in ns per request; the names of the fields are those of classes.json."""

    profile: str
    load: str
    stated: float
    by: str  # who computed it: hand or model
    node: float
    guest: float | None  # None: faster than ten times the guest's own cost
    guest_cost: float

    @property
    def node_percent(self) -> float:
        return deviation_percent(self.node, self.stated)

    @property
    def guest_percent(self) -> float | None:
        return None if self.guest is None else deviation_percent(self.guest, self.stated)


def deviation_percent(measured: float, stated: float) -> float:
    return (measured / stated - 1) * 100


# What a class states


def option(profile: Profile, name: str, default: int = 0) -> int:
    setting = profile.node.get(name)
    return default if setting is None else int(setting.value)


def cache_of(profile: Profile) -> str:
    return str(profile.node["write-cache"].value) if "write-cache" in profile.node else "none"


def flushes(profile: Profile) -> bool:
    """Whether Linux sends flushes: only to a disk that reports a cache."""
    return profile.front_end["write-cache"].value == "on"


def stated_by(profile: Profile) -> str:
    return "model" if any(name in profile.node for name in BY_MODEL) else "hand"


def stated(profile: Profile, size: int = DISK_BYTES) -> tuple[dict[Load, float], str]:
    """Nanoseconds per request of each load, in the order of LOADS, and who says so."""
    by = stated_by(profile)
    times = by_hand(profile) if by == "hand" else by_model(profile, size)
    return {load: times[load] for load in LOADS if load in times}, by


def by_hand(profile: Profile) -> dict[Load, float]:
    """Of fixed latencies, `queue-depth` lanes and one channel that all data goes through."""
    lanes = option(profile, "queue-depth", 32)
    bandwidth = option(profile, "bandwidth")

    def transfer(load: Load) -> float:
        return load.block * 1e9 / bandwidth if bandwidth else 0

    def medium(load: Load, latency: float) -> float:
        taken = latency + transfer(load)
        return max(taken / min(load.depth, lanes), transfer(load))

    read = option(profile, "read-latency-ns")
    write = option(profile, "write-latency-ns")
    flush = option(profile, "flush-latency-ns")
    times = {load: medium(load, read) for load in (READ, READ_DEEP, STREAM)}
    match cache_of(profile):
        case "none":
            times |= {load: medium(load, write) for load in (WRITE, WRITE_DEEP)}
            flush = option(profile, "flush-clean-latency-ns", flush)
        case cache:
            times |= {load: write / load.depth for load in (WRITE, WRITE_DEEP)}
            if cache == "volatile":
                flush += medium(DURABLE, option(profile, "destage-latency-ns"))
    times[DURABLE] = times[WRITE] + (flush if flushes(profile) else 0)
    return times


def by_model(profile: Profile, size: int = DISK_BYTES) -> dict[Load, float]:
    """Of the model alone; the stream by hand."""
    options = [
        part for name, s in profile.node.items() for part in ("--option", f"{name}={s.value}")
    ]
    done = subprocess.run(
        [CURVE, "--size", str(size), *options], capture_output=True, text=True
    )  # fmt: skip
    if done.returncode != 0:
        raise BatchflushError(f"{paths.shown(CURVE)} failed: {done.stderr.strip()}")
    curve = json.loads(done.stdout)
    iops = {row["depth"]: row for row in curve["iops"]}
    flush = {row["dirty_bytes"]: row["random_ns"] for row in curve["flush"]}
    times = {
        load: 1e9 / iops[load.depth]["write" if load.write else "read"]
        for load in (READ, READ_DEEP, WRITE, WRITE_DEEP)
    }
    if option(profile, "bandwidth"):
        times[STREAM] = stream_ns(profile)
    dirty = BLOCK if cache_of(profile) != "none" else 0
    times[DURABLE] = times[WRITE] + (flush[dirty] if flushes(profile) else 0)
    return times


def stream_ns(profile: Profile) -> float:
    """A large block at the medium's bandwidth, and its share of going on to the next tracks."""
    transfer = LARGE_BLOCK * 1e9 / option(profile, "bandwidth")
    rpm = option(profile, "rpm")
    if not rpm:
        return transfer
    tracks = option(profile, "tracks-per-cylinder", 4)
    moves = (tracks - 1) * option(profile, "track-switch-ns") + option(profile, "seek-settle-ns")
    return transfer * (1 + moves / (tracks * 60e9 / rpm))


# Measuring


def requests(profile: Profile, load: Load) -> int:
    """Enough for a mean, more where it has to even out chance; and writes no more than a
    quarter of the cache holds.
    """
    by_chance = stated_by(profile) == "model"
    if load is STREAM:
        # A head has to find the beginning first.
        return 768 if by_chance else 64
    count = 960 if load.depth == DEEP else 800 if by_chance else 200
    cache, size = cache_of(profile), option(profile, "cache-size", 64 << 20)
    if not load.write or cache == "none" or (load is DURABLE and cache == "volatile"):
        return count
    room = size // 4
    if load is DURABLE and (mark := option(profile, "destage-high-percent")):
        # What goes to the medium meanwhile is in the way of an exclusive flush.
        room = min(room, size * mark // 200)
    return min(count, room // load.block)


async def at_node(profile: Profile, times: Mapping[Load, float]) -> dict[Load, float]:
    measured = {}
    async with stepped.running(profile.node_options(), DISK_BYTES) as node:
        for load in times:
            count = requests(profile, load)
            if load.flush:
                measured[load] = await node.durable(count, flushes(profile))
            else:
                measured[load] = await node.closed_loop(
                    load.write, min(load.depth, count), count, load.block, load.sequential
                )
            if load.write:
                await node.flush()
    return measured


def guest_loads(times: Mapping[Load, float], cost: Mapping[Load, float]) -> list[Load]:
    return [load for load in times if times[load] >= SLOW_ENOUGH * cost[load]]


class Guests:
    """Runs fio in guests; what a front end costs is measured once."""

    def __init__(self, kernel: packages.Kernel) -> None:
        self._kernel = kernel
        self._costs: dict[tuple[str, str], dict[Load, float]] = {}

    async def cost(self, profile: Profile) -> dict[Load, float]:
        """Of each load on a disk without times, behind the same front end."""
        front_end = tuple(str(profile.front_end[name].value) for name in ("device", "write-cache"))
        if front_end not in self._costs:
            # A node without options emulates nothing.
            without_times = replace(profile, node={}, built_in=False)
            disk = Disk(without_times, {}, DISK_BYTES)
            counts = {load: requests(profile, load) for load in LOADS}
            self._costs[front_end] = await classes_guest.measure(self._kernel, disk, counts)
        return self._costs[front_end]

    async def measure(self, profile: Profile, times: Mapping[Load, float]) -> dict[Load, float]:
        """What the disk took, the guest's own cost taken off where it comes on top."""
        cost = await self.cost(profile)
        counts = {load: requests(profile, load) for load in guest_loads(times, cost)}
        if not counts:
            return {}
        took = await classes_guest.measure(self._kernel, Disk(profile, {}, DISK_BYTES), counts)
        return {load: ns - (cost[load] if load.depth == 1 else 0) for load, ns in took.items()}


async def check(profile: Profile, guests: Guests) -> list[Cell]:
    times, by = stated(profile)
    node = await at_node(profile, times)
    seen = await guests.measure(profile, times)
    cost = await guests.cost(profile)
    return [
        Cell(profile.name, load.name, round(times[load], 1), by, round(node[load], 1),
             round(seen[load], 1) if load in seen else None, round(cost[load], 1))
        for load in times
    ]  # fmt: skip


def prepare() -> packages.Kernel:
    build.qemu()
    build.model()
    return packages.with_programs(packages.prepare(), "fio", ["fio"])


def measure() -> list[Number]:
    kernel = prepare()
    everything = list(profiles.load().values())
    with progress.step("Checking what the classes state") as step:
        cells = asyncio.run(_run_all(kernel, everything, step.update))
    paths.BENCH.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    progress.console.print(table(cells))
    figures.keep("classes", summary(cells))
    print(f"cells: {paths.shown(RESULTS)}")
    return numbers(cells)


async def _run_all(
    kernel: packages.Kernel,
    everything: Sequence[Profile],
    update: Callable[[float, float, str], None],
) -> list[Cell]:
    guests = Guests(kernel)
    cells: list[Cell] = []
    for number, profile in enumerate(everything):
        update(number, len(everything), profile.name)
        cells += await check(profile, guests)
    return cells


# Showing


def numbers(cells: Sequence[Cell]) -> list[Number]:
    node = max(abs(cell.node_percent) for cell in cells)
    in_guest = [abs(p) for cell in cells if (p := cell.guest_percent) is not None]
    return [
        Number("classes_node_worst_percent", node, at_most=LIMIT_PERCENT),
        Number("classes_guest_worst_percent", max(in_guest), at_most=LIMIT_PERCENT),
        Number("classes_guest_cells", len(in_guest), at_least=1),
    ]


def summary(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """A row for each class: what a guest sees beside what is stated, in percent."""

    def told(profile: str, load: Load) -> str:
        cell = next((c for c in cells if (c.profile, c.load) == (profile, load.name)), None)
        if cell is None:
            return "none"
        return "too fast" if cell.guest_percent is None else f"{cell.guest_percent:+.2f}"

    def worst(profile: str) -> str:
        return f"{max((c.node_percent for c in cells if c.profile == profile), key=abs):+.2f}"

    names = dict.fromkeys(cell.profile for cell in cells)
    return [
        ("class", *(load.name for load in LOADS), "node, worst"),
        *((name, *(told(name, load) for load in LOADS), worst(name)) for name in names),
    ]


def table(cells: Sequence[Cell]) -> Table:
    by_name = {load.name: load for load in LOADS}
    result = Table(
        "class", "load", "stated", "by", "node", "guest",
        title=f"What the classes state; deep: {DEEP} requests under way, stream: "
        f"{SEQUENTIAL_DEPTH} of {LARGE_BLOCK >> 10} KiB",
        caption="node, guest: deviation from it; -: too fast for the guest",
        title_justify="left", caption_justify="left",
    )  # fmt: skip
    shown = ""
    for cell in cells:
        seen = cell.guest_percent
        name = cell.profile if cell.profile != shown else ""
        shown = cell.profile
        result.add_row(
            name, cell.load, by_name[cell.load].told(cell.stated), cell.by,
            f"{cell.node_percent:+.2f} %", "-" if seen is None else f"{seen:+.2f} %",
        )  # fmt: skip
    return result
