# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab diff`: what changed between two result files, or two kernels of one file.

For each figure of each cell it gives new over old with a 95 % interval: of the means of the
logarithms by Welch's test where a cell was repeated on both sides, else as wide as a cell is
known to repeat. A regression is a change to the worse of which the whole interval is beyond
the bound.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from batchflush.errors import UsageError
from batchflush.lab import results
from batchflush.progress import console

NAME = "diff"
HELP = "compare two result files, or two kernels of one; fails on a regression"

DEFAULT_BOUND_PERCENT = 5.0
# How far a cell measured twice may differ, by the guest's shape (docs/lab.rst).
REPEATS_WITHIN = {"exact": 0.01, "mq": 0.03}
# 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom, then the normal one.
STUDENT_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
NORMAL = 1.960


@dataclass(frozen=True)
class Change:
    """One figure of one cell: new over old, from low to high."""

    place: tuple[Any, ...]
    figure: str
    better: str
    ratio: float
    low: float
    high: float

    def regression(self, bound: float) -> bool:
        if self.better == "more":
            return self.high < 1 - bound
        return self.low > 1 + bound

    def gain(self, bound: float) -> bool:
        if self.better == "more":
            return self.low > 1 + bound
        return self.high < 1 - bound


def changes(
    old: Sequence[results.Record], new: Sequence[results.Record], labels: Sequence[str]
) -> list[Change]:
    """Of the cells that both have, in the order of the old ones."""
    before, after = results.grouped(old, *labels), results.grouped(new, *labels)
    found = []
    for place, group in before.items():
        if place not in after:
            continue
        for figure, said in group[0]["figures"].items():
            x, y = results.values(group, figure), results.values(after[place], figure)
            if x and y and min(*x, *y) > 0:
                shape = group[0]["shape"]
                found.append(Change(place, figure, said["better"], *interval(x, y, shape)))
    return found


def interval(old: Sequence[float], new: Sequence[float], shape: str) -> tuple[float, float, float]:
    """The ratio of the (geometric) means, and the ends of its interval."""
    x, y = [math.log(v) for v in old], [math.log(v) for v in new]
    middle = statistics.fmean(y) - statistics.fmean(x)
    known = REPEATS_WITHIN[shape]
    half = known if min(len(x), len(y)) < 2 else _welch(x, y)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _welch(x: Sequence[float], y: Sequence[float]) -> float:
    a, b = statistics.variance(x) / len(x), statistics.variance(y) / len(y)
    if a + b == 0:
        return 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    # Rounded down, which makes the interval wider.
    place = max(1, int(freedom))
    quantile = STUDENT_T[place - 1] if place <= len(STUDENT_T) else NORMAL
    return quantile * math.sqrt(a + b)


# --- the command --------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD.jsonl", type=Path)
    parser.add_argument("new", metavar="NEW.jsonl", type=Path, nargs="?")
    parser.add_argument(
        "--kernels", metavar=("OLD", "NEW"), nargs=2,
        help="compare these kernels by name, instead of those of one name",
    )  # fmt: skip
    parser.add_argument(
        "--bound", metavar="PERCENT", type=float, default=DEFAULT_BOUND_PERCENT,
        help="a change to the worse beyond it is a regression (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--figure", metavar="NAME", action="append", default=[],
        help="only this figure; may be given again",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.bound < 100:
        raise UsageError(f"--bound={args.bound} is out of range; allowed are 0 to 100")
    if args.new is None and args.kernels is None:
        raise UsageError("lab diff needs two result files, or one and --kernels OLD NEW")
    old_file = results.File.read(args.old)
    new_file = results.File.read(args.new) if args.new else old_file
    labels = [label for label in results.LABELS if label != "repetition"]
    old, new = (list(file.records.values()) for file in (old_file, new_file))
    if args.kernels:
        labels.remove("kernel")
        old = _of_kernel(old, args.kernels[0], args.old)
        new = _of_kernel(new, args.kernels[1], args.new or args.old)
    found = changes(results.measured(old), results.measured(new), labels)
    if args.figure:
        found = [change for change in found if change.figure in args.figure]
    lost = _lost(old, new, labels)
    if not found and not lost:
        raise UsageError("the two sides have no measured cell in common")
    return _report(found, lost, args.bound / 100)


def _of_kernel(records: Sequence[results.Record], name: str, path: Path) -> list[results.Record]:
    chosen = [record for record in records if record["kernel"] == name]
    if not chosen:
        known = ", ".join(dict.fromkeys(record["kernel"] for record in records))
        raise UsageError(f"{path} has no kernel {name}; it has {known}")
    return chosen


def _lost(
    old: Sequence[results.Record], new: Sequence[results.Record], labels: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Cells that were measured before and have failed now."""
    before = results.grouped(results.measured(old), *labels)
    after = results.grouped(results.measured(new), *labels)
    return [
        place for place in results.grouped(new, *labels) if place in before and place not in after
    ]


def _report(found: Sequence[Change], lost: Sequence[tuple[Any, ...]], bound: float) -> int:
    made = Table("Cell", "Figure", "new / old", "95 % interval", "verdict")
    for change in found:
        verdict = ""
        if change.regression(bound):
            verdict = "[bold red]regression[/]"
        elif change.gain(bound):
            verdict = "[green]gain[/]"
        made.add_row(
            _shown(change.place), change.figure, f"{change.ratio:.3f}",
            f"{change.low:.3f} to {change.high:.3f}", verdict,
        )  # fmt: skip
    for place in lost:
        made.add_row(_shown(place), "", "", "", "[bold red]failed[/]")
    console.print(made)
    worse = sum(change.regression(bound) for change in found) + len(lost)
    better = sum(change.gain(bound) for change in found)
    print(f"{len(found)} figures, {better} gains, {worse} regressions beyond {100 * bound:g} %")
    return 1 if worse else 0


def _shown(place: Sequence[Any]) -> str:
    return ", ".join(str(part) for part in place if part != "")
