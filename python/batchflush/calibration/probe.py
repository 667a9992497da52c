# SPDX-License-Identifier: GPL-2.0-or-later
"""The fio runs that a class is fitted to, the same on real storage and in a guest.

All I/O is direct, so the page cache is not in it. Each run is bounded twice, in time and in
requests, so a probe is short on a slow disk and writes little on a fast one.

What is kept of a run is its mean rate and the quantiles of its latencies. The mean time of a
request is taken from the rate: it has everything in it that software waits for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from batchflush.errors import BatchflushError

BLOCK = 4096
DEPTHS = (1, 2, 4, 8, 16, 32)
# Blocks written before a flush.
DIRTY = (1, 4, 16, 64)
SEQUENTIAL_BLOCK = 1 << 20
SEQUENTIAL_DEPTH = 4
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9)
# A quantile is worth something if so many requests lie beyond it.
BEYOND = 5


@dataclass(frozen=True)
class Limits:
    """Of one run: whichever comes first. bytes: of the part that is touched at all."""

    seconds: float
    requests: int
    bytes: int


@dataclass(frozen=True)
class Run:
    """One run of fio. dirty: a flush follows that many writes; 0 is no flush at all."""

    name: str
    operation: str  # fio's: read, write, randread, randwrite
    depth: int
    dirty: int = 0

    @property
    def block(self) -> int:
        return BLOCK if self.operation.startswith("rand") else SEQUENTIAL_BLOCK

    @property
    def writes(self) -> bool:
        return self.operation.endswith("write")


READS = (
    *(Run(f"read at depth {depth}", "randread", depth) for depth in DEPTHS),
    Run("read in sequence", "read", SEQUENTIAL_DEPTH),
)
WRITES = (
    *(Run(f"write at depth {depth}", "randwrite", depth) for depth in DEPTHS),
    Run("write in sequence", "write", SEQUENTIAL_DEPTH),
    *(Run(f"flush after {n} writes", "randwrite", 1, n) for n in DIRTY),
)
# Gives every block of a new file its place, so that no later write has to.
FILL = Run("fill", "write", SEQUENTIAL_DEPTH)


@dataclass(frozen=True)
class Measured:
    """per_second: requests. quantiles: percentile → ns, of a flush if the run has flushes."""

    per_second: float
    mean_ns: float
    quantiles: Mapping[float, float]

    @property
    def median_ns(self) -> float:
        return self.quantiles[50]


@dataclass(frozen=True)
class Probe:
    """Everything measured on one disk, by the name of the run."""

    runs: Mapping[str, Measured] = field(default_factory=dict)

    def iops(self, kind: str) -> dict[int, float]:
        """Depth → 4 KiB requests per second; kind: read or write."""
        named = {depth: self.runs.get(f"{kind} at depth {depth}") for depth in DEPTHS}
        return {depth: run.per_second for depth, run in named.items() if run}

    def latency(self, kind: str) -> Measured:
        """Of one 4 KiB request at a time."""
        return self.runs[f"{kind} at depth 1"]

    def bandwidth(self, kind: str) -> float:
        """Bytes per second in sequence."""
        return self.runs[f"{kind} in sequence"].per_second * SEQUENTIAL_BLOCK

    def flushes(self) -> dict[int, Measured]:
        """Blocks written before → the flushes."""
        named = {n: self.runs.get(f"flush after {n} writes") for n in DIRTY}
        return {n: run for n, run in named.items() if run}

    @property
    def writes(self) -> bool:
        return "write at depth 1" in self.runs

    def record(self) -> dict[str, Any]:
        return {name: asdict(run) for name, run in self.runs.items()}


def runs(writes: bool) -> Iterator[Run]:
    yield from READS
    if writes:
        yield from WRITES


def command(run: Run, file: str, limits: Limits) -> list[str]:
    """fio's command line; it prints JSON."""
    # With libaio the time of a flush would have in it that of the write before.
    engine = "psync" if run.dirty else "libaio"
    result = [
        "fio", "--name=probe", f"--filename={file}", f"--size={limits.bytes}", "--direct=1",
        f"--rw={run.operation}", f"--bs={run.block}", f"--ioengine={engine}",
        f"--iodepth={run.depth}", "--thread", "--norandommap", "--randrepeat=1",
        "--percentile_list=" + ":".join(f"{p:g}" for p in PERCENTILES), "--output-format=json",
    ]  # fmt: skip
    if run is FILL:
        return [*result, "--end_fsync=1"]
    # In sequence as many bytes, not as many requests, as at random.
    requests = max(1, limits.requests * BLOCK // run.block)
    result += [f"--runtime={limits.seconds:g}", f"--number_ios={max(requests, 2 * run.dirty)}"]
    if run.dirty:
        result.append(f"--fdatasync={run.dirty}")
    if not run.writes:
        result.append("--readonly")
    return result


def parse(run: Run, printed: str) -> Measured:
    """What fio printed of the run; there may be warnings before its JSON."""
    try:
        told = json.loads(printed[printed.index("{\n") :])
    except ValueError as error:
        raise BatchflushError(f"fio did not say what came out of '{run.name}'") from error
    return extract(run, told)


def extract(run: Run, told: Mapping[str, Any]) -> Measured:
    """What fio's JSON says of the run."""
    try:
        job = told["jobs"][0]
        direction = job["write" if run.writes else "read"]
        latency = job["sync"]["lat_ns"] if run.dirty else direction["clat_ns"]
        quantiles = {float(p): float(ns) for p, ns in latency["percentile"].items()}
        rate = float(direction["iops"])
        mean = float(latency["mean"]) if run.dirty else run.depth * 1e9 / rate
        return Measured(rate, mean, _trusted(quantiles, latency["N"]))
    except (KeyError, IndexError, ZeroDivisionError) as error:
        raise BatchflushError(f"fio measured nothing in '{run.name}'") from error


def middle(rounds: Sequence[Measured]) -> Measured:
    """The median of several rounds, number by number: one that was disturbed does not count."""
    common = set.intersection(*(set(run.quantiles) for run in rounds))
    return Measured(
        median(run.per_second for run in rounds),
        median(run.mean_ns for run in rounds),
        {p: median(run.quantiles[p] for run in rounds) for p in sorted(common)},
    )


def _trusted(quantiles: Mapping[float, float], count: int) -> dict[float, float]:
    """Without those that only a handful of requests stand behind."""
    return {
        p: ns for p, ns in quantiles.items() if p == 50 or min(p, 100 - p) / 100 * count >= BEYOND
    }


def bytes_written(selected: Iterable[Run], limits: Limits) -> int:
    """How much the runs write at most."""
    return sum(
        limits.bytes if run is FILL else limits.requests * BLOCK for run in selected if run.writes
    )
