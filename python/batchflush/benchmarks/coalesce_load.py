# SPDX-License-Identifier: GPL-2.0-or-later
"""Writers on the real driver: nodes in a storage daemon, each writer its own NBD connection.

A writer writes 4 KiB, waits for it, flushes, waits for that, and starts over. The nodes'
medium is memory and their clock the host's.
"""

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient
from qemu.qmp.error import QMPError

from batchflush import nbd, paths, processes
from batchflush.errors import BatchflushError

BLOCK = bytes(4096)
MS = 1_000_000
TRIES = 5
# So many standard errors are far.
FAR = 5

Options = Mapping[str, Any]


class Daemon:
    """A running storage daemon; made by daemon()."""

    def __init__(self, server: Path, monitor: QMPClient, stack: contextlib.AsyncExitStack) -> None:
        self._server, self._monitor, self._stack = server, monitor, stack
        self._connections: dict[str, list[nbd.Connection]] = {}

    async def writers(self, node: str, count: int) -> list[nbd.Connection]:
        """As many connections to the node; they stay for later."""
        connections = self._connections.setdefault(node, [])
        while len(connections) < count:
            connected = nbd.connected(self._server, node)
            connections.append(await self._stack.enter_async_context(connected))
        return connections[:count]

    async def statistics(self, node: str) -> dict[str, Any]:
        for entry in await self._monitor.execute("query-blockstats", {"query-nodes": True}):
            if entry.get("node-name") == node:
                return entry["driver-specific"]
        raise BatchflushError(f"query-blockstats does not tell of the node {node!r}")


@contextlib.asynccontextmanager
async def daemon(nodes: Mapping[str, Options]) -> AsyncIterator[Daemon]:
    """A storage daemon that exports batchflush nodes: name → options.

    The option `serialised-by`, a node's name, is none of batchflush's: such a node is QEMU's
    raw in front of that one, and the block layer lets one flush after the other into it, as
    it does with every node whose driver does not ask for more.
    """
    arguments: list[str] = []
    for name, options in nodes.items():
        arguments += ["--blockdev", json.dumps(_node(name, options))]
        arguments += ["--export", f"type=nbd,id={name},node-name={name},writable=on"]
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="batchflush-") as name:
        folder = Path(name)
        server, log = folder / "nbd", folder / "log"
        arguments = ["--nbd-server", f"addr.type=unix,addr.path={server},max-connections=0",
                     *arguments]  # fmt: skip
        ours, theirs = socket.socketpair()
        with theirs, log.open("wb") as file:
            child = processes.start(
                [paths.STORAGE_DAEMON, *arguments,
                 "--chardev", f"socket,id=monitor,fd={theirs.fileno()}",
                 "--monitor", "chardev=monitor"],
                stdout=file, stderr=subprocess.STDOUT, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        monitor = QMPClient("batchflush")
        try:
            # It answers once all of the command line is done.
            try:
                await monitor.connect(ours)
            except (QMPError, OSError) as error:
                raise BatchflushError(f"the storage daemon: {log.read_text().strip()}") from error
            async with contextlib.AsyncExitStack() as stack:
                yield Daemon(server, monitor, stack)
        finally:
            await asyncio.to_thread(processes.stop, child)
            with contextlib.suppress(QMPError, OSError, EOFError):
                await monitor.disconnect()


def _node(name: str, options: Options) -> Options:
    if "serialised-by" in options:
        return {"driver": "raw", "node-name": name, "file": options["serialised-by"]}
    medium = {"driver": "batchflush-memory", "size": 1 << 20}
    return {"driver": "batchflush", "node-name": name, "file": medium, **options}


async def together_ms(writers: Sequence[nbd.Connection]) -> float:
    """All write, then all flush at once: from there until the last is done."""
    await asyncio.gather(*(w.write(i * len(BLOCK), BLOCK) for i, w in enumerate(writers)))
    started = time.monotonic()
    await asyncio.gather(*(writer.flush() for writer in writers))
    return (time.monotonic() - started) * 1e3


async def cycles_per_second(
    writers: Sequence[nbd.Connection], seconds: float, stagger_seconds: float = 0
) -> float:
    """The rate of all writers together in a closed loop; the first fifth does not count.

    Tried again if the host stood still for so long that there was nothing to count.
    """
    for _ in range(TRIES):
        begin = time.monotonic()
        done = await _completions(writers, begin + seconds, stagger_seconds)
        counted = rate(done, begin + seconds / 5, begin + seconds)
        if counted:
            return counted
    raise BatchflushError(
        f"hardly a flush was done in {seconds} s, {TRIES} times", "is the machine very busy?"
    )


async def _completions(
    writers: Sequence[nbd.Connection], until: float, stagger_seconds: float
) -> list[float]:
    """The instants at which cycles were done; the last ones are after the end."""
    done: list[float] = []

    async def write(index: int, writer: nbd.Connection) -> None:
        await asyncio.sleep(index * stagger_seconds)
        while time.monotonic() < until:
            await writer.write(index * len(BLOCK), BLOCK)
            await writer.flush()
            done.append(time.monotonic())

    await asyncio.gather(*(write(index, writer) for index, writer in enumerate(writers)))
    return done


def rate(completions: Sequence[float], begin: float, end: float) -> float | None:
    """Per second, between the first completion after `begin` and the first after `end`.

    Members of a batch complete together: so the count begins and ends with a batch.
    """
    first = next((i for i, at in enumerate(completions) if at >= begin), None)
    last = next((i for i, at in enumerate(completions) if at >= end), len(completions) - 1)
    if first is None or last <= first:
        return None
    return (last - first) / (completions[last] - completions[first])


@dataclass(frozen=True)
class Median:
    """Of some figures that should be the same; spread is half of where the middle half lies."""

    value: float
    spread: float

    @staticmethod
    def of(figures: Sequence[float]) -> "Median":
        if len(figures) < 2:
            return Median(figures[0], 0)
        low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
        return Median(middle, (high - low) / 2)

    def error(self, count: int) -> float:
        """The standard error of the median of `count` figures, if they are spread normally."""
        return 1.25 * self.spread / 0.674 / count**0.5


@dataclass(frozen=True)
class Comparison:
    """One of several ways against the better of the others; slowdown in percent."""

    rates: Mapping[str, Median]
    slowdown: Median
    rounds: int


Measurement = Callable[[], Awaitable[float]]


@dataclass(frozen=True)
class Effort:
    """How many rounds a comparison takes.

    At least `fewest`. It ends when the slowdown's standard error is below `error`, or when
    the slowdown is far below `limit`, both in percent, or after `most`.
    """

    fewest: int
    most: int
    error: float
    limit: float

    def enough(self, slowdown: Median, rounds: int) -> bool:
        error = slowdown.error(rounds)
        clear = error <= self.error or slowdown.value + FAR * error < self.limit
        return rounds >= self.most or (rounds >= self.fewest and clear)


async def compare(
    ways: Mapping[str, Measurement], one: str, effort: Effort, *, at_once: bool = False
) -> Comparison:
    """Measure rates in turns, so that whatever else the machine does hits all ways alike.

    at_once: side by side instead. What is so short that the host decides about its rate
    differs far less between neighbours than from one moment to the next. Time that waits
    take shows as it does in turns; time of the processor that one way takes slows them all.
    """
    rates: dict[str, list[float]] = {way: [] for way in ways}
    names = list(ways)
    while True:
        if at_once:
            measured = await asyncio.gather(*(ways[name]() for name in names))
        else:
            measured = [await ways[name]() for name in names]
        for name, figure in zip(names, measured, strict=True):
            rates[name].append(figure)
        # None is always the first.
        names = [*names[1:], names[0]]
        result = compared(rates, one)
        if effort.enough(result.slowdown, result.rounds):
            return result


def compared(rates: Mapping[str, Sequence[float]], one: str) -> Comparison:
    medians = {way: Median.of(figures) for way, figures in rates.items()}
    best = max((way for way in rates if way != one), key=lambda way: medians[way].value)
    pairs = zip(rates[best], rates[one], strict=True)
    slowdowns = [(better / figure - 1) * 100 for better, figure in pairs]
    return Comparison(medians, Median.of(slowdowns), len(slowdowns))
