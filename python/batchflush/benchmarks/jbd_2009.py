# SPDX-License-Identifier: GPL-2.0-or-later
"""The three classes of 2009 against the table that they are fitted to.

The table stands in Josef Bacik's posting "jbd: improve fsync batching" (2009-01-08, Linux
commit f420d4dc1f): `fs_mark -d DIR -s 4096 -n 2000 -D 64 -t N` on a fresh ext3. Here the
guest has Debian's kernel of today and an ext3 that its ext4 driver lays out as ext3 did.
So both the disk and the kernel are behind a difference; what the classes are worth is what
the measurement says.

    build/venv/bin/python -m batchflush.benchmarks.jbd_2009 --fit sata-2009 \\
        flush-latency-ns destage-latency-ns

looks for better values of these options, from those of the class on, and prints them. It
is a pattern search: it tries each option larger and smaller by a factor, keeps what lowers
the score, and when nothing does it takes the square root of the factor. The score is the mean
size of the logarithm of here/2009, so that one cell in which the kernels differ does not move
the others.
"""

import argparse
import asyncio
import json
import math
import sys
from collections.abc import Mapping, Sequence

from rich.table import Table

from batchflush import build, demo, paths, processes, profiles, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError
from batchflush.guest import jobs, machine, packages
from batchflush.guest.command_line import Boot, Disk

NAME = "jbd-2009"
HELP = "fs_mark on the classes of 2009, beside the posting's table"

# Class → threads → files/s, the row "adaptive" of the posting.
POSTING = {
    "sata-2009": {2: 24.6, 4: 49.2, 8: 70.1, 16: 104.0, 32: 153.6},
    "xserve-2009": {2: 246.4, 4: 480.0, 8: 829.5, 16: 1172.7, 32: 1816.3},
    "ramdisk": {2: 2538.3, 4: 2942.3, 8: 2882.5, 16: 2738.7, 32: 2541.9},
}
# What each class was seen to miss by at most, in any cell and on average, with a margin.
AT_MOST = {"sata-2009": (2.2, 1.45), "xserve-2009": (2.0, 1.4), "ramdisk": (2.0, 1.6)}

FILES_PER_THREAD = {2: 200, 4: 120, 8: 80, 16: 60, 32: 40}
LIMIT_SECONDS = 300
RESULTS = paths.BENCH / "jbd_2009.json"

FIRST_FACTOR = 1.5
LAST_FACTOR = 1.05

Rates = Mapping[int, float]


def measure() -> list[Number]:
    build.qemu()
    kernel = packages.prepare()
    rates: dict[str, Rates] = {}
    with progress.step("Running fs_mark on the classes of 2009") as step:
        for name in POSTING:
            step.update(len(rates), len(POSTING), name)
            rates[name] = asyncio.run(files_per_second(kernel, Disk(profiles.find(name))))
    paths.BENCH.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(rates, indent=1) + "\n")
    progress.console.print(table(rates))
    print(f"cells: {paths.shown(RESULTS)}")
    return numbers(rates)


async def files_per_second(kernel: packages.Kernel, disk: Disk) -> Rates:
    """Threads → files per second of the guest's virtual time."""
    boot = Boot(kernel.image, kernel.base, disk, "tcg")
    reports_cache = disk.properties()["write-cache"] == "on"
    job = "".join(
        jobs.fresh_file_system_of_2009(disk.guest_file, barrier=reports_cache)
        + jobs.fs_mark_cell(disk.guest_file, threads, files)
        for threads, files in FILES_PER_THREAD.items()
    )
    printed = bytearray()
    rates = {}
    async with machine.running(
        boot, kernel, job, printed.extend, limit_seconds=LIMIT_SECONDS
    ) as guest:
        async for message in guest.messages():
            if message["type"] == "cell":
                cell = demo.cell_of(disk.profile.name, message)
                rates[cell.threads] = cell.files_per_s
            elif message["type"] == "exit" and message["code"] != 0:
                text = printed.decode(errors="replace").strip()
                raise BatchflushError(f"fs_mark failed on {disk.profile.name}: {text}")
    return rates


def ratios(name: str, rates: Rates) -> dict[int, float]:
    return {threads: rates[threads] / there for threads, there in POSTING[name].items()}


def mean_miss(values: Sequence[float]) -> float:
    """A typical factor between here and there, either way: 1 if all are equal."""
    return math.exp(sum(abs(math.log(v)) for v in values) / len(values))


def numbers(rates: Mapping[str, Rates]) -> list[Number]:
    result = []
    for name, row in rates.items():
        values = list(ratios(name, row).values())
        largest = max(max(v, 1 / v) for v in values)
        key = f"jbd_2009_{name.replace('-', '_')}"
        result.append(Number(f"{key}_largest_miss_ratio", largest, at_most=AT_MOST[name][0]))
        result.append(
            Number(f"{key}_typical_miss_ratio", mean_miss(values), at_most=AT_MOST[name][1])
        )
    return result


def table(rates: Mapping[str, Rates]) -> Table:
    result = Table(
        title="fs_mark -s 4096 -D 64, files/s: here, in 2009, and here/2009", title_justify="left"
    )
    result.add_column("Class", no_wrap=True)
    for threads in FILES_PER_THREAD:
        result.add_column(f"{threads} thr.", justify="right")
    for name, row in rates.items():
        found = ratios(name, row)
        result.add_row(name, *(f"{row[t]:,.1f}" for t in FILES_PER_THREAD))
        result.add_row("  2009", *(f"{POSTING[name][t]:,.1f}" for t in FILES_PER_THREAD))
        result.add_row("  ratio", *(f"{found[t]:.2f}" for t in FILES_PER_THREAD))
        result.add_section()
    return result


# --- fitting ------------------------------------------------------------------------------


def fit(name: str, options: Sequence[str]) -> None:
    """Print the values that the search ends with, and each better set on the way there."""
    profile = profiles.find(name)
    kernel = packages.prepare()
    tried: dict[tuple[int, ...], float] = {}

    def score(values: tuple[int, ...]) -> float:
        if values not in tried:
            chosen = dict(zip(options, map(str, values), strict=True))
            rates = asyncio.run(files_per_second(kernel, Disk(profile, chosen)))
            tried[values] = mean_miss(list(ratios(name, rates).values()))
            told = " ".join(f"{t}: {v:.2f}" for t, v in ratios(name, rates).items())
            print(f"{tried[values]:.3f}  {chosen}  here/2009 {told}", flush=True)
        return tried[values]

    best = tuple(int(profile.node[option].value) for option in options)
    factor = FIRST_FACTOR
    score(best)
    while factor > LAST_FACTOR:
        around = [
            (*best[:i], max(1, round(best[i] * by)), *best[i + 1 :])
            for i in range(len(best))
            for by in (factor, 1 / factor)
        ]
        nearest = min(around, key=score)
        if score(nearest) < score(best):
            best = nearest
        else:
            factor = math.sqrt(factor)
    print(f"best: {dict(zip(options, best, strict=True))}, {score(best):.3f}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="jbd_2009", description=HELP)
    parser.add_argument("--fit", metavar="CLASS", required=True, choices=POSTING)
    parser.add_argument("options", metavar="OPTION", nargs="+")
    args = parser.parse_args(arguments)
    processes.end_children_when_told_to_end()
    fit(args.fit, args.options)


if __name__ == "__main__":
    main(sys.argv[1:])
