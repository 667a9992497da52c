# SPDX-License-Identifier: GPL-2.0-or-later
"""What the service model costs per request, with everything on that it can do."""

import json
import subprocess

from batchflush import build, paths, progress
from batchflush.bench import Number
from batchflush.errors import BatchflushError

NAME = "model"
HELP = "processor time per request of the service model, everything on, up to depth 1024"

MODEL_BENCH = paths.MODEL_BUILD / "tests/unit/model-bench"
LIMIT_NS = 300
DEPTHS = (1, 32, 1024)


def measure() -> list[Number]:
    build.model()
    with progress.step("Measuring the service model's cost per request"):
        done = subprocess.run([MODEL_BENCH], capture_output=True, text=True)
    if done.returncode != 0:
        raise BatchflushError(f"{paths.shown(MODEL_BENCH)} failed: {done.stderr.strip()}")
    return numbers(json.loads(done.stdout))


def numbers(told: dict[str, float]) -> list[Number]:
    """The worst depth counts; lanes alone, the fast path, only inform."""
    everything = {depth: told[f"all_on_depth{depth}_ns"] for depth in DEPTHS}
    return [
        Number("model_ns_per_request", max(everything.values()), at_most=LIMIT_NS),
        *(Number(f"model_depth{depth}_ns", value) for depth, value in everything.items()),
        *(Number(f"model_lanes_depth{d}_ns", told[f"service_depth{d}_ns"]) for d in DEPTHS),
    ]
