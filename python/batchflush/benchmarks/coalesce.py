# SPDX-License-Identifier: GPL-2.0-or-later
"""What coalescing of flushes is worth, and that it costs nothing where it is not.

Through the real driver, in a storage daemon, in real time. What is compared is measured in
turns, in one run, or side by side where flushes are fast. A slowdown is how much longer a
cycle takes with coalesce=auto than with the better of the others, in percent. Where real time
is noisy, the model's simulator says the same exactly.

Behind QEMU's hook-less block layer a node sees one flush after the other. A raw node in front
of ours brings that back: its driver has not asked for concurrent flushes.
"""

import asyncio
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from batchflush import build, paths, progress
from batchflush.bench import Number
from batchflush.benchmarks.coalesce_load import (
    MS,
    Comparison,
    Effort,
    Measurement,
    Median,
    Options,
    compare,
    cycles_per_second,
    daemon,
    together_ms,
)
from batchflush.errors import BatchflushError

NAME = "coalesce"
HELP = "shared flushes, against flushes one by one, through the driver"

MODEL_BENCH = paths.MODEL_BUILD / "tests/unit/coalesce-bench"

SLOW_NS = 20 * MS
KNEE_NS = (1_500_000, 2_000_000, 2_500_000, 3_000_000)
FAST_NS = 200_000
KNEE_WRITERS = (1, 2, 4, 16)
FAST_WRITERS = (1, 4, 16, 64)
TOGETHER = 16
FRESH_NODES = 7
SHARED_SECONDS = 2.5

# A slowdown's standard error is to be a fifth of its limit at most.
KNEE_EFFORT = Effort(fewest=9, most=41, error=1, limit=5)
ALONE_EFFORT = Effort(fewest=7, most=25, error=0.2, limit=1)
FAST_EFFORT = Effort(fewest=15, most=61, error=0.4, limit=2)

# The better of off and on is what auto is compared to.
MODES = ("off", "on", "auto")


def measure() -> list[Number]:
    build.qemu()
    build.model()
    return [
        *_model(),
        *asyncio.run(_together()),
        *asyncio.run(_antiphase()),
        *asyncio.run(_closed_loop()),
        *asyncio.run(_knee()),
        *asyncio.run(_alone()),
        *asyncio.run(_fast()),
    ]


def _slow(flush_ns: int, coalesce: str, **options: Any) -> Options:
    """A node with a volatile cache; "_" in the name of an option stands for "-"."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return {
        "write-cache": "volatile",
        "cache-size": 1 << 20,
        "flush-latency-ns": flush_ns,
        "flush-concurrency": "serial",
        "coalesce": coalesce,
        **named,
    }


async def _together() -> list[Number]:
    """Fresh nodes: a coordinator that has seen the 16 before knows how many to wait for."""
    nodes = {f"fresh{i}": _slow(SLOW_NS, "auto") for i in range(FRESH_NODES)}
    one_by_one = {"below": _slow(SLOW_NS, "off"), "above": {"serialised-by": "below"}}
    with progress.step("Measuring 16 flushes issued together"):
        async with daemon({**nodes, **one_by_one}) as running:
            shared = [await together_ms(await running.writers(n, TOGETHER)) for n in nodes]
            writers = await running.writers("above", TOGETHER)
            serialised = [await together_ms(writers) for _ in range(3)]
    figures = {"auto": Median.of(shared), "serialised by QEMU": Median.of(serialised)}
    _show("16 flushes of 20 ms together, until all are done", "ms", figures)
    return [
        Number("flush16_together_ms", figures["auto"].value, at_most=45),
        Number("flush16_serialised_ms", figures["serialised by QEMU"].value),
    ]


async def _antiphase() -> list[Number]:
    with progress.step("Measuring two writers in antiphase"):
        async with daemon({"disk": _slow(SLOW_NS, "auto")}) as running:
            writers = await running.writers("disk", 2)
            await cycles_per_second(writers, SHARED_SECONDS, SLOW_NS / 1e9 / 2)
            told = await running.statistics("disk")
    return [Number("antiphase_shared_percent", shared_percent(told), at_least=80)]


def shared_percent(told: Mapping[str, Any]) -> float:
    """Flushes of the guest that were not alone in theirs, from query-blockstats."""
    return 100 * (1 - told["flushes-alone"] / told["flush-arrivals"])


async def _closed_loop() -> list[Number]:
    with progress.step("Measuring 16 writers in a closed loop"):
        nodes = {
            "auto": _slow(SLOW_NS, "auto"),
            "below": _slow(SLOW_NS, "auto"),
            "above": {"serialised-by": "below"},
        }
        async with daemon(nodes) as running:
            ways: dict[str, Measurement] = {}
            for name, node, seconds in (("auto", "auto", 0.5), ("serialised", "above", 1.0)):
                writers = await running.writers(node, TOGETHER)
                ways[name] = lambda w=writers, s=seconds: cycles_per_second(w, s)
            result = await compare(ways, "auto", Effort(5, 5, 0, 0))
    _show("16 writers, flush 20 ms", "cycles/s", result.rates)
    auto, serialised = (result.rates[way].value for way in ("auto", "serialised"))
    return [Number("flush16_closed_loop_speedup", auto / serialised, at_least=8)]


async def _knee() -> list[Number]:
    cells = {}
    with progress.step("Measuring around the threshold") as step:
        for i, flush_ns in enumerate(KNEE_NS):
            step.update(i, len(KNEE_NS), f"flush {flush_ns / MS:g} ms")
            nodes = {mode: _slow(flush_ns, mode) for mode in MODES}
            cells |= await _cells(nodes, KNEE_WRITERS, KNEE_EFFORT, flush_ns, seconds=0.1)
    _show_cells("around the threshold", cells)
    return [_worst("knee_auto_slowdown_percent", cells, KNEE_EFFORT)]


def _model() -> list[Number]:
    with progress.step("Simulating writers on the model"):
        done = subprocess.run([MODEL_BENCH], capture_output=True, text=True)
    if done.returncode != 0:
        raise BatchflushError(f"{paths.shown(MODEL_BENCH)} failed: {done.stderr.strip()}")
    worst: dict[str, float] = {}
    for load in json.loads(done.stdout):
        slowdown = model_slowdown_percent(load)
        worst[load["device"]] = max(slowdown, worst.get(load["device"], slowdown))
    return [
        Number("knee_auto_slowdown_model_percent", worst["knee"], at_most=KNEE_EFFORT.limit),
        Number("flush_fast_slowdown_model_percent", worst["fast"], at_most=FAST_EFFORT.limit),
    ]


def model_slowdown_percent(load: Mapping[str, float]) -> float:
    return (max(load["off"], load["on"]) / load["auto"] - 1) * 100


async def _alone() -> list[Number]:
    with progress.step("Measuring a single writer"):
        nodes = {mode: _slow(SLOW_NS, mode) for mode in ("off", "auto")}
        cells = await _cells(nodes, (1,), ALONE_EFFORT, SLOW_NS, seconds=0.5)
    _show_cells("a single writer", cells)
    return [_worst("flush1_slowdown_percent", cells, ALONE_EFFORT)]


async def _fast() -> list[Number]:
    numbers = []
    for concurrency, name in (
        ("concurrent", "flush_fast_slowdown_percent"),
        ("serial", "flush_fast_serial_slowdown_percent"),
    ):
        with progress.step(f"Measuring a fast flush, {concurrency}"):
            nodes = {
                mode: _slow(
                    FAST_NS, mode, write_cache="battery", flush_concurrency=concurrency
                )
                for mode in ("off", "auto")
            }  # fmt: skip
            cells = await _cells(
                nodes, FAST_WRITERS, FAST_EFFORT, FAST_NS, seconds=0.1, at_once=True
            )
        _show_cells(f"battery, {concurrency}", cells)
        numbers.append(_worst(name, cells, FAST_EFFORT))
    return numbers


Cells = Mapping[tuple[int, int], Comparison]


async def _cells(
    nodes: Mapping[str, Options],
    counts: tuple[int, ...],
    effort: Effort,
    flush_ns: int,
    seconds: float,
    at_once: bool = False,
) -> Cells:
    """coalesce=auto among the nodes, by flush time and number of writers."""
    cells = {}
    async with daemon(nodes) as running:
        for count in counts:
            ways: dict[str, Measurement] = {}
            for node in nodes:
                writers = await running.writers(node, count)
                ways[node] = lambda w=writers: cycles_per_second(w, seconds)
            cells[flush_ns, count] = await compare(ways, "auto", effort, at_once=at_once)
    return cells


def _worst(name: str, cells: Cells, effort: Effort) -> Number:
    return Number(name, max(cell.slowdown.value for cell in cells.values()), at_most=effort.limit)


def _show(title: str, unit: str, figures: Mapping[str, Median]) -> None:
    table = Table("", unit, title=title, title_justify="left")
    for name, figure in figures.items():
        table.add_row(name, f"{figure.value:.1f} ± {figure.spread:.1f}")
    progress.console.print(table)


def _show_cells(title: str, cells: Cells) -> None:
    ways = list(next(iter(cells.values())).rates)
    table = Table(
        "flush", "writers", *(f"{way}, cycles/s" for way in ways), "slowdown of auto", "rounds",
        title=f"coalesce={'/'.join(ways)}, {title}: median ± half the interquartile range",
        title_justify="left",
    )  # fmt: skip
    for (flush_ns, count), cell in cells.items():
        rates = (f"{r.value:.0f} ± {r.spread:.0f}" for r in cell.rates.values())
        slowdown = f"{cell.slowdown.value:.1f} ± {cell.slowdown.spread:.1f} %"
        row = (f"{flush_ns / MS:g} ms", str(count), *rates, slowdown, str(cell.rounds))
        table.add_row(*row)
    progress.console.print(table)
