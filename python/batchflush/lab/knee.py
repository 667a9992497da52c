# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab knee`: where one kernel overtakes the other.

It measures both kernels at some values of one thing, a time of the device or the number of
threads, and then again between the two values where the winner changes, until they are near
enough. Everything else is as the experiment says.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import shlex
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from batchflush.errors import BatchflushError, UsageError
from batchflush.guest.command_line import parse_options
from batchflush.lab import diff, experiment, measure, results, show
from batchflush.progress import console

NAME = "knee"
HELP = "find where one kernel overtakes the other, as flush time or threads grow"

THREADS = "threads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    measure.add_experiment_arguments(parser)
    parser.add_argument(
        "--kernels", metavar=("OLD", "NEW"), nargs=2,
        help="two of the experiment's kernels, by name",
    )  # fmt: skip
    parser.add_argument(
        "--over", metavar="OPTION", default="flush-latency-ns",
        help="of the node, or 'threads' (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--from", dest="low", metavar="N", type=int, default=100_000)
    parser.add_argument("--to", dest="high", metavar="N", type=int, default=30_000_000)
    parser.add_argument(
        "--steps", metavar="N", type=int, default=5, help="at first (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", metavar="N", type=int, default=2,
        help="how often the step with the knee is halved (default: %(default)s)",
    )  # fmt: skip
    measure.add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    wanted = _chosen(measure.experiment_of(args), args)
    values = geometric(args.low, args.high, args.steps)
    for round_ in range(args.rounds + 1):
        file = measure.measure(stepped(wanted, args.over, values), args)
        found = ratios(file, wanted, args.over)
        knees = crossings(found)
        between = [middle(a.value, b.value) for a, b in knees]
        more = sorted({*values, *between})
        if round_ == args.rounds or more == values:
            break
        values = more
    return _report(file, wanted, args.over, found, knees)


def _check(args: argparse.Namespace) -> None:
    for name, value, low, high in (
        ("from", args.low, 1, 10**12), ("to", args.high, 1, 10**12),
        ("steps", args.steps, 2, 100), ("rounds", args.rounds, 0, 20),
    ):  # fmt: skip
        if not low <= value <= high:
            raise UsageError(f"--{name}={value} is out of range; allowed are {low} to {high}")
    if args.low >= args.high:
        raise UsageError(f"--from={args.low} is not below --to={args.high}")
    if args.over == THREADS:
        if args.high > 1024:
            raise UsageError(f"--to={args.high} is out of range; allowed are 1 to 1024 threads")
    else:
        parse_options([f"{args.over}={args.low}"])


def _chosen(wanted: experiment.Experiment, args: argparse.Namespace) -> experiment.Experiment:
    """The experiment with two kernels, one class and one of all else but what is stepped."""
    kernels = wanted.kernels
    if args.kernels:
        by_name = {kernel.name: kernel for kernel in kernels}
        for name in args.kernels:
            if name not in by_name:
                raise UsageError(f"--kernels: {name} is not there; it has {', '.join(by_name)}")
        kernels = tuple(by_name[name] for name in args.kernels)
    if len(kernels) != 2:
        raise UsageError(f"lab knee compares 2 kernels, not {len(kernels)}", "see --kernels")
    single = {"classes": wanted.classes, "disks": wanted.disks, "setups": wanted.setups,
              "file systems": wanted.file_systems}  # fmt: skip
    if args.over != THREADS:
        single["numbers of threads"] = wanted.workload.threads
    for name, choices in single.items():
        if len(choices) != 1:
            raise UsageError(f"lab knee takes an experiment with one of its {name}")
    return dataclasses.replace(
        wanted, kernels=kernels, name=f"{wanted.name}-knee-{args.over}", skips=(),
        source=f"{wanted.source.replace('run', 'knee', 1)} {_flags_again(args)}",
    )  # fmt: skip


def _flags_again(args: argparse.Namespace) -> str:
    said = [f"--over={args.over}", f"--from={args.low}", f"--to={args.high}"]
    said += [f"--steps={args.steps}", f"--rounds={args.rounds}"]
    return shlex.join([*said, *(["--kernels", *args.kernels] if args.kernels else [])])


def stepped(
    wanted: experiment.Experiment, over: str, values: Sequence[int]
) -> experiment.Experiment:
    if over == THREADS:
        workload = dataclasses.replace(wanted.workload, threads=tuple(values))
        return dataclasses.replace(wanted, workload=workload)
    [disk] = wanted.disks
    disks = tuple(
        experiment.DiskChoice(str(value), {**disk.options, over: str(value)}) for value in values
    )
    return dataclasses.replace(wanted, disks=disks)


def geometric(low: int, high: int, steps: int) -> list[int]:
    """Values from low to high, each the same factor above the one before."""
    factor = (high / low) ** (1 / (steps - 1))
    return sorted({round(low * factor**n) for n in range(steps)})


def middle(low: int, high: int) -> int:
    return round(math.sqrt(low * high))


# --- what comes out -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Ratio:
    """New over old kernel at one value, above 1 where the new one is ahead."""

    value: int
    ratio: float
    low: float
    high: float


def ratios(file: results.File, wanted: experiment.Experiment, over: str) -> list[Ratio]:
    """Of the first figure of the workload, in the order of the values."""
    label = THREADS if over == THREADS else "disk"
    ok = results.measured(file.records.values())
    old, new = ([r for r in ok if r["kernel"] == kernel.name] for kernel in wanted.kernels)
    names = show.primary_figures(ok)
    found = []
    for change in diff.changes(old, new, [label]):
        if change.figure != names[0]:
            continue
        said = (change.ratio, change.low, change.high)
        if change.better == "less":
            said = (1 / change.ratio, 1 / change.high, 1 / change.low)
        found.append(Ratio(int(change.place[0]), *said))
    if not found:
        raise BatchflushError("no value was measured with both kernels")
    return sorted(found, key=lambda ratio: ratio.value)


def crossings(found: Sequence[Ratio]) -> list[tuple[Ratio, Ratio]]:
    """Neighbours between which the winner changes."""
    return [(a, b) for a, b in itertools.pairwise(found) if (a.ratio > 1) != (b.ratio > 1)]


def knee(low: Ratio, high: Ratio) -> float:
    """Where the ratio is 1, if its logarithm is a straight line over that of the value."""
    a, b = math.log(low.ratio), math.log(high.ratio)
    share = a / (a - b)
    return low.value * (high.value / low.value) ** share


def _report(
    file: results.File,
    wanted: experiment.Experiment,
    over: str,
    found: Sequence[Ratio],
    knees: Sequence[tuple[Ratio, Ratio]],
) -> int:
    old, new = (kernel.name for kernel in wanted.kernels)
    made = Table(over, f"{new} over {old}", "95 % interval", "ahead")
    for one in found:
        made.add_row(
            f"{one.value:,}", f"{one.ratio:.3f}", f"{one.low:.3f} to {one.high:.3f}",
            _ahead(one, old, new),
        )  # fmt: skip
    code = show.everything(file)
    console.print(made)
    for low, high in knees:
        first, then = (old, new) if high.ratio > 1 else (new, old)
        said = "" if _sure(low) and _sure(high) else ", within what a cell repeats"
        console.print(
            f"{then} overtakes {first} at about {over}={_shown(knee(low, high))} "
            f"(between {low.value:,} and {high.value:,}{said})"
        )
    if not knees:
        winner = new if found[0].ratio > 1 else old
        console.print(f"{winner} is ahead at every value: no knee")
    return code


def _ahead(one: Ratio, old: str, new: str) -> str:
    if not _sure(one):
        return "neither"
    return new if one.ratio > 1 else old


def _sure(one: Ratio) -> bool:
    return one.low > 1 or one.high < 1


def _shown(value: Any) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{round(value, 2 - int(math.log10(value))):,.0f}"
