# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether the disks of a guest kept to their budgets of lateness (max-lateness-ns).

A disk's event tells of each second in which it did not; what a shorter run did is in its
statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from batchflush.errors import BatchflushError

EVENT = "BATCHFLUSH_LATENESS"
HINT = "leave the host to it, or use virtual time, in which nothing is late: ACCEL=tcg"

Entry = Mapping[str, Any]


def check(events: Iterable[Entry], nodes: Iterable[Entry], statistics: Mapping[str, Entry]) -> None:
    """Raises BatchflushError if a 99th percentile exceeded its budget, with the worst one.

    events: the data of those that came. nodes: what query-batchflush tells. statistics: what
    query-blockstats tells of each node, by its name.
    """
    worst = max([*events, *_of_all_requests(nodes, statistics)], key=_excess, default=None)
    if worst is not None:
        raise BatchflushError(
            f"the disk {worst['node-name']} was late: the 99th percentile of "
            f"{worst['operation']} is {worst['p99-ns']:,} ns beyond its instant, "
            f"max-lateness-ns={worst['max-lateness-ns']} allows less",
            HINT,
        )


def _of_all_requests(nodes: Iterable[Entry], statistics: Mapping[str, Entry]) -> Iterable[Entry]:
    """What the events would be if all of the run were one window."""
    for node in nodes:
        name, budget = node["node-name"], node["max-lateness-ns"]
        for entry in statistics[name]["lateness"] if budget else ():
            if entry["p99-ns"] > budget:
                yield {**entry, "node-name": name, "max-lateness-ns": budget}


def _excess(event: Entry) -> float:
    return event["p99-ns"] / event["max-lateness-ns"]
