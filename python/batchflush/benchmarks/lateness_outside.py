# SPDX-License-Identifier: GPL-2.0-or-later
"""Lateness as a client sees it: batchflush, QEMU's null-co and nbdkit's delay filter.

fio writes through NBD, the same requests to each, in turns. What a request took, less what was
asked for and less what it takes the same server without any, is what the server has added.

- Without latency requests at depth 32 would queue for one another; with it they do not, as
  their starts are spread over the time that one takes. So either depth is compared with depth
  1 without latency, where a request finds the server idle too.
- The client has a processor of its own that never sleeps (a process of the lowest priority
  keeps it awake): how late the *client* wakes up is nobody's lateness. The server's processor
  is left alone.
"""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from batchflush import processes, progress
from batchflush.bench import Number
from batchflush.benchmarks import figures, nbd_load
from batchflush.benchmarks.nbd_servers import Server, nbdkit, storage_daemon
from batchflush.errors import BatchflushError

US = 1_000
MS = 1_000_000
# Depth → what a request is to take. nbdkit counts in milliseconds.
LATENCY_MS = {1: 1, 32: 16}
ROUNDS = 3
SECONDS = 1.0
# Less than this cannot be told from nothing.
RESOLUTION_US = 1.0
LEAST_RATIO = 10

EXPORT = "disk"
MEDIUM = {"driver": "null-co", "size": 1 << 30}

Start = Callable[[int, list[str]], contextlib.AbstractContextManager[Server]]


def _batchflush(latency_ms: int, prefix: list[str]) -> contextlib.AbstractContextManager[Server]:
    node = {"driver": "batchflush", "write-latency-ns": latency_ms * MS, "file": MEDIUM}
    return storage_daemon({EXPORT: node}, prefix=prefix)


def _null_co(latency_ms: int, prefix: list[str]) -> contextlib.AbstractContextManager[Server]:
    return storage_daemon({EXPORT: {**MEDIUM, "latency-ns": latency_ms * MS}}, prefix=prefix)


def _nbdkit(latency_ms: int, prefix: list[str]) -> contextlib.AbstractContextManager[Server]:
    return nbdkit(EXPORT, latency_ms, 2 * max(LATENCY_MS), prefix)


SERVERS: dict[str, Start] = {
    "batchflush": _batchflush,
    "null-co": _null_co,
    "nbdkit delay": _nbdkit,
}


@dataclass(frozen=True)
class Case:
    """depth 0: without latency, one request at a time."""

    server: str
    depth: int

    def measure(self, client: list[str], host: list[str]) -> float:
        """The median time of a request, in µs."""
        latency = LATENCY_MS.get(self.depth, 0)
        # Spread over the time that a request takes.
        rate = self.depth * 1000 // latency if self.depth > 1 else None
        with SERVERS[self.server](latency, host) as server:
            took = nbd_load.write(
                server.socket, EXPORT, SECONDS,
                depth=max(self.depth, 1), rate=rate, prefix=client,
            )  # fmt: skip
        return statistics.median(took) / US


def measure() -> list[Number]:
    client, host = _processors()
    cases = [Case(server, depth) for depth in (0, *LATENCY_MS) for server in SERVERS]
    times: dict[Case, list[float]] = {case: [] for case in cases}
    with progress.step("Measuring lateness from outside") as step, _kept_awake(client):
        for i in range(ROUNDS * len(cases)):
            case = cases[i % len(cases)]
            step.update(i, ROUNDS * len(cases), f"{case.server}, depth {case.depth}")
            times[case].append(case.measure(client, host))
    medians = {case: statistics.median(took) for case, took in times.items()}
    added = {
        case: took - medians[Case(case.server, 0)] - 1000 * LATENCY_MS[case.depth]
        for case, took in medians.items()
        if case.depth
    }
    title = "Median time of a request as fio sees it, µs"
    figures.show("lateness-outside", title, _rows(medians, added))
    ratio = min(_ratio(added, depth) for depth in LATENCY_MS)
    return [
        Number("lateness_vs_null_co", ratio, at_least=LEAST_RATIO),
        *(
            Number(f"lateness_added_{name}_depth{depth}_us", added[Case(server, depth)])
            for server, name in zip(SERVERS, ("batchflush", "null_co", "nbdkit"), strict=True)
            for depth in LATENCY_MS
        ),
    ]


def _ratio(added: dict[Case, float], depth: int) -> float:
    return added[Case("null-co", depth)] / max(added[Case("batchflush", depth)], RESOLUTION_US)


def _processors() -> tuple[list[str], list[str]]:
    """What confines the client and the server to a processor each."""
    available = sorted(os.sched_getaffinity(0))
    if len(available) < 2:
        raise BatchflushError(
            "lateness cannot be measured from outside on a single processor",
            "client and server need one each",
        )
    return ["taskset", "-c", str(available[0])], ["taskset", "-c", str(available[1])]


@contextlib.contextmanager
def _kept_awake(confined: list[str]) -> Iterator[None]:
    idle = [*confined, "chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]
    with processes.running(idle):
        yield


def _rows(medians: Mapping[Case, float], added: Mapping[Case, float]) -> list[tuple[str, ...]]:
    rows = [("server", "depth", "asked", "took", "without", "added")]
    for case, value in added.items():
        times = (1000 * LATENCY_MS[case.depth], medians[case], medians[Case(case.server, 0)])
        rows.append((case.server, str(case.depth), *(f"{us:,.1f}" for us in (*times, value))))
    return rows
