# SPDX-License-Identifier: GPL-2.0-or-later
"""Trying crash states: what a worker does.

A worker keeps the log, its history and an image between tasks: the next task's epochs come
after this one's, so the base only has to go on.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batchflush.crash import checkers, minimise, states
from batchflush.crash.history import History, read
from batchflush.crash.image import Image
from batchflush.crash.log import Log
from batchflush.crash.states import LOST, State, lost_units
from batchflush.errors import BatchflushError


@dataclass(frozen=True)
class Setting:
    """What a result depends on, besides the state. size: of the log, as its identity."""

    log: str
    size: int
    atomic: int
    checkers: tuple[str, ...]
    file_system: str | None
    first: str | None = None


@dataclass(frozen=True)
class Outcome:
    """How a state did. owed: number of marks that it was held against."""

    state: str
    hash: int
    owed: int
    findings: tuple[str, ...]
    seconds: float


class Bench:
    """Everything that a setting needs to try states."""

    def __init__(self, setting: Setting, hashes_only: bool = False) -> None:
        path = Path(setting.log)
        self.log = Log(path)
        if self.log.size != setting.size:
            raise BatchflushError(
                f"{path} is another log here: {self.log.size} bytes in place of {setting.size}",
                "all workers need the same file at the same path",
            )
        self.history: History = read(self.log)
        first = Path(setting.first) if setting.first else None
        self.image = Image(
            self.log, self.history, setting.atomic, first, data=not hashes_only, hashes=hashes_only
        )
        self.checkers = checkers.find(setting.checkers, setting.file_system)

    def hash(self, state: State) -> int:
        self.image.go_to(self.history.epoch_at(state.position))
        return self.image.hash(self.image.kept(state))

    def try_state(self, state: State, number: int = 0) -> Outcome:
        """number: its hash, which whoever chose it knows."""
        started = time.monotonic()
        self.image.go_to(self.history.epoch_at(state.position))
        pieces = self.image.kept(state)
        self.image.show(pieces)
        marks = self.history.acknowledged(state.position)
        findings = [
            finding
            for checker in self.checkers
            for finding in checker(self.image, state.name, marks)
        ]
        return Outcome(
            state.name,
            number,
            len(marks),
            tuple(findings),
            round(time.monotonic() - started, 6),
        )

    def lost(self, state: State) -> list[states.Unit]:
        epoch = self.history.epoch_at(state.position)
        optional = self.history.optional(state.position, epoch)
        return sorted(lost_units(state, optional, self.image.atomic))


# A worker of an existing cluster may have several threads.
_ONE_AT_A_TIME = threading.Lock()


@functools.lru_cache(maxsize=1)
def bench(setting: Setting) -> Bench:
    return Bench(setting)


def try_states(setting: Setting, chosen: Sequence[tuple[str, int]]) -> list[Outcome]:
    """A worker's task: states by their names and hashes."""
    with _ONE_AT_A_TIME:
        place = bench(setting)
        return [place.try_state(states.parse(name), number) for name, number in chosen]


def minimised(setting: Setting, name: str) -> Outcome:
    """A worker's task: the state that loses as little as possible and still fails."""
    with _ONE_AT_A_TIME:
        return _minimised(bench(setting), states.parse(name))


def _minimised(place: Bench, state: State) -> Outcome:
    def fails(lost: Sequence[states.Unit]) -> bool:
        trial = State(state.position, LOST, lost=tuple(sorted(lost)))
        return bool(place.try_state(trial).findings)

    lost = minimise.smallest(place.lost(state), fails)
    return place.try_state(State(state.position, LOST, lost=tuple(sorted(lost))))
