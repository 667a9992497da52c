# SPDX-License-Identifier: GPL-2.0-or-later
"""Lateness as a client sees it: batchflush, QEMU's null-co and nbdkit's delay filter.

fio writes through NBD, the same requests at the same instants to each, in turns. What a request
took, less what was asked for and less what it takes the same server without any, is what the
server has added.

- With latency and without, requests come as seldom, at random instants: so a server without has
  slept and finds its caches as cold as one with. If each followed the one before, what a sleep
  costs would count as lateness.
- The client has a processor of its own that never sleeps (a process of the lowest priority
  keeps it awake): how late the *client* wakes up is nobody's lateness. The server's processor
  is left alone.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from batchflush import processes, progress
from batchflush.bench import Number
from batchflush.benchmarks import figures, nbd_load
from batchflush.benchmarks.nbd_servers import Server, nbdkit, storage_daemon
from batchflush.errors import BatchflushError

US = 1_000
MS = 1_000_000
# Depth, a connection each → what a request is to take, in ms (nbdkit counts in those), and
# requests per second of all together: half of what they could do.
LOADS = {1: (1, 500), 32: (16, 1000)}
ROUNDS = 16
SECONDS = 0.6
# Less than this cannot be told from nothing.
RESOLUTION_US = 1.0
LEAST_RATIO = 10

MEDIUM = {"driver": "null-co", "size": 1 << 30}
# What an export with latency is called, and one without.
LATE, WITHOUT = "late", "without"

# By the name of the export.
Exports = Mapping[str, Server]
Start = Callable[[int, list[str]], contextlib.AbstractContextManager[Exports]]


@contextlib.contextmanager
def _batchflush(latency_ms: int, prefix: list[str]) -> Iterator[Exports]:
    node = {"driver": "batchflush", "file": MEDIUM}
    nodes = {LATE: {**node, "write-latency-ns": latency_ms * MS}, WITHOUT: node}
    with storage_daemon(nodes, prefix=prefix) as server:
        yield dict.fromkeys(nodes, server)


@contextlib.contextmanager
def _null_co(latency_ms: int, prefix: list[str]) -> Iterator[Exports]:
    nodes = {LATE: {**MEDIUM, "latency-ns": latency_ms * MS}, WITHOUT: MEDIUM}
    with storage_daemon(nodes, prefix=prefix) as server:
        yield dict.fromkeys(nodes, server)


@contextlib.contextmanager
def _nbdkit(latency_ms: int, prefix: list[str]) -> Iterator[Exports]:
    threads = 2 * max(LOADS)
    with (
        nbdkit(LATE, latency_ms, threads, prefix) as late,
        nbdkit(WITHOUT, 0, threads, prefix) as without,
    ):
        yield {LATE: late, WITHOUT: without}


SERVERS: dict[str, Start] = {
    "batchflush": _batchflush,
    "null-co": _null_co,
    "nbdkit delay": _nbdkit,
}


@dataclass(frozen=True)
class Added:
    """In µs. error: the standard error of the median over the rounds."""

    took: float
    without: float
    median: float
    error: float


def measure() -> list[Number]:
    client, host = _processors()
    added: dict[tuple[str, int], Added] = {}
    with progress.step("Measuring lateness from outside") as step, _kept_awake(client):
        for i, connections in enumerate(LOADS):

            def tell(share: float, i: int = i, connections: int = connections) -> None:
                step.update(i + share, len(LOADS), f"depth {connections}")

            for server, it in _measure(connections, client, host, tell).items():
                added[server, connections] = it
    title = "Median time of a request as fio sees it, µs"
    figures.show("lateness-outside", title, _rows(added))
    ratio = min(_ratio(added, connections) for connections in LOADS)
    return [
        Number("lateness_vs_null_co", ratio, at_least=LEAST_RATIO),
        *(
            Number(
                f"lateness_added_{name}_depth{connections}_us", added[server, connections].median
            )
            for server, name in zip(SERVERS, ("batchflush", "null_co", "nbdkit"), strict=True)
            for connections in LOADS
        ),
    ]


def _measure(
    connections: int, client: list[str], host: list[str], tell: Callable[[float], None]
) -> dict[str, Added]:
    """All servers under one load, in turns: from round to round the host changes."""
    latency, rate = LOADS[connections]
    cases = list(itertools.product(SERVERS, (LATE, WITHOUT)))
    times: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(SERVERS[name](latency, host)) for name in SERVERS}
        for i in range(ROUNDS * len(cases)):
            server, export = cases[i % len(cases)]
            tell(i / (ROUNDS * len(cases)))
            took = nbd_load.write(
                running[server][export].socket, export, SECONDS,
                connections=connections, rate=rate, prefix=client,
            )  # fmt: skip
            times[server, export].append(statistics.median(took) / US)
    return {
        server: _added(times[server, LATE], times[server, WITHOUT], 1000 * latency)
        for server in SERVERS
    }


def _added(late: Sequence[float], without: Sequence[float], asked: float) -> Added:
    rounds = [one - other - asked for one, other in zip(late, without, strict=True)]
    first, _, third = statistics.quantiles(rounds, n=4)
    # Of a normal distribution, whose quartiles a round that was disturbed does not move.
    deviation = (third - first) / (2 * statistics.NormalDist().inv_cdf(0.75))
    return Added(
        statistics.median(late),
        statistics.median(without),
        statistics.median(rounds),
        deviation * math.sqrt(math.pi / 2 / len(rounds)),
    )


def _ratio(added: Mapping[tuple[str, int], Added], connections: int) -> float:
    """At least so many times less: what is below the error counts as the error."""
    ours, theirs = (added[server, connections] for server in ("batchflush", "null-co"))
    return theirs.median / max(ours.median, ours.error, RESOLUTION_US)


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


def _rows(added: Mapping[tuple[str, int], Added]) -> list[tuple[str, ...]]:
    rows = [("server", "depth", "asked", "took", "without", "added", "±")]
    for (server, connections), it in added.items():
        times = (1000 * LOADS[connections][0], it.took, it.without, it.median, it.error)
        rows.append((server, str(connections), *(f"{us:,.1f}" for us in times)))
    return rows
