# SPDX-License-Identifier: GPL-2.0-or-later
"""A run fails if a disk was later than its budget, however short the run was."""

from typing import Any

import pytest

from batchflush.errors import BatchflushError
from batchflush.guest import lateness

Entry = dict[str, Any]


def node(budget: int, name: str = "disk") -> Entry:
    return {"node-name": name, "max-lateness-ns": budget}


def told(operation: str, p99: int) -> Entry:
    return {"operation": operation, "count": 40, "p50-ns": 1, "p99-ns": p99, "max-ns": p99}


def event(operation: str, p99: int, budget: int) -> Entry:
    ours = {"node-name": "disk", "max-lateness-ns": budget, "count": 100}
    return {**ours, "operation": operation, "p99-ns": p99}


def test_within_the_budget_nothing_is_wrong() -> None:
    lateness.check([], [node(1000)], {"disk": {"lateness": [told("read", 1000)]}})


def test_without_a_budget_nothing_is_wrong() -> None:
    lateness.check([], [node(0)], {"disk": {"lateness": [told("read", 10**9)]}})


def test_a_run_shorter_than_a_window_is_held_against_the_budget() -> None:
    statistics = {"disk": {"lateness": [told("read", 10), told("flush", 1234)]}}
    with pytest.raises(BatchflushError) as caught:
        lateness.check([], [node(1000)], statistics)
    assert "the 99th percentile of flush is 1,234 ns" in caught.value.message
    assert "max-lateness-ns=1000" in caught.value.message


def test_a_bad_second_of_a_good_run_counts() -> None:
    statistics = {"disk": {"lateness": [told("flush", 10)]}}
    with pytest.raises(BatchflushError, match="of flush is 5,000 ns"):
        lateness.check([event("flush", 5000, 1000)], [node(1000)], statistics)


def test_the_worst_is_told() -> None:
    events = [event("read", 5000, 1000), event("flush", 6000, 1000), event("write", 2000, 1000)]
    with pytest.raises(BatchflushError, match="of flush is 6,000 ns"):
        lateness.check(events, [node(1000)], {"disk": {"lateness": [told("read", 5500)]}})


def test_each_disk_has_a_budget_of_its_own() -> None:
    statistics = {"a": {"lateness": [told("read", 10)]}, "b": {"lateness": [told("read", 50)]}}
    lateness.check([], [node(10, "a"), node(50, "b")], statistics)
    with pytest.raises(BatchflushError, match="the disk b was late"):
        lateness.check([], [node(10, "a"), node(49, "b")], statistics)
