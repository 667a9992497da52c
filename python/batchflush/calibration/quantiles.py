# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of quantiles: from what fio says to what latency-spread takes, and their mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from batchflush.calibration.probe import Measured

# A quantile that is nearer to the one before says nothing.
CLOSE = 0.01

Factors = Mapping[float, float]


def spread(measured: Sequence[Measured]) -> dict[float, float]:
    """Percentile → factor on the median, the mean of several runs; at the median it is 1."""
    common = sorted(set.intersection(*(set(run.quantiles) for run in measured)))
    logs = {p: [math.log(_factor(run, p)) for run in measured] for p in common}
    factors = {p: math.exp(sum(each) / len(each)) for p, each in logs.items()}
    return _rising(factors)


def _rising(factors: Factors) -> dict[float, float]:
    """Without those that are next to no different from a neighbour nearer to the median."""
    kept = {50.0: 1.0}
    for percentile in sorted(factors, key=lambda p: abs(p - 50)):
        factor = factors[percentile]
        above = percentile > 50
        edge = kept[max(kept) if above else min(kept)]
        if (factor > edge * (1 + CLOSE)) if above else (factor < edge * (1 - CLOSE)):
            kept[percentile] = factor
    return dict(sorted(kept.items()))


def _factor(run: Measured, percentile: float) -> float:
    """The mean has in it what the quantiles leave out, the way into the kernel.

    That is taken to be the same each time.
    """
    outside = max(0.0, run.mean_ns - mean(run.quantiles))
    return (run.quantiles[percentile] + outside) / (run.median_ns + outside)


def mean(factors: Factors) -> float:
    """As the model draws from a table: linear in between, level outside."""
    values = [factors[p] for p in sorted(factors)]
    points = [(0.0, values[0]), *sorted(factors.items()), (100.0, values[-1])]
    return sum((q - p) / 100 * (g + f) / 2 for (p, f), (q, g) in pairwise(points))


def table(factors: Factors) -> str:
    """As latency-spread and flush-spread take it."""
    return "table:" + "/".join(f"{p:g}={f:.3f}" for p, f in factors.items())
