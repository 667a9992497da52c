# SPDX-License-Identifier: GPL-2.0-or-later
"""A class file without a mistake, for tests that make one."""

GOOD = """
[disk]
title = "a disk"
[disk.node]
write-cache = { value = "volatile", grade = "folk", source = "somebody" }
flush-latency-ns = { value = 9000000, grade = "data sheet", source = "page 3" }
[disk.front-end]
device = { value = "virtio-blk-pci", grade = "folk", source = "us" }
write-cache = { value = "on", grade = "folk", source = "us" }
"""
