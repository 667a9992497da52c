# SPDX-License-Identifier: GPL-2.0-or-later
"""What watermarks are worth to a guest: a storm of mkdir against a small write cache.

The device's twin of an experiment with jbd2's journal (seconds to make 1,000,000 directories,
in PUBLISHED): there, writers stall together when the log is full, unless its space is reclaimed
before. Here they stall when the write cache is full, unless it is destaged before. Both arms
have the same medium, which is fast enough on average but not in a burst.

What is measured holds no read (the inode tables are read before) and asks nothing of the host.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from rich.table import Table

from batchflush import build, paths, profiles, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError
from batchflush.guest import machine, packages
from batchflush.guest.command_line import Boot, Disk

NAME = "watermarks"
HELP = "a storm of mkdir in a guest on a small write cache, with and without watermarks"

TASKS = (1, 2, 4, 8, 16)
DIRECTORIES = 20_000
RUNS = 3
LIMIT_SECONDS = 300
POLL_SECONDS = 0.02
RESULTS = paths.BENCH / "watermarks.json"
PICTURE = paths.BENCH / "watermarks.png"

# Tasks → average seconds before and after, in the posting of September 2019.
PUBLISHED = {1: (64.8, 55.2), 2: (53.6, 47.6), 4: (38.6, 33.8), 8: (34.4, 30.4), 16: (34.0, 31.4)}

DISK_BYTES = 256 << 20
CACHE_BYTES = 8 << 20
# A quarter of it is the largest transaction, and so the largest burst of the journal.
JOURNAL_MIB = 4
# All of the inode tables and bitmaps of DISK_BYTES.
METADATA_MIB = 32
# Spelled out, so that no other class changes what is measured. A battery: a volatile cache is
# drained by the flush of each commit, and then hardly ever full.
NODE = {
    "write-cache": "battery",
    "cache-size": str(CACHE_BYTES),
    "read-latency-ns": "500000",
    "write-latency-ns": "20000",
    "destage-latency-ns": "2000000",
    "flush-latency-ns": "100000",
    "flush-clean-latency-ns": "100000",
    "flush-concurrency": "concurrent",
    "bandwidth": "0",
    "queue-depth": "8",
    "coalesce": "off",
}
OFF, ON = "off", "on"
WATERMARKS = {
    OFF: {"destage-high-percent": "0", "destage-low-percent": "0"},
    ON: {"destage-high-percent": "25", "destage-low-percent": "10"},
}


@dataclass(frozen=True)
class Cell:
    """One storm; the names of the fields are those of watermarks.json."""

    watermarks: str
    tasks: int
    seconds: float
    stalls: int
    stall_seconds: float  # of all writers together
    destaged_bytes: int
    dirty_bytes_before: int  # what the cache held when the storm began


def measure() -> list[Number]:
    build.qemu()
    kernel = packages.prepare()
    cells = asyncio.run(_run_all(kernel))
    paths.BENCH.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
    draw(cells)
    progress.console.print(table(cells))
    print(f"cells: {paths.shown(RESULTS)}\nplot:  {paths.shown(PICTURE)}")
    return numbers(cells)


# Running


async def _run_all(kernel: packages.Kernel) -> list[Cell]:
    cells: list[Cell] = []
    total = len(WATERMARKS) * len(TASKS) * RUNS

    def done(cell: Cell) -> None:
        cells.append(cell)
        step.update(len(cells), total, f"watermarks {cell.watermarks}, {cell.tasks} tasks")

    with progress.step("Making directories in guests") as step:
        for tasks in TASKS:
            for watermarks in WATERMARKS:
                await storms(kernel, watermarks, tasks, done)
    return cells


async def storms(
    kernel: packages.Kernel,
    watermarks: str,
    tasks: int,
    done: Callable[[Cell], None],
    *,
    runs: int = RUNS,
    directories: int = DIRECTORIES,
) -> None:
    """One guest, which makes its directories `runs` times, each time on a fresh ext4."""
    disk = Disk(profiles.find("array-battery"), {**NODE, **WATERMARKS[watermarks]}, DISK_BYTES)
    boot = Boot(kernel.image, kernel.base, disk, "tcg")
    job = script(disk.guest_file, tasks, directories) * runs
    printed = bytearray()
    before: Mapping[str, Any] = {}
    async with machine.running(
        boot, kernel, job, printed.extend, limit_seconds=LIMIT_SECONDS
    ) as guest:
        async for message in guest.messages():
            match message["type"]:
                case "begin":
                    before = await _settled(guest, watermarks)
                case "end":
                    after = await guest.statistics()
                    done(_cell(watermarks, tasks, message["uptime"], before, after))
                case "exit" if message["code"] != 0:
                    text = printed.decode(errors="replace").strip()
                    raise BatchflushError(f"making directories failed: {text}")


async def _settled(guest: machine.Machine, watermarks: str) -> Mapping[str, Any]:
    """The statistics once background destage has nothing more to do, mke2fs being over."""
    high = int(WATERMARKS[watermarks]["destage-high-percent"]) or 100
    while (told := await guest.statistics())["dirty-bytes"] > CACHE_BYTES * high // 100:
        await asyncio.sleep(POLL_SECONDS)
    return told


def script(disk: str, tasks: int, directories: int) -> str:
    """Each task makes its share, in a directory of its own.

    Checksums of metadata are off: the guest's processor has no instruction for them, and
    would spend most of its time there.
    """
    each = directories // tasks
    inodes = directories + tasks + 1000
    return f"""\
await test -b {disk} || exit 125
/bin/mke2fs -q -F -t ext4 -O ^metadata_csum -J size={JOURNAL_MIB} -N {inodes} \
    -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 {disk} || exit 125
mount -t ext4 {disk} /mnt || exit 125
dd if={disk} of=/dev/null bs=1M count={METADATA_MIB} 2>/dev/null || exit 125
seq {each} >/tmp/names
for task in $(seq {tasks}); do mkdir /mnt/$task; done
sync
ask '{{"type": "begin"}}'
read -r started rest </proc/uptime
pids=
for task in $(seq {tasks}); do
    (cd /mnt/$task && xargs mkdir </tmp/names) &
    pids="$pids $!"
done
for pid in $pids; do wait $pid || exit 1; done
read -r ended rest </proc/uptime
ask "{{\\"type\\": \\"end\\", \\"uptime\\": [$started, $ended]}}"
umount /mnt
"""


def _cell(
    watermarks: str,
    tasks: int,
    uptime: Sequence[float],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> Cell:
    started, ended = uptime
    return Cell(
        watermarks,
        tasks,
        round(ended - started, 2),
        after["stalls"] - before["stalls"],
        round((after["stall-ns"] - before["stall-ns"]) / 1e9, 3),
        after["destaged-bytes"] - before["destaged-bytes"],
        before["dirty-bytes"],
    )


# Showing


def of(cells: Sequence[Cell], watermarks: str, tasks: int) -> list[Cell]:
    return [cell for cell in cells if (cell.watermarks, cell.tasks) == (watermarks, tasks)]


def seconds(cells: Sequence[Cell], watermarks: str, tasks: int) -> float:
    return fmean(cell.seconds for cell in of(cells, watermarks, tasks))


def gain_percent(before: float, after: float) -> float:
    """By how much the time has become shorter."""
    return (1 - after / before) * 100


def numbers(cells: Sequence[Cell]) -> list[Number]:
    stalls = {arm: [cell.stalls for cell in cells if cell.watermarks == arm] for arm in WATERMARKS}
    gains = [gain_percent(seconds(cells, OFF, tasks), seconds(cells, ON, tasks)) for tasks in TASKS]
    return [
        Number("watermarks_off_fewest_stalls", min(stalls[OFF]), at_least=1),
        Number("watermarks_on_most_stalls", max(stalls[ON]), at_most=0),
        Number("watermarks_mean_gain_percent", fmean(gains), at_least=0),
    ]


def table(cells: Sequence[Cell]) -> Table:
    result = Table(
        "tasks", "off, s (stalls)", "waits, s", "on, s (stalls)", "gain", "2019, s", "gain",
        title=f"{DIRECTORIES:,} directories on ext4, watermarks off and on;\n"
        "2019: 1,000,000 directories, jbd2 without and with the change",
        caption=f"means of {RUNS} runs; waits: of all writers, added up",
        title_justify="left", caption_justify="left",
    )  # fmt: skip
    for tasks in TASKS:
        off, on = seconds(cells, OFF, tasks), seconds(cells, ON, tasks)
        before, after = PUBLISHED[tasks]
        stalls, stalled, kept = (
            fmean(getattr(cell, name) for cell in of(cells, arm, tasks))
            for name, arm in (("stalls", OFF), ("stall_seconds", OFF), ("stalls", ON))
        )
        result.add_row(
            str(tasks), f"{off:.2f} ({stalls:.0f})", f"{stalled:.1f}", f"{on:.2f} ({kept:.0f})",
            f"{gain_percent(off, on):.1f} %", f"{before} → {after}",
            f"{gain_percent(before, after):.1f} %",
        )  # fmt: skip
    return result


def draw(cells: Sequence[Cell]) -> None:
    """Seconds over tasks in both arms, run by run, and the stalls below."""
    # Imported here: it takes a second, and it must not look for a display.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 6.5), sharex=True,
                                             layout="constrained")  # fmt: skip
    for number, arm in enumerate(WATERMARKS):
        mean = [seconds(cells, arm, tasks) for tasks in TASKS]
        above.plot(TASKS, mean, color=f"C{number}", label=f"watermarks {arm}")
        for axes, name in ((above, "seconds"), (below, "stalls")):
            points = [(cell.tasks, getattr(cell, name)) for cell in cells if cell.watermarks == arm]
            axes.plot(*zip(*points, strict=True), "o", color=f"C{number}", alpha=0.6)
    above.set_xscale("log", base=2)
    above.set_xticks(TASKS, [str(tasks) for tasks in TASKS])
    above.set_ylim(bottom=0)
    above.set_ylabel(f"seconds for {DIRECTORIES:,} directories")
    below.set_ylabel("writes that found the cache full")
    below.set_xlabel("tasks")
    above.grid(alpha=0.3)
    below.grid(alpha=0.3)
    above.legend(frameon=False)
    above.set_title("A storm of mkdir on a small write cache: each run, and the mean")
    figure.savefig(PICTURE, dpi=130)
    pyplot.close(figure)
