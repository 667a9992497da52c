# SPDX-License-Identifier: GPL-2.0-or-later
"""The main job: what fsync batching is worth on each storage class.

One guest per class runs fs_mark with a growing number of threads, each time on a fresh
ext4. What comes out is files per second of the guest's time, and how many flushes the
disk got per file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from batchflush import build, paths, plot, profiles
from batchflush.errors import BatchflushError
from batchflush.guest import jobs, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk, user_line
from batchflush.progress import console, step

NAME = "demo"
HELP = "set everything up, run fs_mark on each storage class, show a table and a plot"

CLASSES = ("ramdisk", "array-battery", "sata-7200", "sata-7200-nocache")
# Threads → files per thread: enough that a cell repeats, few enough that the demo is short.
FILES_PER_THREAD = {2: 400, 4: 250, 8: 150, 16: 100, 32: 60}
LIMIT_SECONDS = 300
RESULTS = paths.DEMO / "results.json"
PICTURE = paths.DEMO / "fs_mark.png"

# In real time: a flush of the fastest hard disk takes ten times as long.
MAX_LATENESS_NS = 1_000_000

# Columns of the line that `fs_mark -v` prints last; the times are averages in µs.
FILES_PER_S, OVERHEAD, CREATE, WRITE, FSYNC, CLOSE = 3, 4, 6, 9, 12, 18


@dataclass(frozen=True)
class Cell:
    """One run of fs_mark; the names of the fields are those of results.json."""

    profile: str
    threads: int
    files: int
    files_per_s: float
    flushes_issued: int
    files_per_s_fs_mark: float
    guest_seconds: float

    @property
    def flushes_per_file(self) -> float:
        return self.flushes_issued / self.files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(args: argparse.Namespace) -> int:
    del args
    build.qemu()
    kernel = packages.prepare()
    accelerator = kvm.choose(kernel)
    classes = profiles.load()
    cells = asyncio.run(_run_all(kernel, accelerator, [classes[name] for name in CLASSES]))

    paths.DEMO.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([_record(cell) for cell in cells], indent=1) + "\n")
    plot.draw(cells, {name: classes[name].title for name in CLASSES}, PICTURE)
    console.print(table(cells))
    console.print(_about_time(accelerator))
    console.print(f"\nnumbers: {paths.shown(RESULTS)}\nplot:    {paths.shown(PICTURE)}")
    console.print("\nThe disks, for a guest of your own (truncate -s 10G disk.img makes an image):")
    for name in CLASSES:
        console.print(f"\n[bold]{name}[/]")
        console.out(user_line(classes[name]))
    return 0


def _record(cell: Cell) -> dict[str, object]:
    record = asdict(cell)
    return {"class": record.pop("profile"), **record}


def _about_time(accelerator: kvm.Accelerator) -> str:
    if accelerator.name == "kvm":
        return (
            f"Times are real ones: {accelerator.reason}. The 99th percentile of what a disk "
            f"was late is below {MAX_LATENESS_NS / 1e6:g} ms, else there would be no table."
        )
    return f"Times are the guest's virtual ones, so the table repeats; {accelerator.reason}."


# --- running ----------------------------------------------------------------------------


async def _run_all(
    kernel: packages.Kernel, accelerator: kvm.Accelerator, classes: Sequence[profiles.Profile]
) -> list[Cell]:
    """All cells in the order of the classes; as many guests at once as there are cores for."""
    total = len(classes) * sum(threads * n for threads, n in FILES_PER_THREAD.items())
    # In real time the thread that serves the disk needs a core too.
    threads = 2 if accelerator.name == "kvm" else 1
    slots = asyncio.Semaphore(max((os.cpu_count() or 1) // threads, 1))
    cells: list[Cell] = []

    with step("Running fs_mark on each storage class") as progress:

        def done(cell: Cell) -> None:
            cells.append(cell)
            progress.update(sum(c.files for c in cells), total, f"{cell.profile} {cell.threads}")

        async def in_slot(profile: profiles.Profile) -> None:
            async with slots:
                await _run_class(kernel, accelerator, profile, done)

        try:
            async with asyncio.TaskGroup() as group:
                for profile in classes:
                    group.create_task(in_slot(profile))
        except* BatchflushError as errors:
            # The first failure has ended the other guests.
            raise errors.exceptions[0] from None
    order = [profile.name for profile in classes]
    return sorted(cells, key=lambda cell: (order.index(cell.profile), cell.threads))


async def _run_class(
    kernel: packages.Kernel,
    accelerator: kvm.Accelerator,
    profile: profiles.Profile,
    done: Callable[[Cell], None],
) -> None:
    kvm_used = accelerator.name == "kvm"
    disk = Disk(profile, {"max-lateness-ns": str(MAX_LATENESS_NS)} if kvm_used else {})
    boot = Boot(kernel.image, kernel.base, disk, accelerator.name, ioeventfd=kvm_used)
    job = "".join(
        jobs.fresh_file_system(disk.guest_file) + jobs.fs_mark_cell(disk.guest_file, threads, files)
        for threads, files in FILES_PER_THREAD.items()
    )
    job += jobs.tell_flushes(disk.guest_file)
    printed = bytearray()
    async with machine.running(
        boot, kernel, job, printed.extend, limit_seconds=LIMIT_SECONDS
    ) as guest:
        async for message in guest.messages():
            match message["type"]:
                case "cell":
                    done(cell_of(profile.name, message))
                case "end":
                    _check_flushes(profile.name, message["flushes"], await guest.statistics())
                case "exit" if message["code"] != 0:
                    text = printed.decode(errors="replace").strip()
                    raise BatchflushError(f"fs_mark failed on {profile.name}: {text}")


def _check_flushes(profile: str, sent: int, statistics: Mapping[str, int]) -> None:
    """The cells hold the kernel's count of flushes; it has to be the device's."""
    for name in ("flush-arrivals", "flushes-issued"):
        if statistics[name] != sent:
            raise BatchflushError(
                f"the guest on {profile} sent {sent} flushes, but the disk's {name} is "
                f"{statistics[name]}",
                "a class whose disk merges flushes has no place in the demo",
            )


def cell_of(profile: str, message: Mapping[str, Any]) -> Cell:
    """What a guest says at the end of jobs.fs_mark_cell()."""
    threads, files = message["threads"], message["files"]
    columns = [float(column) for column in message["fs_mark"].split()]
    started, ended = message["uptime"]
    before, after = message["flushes"]
    return Cell(
        profile,
        threads,
        threads * files,
        round(files_per_second(columns, threads, files), 2),
        after - before,
        columns[FILES_PER_S],
        round(ended - started, 2),
    )


def files_per_second(columns: Sequence[float], threads: int, files: int) -> float:
    """Files per second from what fs_mark says of the mean thread.

    fs_mark's own figure is a sum over the threads, each rounded to 0.1: too coarse for
    many threads on a slow disk.
    """
    per_file_us = columns[CREATE] + columns[WRITE] + columns[FSYNC] + columns[CLOSE]
    loop_us = per_file_us * files + columns[OVERHEAD] / threads
    return threads * files * 1e6 / loop_us


# --- showing ----------------------------------------------------------------------------


def table(cells: Sequence[Cell]) -> Table:
    """Files per second by class and threads, with the flushes per file beside it."""
    threads = sorted({cell.threads for cell in cells})
    by_key = {(cell.profile, cell.threads): cell for cell in cells}
    files = ", ".join(str(FILES_PER_THREAD[t]) for t in threads)
    result = Table(
        title="fs_mark -s 4096 -D 64 on a fresh ext4: files/s (flushes per file)",
        caption=f"-n {files} files per thread with {', '.join(map(str, threads))} threads;"
        f" gain from {threads[0]} to {threads[-1]}",
        title_justify="left",
        caption_justify="left",
    )
    result.add_column("Storage class", no_wrap=True, min_width=17)
    for count in threads:
        result.add_column(f"{count} thr.", justify="right")
    result.add_column("gain", justify="right")
    for profile in dict.fromkeys(cell.profile for cell in cells):
        row = [by_key[profile, count] for count in threads]
        gain = row[-1].files_per_s / row[0].files_per_s
        result.add_row(profile, *(_shown(cell) for cell in row), f"{gain:.1f}")
    return result


def _shown(cell: Cell) -> str:
    return f"{cell.files_per_s:,.1f} [dim]({cell.flushes_per_file:.2f})[/]"
