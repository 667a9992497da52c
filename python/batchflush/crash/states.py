# SPDX-License-Identifier: GPL-2.0-or-later
"""Crash states: which there are, what they are called, and in what order they are tried.

A state is a position in the log and what a power cut there takes of the writes that are not
durable. Its name says both, so that it can be made again from the log alone:

    4711/all            nothing is lost
    4711/drop-all       all is lost that can be
    4711/subset/99      each write is kept or not, as the seed says
    4711/torn/99        each unit of atomic-write-size of each write is
    4711/lost/12,40.3   these are lost: write 12, and unit 3 of write 40
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from batchflush.crash.history import Epoch, History, Write
from batchflush.crash.log import SECTOR
from batchflush.errors import UsageError

ALL, DROP_ALL, SUBSET, TORN, LOST = "all", "drop-all", "subset", "torn", "lost"
# How likely a sample keeps a write: some lose little, some nearly everything.
KEPT = (0.05, 0.5, 0.9, 0.98)


@dataclass(frozen=True, order=True, slots=True)
class Unit:
    """What a power cut takes or leaves: a write, or one atomic unit of it; part -1: all."""

    number: int
    part: int = -1

    def __str__(self) -> str:
        return str(self.number) if self.part < 0 else f"{self.number}.{self.part}"


@dataclass(frozen=True)
class State:
    """A crash state; argument is a seed, or the units that are lost."""

    position: int
    policy: str
    seed: int = 0
    lost: tuple[Unit, ...] = ()

    @property
    def name(self) -> str:
        if self.policy in (SUBSET, TORN):
            return f"{self.position}/{self.policy}/{self.seed}"
        if self.policy == LOST:
            return f"{self.position}/{LOST}/{','.join(map(str, self.lost))}"
        return f"{self.position}/{self.policy}"


def parse(name: str) -> State:
    """The state of that name."""
    match = re.fullmatch(
        r"(\d{1,15})/(?:(all|drop-all)|(subset|torn)/(\d{1,19})|lost/([\d.,]*))", name
    )
    if match:
        position = int(match[1])
        if match[2]:
            return State(position, match[2])
        if match[3]:
            return State(position, match[3], int(match[4]))
        words = [word for word in match[5].split(",") if word]
        if all(re.fullmatch(r"\d{1,15}(\.\d{1,9})?", word) for word in words):
            pairs = [word.partition(".") for word in words]
            units = sorted(Unit(int(n), int(p) if p else -1) for n, _, p in pairs)
            return State(position, LOST, lost=tuple(units))
    raise UsageError(
        f"--state={name} is no state; allowed are POSITION/all, POSITION/drop-all, "
        "POSITION/subset/SEED, POSITION/torn/SEED and POSITION/lost/WRITE,WRITE.UNIT,…"
    )


def parts(write: Write, atomic: int) -> list[tuple[int, int]]:
    """First sector and number of sectors of each atomic unit of a write."""
    sectors = atomic // SECTOR
    stop = write.first + write.count
    starts = [write.first, *range((write.first // sectors + 1) * sectors, stop, sectors)]
    return [(a, b - a) for a, b in itertools.pairwise([*starts, stop])]


def lost_units(state: State, optional: Collection[Write], atomic: int) -> frozenset[Unit]:
    """What the state loses of the writes that may be lost at its position."""
    match state.policy:
        case "all":
            return frozenset()
        case "drop-all":
            return frozenset(Unit(write.number) for write in optional)
        case "lost":
            return frozenset(state.lost)
    draw = random.Random(f"{state.position}/{state.policy}/{state.seed}")
    kept = draw.choice(KEPT)
    if state.policy == SUBSET:
        return frozenset(Unit(w.number) for w in optional if draw.random() >= kept)
    return frozenset(
        Unit(write.number, index)
        for write in optional
        for index in range(len(parts(write, atomic)))
        if draw.random() >= kept
    )


def check(state: State, history: History) -> None:
    """Refuse a state that the log does not have."""
    if state.position > history.end:
        raise UsageError(
            f"--state={state.name}: the log has {history.end} records; "
            f"allowed are positions up to {history.end}"
        )
    epoch = history.epoch_at(state.position)
    known = {write.number for write in history.optional(state.position, epoch)}
    for unit in state.lost:
        if unit.number not in known:
            raise UsageError(
                f"--state={state.name}: no power cut at {state.position} takes write "
                f"{unit.number}; it is durable there, or there is none"
            )


def systematic(history: History, epoch: Epoch, bound: int) -> Iterator[State]:
    """The states of an epoch that are tried in any case, the plain ones first.

    All subsets where there are at most `bound`; else those that lose all, nothing, and
    each single write, up to the bound.
    """
    end = _inside(history, epoch)[1]
    optional = history.optional(end, epoch)
    yield State(end, DROP_ALL)
    if not optional:
        return
    yield State(end, ALL)
    units = [Unit(write.number) for write in optional]
    sizes = range(1, len(units)) if 1 << len(units) <= bound else (1,)
    subsets = itertools.chain.from_iterable(itertools.combinations(units, n) for n in sizes)
    for lost in itertools.islice(subsets, max(0, bound - 2)):
        yield State(end, LOST, lost=lost)


def sample(history: History, epoch: Epoch, seed: int) -> State | None:
    """A state of an epoch that the seed chooses; None if there is nothing to choose."""
    draw = random.Random(f"{epoch.number}/{seed}")
    first, last = _inside(history, epoch)
    position = draw.randint(first, last)
    if not history.optional(position, epoch):
        return None
    return State(position, draw.choice((SUBSET, TORN)), seed)


def explored(history: History) -> list[Epoch]:
    """The epochs that lie between the marks "begin" and "end", at least in part."""
    begin, end = history.span()
    return [e for e in history.epochs if e.end >= begin and e.start <= end]


def _inside(history: History, epoch: Epoch) -> tuple[int, int]:
    begin, end = history.span()
    return max(epoch.start, begin), min(epoch.end, end)
