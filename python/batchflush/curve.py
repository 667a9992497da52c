# SPDX-License-Identifier: GPL-2.0-or-later
"""What a class promises: flush time over dirty bytes, requests per second over depth.

The model computes it (tests/unit/bf-curve.c), no guest and no clock are involved.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.table import Table

from batchflush import build, paths
from batchflush.errors import BatchflushError

PROGRAM = "tests/unit/bf-curve"
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@dataclass(frozen=True)
class Flush:
    """A flush of so many dirty bytes: single blocks anywhere, or one run."""

    dirty_bytes: int
    random_ns: int
    sequential_ns: int


@dataclass(frozen=True)
class Rate:
    """Random 4 KiB requests per second, so many at once; None if they take no time."""

    depth: int
    read: float | None
    write: float | None


@dataclass(frozen=True)
class Curve:
    flush: tuple[Flush, ...]
    iops: tuple[Rate, ...]

    def flush_ns(self, dirty_bytes: int) -> int:
        """Of single blocks; a node without a cache has nothing dirty."""
        found = [point for point in self.flush if point.dirty_bytes == dirty_bytes]
        return (found or self.flush)[0].random_ns


def of(node: Mapping[str, int | str]) -> Curve:
    """The curves of a node with these options. A flush is shown without its spread."""
    program = build.model((PROGRAM,)) / PROGRAM
    told = _run(program, node)
    fixed = _run(program, {**node, "flush-spread": "fixed"}) if "flush-spread" in node else told
    return Curve(
        tuple(Flush(**point) for point in fixed["flush"]),
        tuple(Rate(**point) for point in told["iops"]),
    )


def _run(program: Path, node: Mapping[str, int | str]) -> dict[str, list[dict[str, int]]]:
    options = [f"--option={name}={value}" for name, value in node.items()]
    done = subprocess.run([program, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BatchflushError(f"the model refuses the class: {done.stderr.strip()}")
    return json.loads(done.stdout)


# --- showing ------------------------------------------------------------------------------


def size(count: int) -> str:
    for unit, name in UNITS:
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"


def time(ns: float) -> str:
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= unit:
            return f"{ns / unit:,.3g} {name}" if ns < 1000 * unit else f"{ns / unit:,.0f} {name}"
    return f"{ns:.0f} ns"


def tables(name: str, curve: Curve) -> Group:
    flushes = Table("dirty", "single blocks", "one run", title=f"{name}: time of a flush")
    for point in curve.flush:
        flushes.add_row(
            size(point.dirty_bytes) if point.dirty_bytes else "nothing",
            time(point.random_ns),
            time(point.sequential_ns),
        )
    rates = Table("at once", "reads/s", "writes/s", title=f"{name}: random 4 KiB requests")
    for point in curve.iops:
        shown = (
            "no limit" if rate is None else f"{rate:,.0f}" for rate in (point.read, point.write)
        )
        rates.add_row(str(point.depth), *shown)
    for table in (flushes, rates):
        table.title_justify = "left"
        for column in table.columns:
            column.justify = "right"
    return Group(flushes, rates)


def draw(name: str, title: str, curve: Curve, file: Path) -> None:
    # Imported here: it takes a second, and it must not look for a display.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure, (flushes, rates) = pyplot.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    figure.suptitle(f"{name}: {title}")

    clean, *dirty = curve.flush
    sizes = [point.dirty_bytes for point in dirty]
    if dirty:
        for label, values, marker in (
            ("single blocks of 4 KiB", [point.random_ns for point in dirty], "o"),
            ("one run", [point.sequential_ns for point in dirty], "s"),
        ):
            flushes.plot(sizes, values, marker=marker, markersize=4, label=label)
        flushes.set_xscale("log", base=2)
        flushes.set_xticks(sizes[::3], [size(count) for count in sizes[::3]], fontsize=8)
        flushes.xaxis.set_minor_locator(NullLocator())
    else:
        flushes.set_xticks([])
    if clean.random_ns:
        flushes.axhline(clean.random_ns, color="grey", linestyle=":", label="nothing dirty")
        flushes.set_yscale("log")
    flushes.yaxis.set_major_formatter(FuncFormatter(lambda ns, _: time(ns)))
    flushes.set_xlabel("dirty in the cache" if dirty else "there is no cache to be dirty")
    flushes.set_ylabel("time of a flush")

    for label, attribute, marker in (("read", "read", "o"), ("write", "write", "s")):
        points = [(p.depth, getattr(p, attribute)) for p in curve.iops]
        known = [(depth, rate) for depth, rate in points if rate is not None]
        if known:
            rates.plot(*zip(*known, strict=True), marker=marker, markersize=4, label=label)
    depths = [point.depth for point in curve.iops]
    rates.set_xscale("log", base=2)
    rates.set_yscale("log")
    rates.set_xticks(depths, [str(depth) for depth in depths])
    rates.xaxis.set_minor_locator(NullLocator())
    rates.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.0f}"))
    rates.set_xlabel("requests at once")
    rates.set_ylabel("random 4 KiB requests per second")

    for axes in (flushes, rates):
        axes.grid(True, which="major", alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)


def picture(name: str) -> Path:
    return paths.CURVES / f"{name}.png"
