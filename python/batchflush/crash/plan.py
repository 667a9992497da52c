# SPDX-License-Identifier: GPL-2.0-or-later
"""Which states are tried, in which order; each distinct one once.

First what is tried of each epoch in any case, then one sample of each epoch after the
other, with ever new seeds. Each pass goes over the log in strides, so that a search that
is cut short has looked everywhere. What a state holds is known by its hash before it is
tried. Of equal states the last one counts, because most has been acknowledged by then; an
earlier one proves nothing beyond it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from batchflush.crash import states
from batchflush.crash.history import Epoch, History
from batchflush.crash.states import State

# Epochs that a stride touches, so many that equal states of neighbours often meet.
EPOCHS_PER_STRIDE = 400
# Samples are over when so many rounds found nothing new.
ROUNDS_IN_VAIN = 3


@dataclass
class Plan:
    """An iterable of chunks of names; hash_of needs increasing positions to be quick.

    known: hash of what was tried, and how many marks it was held against.
    """

    history: History
    hash_of: Callable[[State], int]
    bound: int
    seed: int
    chunk: int = 16
    known: dict[int, int] = field(default_factory=dict)
    considered: int = 0
    equal: int = 0

    def __iter__(self) -> Iterator[list[str]]:
        epochs = states.explored(self.history)
        for part in strides(epochs, self.seed):
            yield from self._chunks(
                [s for epoch in part for s in states.systematic(self.history, epoch, self.bound)]
            )
        in_vain, number = 0, 0
        while in_vain < ROUNDS_IN_VAIN:
            before = len(self.known)
            for part in strides(epochs, self.seed + number):
                seed = self.seed + number
                drawn = (states.sample(self.history, epoch, seed) for epoch in part)
                yield from self._chunks([state for state in drawn if state])
            in_vain = 0 if len(self.known) > before else in_vain + 1
            number += 1

    def _chunks(self, wanted: Sequence[State]) -> Iterator[list[str]]:
        """The new ones among some states, in order of position."""
        last: dict[int, State] = {}
        for state in sorted(wanted, key=lambda s: s.position):
            last[self.hash_of(state)] = state
        self.considered += len(wanted)
        new = []
        for number, state in last.items():
            owed = len(self.history.acknowledged(state.position))
            if self.known.get(number, -1) < owed:
                self.known[number] = owed
                new.append(state)
        self.equal += len(wanted) - len(new)
        new.sort(key=lambda state: state.position)
        for start in range(0, len(new), self.chunk):
            yield [state.name for state in new[start : start + self.chunk]]


def strides(epochs: Sequence[Epoch], seed: int) -> Iterator[Sequence[Epoch]]:
    """The epochs in parts, each of which is spread over the whole."""
    step = max(1, -(-len(epochs) // EPOCHS_PER_STRIDE))
    offsets = list(range(step))
    random.Random(seed).shuffle(offsets)
    for offset in offsets:
        yield epochs[offset::step]
