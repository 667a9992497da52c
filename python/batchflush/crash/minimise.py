# SPDX-License-Identifier: GPL-2.0-or-later
"""Delta debugging: a smallest part of a list that still fails.

After Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002).
What comes out fails, and leaving out any single item of it makes it pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """items fail as a whole; `fails` is asked about parts of them, in their order."""
    if fails([]):
        return []
    current, parts = list(items), 2
    while len(current) >= 2:
        for start, stop in _pieces(len(current), parts):
            piece, rest = current[start:stop], current[:start] + current[stop:]
            if fails(piece):
                current, parts = piece, 2
                break
            if parts > 2 and fails(rest):
                current, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(current):
                break
            parts = min(2 * parts, len(current))
    return current


def _pieces(length: int, parts: int) -> list[tuple[int, int]]:
    edges = [length * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))
