# SPDX-License-Identifier: GPL-2.0-or-later
"""What a 4 KiB write into the store costs with 10^3 and with 10^6 blocks dirty."""

import json
import re
import subprocess

from batchflush import build, paths, processes, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError

NAME = "cache_scaling"
HELP = "cost of a write into a full cache over that into a nearly empty one, and bookkeeping"

FEW, MANY = 1_000, 1_000_000
STORE_BENCH = paths.MODEL_BUILD / "tests/unit/store-bench"


def measure() -> list[Number]:
    build.model()
    with progress.step("Measuring writes into the store"):
        measured = json.loads(_output([STORE_BENCH, "--json"]))
    with progress.step("Counting instructions of writes into the store") as step:
        # New blocks and overwritten ones go different ways: the worse one counts.
        ratios = []
        for way in ((), ("--overwrite",)):
            counts = []
            for dirty in (FEW, MANY):
                step.say(f"{dirty} dirty blocks")
                counts.append(_instructions_per_write(dirty, way))
            ratios.append(counts[1] / counts[0])
    return [
        Number("cache_scaling_ratio", max(ratios), at_most=1.3),
        Number("cache_scaling_time_ratio", measured["ns_new_ratio"], at_most=2.0),
        # Few blocks that are overwritten stay in the processor's cache: no limit here.
        Number("cache_overwrite_time_ratio", measured["ns_overwrite_ratio"]),
        Number("cache_overhead_percent", measured["overhead_percent_1e6"], at_most=5.0),
    ]


def _instructions_per_write(dirty: int, way: tuple[str, ...]) -> float:
    log = paths.BENCH / "callgrind.log"
    told = _output(
        ["valgrind", "--tool=callgrind", "--toggle-collect=write_batch",
         "--callgrind-out-file=/dev/null", f"--log-file={log}",
         STORE_BENCH, f"--callgrind={dirty}", *way]
    )  # fmt: skip
    collected = re.search(r"Collected : (\d+)", log.read_text())
    if not collected or int(collected[1]) == 0:
        raise BatchflushError(f"callgrind counted nothing; its log is {paths.shown(log)}")
    return int(collected[1]) / json.loads(told)["writes"]


def _output(command: processes.Command) -> str:
    paths.BENCH.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BatchflushError(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout
