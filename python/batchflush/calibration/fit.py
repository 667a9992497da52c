# SPDX-License-Identifier: GPL-2.0-or-later
"""From a probe to the options of a node, and how well they say what was probed.

The equations are those of the model for a medium without a head, solved backwards:

    one request             latency + transfer; with a cache, of a read also the interface's,
                            and of a write only that
    rate at depth d         min(d, queue-depth) / (latency + transfer), at most bandwidth;
                            of writes into a cache d / latency, at most interface-bandwidth
    flush after n writes    flush-latency, and with a cache destage-latency + transfer as often
                            as queue-depth goes into n, rounded up

Both kinds of class are fitted, with a cache that a flush drains and without a cache, and that
one is kept that says better what was probed. One request at a time takes what it took, and so
does the flush after one write; with more of either a real disk bends where this one has a
corner, so there the fit is as good as it can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchflush import curve
from batchflush.calibration import quantiles
from batchflush.calibration.probe import BLOCK, DEPTHS, Measured, Probe
from batchflush.curve import Curve

# More could not be told from a probe.
MOST_LANES = max(DEPTHS)


@dataclass(frozen=True)
class Choice:
    """An option, its value, and how that was found."""

    option: str
    value: int | str
    how: str


@dataclass(frozen=True)
class Residual:
    """One number of the probe beside what the class makes of it."""

    name: str
    unit: str
    real: float
    fitted: float

    @property
    def percent(self) -> float:
        return (self.fitted / self.real - 1) * 100


def fit(probe: Probe) -> list[Choice]:
    """The options that a probe lets us know; of one that only read, not those of writes."""
    if not probe.writes:
        return _fit(probe, drains=False)
    kinds = {"volatile": _fit(probe, drains=True), "none": _fit(probe, drains=False)}
    misses = {
        kind: miss(residuals(probe, curve.of({**options(made), "write-cache": kind})))
        for kind, made in kinds.items()
    }
    kept, other = sorted(misses, key=lambda kind: misses[kind])
    how = (
        f"with it the class misses by a factor of {misses[kept]:.2f} on average, with {other} "
        f"by {misses[other]:.2f}; what a power cut takes is not seen by a probe"
    )
    return [Choice("write-cache", kept, how), *kinds[kept]]


def options(choices: Sequence[Choice]) -> dict[str, int | str]:
    return {choice.option: choice.value for choice in choices}


def _fit(probe: Probe, drains: bool) -> list[Choice]:
    on_lanes = ["read", *(["write"] if probe.writes and not drains else [])]
    bandwidth, interface = _bandwidths(probe, drains)
    transfer = BLOCK * 1e9 / bandwidth
    over_interface = BLOCK * 1e9 / interface if interface else 0.0
    lanes, times = _lanes({kind: probe.iops(kind) for kind in on_lanes}, over_interface)
    if drains:
        times["write"] = 1e9 / probe.iops("write")[1]
    factors = quantiles.spread([probe.latency(kind) for kind in times])

    choices = []
    for kind, time in times.items():
        transferred = over_interface + (transfer if kind in on_lanes else 0.0)
        latency = max(0.0, time - transferred) / quantiles.mean(factors)
        how = f"{probe.iops(kind)[1]:,.0f} random 4 KiB {kind}s per second at depth 1"
        choices.append(Choice(f"{kind}-latency-ns", round(latency), how))
    if len(factors) > 1:
        how = "quantiles of the time of a request at depth 1, over the median"
        choices.append(Choice("latency-spread", quantiles.table(factors), how))
    if probe.writes:
        choices += _flush(probe, lanes if drains else 0, transfer)
    each = " and ".join(f"{probe.bandwidth(k) / 1e6:,.0f} MB/s to {k}" for k in _kinds(probe))
    how = f"1 MiB requests in sequence, {each}"
    medium = "the medium's is that of reads" if interface else "a medium has one rate"
    choices.append(Choice("bandwidth", round(bandwidth), f"{how}; {medium}"))
    if interface:
        how += "; the interface is as fast as the faster of them"
        choices.append(Choice("interface-bandwidth", round(interface), how))
    how = "random 4 KiB requests per second at depths 1 to {}, at most {}".format(
        max(DEPTHS),
        " and ".join(f"{max(probe.iops(k).values()):,.0f} to {k}" for k in on_lanes),
    )
    choices.append(Choice("queue-depth", lanes, how))
    return choices


def _bandwidths(probe: Probe, drains: bool) -> tuple[float, float]:
    """Of the medium and of the interface; the latter is 0 where no cache hides the former."""
    rates = {kind: probe.bandwidth(kind) for kind in _kinds(probe)}
    if drains:
        return rates["read"], max(rates.values())
    return math.sqrt(math.prod(rates.values())) if probe.writes else rates["read"], 0.0


def _kinds(probe: Probe) -> tuple[str, ...]:
    return ("read", "write") if probe.writes else ("read",)


def _lanes(
    rates: Mapping[str, Mapping[int, float]], outside: float
) -> tuple[int, dict[str, float]]:
    """Lanes for all kinds of requests, and for each the time of one at a time in ns.

    The number is the one that says best how the rates grow with the depth. outside: of the
    time, what is not spent on a lane.
    """
    times = {kind: 1e9 / rate[1] for kind, rate in rates.items()}

    def promised(lanes: int, depth: int, time: float) -> float:
        return min(depth / time, lanes / max(1.0, time - outside)) * 1e9

    def misfit(lanes: int) -> float:
        return sum(
            math.log(promised(lanes, depth, times[kind]) / real) ** 2
            for kind, rate in rates.items()
            for depth, real in rate.items()
        )

    return min(range(1, MOST_LANES + 1), key=misfit), times


def _flush(probe: Probe, lanes: int, transfer: float) -> list[Choice]:
    """lanes: 0 if nothing is drained."""
    flushes = probe.flushes()
    fewest, most = min(flushes), max(flushes)
    rounds = {n: math.ceil(n / lanes) if lanes else 0 for n in flushes}
    round_ns = 0.0
    choices = []
    if lanes:
        longer = max(0.0, flushes[most].median_ns - flushes[fewest].median_ns)
        round_ns = longer / max(1, rounds[most] - rounds[fewest])
        how = f"a flush takes {longer / 1e6:.3f} ms longer after {most} writes than after {fewest}"
        choices.append(Choice("destage-latency-ns", round(max(0.0, round_ns - transfer)), how))
    fixed = [_without(run, round_ns * rounds[n]) for n, run in flushes.items()]
    time = _without(flushes[fewest], round_ns * rounds[fewest]).median_ns
    how = f"median fdatasync after {fewest} write" + "s" * (fewest > 1)
    if lanes:
        how += ", less what was drained"
    choices.append(Choice("flush-latency-ns", round(time), how))
    factors = quantiles.spread(fixed)
    if len(factors) > 1:
        how = "quantiles of these, over the median"
        choices.append(Choice("flush-spread", quantiles.table(factors), how))
    return choices


def _without(run: Measured, drained: float) -> Measured:
    rest = {p: max(1.0, ns - drained) for p, ns in run.quantiles.items()}
    return Measured(run.per_second, 0.0, rest)


# --- how good it is -----------------------------------------------------------------------


def residuals(probe: Probe, promised: Curve) -> list[Residual]:
    """Each number that was fitted to, beside what the model makes of the class."""
    result = []
    for kind in _kinds(probe):
        for depth, real in probe.iops(kind).items():
            rate = next(point for point in promised.iops if point.depth == depth)
            fitted = rate.read if kind == "read" else rate.write
            if fitted is not None:
                name = f"{kind} at depth {depth}"
                result.append(Residual(name, "requests/s", real, fitted))
    for dirty, flush in probe.flushes().items():
        ns = promised.flush_ns(dirty * BLOCK)
        name = f"flush after {dirty} writes"
        result.append(Residual(name, "µs", flush.median_ns / 1e3, ns / 1e3))
    return result


def miss(each: Sequence[Residual]) -> float:
    """The mean factor between what was probed and the class, either way."""
    logs = [abs(math.log(max(r.fitted, 1e-3) / r.real)) for r in each]
    return math.exp(sum(logs) / len(logs))
