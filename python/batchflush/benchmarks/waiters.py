# SPDX-License-Identifier: GPL-2.0-or-later
"""What a waiter costs the coordinator in a batch of 10 and in one of 10,000."""

import json
import subprocess

from batchflush import build, paths, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError

NAME = "waiters"
HELP = "cost per waiter in a batch of 10,000 over that in a batch of 10"

MODEL_BENCH = paths.MODEL_BUILD / "tests/unit/model-bench"
LIMIT = 1.5


def measure() -> list[Number]:
    build.model()
    with progress.step("Measuring the coordinator's cost per waiter"):
        done = subprocess.run([MODEL_BENCH], capture_output=True, text=True)
    if done.returncode != 0:
        raise BatchflushError(f"{paths.shown(MODEL_BENCH)} failed: {done.stderr.strip()}")
    return numbers(json.loads(done.stdout))


def numbers(told: dict[str, float]) -> list[Number]:
    return [
        Number("waiter_growth_ratio", told["waiter_growth_ratio"], at_most=LIMIT),
        Number("waiter_10_ns", told["waiter_10_ns"]),
        Number("waiter_10000_ns", told["waiter_10000_ns"]),
    ]
