# SPDX-License-Identifier: GPL-2.0-or-later
"""How late requests are: what the node counts, and what a client sees of it.

Inside the node lateness is the completion minus the model's instant. A node could fool itself
about that, so a client compares it with QEMU's null-co and nbdkit's delay filter
(lateness_outside.py). On a host that is busy with something else the numbers say how busy; what
a bare thread gets, which does nothing but wait for an instant, is what no node can better.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from batchflush import build, progress
from batchflush.bench import Number
from batchflush.benchmarks import figures, lateness_outside, nbd_load
from batchflush.benchmarks.nbd_servers import Options, storage_daemon

NAME = "lateness"
HELP = "how late requests are completed, in the node and beside null-co and nbdkit"

US = 1_000
MS = 1_000_000
SIZES = (10 * US, 20 * US, 50 * US, 100 * US, 200 * US, 500 * US, 1 * MS, 2 * MS)
LONG = 20 * MS
MAIN_LOOP_SIZES = (100 * US, 1 * MS)
SECONDS = 1.2
# It takes some time to have enough for a 99th percentile.
REQUESTS = 2_000
LONG_REQUESTS = 250
# What a bare thread spins for at most: what the node does by default, see spin-max-ns.
SPIN_NS = 300 * US
# So that its instants are not in step with the host's clock tick.
JITTER = 0.1


def measure() -> list[Number]:
    build.qemu()
    load = os.getloadavg()[0]
    iothread = _inside("in an iothread", [*SIZES, LONG], iothread=True)
    main_loop = _inside("in the main loop", MAIN_LOOP_SIZES, iothread=False)
    bare = _bare(SIZES)
    rows = _rows({"iothread": iothread, "main loop": main_loop, "bare thread": bare})
    figures.show("lateness-inside", "Lateness inside the node, µs", rows)

    def worst(told: Mapping[int, Any], sizes: Sequence[int], name: str) -> float:
        return max(told[size][name] for size in sizes) / US

    return [
        Number("lateness_p50_us", worst(iothread, SIZES, "p50-ns"), at_most=1),
        Number("lateness_p99_us", worst(iothread, SIZES, "p99-ns"), at_most=10),
        Number("lateness_20ms_p99_us", iothread[LONG]["p99-ns"] / US, at_most=60),
        Number("lateness_turn_us", _turn(iothread) / US, at_most=2),
        Number("lateness_mainloop_p50_us", worst(main_loop, MAIN_LOOP_SIZES, "p50-ns"), at_most=60),
        *lateness_outside.measure(),
        Number("lateness_host_p99_us", worst(bare, SIZES, "p99-ns")),
        Number("lateness_host_load", load),
    ]


def _node(latency_ns: int) -> Options:
    medium = {"driver": "null-co", "size": 1 << 30}
    return {"driver": "batchflush", "write-latency-ns": latency_ns, "file": medium}


def _inside(where: str, sizes: Sequence[int], *, iothread: bool) -> dict[int, Any]:
    """What each node tells of its writes, by the time that they are to take."""
    seconds = [_seconds(size) for size in sizes]
    nodes = {f"ns{size}": _node(size) for size in sizes}
    with (
        progress.step(f"Measuring lateness {where}") as step,
        storage_daemon(nodes, iothread=iothread) as server,
    ):
        for i, (size, name) in enumerate(zip(sizes, nodes, strict=True)):
            step.update(sum(seconds[:i]), sum(seconds), _time(size))
            nbd_load.write(server.socket, name, seconds[i])
        told = server.statistics()
    return {size: _told(told[name]) for size, name in zip(sizes, nodes, strict=True)}


def _seconds(size: int) -> float:
    return max(SECONDS, (LONG_REQUESTS if size == LONG else REQUESTS) * size / 1e9)


def _bare(sizes: Sequence[int]) -> dict[int, Any]:
    """How late this process is, which sleeps, wakes early and spins as an iothread does."""
    gc.disable()
    try:
        with progress.step("Measuring lateness of a bare thread") as step:
            told = {}
            for i, size in enumerate(sizes):
                step.update(i, len(sizes), _time(size))
                told[size] = _quantiles([_late(size) for _ in range(REQUESTS)])
    finally:
        gc.enable()
    return told


def _late(size: int) -> int:
    now = time.monotonic_ns
    instant = now() + int(size * random.uniform(1 - JITTER, 1 + JITTER))
    if instant - now() > SPIN_NS:
        time.sleep((instant - now() - SPIN_NS) / 1e9)
    while (at := now()) < instant:
        pass
    return at - instant


def _quantiles(values: list[int]) -> dict[str, Any]:
    values.sort()
    count = len(values)
    return {
        "count": count,
        "p50-ns": values[count // 2],
        "p99-ns": values[count * 99 // 100],
        "max-ns": values[-1],
    }


def _told(statistics: Mapping[str, Any]) -> dict[str, Any]:
    return {**statistics["lateness"][0], "spin-turns": statistics["spin-turns"]}


def _turn(told: Mapping[int, Any]) -> int:
    """The median of the ns in which a thread that spins looks at what else there is to do."""
    counts: Counter[int] = Counter()
    for entry in told.values():
        counts.update({bucket["upper"]: bucket["count"] for bucket in entry["spin-turns"]})
    return statistics.median_low(counts.elements())


def _time(ns: int) -> str:
    return f"{ns // MS} ms" if ns >= MS else f"{ns // US} µs"


def _rows(measured: Mapping[str, Mapping[int, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("where", "takes", "requests", "p50", "p99", "max")]
    for where, told in measured.items():
        for size, entry in told.items():
            values = (f"{entry[name] / US:,.2f}" for name in ("p50-ns", "p99-ns", "max-ns"))
            rows.append((where, _time(size), f"{entry['count']:,}", *values))
    return rows
