# SPDX-License-Identifier: GPL-2.0-or-later
"""The search: plan, workers and results together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from batchflush import cluster
from batchflush.crash import checkers, trial
from batchflush.crash.plan import Plan
from batchflush.crash.results import Results, kind, open_results
from batchflush.crash.trial import Bench, Outcome, Setting
from batchflush.progress import Step, step

# Tasks that a worker has waiting, so that it never waits for us.
AHEAD = 2


@dataclass(frozen=True)
class Limits:
    """When the search ends. states: tried at most; minimise: failing states made small.

    stop_after: failing states after which it is over; 0: never.
    """

    minutes: float = 5
    states: int | None = None
    bound: int = 64
    minimise: int = 3
    stop_after: int = 0


@dataclass(frozen=True)
class Search:
    """What came out. smallest: by name of the state that was made small."""

    results: Results
    smallest: dict[str, Outcome]
    considered: int
    equal: int
    seconds: float
    tried: int
    exhausted: bool

    @property
    def per_minute(self) -> float:
        return self.tried / self.seconds * 60


def explore(
    setting: Setting,
    limits: Limits,
    seed: int,
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    fresh: bool = False,
) -> Search:
    """Try states until the plan or a limit ends."""
    place = Bench(setting, hashes_only=True)
    results = open_results(setting, seed, fresh)
    try:
        plan = Plan(
            place.history,
            place.hash,
            limits.bound,
            seed,
            owed_matters=setting.checkers != (checkers.FSCK,),
            known=results.known(),
        )
        with cluster.connected(scheduler, workers, processes=True) as client:
            started = time.monotonic()
            with step("Trying crash states") as shown:
                exhausted = _try_all(client, setting, plan, results, limits, shown)
            seconds = time.monotonic() - started
            smallest = _make_small(client, setting, results, limits.minimise)
        tried = len(results.outcomes) - results.resumed
        return Search(results, smallest, plan.considered, plan.equal, seconds, tried, exhausted)
    finally:
        results.close()
        place.image.close()


def _try_all(
    client: Any, setting: Setting, plan: Plan, results: Results, limits: Limits, shown: Step
) -> bool:
    """Whether the plan ended before the limits did."""
    from distributed import wait

    slots = AHEAD * sum(client.ncores().values())
    clock = _Clock(limits)
    chunks = iter(plan)
    running: set = set()
    submitted, more = 0, True
    while True:
        while more and len(running) < slots and not clock.over(submitted, results):
            chunk = next(chunks, None)
            if chunk is None:
                more = False
                break
            if limits.states:
                chunk = chunk[: limits.states - submitted]
            running.add(client.submit(trial.try_states, setting, chunk, pure=False))
            submitted += len(chunk)
        if not running:
            return not more
        done, running = wait(running, return_when="FIRST_COMPLETED")
        for future in done:
            results.add(future.result())
        clock.show(shown, results)


class _Clock:
    def __init__(self, limits: Limits) -> None:
        self.limits, self.started = limits, time.monotonic()

    def over(self, submitted: int, results: Results) -> bool:
        limits = self.limits
        return (
            time.monotonic() - self.started >= 60 * limits.minutes
            or (limits.states is not None and submitted >= limits.states)
            or bool(limits.stop_after and len(results.failing()) >= limits.stop_after)
        )

    def show(self, shown: Step, results: Results) -> None:
        """How far it is: by the limit that will be reached first."""
        tried = len(results.outcomes) - results.resumed
        part = (time.monotonic() - self.started) / (60 * self.limits.minutes)
        if self.limits.states:
            part = max(part, tried / self.limits.states)
        note = f"{tried} states, {len(results.failing())} failing"
        shown.update(min(part, 1), 1, note)


def _make_small(client: Any, setting: Setting, results: Results, count: int) -> dict[str, Outcome]:
    """The first failing state of each kind of finding, made as small as it can be."""
    chosen = list(_first_of_each_kind(results))[:count]
    if not chosen:
        return {}
    smallest: dict[str, Outcome] = {}
    with step("Looking for the fewest lost writes") as shown:
        futures = {name: client.submit(trial.minimised, setting, name) for name in chosen}
        for done, (name, future) in enumerate(futures.items()):
            shown.update(done, len(futures), name)
            smallest[name] = future.result()
    return smallest


def _first_of_each_kind(results: Results) -> Iterator[str]:
    seen = set()
    for outcome in results.failing():
        first = kind(outcome.findings[0])
        if first not in seen:
            seen.add(first)
            yield outcome.state
