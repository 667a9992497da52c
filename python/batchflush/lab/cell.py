# SPDX-License-Identifier: GPL-2.0-or-later
"""Run one cell: boot its guest in virtual time, take its report, make a record of it.

Nothing is asked of the host while the cell is measured: a guest that waits lets its
virtual time run on, and how far depends on the host. The disk's statistics are read when
the guest has ended its job, so they are those of the whole boot.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from batchflush import profiles
from batchflush.errors import BatchflushError
from batchflush.guest import jobs, machine, packages
from batchflush.guest.command_line import Boot, Disk
from batchflush.lab import workloads
from batchflush.lab.experiment import SHAPES, Cell, FileSystem

# A guest needs seconds of the host for a second of its own where it computes, and next to
# none where it waits; this is for one that spins for ever.
HOST_LIMIT_SECONDS = 1800
# So that repetitions do not all meet the timer's ticks alike; a prime, in µs.
PHASE_US = 1237

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A cell, the kernel that it boots, its key, and where its console goes if it fails."""

    cell: Cell
    kernel: packages.Kernel
    identity: str
    key: str
    logs: Path
    qemu: Path | None = None


def run(task: Task) -> Record:
    """The record of a cell, measured or failed."""
    started = time.monotonic()
    cell = task.cell
    record: Record = {
        "cell": task.key,
        **cell.labels(),
        "kernel-identity": task.identity,
        "kernel-parameters": list(cell.kernel.parameters),
        "shape": cell.shape,
        "seed": cell.seed,
        "status": "failed",
    }
    try:
        record |= asyncio.run(_boot(task))
        record["status"] = "ok"
    except Exception as error:
        # Whatever it is, of this host's full disk or a mistake of ours: the other cells go on.
        known = isinstance(error, BatchflushError)
        record["error"] = error.message if known else traceback.format_exc().strip()
        console = _console(task)
        if console.exists():
            record["console"] = str(console)
    record["host-seconds"] = round(time.monotonic() - started, 2)
    return record


def _console(task: Task) -> Path:
    return task.logs / f"{task.key}.console.log"


async def _boot(task: Task) -> Record:
    cell = task.cell
    vcpus = SHAPES[cell.shape]
    profile = profiles.find(cell.profile)
    # Spelled out, because another QEMU may have other numbers for the class.
    of_class = {name: str(setting.value) for name, setting in profile.node.items()}
    disk = Disk(
        profile,
        {**of_class, **cell.disk.options},
        cell.disk_size_mib << 20,
        queues=None if cell.shape == "exact" else vcpus,
    )
    boot = Boot(
        task.kernel.image, task.kernel.base, disk, "tcg", vcpus,
        parameters=cell.kernel.parameters, seed=cell.seed, qemu=task.qemu,
        instruction_ns=cell.instruction_ns,
    )  # fmt: skip
    printed = bytearray()
    said: Record = {}
    record: Record = {}
    folder = None
    try:
        async with machine.running(
            boot, task.kernel, job(cell, disk), printed.extend, limit_seconds=HOST_LIMIT_SECONDS
        ) as guest:
            folder = guest.folder
            async for message in guest.messages():
                said[message["type"]] = message
                if message["type"] == "hung":
                    raise guest.failure(
                        f"the guest was not done within {cell.limit_seconds} s of its own time"
                    )
                if message["type"] == "exit":
                    if message["code"] != 0 or "measured" not in said:
                        raise BatchflushError(_failed(message["code"], printed))
                    said["statistics"] = await guest.statistics()
                    record = _record(cell, said)
    except BatchflushError:
        _keep_console(task, folder, printed)
        raise
    return record


def _failed(code: int, printed: bytearray) -> str:
    text = printed.decode(errors="replace").strip().splitlines()
    return "\n".join([f"the workload failed with exit code {code}", *text[-10:]])


def _keep_console(task: Task, folder: Path | None, printed: bytearray) -> None:
    task.logs.mkdir(parents=True, exist_ok=True)
    parts = [] if folder is None else [folder / "qemu.log", folder / "console.log"]
    with _console(task).open("wb") as log:
        for part in parts:
            with contextlib.suppress(OSError):
                log.write(part.read_bytes())
        log.write(b"--- printed by the job\n" + printed)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _record(cell: Cell, said: Record) -> Record:
    kind = workloads.KINDS[cell.workload.name]
    measured = said["measured"]
    _check_switches(cell, measured["switches"])
    figures = kind.figures(cell.workload, cell.threads, said["result"])
    begin, end = measured["uptime"]
    before, after = measured["flushes"]
    return {
        "figures": {name: asdict(figure) for name, figure in figures.items()},
        "guest-seconds": round(end - begin, 2),
        "flushes": after - before,
        "statistics": said["statistics"],
    }


def _check_switches(cell: Cell, switches: str) -> None:
    """A parameter that the kernel does not know is one it passes over in silence."""
    running = dict(pair.split("=", 1) for pair in switches.split())
    for parameter in cell.kernel.parameters:
        name, _, value = parameter.partition("=")
        module, dot, switch = name.partition(".")
        if module != "batchflush" or not dot:
            continue
        found = running.get(switch)
        if found != {"1": "Y", "0": "N"}.get(value, value) and found != value:
            raise BatchflushError(
                f"kernel {cell.kernel.name}: {parameter} had no effect; "
                f"the kernel's switches are {switches or 'none'}"
            )


# --- the job ------------------------------------------------------------------------------


def job(cell: Cell, disk: Disk) -> str:
    """What the guest runs. Its reports: "result" by the workload, then "measured"."""
    file = disk.guest_file
    name = PurePosixPath(file).name
    kind = workloads.KINDS[cell.workload.name]
    phase_us = cell.repetition * PHASE_US
    measured = '{"type": "measured", "uptime": [%s, %s], "flushes": [%s, %s], "switches": "%s"}'
    return f"""\
DISK={name}
# Not a child of this shell, whose `wait` would wait for it.
( ( sleep {cell.limit_seconds}; echo w >/proc/sysrq-trigger; report '{{"type": "hung"}}' ) & )
await test -b {file} || exit 125
{cell.setup.script}
{file_system(cell.file_system, disk)}
usleep {phase_us}
set -- $(cat /sys/block/{name}/stat); shift 15; flushes=$1
read -r started rest </proc/uptime
{kind.shell(cell.workload, cell.threads)}
read -r ended rest </proc/uptime
set -- $(cat /sys/block/{name}/stat); shift 15
switches=
for file in /sys/module/batchflush/parameters/*; do
    [ -e "$file" ] && switches="$switches${{switches:+ }}${{file##*/}}=$(cat "$file")"
done
report "$(printf '{measured}' $started $ended $flushes $1 "$switches")"
"""


def file_system(choice: FileSystem, disk: Disk) -> str:
    """Make it, empty, and mount it at /mnt; ext4 initialises everything at once."""
    file = disk.guest_file
    mount = f"-o {choice.mount}" if choice.mount else ""
    if choice.type == "ext3":
        return jobs.fresh_file_system_of_2009(
            file, barrier=disk.properties().get("write-cache", "on") == "on"
        )
    if choice.type == "btrfs":
        return f"""\
mkfs.btrfs -q -f -K {choice.mkfs} {file} || exit 125
mount -t btrfs {mount} {file} /mnt || exit 125
sync
"""
    return f"""\
/bin/mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 \
{choice.mkfs} {file} || exit 125
mount -t ext4 {mount} {file} /mnt || exit 125
sync
"""


def with_programs(cell: Cell, kernel: packages.Kernel) -> packages.Kernel:
    """The kernel, its initramfs with what the cell runs."""
    kind = workloads.KINDS[cell.workload.name]
    if kind.package:
        kernel = packages.with_programs(kernel, kind.package, kind.programs, kind.data)
    if cell.file_system.type == "btrfs":
        kernel = packages.with_programs(kernel, "btrfs-progs", ("mkfs.btrfs",))
    return kernel
