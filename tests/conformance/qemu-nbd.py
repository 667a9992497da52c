#!/usr/bin/python3 -I
# SPDX-License-Identifier: GPL-2.0-or-later
"""Stands in for qemu-nbd in QEMU's iotests: puts a batchflush node over the image it serves.

Environment: BATCHFLUSH_QEMU_NBD, the real program; BATCHFLUSH_NODE, options of the node;
BATCHFLUSH_SERVED, a file that gets a line for each image that was served through a node.
"""

import os
import sys
from pathlib import Path

# Options that take a value, of those that QEMU's iotests give.
WITH_VALUE = {
    "-A", "-b", "-B", "-c", "-D", "-e", "-f", "-k", "-l", "-o", "-p", "-P", "-T", "-x",
}  # fmt: skip


def through_a_node(arguments: list[str]) -> list[str]:
    """The arguments with the image at their end, if there is one in raw format, behind a node."""
    if not arguments or "--image-opts" in arguments or not Path(arguments[-1]).is_file():
        return arguments
    *options, image = arguments
    if image_format(options) != "raw" or is_value(options):
        return arguments
    escaped = image.replace(",", ",,")
    node = f"{os.environ['BATCHFLUSH_NODE']},file.driver=file,file.filename={escaped}"
    with Path(os.environ["BATCHFLUSH_SERVED"]).open("a") as served:
        served.write(f"{image}\n")
    return [*without_format(options), "--image-opts", node]


def image_format(options: list[str]) -> str:
    if "-f" in options:
        return options[options.index("-f") + 1]
    return next((o.split("=", 1)[1] for o in options if o.startswith("--format=")), "")


def without_format(options: list[str]) -> list[str]:
    if "-f" in options:
        at = options.index("-f")
        return options[:at] + options[at + 2 :]
    return [option for option in options if not option.startswith("--format=")]


def is_value(options: list[str]) -> bool:
    """Whether what follows belongs to an option, as the certificate's folder might."""
    return bool(options) and options[-1] in WITH_VALUE


if __name__ == "__main__":
    program = os.environ["BATCHFLUSH_QEMU_NBD"]
    os.execv(program, [program, *through_a_node(sys.argv[1:])])
