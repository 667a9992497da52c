# SPDX-License-Identifier: GPL-2.0-or-later
"""What `top` makes of two looks at a disk."""

import io
from typing import Any

import pytest
from rich.console import Console

from batchflush import cli, top
from batchflush.attach import Node
from batchflush.errors import UsageError

MS = 1_000_000
Entry = dict[str, Any]

INFO = {
    "node-name": "disk",
    "profile": "sata-7200",
    "write-cache": "volatile",
    "cache-size": 1 << 20,
    "powered": True,
    "now-ns": 5_000 * MS,
    "max-lateness-ns": 0,
    "reads": 10,
    "writes": 20,
    "position": 30,
}
STATISTICS = {
    "flush-arrivals": 100,
    "flushes-issued": 50,
    "flush-average-ns": 8 * MS,
    "dirty-bytes": 1 << 18,
    "destaged-bytes": 1 << 20,
    "stalls": 4,
    "stall-ns": 7 * MS,
    "lateness": [],
}


def node(info: Entry | None = None, **statistics: Any) -> Node:
    told = {name.replace("_", "-"): value for name, value in statistics.items()}
    return Node({**INFO, **(info or {})}, {**STATISTICS, **told})


def late(operation: str, **counts: int) -> Entry:
    """counts: how many requests fell into the bucket that ends with that value."""
    buckets = [{"upper": int(name[1:]), "count": count} for name, count in counts.items()]
    return {"operation": operation, "histogram": buckets}


def fields(before: Node | None, now: Node) -> dict[str, str]:
    head, line = top.lines(top.compare([before] if before else [], [now]))
    return dict(zip(head.split("\t"), line.split("\t"), strict=True))


def test_rates_are_of_the_disks_own_clock() -> None:
    later = node(
        {"now-ns": 5_500 * MS, "reads": 15, "writes": 30, "position": 60},
        flush_arrivals=120, flushes_issued=55, destaged_bytes=(1 << 20) + 4096, stalls=5,
        stall_ns=7 * MS + 1_000 * MS,
    )  # fmt: skip
    told = fields(node(), later)
    assert told["reads/s"] == "10.00"
    assert told["writes/s"] == "20.00"
    assert told["flushes/s"] == "40.00"
    assert told["medium-flushes/s"] == "10.00"
    assert told["flushes-per-batch"] == "4.00"
    assert told["destaged-bytes/s"] == "8192.00"
    assert told["stalls/s"] == "2.00"
    assert told["stalled-writers"] == "2.00"


@pytest.mark.parametrize("before", [None, node()], ids=["first look", "clock stands still"])
def test_without_time_there_are_no_rates(before: Node | None) -> None:
    told = fields(before, node())
    assert told["reads/s"] == told["flushes-per-batch"] == ""
    assert told["dirty-bytes"] == str(1 << 18)


def test_a_disk_that_was_made_anew_counts_from_nothing() -> None:
    anew = node({"now-ns": 6_000 * MS, "reads": 0, "writes": 0, "position": 0}, flush_arrivals=0)
    assert fields(node(), anew)["flushes/s"] == ""


def test_disks_are_told_apart() -> None:
    before = [node(), node({"node-name": "log"})]
    now = [
        node({"node-name": "log", "now-ns": 6_000 * MS, "reads": 17}),
        node({"now-ns": 6_000 * MS, "reads": 11}),
    ]
    views = {view.now.name: view for view in top.compare(before, now)}
    assert views["disk"].rate("reads", "info") == 1
    assert views["log"].rate("reads", "info") == 7


def test_lateness_is_that_of_the_worst_operation_since_the_last_look() -> None:
    before = node(lateness=[late("write", _10=1000), late("flush", _900=5)])
    now = node(lateness=[late("write", _10=1098, _70=2), late("flush", _10=1, _900=5)])
    told = fields(before, now)
    assert told["late-operation"] == "write"
    assert told["lateness-p50-ns"] == "10"
    assert told["lateness-p99-ns"] == "70"


def test_without_requests_nothing_was_late() -> None:
    quiet = node(lateness=[late("write", _10=1000)])
    assert fields(quiet, quiet)["lateness-p99-ns"] == ""


@pytest.mark.parametrize(("budget", "too_late"), [(0, False), (70, False), (69, True)])
def test_lateness_is_held_against_the_budget(budget: int, too_late: bool) -> None:
    now = node({"max-lateness-ns": budget}, lateness=[late("write", _70=2)])
    (view,) = top.compare([], [now])
    assert view.too_late() is too_late


def shown(*nodes: Node, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    for table in top.tables(top.compare([], nodes), width):
        console.print(table)
    return console.export_text()


def test_the_view_shows_what_a_disk_is() -> None:
    info = {"write-cache": "battery", "battery": "learning", "hold-up-left-ns": 2_500 * MS}
    text = shown(node(info))
    for piece in ("sata-7200", "battery, 1.0 MiB", "learning, 2.5 s left", "25 %, 256 KiB"):
        assert piece in text
    assert "off" in shown(node({"powered": False}))
    cut = {"pending-cut": {"when": "flush", "count": 3, "guest": "reset"}}
    assert "on, cut at flush 3" in shown(node(cut))


def test_disks_that_do_not_fit_side_by_side_stand_below_each_other() -> None:
    disks = [node({"node-name": f"disk{i}"}) for i in range(5)]
    text = shown(*disks)
    assert all(f"disk{i}" in text for i in range(5))
    assert text.count("reads/s") == 3
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("interval", ["0", "-1", "1e9", "nan"])
def test_an_interval_out_of_range_is_refused(interval: str) -> None:
    args = cli.parse(["top", "qmp.sock", f"--interval={interval}"])
    with pytest.raises(UsageError, match=r"--interval=.* is out of range; allowed are 0.1 to 3600"):
        args.run(args)
