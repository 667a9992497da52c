# SPDX-License-Identifier: GPL-2.0-or-later
"""Small static programs in C for the guest: cut-power, which rings the doorbell.

    kernel = helpers.with_cut_power(packages.prepare())

puts it into the guest's /bin. The machine needs `helpers.CONTROL_DEVICE` as well.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from batchflush import paths
from batchflush.crash.compiled import compile_c
from batchflush.guest import initramfs
from batchflush.guest.packages import Kernel

# QEMU's arguments, for the node of ./batchflush's guests.
CONTROL_DEVICE = ("-device", "batchflush-control,nodes=disk")


def cut_power() -> Path:
    """The program, compiled at its first use."""
    return compile_c(Path(__file__).with_name("cut-power.c"), "cut-power", ["-static"])


def with_cut_power(kernel: Kernel) -> Kernel:
    """The same kernel, its initramfs with cut-power."""
    program = cut_power()
    base = paths.GUEST / f"{kernel.base.stem}-{program.name}.cpio"
    if not base.exists():
        entry = initramfs.Entry.file("bin/cut-power", program.read_bytes(), executable=True)
        unfinished = base.with_suffix(".new")
        unfinished.write_bytes(
            kernel.base.read_bytes() + initramfs.cpio(initramfs.with_parents([entry]))
        )
        unfinished.rename(base)
    return dataclasses.replace(kernel, base=base)
