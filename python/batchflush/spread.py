# SPDX-License-Identifier: GPL-2.0-or-later
"""Spreads of times: the check of block/batchflush/model/spread.c, for the build."""

from __future__ import annotations

import re
from itertools import pairwise

POINTS = 16
FACTOR_MAX = 1_000_000

RANGES = {
    "uniform": (0, 100),
    "normal": (0, 33),
    "log-normal": (0, 1000),
    "pareto": (1.1, 100),
}
FORMS = (
    "fixed, uniform:PERCENT, normal:PERCENT, log-normal:PERCENT, pareto:SHAPE "
    "and table:PERCENTILE=FACTOR/..."
)

_NUMBER = re.compile(r"[0-9](?:[0-9.]{0,18}[0-9])?")


def complaint(text: object) -> str:
    """What is wrong with a spread, to follow its name and value; empty if it is one."""
    if text == "fixed":
        return ""
    kind, colon, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    if colon and kind == "table":
        return _table_complaint(rest)
    if not colon or kind not in RANGES:
        return f"is not known; allowed are {FORMS}"
    low, high = RANGES[kind]
    number = _number(rest)
    if number is not None and low <= number <= high:
        return ""
    why = "out of range" if number is not None or rest.startswith("-") else "not a number"
    return f"is {why}; allowed are {kind}:{low} to {kind}:{high}"


def _table_complaint(text: str) -> str:
    points: list[tuple[float, float]] = []
    for point in text.split("/"):
        if len(points) == POINTS:
            return f"has too many points; allowed are 1 to {POINTS}"
        at, _, times = point.partition("=")
        percentile, factor = _number(at), _number(times)
        if percentile is None or factor is None:
            return "is not a table; allowed are points PERCENTILE=FACTOR with a / between them"
        if percentile > 100 or factor > FACTOR_MAX:
            return (
                "is out of range; allowed are percentiles of 0 to 100 "
                f"and factors of 0 to {FACTOR_MAX}"
            )
        points.append((percentile, factor))
        for (p, f), (q, g) in pairwise(points[-2:]):
            if q <= p or g < f:
                return (
                    f"is out of order at {q:g}={g:g}; percentiles have to rise, "
                    "and factors must not fall"
                )
    return ""


def _number(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return float(text)
    except ValueError:
        return None
