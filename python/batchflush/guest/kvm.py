# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether KVM can be used: found out by booting the kernel on it, not by looking at /dev/kvm.

On some nested hosts /dev/kvm opens and the guest then hangs without a word.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path

from batchflush import paths, profiles
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import machine
from batchflush.guest.command_line import Boot, Disk
from batchflush.guest.packages import Kernel
from batchflush.progress import step

DEVICE = Path("/dev/kvm")
ANSWER = paths.GUEST / "kvm.json"
# A boot on a working KVM takes about a second.
LIMIT_SECONDS = 8
ACCELERATORS = ("kvm", "tcg")


@dataclass(frozen=True)
class Accelerator:
    """One of ACCELERATORS, and why."""

    name: str
    reason: str


def choose(kernel: Kernel) -> Accelerator:
    """What the environment variable ACCEL says; else KVM where it works, else TCG."""
    asked = os.environ.get("ACCEL", "")
    if asked and asked not in ACCELERATORS:
        raise UsageError(f"ACCEL={asked} is not known; allowed are {' and '.join(ACCELERATORS)}")
    if asked:
        return Accelerator(asked, f"ACCEL={asked} asks for it")
    reason = trouble(kernel)
    if reason:
        return Accelerator("tcg", reason)
    return Accelerator("kvm", "a guest boots on KVM here")


def obstacle() -> str:
    """Why KVM need not even be tried; empty if it may work."""
    if not DEVICE.exists():
        return f"{DEVICE} does not exist"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} may not be opened"
    return ""


def trouble(kernel: Kernel) -> str:
    """Why KVM cannot be used; empty if it can."""
    if reason := obstacle():
        return reason
    question = _question(kernel)
    try:
        kept = json.loads(ANSWER.read_text())
        if kept["question"] == question:
            return str(kept["trouble"])
    except (OSError, ValueError, KeyError):
        pass
    reason = _probe(kernel)
    ANSWER.write_text(json.dumps({"question": question, "trouble": reason}))
    return reason


def _question(kernel: Kernel) -> list[str]:
    """What the answer depends on; it holds until the machine is booted again."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    files = (paths.QEMU_SYSTEM, kernel.image)
    return [boot_id, *(f"{file} {file.stat().st_mtime_ns}" for file in files)]


def _probe(kernel: Kernel) -> str:
    disk = Disk(profiles.find("ramdisk"))
    boot = Boot(kernel.image, kernel.base, disk, "kvm", ioeventfd=True)
    with step("Trying whether KVM works"):
        try:
            asyncio.run(_boot_once(boot, kernel))
        except BatchflushError as error:
            if isinstance(error.__cause__, TimeoutError):
                return f"a guest did not boot on KVM within {LIMIT_SECONDS} s"
            return f"KVM does not work: {error.message}"
    return ""


async def _boot_once(boot: Boot, kernel: Kernel) -> None:
    async with machine.running(
        boot,
        kernel,
        job="true",
        on_output=lambda _: None,
        limit_seconds=LIMIT_SECONDS,
        keep_logs=False,
    ) as guest:
        async for _ in guest.messages():
            pass
