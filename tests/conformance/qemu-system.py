#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Stands in for QEMU in its own qtests: puts a batchflush node over each drive.

Environment: BATCHFLUSH_QEMU, the real program; BATCHFLUSH_NODE, options of the node;
BATCHFLUSH_SERVED, a file that gets a line for each node.
"""

import os
import sys
from pathlib import Path

# Options of a drive that stay with it; all else is its child's.
DRIVE = ("if", "id", "index", "media", "auto-read-only", "read-only", "snapshot", "cache")


def drive(text: str, node: str) -> str:
    """A -drive with a node over what it names."""
    options = [tuple(option.split("=", 1)) for option in text.split(",")]
    kept, child = [], []
    for name, value in options:
        if name in DRIVE:
            kept.append(f"{name}={value}")
        elif name == "file":
            child += file(value)
        elif name.startswith("file."):
            child.append(f"{name}={value}")
        elif name != "format" or value != "raw":
            raise SystemExit(f"qemu-system.py: what does {name}={value} mean in {text}?")
    return ",".join([*kept, node, *child])


def file(name: str) -> list[str]:
    """QEMU's short form of a child, written out."""
    if name.startswith("blkdebug::"):
        inner = file(name.removeprefix("blkdebug::"))
        return ["file.driver=blkdebug", *(f"file.image.{one[5:]}" for one in inner)]
    if name == "null-co://":
        return ["file.driver=null-co"]
    return ["file.driver=file", f"file.filename={name}"]


def blockdev(text: str, node: str) -> str:
    """A -blockdev whose node is ours; what it was before is its child."""
    options = text.split(",")
    name = [option for option in options if option.startswith("node-name=")]
    return ",".join([node, *name, *(f"file.{one}" for one in options if one not in name)])


def through_nodes(arguments: list[str], node: str) -> tuple[list[str], int]:
    """The arguments with a node over each drive, and how many there are."""
    result, count = [], 0
    rewrite = {"-drive": drive, "-blockdev": blockdev}
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if before in rewrite:
            argument = rewrite[before](argument, node)
            count += 1
        result.append(argument)
    return result, count


if __name__ == "__main__":
    program = os.environ["BATCHFLUSH_QEMU"]
    arguments, count = through_nodes(sys.argv[1:], os.environ["BATCHFLUSH_NODE"])
    with Path(os.environ["BATCHFLUSH_SERVED"]).open("a") as served:
        served.write("node\n" * count)
    os.execv(program, [program, *arguments])
