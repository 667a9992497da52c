# SPDX-License-Identifier: GPL-2.0-or-later
"""Run benchmarks: numbers with limits, merged into build/bench/results.json.

A benchmark is a module in batchflush.benchmarks with NAME, HELP and
measure() -> list[Number]. What it compares it measures in one run, as ratios,
so that the numbers hold on any machine.
"""

import argparse
import dataclasses
import importlib
import json
from types import ModuleType

from rich.table import Table

from batchflush import paths, progress
from batchflush.errors import UsageError

NAME = "bench"
HELP = "measure speed and size, against limits"

BENCHMARKS = (
    "passthrough",
    "cache_scaling",
    "model",
    "lateness",
    "waiters",
    "coalesce",
    "coalesce-guest",
    "watermarks",
    "classes",
    "crash",
)

RESULTS = paths.BENCH / "results.json"


@dataclasses.dataclass(frozen=True)
class Number:
    """A measured number; its name carries the unit. Without a limit it only informs."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None

    def good(self) -> bool:
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def limit(self) -> str:
        bounds = (("≤", self.at_most), ("≥", self.at_least))
        return " ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def keep(numbers: list[Number]) -> None:
    """Merge numbers into the results; those of other benchmarks stay."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    kept.update({number.name: number.value for number in numbers})
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _report(numbers: list[Number]) -> None:
    table = Table("name", "value", "limit", "verdict")
    for number in numbers:
        verdict = "[green]good[/]" if number.good() else "[bold red]missed[/]"
        limit = number.limit()
        table.add_row(number.name, f"{number.value:.4g}", limit, verdict if limit else "")
    progress.console.print(table)


def _benchmark(name: str) -> ModuleType:
    return importlib.import_module(f"batchflush.benchmarks.{name.replace('-', '_')}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listed = "; ".join(f"{name}: {_benchmark(name).HELP}" for name in BENCHMARKS)
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help=f"benchmarks to run (default: all). {listed}"
    )


def run(args: argparse.Namespace) -> int:
    for name in args.names:
        if name not in BENCHMARKS:
            known = ", ".join(BENCHMARKS)
            raise UsageError(f"there is no benchmark {name!r}; the benchmarks are {known}")
    everything = []
    for name in args.names or BENCHMARKS:
        numbers = _benchmark(name).measure()
        keep(numbers)
        everything += numbers
    _report(everything)
    print(f"kept in {paths.shown(RESULTS)}")
    return 0 if all(number.good() for number in everything) else 1
