# SPDX-License-Identifier: GPL-2.0-or-later
"""Which states are tried, in which order; each distinct one once.

First what is tried of each epoch in any case, then one sample of each epoch after the
other, with ever new seeds. Each pass goes over the whole log, so that a search that is cut
short has looked everywhere. What a state holds is known by its hash before it is
tried. Of equal states the last one counts, because most has been acknowledged by then; an
earlier one proves nothing beyond it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from batchflush.crash import states
from batchflush.crash.history import Epoch, History
from batchflush.crash.states import State

# Neighbours that are looked at together: their equal states often meet.
EPOCHS_TOGETHER = 8
# What a pass looks at, so that going through the log is little beside it.
EPOCHS_PER_PASS = 2000
# Samples are over when so many rounds found nothing new.
ROUNDS_IN_VAIN = 3


@dataclass
class Plan:
    """An iterable of chunks of states with their hashes, each in order of position.

    hash_of: is quick where positions increase.
    owed_matters: whether a checker asks what was acknowledged before the power cut.
    known: hash of what was tried, and how many marks it was held against.
    """

    history: History
    hash_of: Callable[[State], int]
    bound: int
    seed: int
    owed_matters: bool = True
    chunk: int = 16
    known: dict[int, int] = field(default_factory=dict)
    considered: int = 0
    equal: int = 0

    def __iter__(self) -> Iterator[list[tuple[str, int]]]:
        for bound in (2, self.bound):
            yield from self._pass(0, lambda e, b=bound: states.systematic(self.history, e, b))
        in_vain, number = 0, 0
        while in_vain < ROUNDS_IN_VAIN:
            before, seed = len(self.known), self.seed + number
            yield from self._pass(number, lambda e, s=seed: self._sample(e, s))
            in_vain = 0 if len(self.known) > before else in_vain + 1
            number += 1

    def _sample(self, epoch: Epoch, seed: int) -> list[State]:
        drawn = states.sample(self.history, epoch, seed)
        return [drawn] if drawn else []

    def _pass(
        self, number: int, wanted: Callable[[Epoch], Iterable[State]]
    ) -> Iterator[list[tuple[str, int]]]:
        new: list[tuple[str, int]] = []
        for group in passes(states.explored(self.history), self.seed + number):
            new += self._new([state for epoch in group for state in wanted(epoch)])
            while len(new) >= self.chunk:
                yield new[: self.chunk]
                del new[: self.chunk]
        if new:
            yield new

    def _new(self, wanted: Sequence[State]) -> list[tuple[str, int]]:
        """The new ones among the states of neighbours."""
        last: dict[int, State] = {}
        for state in sorted(wanted, key=lambda s: s.position):
            last[self.hash_of(state)] = state
        new = []
        for number, state in last.items():
            owed = len(self.history.acknowledged(state.position)) if self.owed_matters else 0
            if self.known.get(number, -1) < owed:
                self.known[number] = owed
                new.append((state, number))
        self.considered += len(wanted)
        self.equal += len(wanted) - len(new)
        new.sort(key=lambda pair: pair[0].position)
        return [(state.name, number) for state, number in new]


def passes(epochs: Sequence[Epoch], seed: int) -> Iterator[Sequence[Epoch]]:
    """Groups of neighbours; again and again from the log's beginning to its end."""
    groups = [
        epochs[start : start + EPOCHS_TOGETHER] for start in range(0, len(epochs), EPOCHS_TOGETHER)
    ]
    step = max(1, -(-len(epochs) // EPOCHS_PER_PASS))
    offsets = list(range(step))
    random.Random(seed).shuffle(offsets)
    for offset in offsets:
        yield from groups[offset::step]
