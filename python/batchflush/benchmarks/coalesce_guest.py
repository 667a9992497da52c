# SPDX-License-Identifier: GPL-2.0-or-later
"""What coalescing of flushes is worth to a guest: fio on ext4, in virtual time.

A guest with four virtual CPUs has four hardware queues, and Linux merges flushes only within
one: so several reach the disk at once. Each job overwrites 4 KiB at random in one file that
was written before, with an fdatasync after each write. Times are the guest's, so nothing
depends on how busy the host is.

A plain node with a flush of 8 ms repeats the trial that coalescing was asked for with: 145
writes/s where QEMU serialises flushes, 569 where it does not and the hardware takes several
at once, 2400 flushes for 2500 writes in either case.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.table import Table

from batchflush import build, paths, profiles, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError
from batchflush.guest import jobs, machine, packages
from batchflush.guest.command_line import Boot, Disk

NAME = "coalesce-guest"
HELP = "fio with fdatasync in a guest, by storage class and coalesce=off|on|auto"

VCPUS = 4
GUESTS_AT_ONCE = 2
LIMIT_SECONDS = 300
DISK_BYTES = 256 << 20
FILE_MIB = 16
RESULTS = paths.BENCH / "coalesce.json"
PICTURE = paths.BENCH / "coalesce.png"

MODES = ("off", "on", "auto")
# Class → jobs → writes per job.
WRITES = {
    "sata-7200": {1: 200, 4: 100, 16: 50},
    "array-battery": {1: 4000, 4: 2000, 16: 1000},
}

TRIAL = "plain, flush 8 ms"
TRIAL_WRITES = {8: 312}
# Flushes are told for so many writes.
TRIAL_SCALE = 2500
TRIAL_NODE = {
    "write-cache": "volatile",
    "read-latency-ns": "0",
    "write-latency-ns": "0",
    "destage-latency-ns": "0",
    "flush-latency-ns": "8000000",
    "bandwidth": "0",
    "queue-depth": "32",
}


@dataclass(frozen=True)
class Cell:
    """One run of fio; the names of the fields are those of coalesce.json."""

    disk: str
    coalesce: str
    flush_concurrency: str
    jobs: int
    writes: int
    writes_per_s: float
    flush_arrivals: int
    flushes_issued: int
    flush_average_ns: int
    batch_sizes: Mapping[int, int]  # smallest power of two not below the size → flushes

    @property
    def writes_per_flush(self) -> float:
        return self.writes / max(self.flushes_issued, 1)


@dataclass(frozen=True)
class Guest:
    """One boot: a disk, and jobs → writes per job."""

    name: str
    disk: Disk
    writes: Mapping[int, int]

    def option(self, name: str) -> str:
        setting = self.disk.profile.node.get(name)
        return self.disk.options.get(name) or str(setting.value if setting else "")


def measure() -> list[Number]:
    build.qemu()
    kernel = packages.with_programs(packages.prepare(), "fio", ["fio"])
    cells = asyncio.run(_run_all(kernel, _guests()))
    paths.BENCH.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    draw(cells)
    progress.console.print(table(cells))
    print(f"cells: {paths.shown(RESULTS)}\nplot:  {paths.shown(PICTURE)}")
    return numbers(cells)


def _guests() -> list[Guest]:
    """The slowest first, so that the last ones to run are short."""
    guests = [
        Guest(TRIAL, _disk("sata-7200", {**TRIAL_NODE, **options}), TRIAL_WRITES)
        for options in (
            {"flush-concurrency": "serial", "coalesce": "off"},
            {"flush-concurrency": "concurrent", "coalesce": "off"},
            {"flush-concurrency": "serial", "coalesce": "on"},
            {"flush-concurrency": "serial", "coalesce": "auto"},
        )
    ]
    for name, writes in WRITES.items():
        guests += [Guest(name, _disk(name, {"coalesce": mode}), writes) for mode in MODES]
    return guests


def _disk(profile: str, options: Mapping[str, str]) -> Disk:
    """A disk of a class, with as many queues as Linux can use."""
    found = profiles.find(profile)
    queues = profiles.Setting(VCPUS, "queues", "folk", "one per virtual CPU")
    return Disk(
        replace(found, front_end={**found.front_end, "num-queues": queues}), options, DISK_BYTES
    )


# Running


async def _run_all(kernel: packages.Kernel, guests: Sequence[Guest]) -> list[Cell]:
    slots = asyncio.Semaphore(GUESTS_AT_ONCE)
    cells: dict[int, list[Cell]] = {}
    total = sum(len(guest.writes) for guest in guests)

    with progress.step("Running fio in guests") as step:

        async def in_slot(number: int, guest: Guest) -> None:
            def done(cell: Cell) -> None:
                cells.setdefault(number, []).append(cell)
                step.update(sum(map(len, cells.values())), total, f"{guest.name} {cell.coalesce}")

            async with slots:
                await _run_guest(kernel, guest, done)

        tasks = [asyncio.create_task(in_slot(*numbered)) for numbered in enumerate(guests)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return [cell for number in sorted(cells) for cell in cells[number]]


async def _run_guest(kernel: packages.Kernel, guest: Guest, done: Callable[[Cell], None]) -> None:
    boot = Boot(kernel.image, kernel.base, guest.disk, "tcg", vcpus=VCPUS)
    printed = bytearray()
    before: Mapping[str, Any] = {}
    async with machine.running(
        boot, kernel, script(guest), printed.extend, limit_seconds=LIMIT_SECONDS
    ) as running:
        async for message in running.messages():
            match message["type"]:
                case "begin":
                    before = await running.statistics()
                case "end":
                    done(_cell(guest, message["fio"], before, await running.statistics()))
                case "exit" if message["code"] != 0:
                    text = printed.decode(errors="replace").strip()
                    raise BatchflushError(f"fio failed on {guest.name}: {text}")


def script(guest: Guest) -> str:
    """Each run of fio stands between a "begin" and an "end" that carries what fio tells."""
    command = [
        "fio", "--name=job", "--filename=/mnt/file", f"--size={FILE_MIB}m", "--rw=randwrite",
        "--bs=4k", "--fdatasync=1", "--overwrite=1", "--ioengine=psync", "--thread",
        "--group_reporting", "--output-format=json", "--output=/tmp/fio.json",
    ]  # fmt: skip
    parts = [
        jobs.fresh_file_system(guest.disk.guest_file),
        "cd /tmp\n",
        f"dd if=/dev/zero of=/mnt/file bs=1M count={FILE_MIB} 2>/dev/null && sync || exit 1\n",
    ]
    for count, writes in guest.writes.items():
        line = " ".join([*command, f"--numjobs={count}", f"--number_ios={writes}"])
        parts.append(f"""\
ask '{{"type": "begin"}}'
{line} || exit 1
told=$(tr -d '\\n' </tmp/fio.json)
ask "{{\\"type\\": \\"end\\", \\"fio\\": $told}}"
""")
    return "".join(parts)


def _cell(
    guest: Guest, told: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Cell:
    job = told["jobs"][0]
    return Cell(
        guest.name,
        guest.option("coalesce"),
        guest.option("flush-concurrency"),
        int(job["job options"]["numjobs"]),
        job["write"]["total_ios"],
        round(job["write"]["iops"], 2),
        after["flush-arrivals"] - before["flush-arrivals"],
        after["flushes-issued"] - before["flushes-issued"],
        after["flush-average-ns"],
        difference(before["batch-sizes"], after["batch-sizes"]),
    )


Buckets = Sequence[Mapping[str, int]]


def difference(before: Buckets, after: Buckets) -> dict[int, int]:
    """What a histogram has gained, by the upper end of the bucket."""
    counts = {bucket["upper"]: bucket["count"] for bucket in before}
    gained = {b["upper"]: b["count"] - counts.get(b["upper"], 0) for b in after}
    return {upper: count for upper, count in gained.items() if count}


# Showing


def numbers(cells: Sequence[Cell]) -> list[Number]:
    trial = next(
        c for c in cells if c.disk == TRIAL and c.coalesce == "auto"
    )  # fmt: skip
    flushes = trial.flushes_issued * TRIAL_SCALE / trial.writes
    return [
        Number("coalesce_guest_auto_worst_percent", worst_percent(cells), at_most=5),
        Number("coalesce_guest_trial_writes_per_s", trial.writes_per_s, at_least=540),
        Number("coalesce_guest_trial_flushes", flushes, at_most=750),
    ]


def slowdown_percent(rates: Mapping[str, float]) -> float:
    """Of auto against the better of off and on."""
    return (max(rates["off"], rates["on"]) / rates["auto"] - 1) * 100


def worst_percent(cells: Sequence[Cell]) -> float:
    """The worst slowdown on the storage classes."""
    return max(
        slowdown_percent({c.coalesce: c.writes_per_s for c in cells if (c.disk, c.jobs) == key})
        for key in {(c.disk, c.jobs) for c in cells if c.disk in WRITES}
    )


def table(cells: Sequence[Cell]) -> Table:
    result = Table(
        "disk", "flush-concurrency", "jobs", "coalesce", "writes/s", "flushes sent", "issued",
        "writes per flush", "batches by size",
        title="fio: 4 KiB overwrites with fdatasync on ext4, 4 CPUs, 4 queues, virtual time",
        title_justify="left",
    )  # fmt: skip
    order = list(dict.fromkeys((cell.disk, cell.jobs) for cell in cells))
    for cell in sorted(cells, key=lambda cell: order.index((cell.disk, cell.jobs))):
        sizes = ", ".join(f"≤{size}: {count}" for size, count in cell.batch_sizes.items())
        result.add_row(
            cell.disk, cell.flush_concurrency, str(cell.jobs), cell.coalesce,
            f"{cell.writes_per_s:,.1f}", str(cell.flush_arrivals), str(cell.flushes_issued),
            f"{cell.writes_per_flush:.2f}", sizes,
        )  # fmt: skip
    return result


def draw(cells: Sequence[Cell]) -> None:
    """Writes per second and writes per flush over the number of jobs, disk by disk."""
    # Imported here: it takes a second, and it must not look for a display.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    disks = {TRIAL: TRIAL_WRITES, **WRITES}
    # Without the trial on hardware that takes several flushes at once.
    shown = {(c.disk, c.jobs, c.coalesce): c for c in cells
             if c.disk != TRIAL or c.flush_concurrency == "serial"}  # fmt: skip
    figure, rows = pyplot.subplots(
        2, len(disks), figsize=(11, 6.5), layout="constrained",
        width_ratios=[len(writes) for writes in disks.values()],
    )  # fmt: skip
    for (disk, writes), column in zip(disks.items(), rows.T, strict=True):
        for offset, mode in enumerate(MODES):
            x = [place + (offset - 1) * 0.28 for place in range(len(writes))]
            line = [shown[disk, count, mode] for count in writes]
            rates, shared = [c.writes_per_s for c in line], [c.writes_per_flush for c in line]
            for axes, values in zip(column, (rates, shared), strict=True):
                bars = axes.bar(x, values, 0.26, label=f"coalesce={mode}", color=f"C{offset}")
                labels = [f"{value:,.0f}" if value >= 20 else f"{value:.2f}" for value in values]
                axes.bar_label(bars, labels, fontsize=7, rotation=90, padding=2)
                axes.set_xticks(range(len(writes)), [f"{n} jobs" for n in writes])
                axes.margins(y=0.2)
        column[0].set_title(disk)
    rows[0, 0].set_ylabel("writes per second of the guest's time")
    rows[1, 0].set_ylabel("writes per flush that the disk did")
    labelled = rows[0, 0].get_legend_handles_labels()
    figure.legend(*labelled, loc="outside lower center", ncols=len(MODES), frameon=False)
    figure.suptitle("fio: 4 KiB overwrites with fdatasync on ext4, 4 virtual CPUs, 4 queues")
    figure.savefig(PICTURE, dpi=130)
    pyplot.close(figure)
