# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of what the classes state, as a page holds it."""

from batchflush.benchmarks.classes import DURABLE, READ, STREAM, Cell, summary


def test_summary() -> None:
    cells = [
        Cell("disk", READ.name, 100, "hand", 101, 98, 1),
        Cell("disk", STREAM.name, 100, "hand", 97, None, 90),
        Cell("card", DURABLE.name, 100, "model", 100, 100, 1),
    ]
    assert summary(cells) == [
        ("class", "read", "read, deep", "stream", "write + flush", "write", "write, deep",
         "node, worst"),
        ("disk", "-2.00", "none", "too fast", "none", "none", "none", "-3.00"),
        ("card", "none", "none", "none", "+0.00", "none", "none", "+0.00"),
    ]  # fmt: skip
