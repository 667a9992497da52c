# SPDX-License-Identifier: GPL-2.0-or-later
"""What a batchflush node costs that emulates nothing: against QEMU's raw node over null-co."""

import re
import statistics
import subprocess

from batchflush import build, paths, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError

NAME = "passthrough"
HELP = "time per request of a node that emulates nothing, over that of raw"

LIMIT = 1.10
PAIRS = 11
# Half a second or more each, where qemu-img tells milliseconds.
REQUESTS = {1: 400_000, 32: 800_000}
BLOCK_BYTES = 4096

MEDIUM = "file.driver=null-co,file.size=1G"
NODES = {
    "raw": f"driver=raw,{MEDIUM}",
    "batchflush": f"driver=batchflush,write-cache=none,coalesce=off,{MEDIUM}",
}


def measure() -> list[Number]:
    build.qemu()
    numbers = []
    for depth in REQUESTS:
        with progress.step(f"Measuring pass-through at depth {depth}") as step:
            # Reads and writes go different ways: the worse one counts.
            ratios = [_ratio(depth, writes, step) for writes in (False, True)]
        numbers.append(Number(f"passthrough_depth{depth}_ratio", max(ratios), at_most=LIMIT))
    return numbers


def _ratio(depth: int, writes: bool, step: progress.Step) -> float:
    """Of the medians; runs of both nodes alternate, so that a busy machine hits both alike."""
    seconds: dict[str, list[float]] = {name: [] for name in NODES}
    for pair in range(PAIRS):
        step.update(pair + PAIRS * writes, 2 * PAIRS, "writes" if writes else "reads")
        # Neither is always the first.
        for name in NODES if pair % 2 else reversed(NODES):
            seconds[name].append(_seconds(NODES[name], depth, writes))
    return statistics.median(seconds["batchflush"]) / statistics.median(seconds["raw"])


def _seconds(node: str, depth: int, writes: bool) -> float:
    command = [
        paths.QEMU_IMG, "bench", "-c", str(REQUESTS[depth]), "-d", str(depth),
        "-s", str(BLOCK_BYTES), *(["-w"] if writes else []), "--image-opts", node,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    told = re.search(r"Run completed in ([\d.]+) seconds", done.stdout)
    if done.returncode != 0 or not told:
        raise BatchflushError(f"qemu-img bench of {node} failed: {done.stderr.strip()}")
    return float(told[1])
