# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab s0`: the cells of S0 beside the published ones, and how far they agree.

Half of the cells of the two disks were open to whoever fitted their classes, the other half
is predicted. Which half a cell is in is said here once, as a chessboard, so that each half
has cells of each disk, rule and number of threads.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from batchflush import paths
from batchflush.errors import BatchflushError
from batchflush.lab import results
from batchflush.progress import console

NAME = "s0"
HELP = "compare the results of S0 with the published table"

RESULTS = paths.BUILD / "lab/s0/results.jsonl"
SCORES = paths.BUILD / "lab/s0.json"
THREADS = (2, 4, 8, 16, 32)

# Files/s. Josef Bacik, "jbd: improve fsync batching", 2009-01-08, Linux commit f420d4dc1f.
PUBLISHED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "sata-2009": {
        "adaptive": (24.6, 49.2, 70.1, 104.0, 153.6),
        "1 jiffy": (26.3, 48.1, 67.0, 94.1, 142.7),
    },
    "xserve-2009": {
        "adaptive": (246.4, 480.0, 829.5, 1172.7, 1816.3),
        "1 jiffy": (222.0, 440.8, 730.8, 1026.9, 1650.5),
    },
    "ramdisk": {
        "adaptive": (2538.3, 2942.3, 2882.5, 2738.7, 2541.9),
        "1 jiffy": (1745.6, 661.9, 999.8, 1801.9, 2394.0),
    },
}
FITTED = ("sata-2009", "xserve-2009")


@dataclass(frozen=True)
class Compared:
    """One published cell and ours."""

    profile: str
    rule: str
    threads: int
    published: float
    measured: float

    @property
    def error(self) -> float:
        return math.log(self.measured / self.published)

    @property
    def held_out(self) -> bool:
        place = THREADS.index(self.threads) + (self.rule == "adaptive")
        return self.profile in FITTED and (place + FITTED.index(self.profile)) % 2 == 1


def compared(file: results.File) -> list[Compared]:
    """The published cells that were measured."""
    ok = results.measured(file.records.values())
    groups = results.grouped(ok, "class", "kernel", "threads")
    return [
        Compared(profile, rule, threads, value, results.mean(groups[key], "files_per_s"))
        for profile, rules in PUBLISHED.items()
        for rule, values in rules.items()
        for threads, value in zip(THREADS, values, strict=True)
        if (key := (profile, rule, threads)) in groups
    ]


def scores(cells: list[Compared]) -> dict[str, object]:
    """Mean absolute log errors in percent, and agreement in who wins, as a share of the pairs."""
    fitted = [cell for cell in cells if cell.profile in FITTED]
    return {
        "holdout_log_error_percent": _percent([c for c in fitted if c.held_out]),
        "fit_log_error_percent": _percent([c for c in fitted if not c.held_out]),
        "ramdisk_log_error_percent": _percent([c for c in cells if c.profile == "ramdisk"]),
        "sign_agreement": _agreement(cells, 0.07),
        "sign_agreement_above_5_percent": _agreement(cells, 0.05),
        "cells": [
            {
                "class": cell.profile,
                "rule": cell.rule,
                "threads": cell.threads,
                "published": cell.published,
                "measured": round(cell.measured, 2),
                "log_error_percent": round(100 * cell.error, 2),
                "held_out": cell.held_out,
            }
            for cell in cells
        ],
    }


def _percent(cells: list[Compared]) -> float | None:
    if not cells:
        return None
    return round(100 * statistics.fmean(abs(cell.error) for cell in cells), 2)


def _agreement(cells: list[Compared], least: float) -> float | None:
    """Among published pairs that differ by more than `least`: in how many ours has its sign."""
    pairs = _pairs(cells)
    differing = [(p, m) for p, m in pairs.values() if abs(p - 1) > least]
    if not differing:
        return None
    agree = sum((p > 1) == (m > 1) for p, m in differing)
    return round(agree / len(differing), 4)


def _pairs(cells: list[Compared]) -> dict[tuple[str, int], tuple[float, float]]:
    """Adaptive over 1 jiffy, published and measured."""
    by_key = {(cell.profile, cell.threads, cell.rule): cell for cell in cells}
    found = {}
    for (profile, threads, rule), new in by_key.items():
        old = by_key.get((profile, threads, "1 jiffy"))
        if rule == "adaptive" and old is not None:
            ratio = new.published / old.published, new.measured / old.measured
            found[profile, threads] = ratio
    return found


def table(cells: list[Compared]) -> Table:
    made = Table(
        title="S0: files/s here / in 2009, and adaptive over 1 jiffy here / in 2009",
        title_justify="left",
    )
    made.add_column("Class", no_wrap=True)
    made.add_column("Rule", no_wrap=True)
    for threads in THREADS:
        made.add_column(f"{threads} thr.", justify="right")
    by_key = {(cell.profile, cell.rule, cell.threads): cell for cell in cells}
    pairs = _pairs(cells)
    for profile in PUBLISHED:
        for rule in ("1 jiffy", "adaptive"):
            row = [by_key.get((profile, rule, threads)) for threads in THREADS]
            made.add_row(profile, rule, *(_beside(cell) for cell in row))
        ratios = [pairs.get((profile, threads)) for threads in THREADS]
        made.add_row("", "gain", *(f"{r[1]:.2f} / {r[0]:.2f}" if r else "" for r in ratios))
        made.add_section()
    return made


def _beside(cell: Compared | None) -> str:
    if cell is None:
        return ""
    digits = 1 if cell.published < 200 else 0
    mark = "*" if cell.held_out else ""
    return f"{cell.measured:,.{digits}f} / {cell.published:,.{digits}f}{mark}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("results", metavar="RESULTS.jsonl", type=Path, nargs="?", default=RESULTS)


def run(args: argparse.Namespace) -> int:
    show_scores(results.File.read(args.results))
    return 0


def show_scores(file: results.File) -> None:
    """Print them and keep them in SCORES."""
    cells = compared(file)
    found = scores(cells)
    try:
        SCORES.parent.mkdir(parents=True, exist_ok=True)
        SCORES.write_text(json.dumps(found, indent=1) + "\n")
    except OSError as error:
        raise BatchflushError(f"cannot write {SCORES}: {error.strerror}") from error
    console.print(table(cells))
    console.print("* held out: no class was fitted to it")
    for name, value in found.items():
        if name != "cells":
            console.print(f"{name}: {value}")
    console.print(f"kept in {paths.shown(SCORES)}")
