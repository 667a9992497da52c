# SPDX-License-Identifier: GPL-2.0-or-later
"""Find what is wrong around the disks of a running guest, and say what to change."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from rich.markup import escape

from batchflush import paths, top
from batchflush.attach import attached
from batchflush.doctor import facts, findings
from batchflush.errors import BatchflushError
from batchflush.guest import kvm, packages
from batchflush.progress import console

NAME = "doctor"
HELP = "find what is wrong around the disks of a running guest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    top.add_socket_argument(parser)
    parser.add_argument(
        "--ignore", metavar="CHECK", action="append", choices=findings.NAMES, default=[],
        help=f"leave it out; may be given again; there are {', '.join(findings.NAMES)}",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    told = asyncio.run(_collect(args.socket))
    trouble = _kvm_trouble if "kvm" not in args.ignore else lambda: None
    found = [f for f in findings.examine(told, trouble) if f.check not in args.ignore]
    show(found, [disk.name for disk in told.disks])
    return 1 if found else 0


async def _collect(address: str) -> facts.Facts:
    async with attached(address) as qemu:
        return await facts.collect(qemu)


def _kvm_trouble() -> str | None:
    """A guest that boots is the only proof."""
    trouble = kvm.obstacle()
    if trouble or not paths.QEMU_SYSTEM.exists():
        return trouble or None
    try:
        return kvm.trouble(packages.prepare())
    except BatchflushError as error:
        console.print(f"[dim]KVM was not tried: {escape(error.message)}[/]")
        return None


def show(found: Sequence[findings.Finding], disks: Sequence[str]) -> None:
    for finding in found:
        console.print(f"[bold red]✗[/] [bold]{escape(finding.where)}[/] ({finding.check})")
        console.print(f"    {escape(finding.what)}")
        console.print(f"    [green]change:[/] {escape(finding.change)}")
    if not found:
        console.print(f"[green]✓[/] nothing is wrong with {escape(', '.join(disks))}")
