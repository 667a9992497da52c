# SPDX-License-Identifier: GPL-2.0-or-later
"""Boot a guest on a disk of some class and run one command there."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from batchflush import build, profiles
from batchflush.errors import UsageError
from batchflush.guest import jobs, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk, parse_options
from batchflush.progress import console

NAME = "run"
HELP = "boot a guest on a disk of some class and run a command there"

SAMPLE = "fs_mark -d /mnt/fs_mark -s 4096 -n 100 -D 64 -t 4 -l /tmp/fs_log.txt"
MAX_VCPUS = 64

# What is told of the disk: statistic, unit, and whether it only ever grows.
TOLD = (
    ("flush-arrivals", "flushes", True),
    ("flushes-issued", "flushes", True),
    ("flushes-joined", "flushes", True),
    ("flush-average-ns", "ns", False),
    ("destaged-bytes", "bytes", True),
    ("dirty-bytes-max", "bytes", False),
    ("stalls", "writes", True),
    ("stall-ns", "ns", True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--class", dest="profile", metavar="NAME", required=True,
        help="storage class of the disk; 'batchflush profiles' lists them",
    )  # fmt: skip
    profiles.add_classes_argument(parser)
    parser.add_argument(
        "--kernel", metavar="PATH|debian", default="debian",
        help="a kernel image with its drivers built in (default: Debian's kernel)",
    )  # fmt: skip
    parser.add_argument(
        "--fs", choices=jobs.FILE_SYSTEMS, default="ext4",
        help="file system that is made on the disk and mounted at /mnt (default: ext4)",
    )  # fmt: skip
    parser.add_argument(
        "--option", metavar="KEY=VALUE", action="append", default=[],
        help="an option of the node that differs from the class; may be given again",
    )  # fmt: skip
    parser.add_argument(
        "--vcpus", metavar="N", type=int, default=1, help="virtual processors (default: 1)"
    )
    parser.add_argument(
        "--qmp", metavar="SOCKET", type=Path,
        help="let QEMU's monitor listen there, for 'batchflush top SOCKET' and others",
    )  # fmt: skip
    parser.add_argument(
        "--limit", metavar="SECONDS", type=int, default=600,
        help="of real time, after which the guest is ended (default: 600)",
    )  # fmt: skip
    parser.add_argument(
        "command", metavar="COMMAND", nargs="*",
        help=f"what to run in /mnt (default: {SAMPLE})",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    for name, value, largest in (("vcpus", args.vcpus, MAX_VCPUS), ("limit", args.limit, 86400)):
        if not 1 <= value <= largest:
            raise UsageError(f"--{name}={value} is out of range; allowed are 1 to {largest}")
    if args.qmp and args.qmp.exists() and not args.qmp.is_socket():
        raise UsageError(f"--qmp={args.qmp} exists and is no socket; allowed is a new name")
    disk = Disk(
        profiles.find(args.profile, profiles.known(args.classes)), parse_options(args.option)
    )
    build.qemu()
    kernel = packages.with_file_system(packages.prepare(args.kernel), args.fs)
    accelerator = kvm.choose(kernel)
    console.print(f"[dim]{accelerator.name}: {accelerator.reason}[/]")
    boot = Boot(
        kernel.image,
        kernel.base,
        disk,
        accelerator.name,
        args.vcpus,
        ioeventfd=accelerator.name == "kvm",
        modules=(args.fs,),
        monitor=args.qmp and args.qmp.absolute(),
    )
    if args.qmp:
        console.print(f"[dim]to watch the disk: ./batchflush top {escape(str(args.qmp))}[/]")
    job = jobs.fresh_file_system(disk.guest_file, args.fs)
    job += jobs.measured_command(args.command or SAMPLE.split())
    return asyncio.run(_run(boot, kernel, job, args.limit))


async def _run(boot: Boot, kernel: packages.Kernel, job: str, limit_seconds: int) -> int:
    statistics: dict[str, Any] = {}
    code = 1
    async with machine.running(
        boot, kernel, job, _show_output, limit_seconds=limit_seconds
    ) as guest:
        async for message in guest.messages():
            if message["type"] == "exit":
                code = message["code"]
            else:
                statistics[message["type"]] = await guest.statistics()
    if "end" in statistics:
        console.print(_told(boot.disk, statistics["begin"], statistics["end"]))
    return code


def _show_output(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _told(disk: Disk, begin: Mapping[str, Any], end: Mapping[str, Any]) -> Table:
    table = Table(title=f"disk {disk.profile.name}, while the command ran", title_justify="left")
    table.add_column("Statistic")
    table.add_column("Value", justify="right")
    table.add_column("Unit")
    for name, unit, grows in TOLD:
        value = end[name] - begin[name] if grows else end[name]
        table.add_row(name, f"{value:,}", unit)
    for entry in end["lateness"]:
        name = f"lateness of {entry['operation']}, p99 since the start"
        table.add_row(name, f"{entry['p99-ns']:,}", "ns")
    return table
