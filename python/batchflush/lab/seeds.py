# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab seeds`: the five experiments after the discussions that batchflush grew from.

What was measured before and is the same still is kept, so an ended run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from batchflush import cluster, paths
from batchflush.errors import BatchflushError, UsageError
from batchflush.lab import experiment, measure, posting, results, show
from batchflush.progress import Timer, console, duration

NAME = "seeds"
HELP = "run the five experiments S0 to S4, resuming; keep their results as data"

EXPERIMENTS = ("s0", "s1", "s2", "s3", "s4")
DESCRIPTIONS = paths.ROOT / "lab/experiments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", metavar="NAME,...", default=",".join(EXPERIMENTS),
        help="some of them (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--into", metavar="FOLDER", type=Path,
        help="copy each experiment's CSV there, and what was measured with what",
    )  # fmt: skip
    measure.add_common_arguments(parser)
    parser.set_defaults(cell=[])


def run(args: argparse.Namespace) -> int:
    names = args.only.split(",")
    for name in names:
        if name not in EXPERIMENTS:
            raise UsageError(f"--only={name} is not known; allowed are {', '.join(EXPERIMENTS)}")
    wanted = [experiment.load(DESCRIPTIONS / f"{name}.toml") for name in names]
    timer = Timer()
    code = 0
    for number, one in enumerate(wanted, 1):
        cells = len(list(one.cells()))
        console.print(f"[bold]{number} of {len(wanted)}:[/] {one.title}, {cells} cells")
        file = measure.measure(one, args)
        code |= show.everything(file)
        if one.name == "s0":
            posting.show_scores(file)
        if args.into:
            keep(file, args.into)
    console.print(f"{len(wanted)} experiments in {duration(timer.seconds())}")
    return code


def keep(file: results.File, folder: Path) -> None:
    """The CSV under the experiment's name, and beside it who was measured."""
    name = file.header["experiment"]
    records = list(file.records.values())
    about: dict[str, Any] = {
        "title": file.header["title"],
        "command": file.header["command"],
        "shape": file.header["shape"],
        "seed": file.header["seed"],
        "qemu": file.header["qemu"],
        "kernels": file.header["kernels"],
        "kernel-images": sorted({record["kernel-identity"] for record in records}),
        "cells": len(records),
        "failed": len(records) - len(results.measured(records)),
        "host-seconds": round(sum(record["host-seconds"] for record in records)),
        "host-cores": cluster.cores(),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.path.with_suffix(".csv"), folder / f"{name}.csv")
        (folder / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    except OSError as error:
        raise BatchflushError(f"cannot write to {folder}: {error.strerror}") from error
    console.print(f"data:    {paths.shown(folder / name)}.csv, .json")
