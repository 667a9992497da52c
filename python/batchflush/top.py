# SPDX-License-Identifier: GPL-2.0-or-later
"""What the disks of a running guest do at the moment, as a view that renews itself.

Rates are per second of the disk's clock, so with virtual time per second of the guest's.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from batchflush.attach import HOW_TO_LISTEN, Ended, Node, Qemu, attached
from batchflush.errors import UsageError
from batchflush.progress import console

NAME = "top"
HELP = "watch the disks of a running guest"

INTERVALS = (0.1, 3600)
SECOND = 1_000_000_000
# Of the terminal's columns, for one disk and for the names of the lines.
DISK_COLUMNS, NAME_COLUMNS = 24, 16
UNKNOWN = "–"


def add_socket_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "socket", metavar="SOCKET",
        help=f"where QEMU's monitor listens: a path, or HOST:PORT; {HOW_TO_LISTEN}",
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_socket_argument(parser)
    parser.add_argument(
        "--interval", metavar="SECONDS", type=float, default=1.0,
        help="that a view is about (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--once", action="store_true",
        help="print one table for scripts: a line per disk, columns separated by tabs",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    smallest, largest = INTERVALS
    if not smallest <= args.interval <= largest:
        raise UsageError(
            f"--interval={args.interval} is out of range; allowed are {smallest} to {largest} s"
        )
    return asyncio.run(_once(args) if args.once else _until_interrupted(_live(args)))


async def _until_interrupted(work: Any) -> int:
    """Ctrl-C is how a view is meant to end."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return 0


async def _once(args: argparse.Namespace) -> int:
    async with attached(args.socket) as qemu:
        before = await qemu.nodes()
        await asyncio.sleep(args.interval)
        views = compare(before, await qemu.nodes())
    for line in lines(views):
        print(line)
    return 0


async def _live(args: argparse.Namespace) -> int:
    async with attached(args.socket) as qemu:
        before: Sequence[Node] = ()
        with Live(console=console, auto_refresh=False) as live:
            while True:
                try:
                    nodes = await qemu.nodes()
                    head = await _head(qemu, args.interval)
                except Ended as ended:
                    live.console.print(f"{escape(ended.message)}.")
                    return 0
                view = Group(head, *tables(compare(before, nodes), console.width))
                if console.is_terminal:
                    live.update(view, refresh=True)
                else:
                    console.print(view)
                before = nodes
                await asyncio.sleep(args.interval)


async def _head(qemu: Qemu, interval: float) -> str:
    status = await qemu.ask_machine("query-status")
    state = f"machine {status['status']}" if status else "storage daemon"
    return f"[bold]{escape(qemu.address)}[/]: {state}; every {interval:g} s, Ctrl-C ends"


# --- what is seen -----------------------------------------------------------------------


@dataclass(frozen=True)
class Lateness:
    """Of the requests of one operation."""

    operation: str
    p50_ns: int
    p99_ns: int


@dataclass(frozen=True)
class View:
    """A disk now, and since a moment before, if it was there then."""

    now: Node
    before: Node | None

    @property
    def seconds(self) -> float:
        """That have passed on the disk's clock; 0 if it stands still."""
        return self._grown("now-ns", "info") / SECOND if self.before else 0

    def rate(self, name: str, of: str = "statistics") -> float | None:
        """Growth per second of a number; None if no time has passed."""
        return self._grown(name, of) / self.seconds if self.seconds else None

    def batch(self) -> float | None:
        """Flushes of the guest per flush of the medium."""
        issued = self._grown("flushes-issued") if self.before else 0
        return self._grown("flush-arrivals") / issued if issued else None

    def stalled(self) -> float | None:
        """Writers that waited for room in the cache, on average."""
        rate = self.rate("stall-ns")
        return None if rate is None else rate / SECOND

    def lateness(self) -> Lateness | None:
        """Of the operation whose 99th percentile is the largest."""
        seen = (
            Lateness(operation, percentile(counts, 50), percentile(counts, 99))
            for operation, counts in self._late().items()
            if sum(counts.values())
        )
        return max(seen, key=lambda entry: entry.p99_ns, default=None)

    @property
    def budget_ns(self) -> int:
        return int(self.now.info["max-lateness-ns"])

    def too_late(self) -> bool:
        late = self.lateness()
        return bool(late and 0 < self.budget_ns < late.p99_ns)

    def _grown(self, name: str, of: str = "statistics") -> int:
        assert self.before is not None
        return int(getattr(self.now, of)[name] - getattr(self.before, of)[name])

    def _late(self) -> dict[str, dict[int, int]]:
        """Requests by operation, and by the upper end of the bucket of their lateness."""
        counts = _histograms(self.now)
        for operation, buckets in _histograms(self.before).items() if self.before else ():
            for upper, count in buckets.items():
                counts[operation][upper] -= count
        return counts


def compare(before: Iterable[Node], now: Iterable[Node]) -> list[View]:
    earlier = {node.name: node for node in before}
    return [View(node, _same(earlier.get(node.name), node)) for node in now]


def _same(before: Node | None, now: Node) -> Node | None:
    """None if the node has been made anew meanwhile: then it has counted from 0 again."""
    counted = ("reads", "position", "now-ns")
    if before is None or any(now.info[name] < before.info[name] for name in counted):
        return None
    return before


def percentile(counts: Mapping[int, int], percent: float) -> int:
    """The upper end of the bucket that it falls into."""
    rank = sum(counts.values()) * percent / 100
    seen = 0
    for upper in sorted(counts):
        seen += counts[upper]
        if counts[upper] and seen >= rank:
            return upper
    raise ValueError("there is no value")


def _histograms(node: Node) -> dict[str, dict[int, int]]:
    return {
        entry["operation"]: {bucket["upper"]: bucket["count"] for bucket in entry["histogram"]}
        for entry in node.statistics["lateness"]
    }


# --- for scripts ------------------------------------------------------------------------

Field = Callable[[View], object]

# An empty field: there is no such thing, or nothing happened that it could be told of.
FIELDS: dict[str, Field] = {
    "node": lambda view: view.now.name,
    "class": lambda view: view.now.info.get("profile"),
    "write-cache": lambda view: view.now.info["write-cache"],
    "powered": lambda view: "yes" if view.now.info["powered"] else "no",
    "battery": lambda view: view.now.info.get("battery"),
    "reads/s": lambda view: view.rate("reads", "info"),
    "writes/s": lambda view: view.rate("writes", "info"),
    "flushes/s": lambda view: view.rate("flush-arrivals"),
    "medium-flushes/s": lambda view: view.rate("flushes-issued"),
    "flushes-per-batch": View.batch,
    "flush-average-ns": lambda view: view.now.statistics["flush-average-ns"],
    "dirty-bytes": lambda view: view.now.statistics["dirty-bytes"],
    "cache-size": lambda view: view.now.info["cache-size"],
    "destaged-bytes/s": lambda view: view.rate("destaged-bytes"),
    "stalls/s": lambda view: view.rate("stalls"),
    "stalled-writers": View.stalled,
    "late-operation": lambda view: (late := view.lateness()) and late.operation,
    "lateness-p50-ns": lambda view: (late := view.lateness()) and late.p50_ns,
    "lateness-p99-ns": lambda view: (late := view.lateness()) and late.p99_ns,
    "max-lateness-ns": lambda view: view.budget_ns,
}


def lines(views: Iterable[View]) -> Iterator[str]:
    yield "\t".join(FIELDS)
    for view in views:
        yield "\t".join(_plain(field(view)) for field in FIELDS.values())


def _plain(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


# --- for the terminal -------------------------------------------------------------------


def tables(views: Sequence[View], width: int) -> list[Table]:
    """A column per disk, as many side by side as the terminal has room for."""
    side_by_side = max((width - NAME_COLUMNS) // DISK_COLUMNS, 1)
    return [_table(views[i : i + side_by_side]) for i in range(0, len(views), side_by_side)]


def _table(views: Sequence[View]) -> Table:
    table = Table("", *(escape(view.now.name) for view in views), header_style="bold")
    for name, show in ROWS:
        if show is None:
            table.add_section()
        else:
            table.add_row(name, *(show(view) for view in views))
    return table


def _class(view: View) -> str:
    return escape(view.now.info.get("profile", UNKNOWN))


def _cache(view: View) -> str:
    kind, size = view.now.info["write-cache"], view.now.info["cache-size"]
    return f"{kind}, {_bytes(size)}" if size else str(kind)


def _power(view: View) -> str:
    cut = view.now.info.get("pending-cut")
    if not view.now.info["powered"]:
        return "[bold red]off[/]"
    return f"[yellow]on, cut at {cut['when']} {cut['count']}[/]" if cut else "on"


def _battery(view: View) -> str:
    state = view.now.info.get("battery")
    left = view.now.info.get("hold-up-left-ns")
    if state is None:
        return UNKNOWN
    shown = state if state == "charged" else f"[yellow]{state}[/]"
    return shown if left is None else f"{shown}, {_time(left)} left"


def _dirty(view: View) -> str:
    size, dirty = view.now.info["cache-size"], view.now.statistics["dirty-bytes"]
    return f"{100 * dirty / size:.0f} %, {_bytes(dirty)}" if size else UNKNOWN


def _stalls(view: View) -> str:
    writers = view.stalled()
    shown = _rate("stalls")(view)
    return f"[red]{shown}, {writers:.1f} wait[/]" if writers else shown


def _lateness(view: View) -> str:
    late = view.lateness()
    if late is None:
        return UNKNOWN
    shown = f"{_time(late.p50_ns)}, {_time(late.p99_ns)} ({late.operation})"
    return f"[bold red]{shown}[/]" if view.too_late() else shown


def _budget(view: View) -> str:
    return _time(view.budget_ns) if view.budget_ns else "none"


def _rate(name: str, of: str = "statistics", shown: Callable[[float], str] | None = None):
    def show(view: View) -> str:
        rate = view.rate(name, of)
        return UNKNOWN if rate is None else (shown or _number)(rate)

    return show


def _batch(view: View) -> str:
    batch = view.batch()
    return UNKNOWN if batch is None else f"{batch:.2f}"


def _flush_time(view: View) -> str:
    return _time(view.now.statistics["flush-average-ns"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _time(ns: float) -> str:
    for unit in ("ns", "µs", "ms"):
        if ns < 1000:
            return f"{ns:.0f} {unit}" if ns >= 10 or unit == "ns" else f"{ns:.1f} {unit}"
        ns /= 1000
    return f"{ns:.1f} s"


# None: a line between what belongs together.
ROWS: tuple[tuple[str, Callable[[View], str] | None], ...] = (
    ("class", _class),
    ("write cache", _cache),
    ("power", _power),
    ("battery", _battery),
    ("", None),
    ("reads/s", _rate("reads", "info")),
    ("writes/s", _rate("writes", "info")),
    ("flushes/s", _rate("flush-arrivals")),
    ("", None),
    ("to the medium/s", _rate("flushes-issued")),
    ("in one batch", _batch),
    ("a flush takes", _flush_time),
    ("", None),
    ("dirty", _dirty),
    ("destaged/s", _rate("destaged-bytes", shown=_bytes)),
    ("stalls/s", _stalls),
    ("", None),
    ("late p50, p99", _lateness),
    ("may be late", _budget),
)
