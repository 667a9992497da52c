# SPDX-License-Identifier: GPL-2.0-or-later
"""What a log and a crash state hold, told to people."""

from __future__ import annotations

from rich.table import Table

from batchflush.crash import log as log_module
from batchflush.crash import states
from batchflush.crash.history import read
from batchflush.crash.log import SECTOR, Log
from batchflush.crash.states import lost_units
from batchflush.errors import UsageError

CACHES = ("none", "volatile", "battery")
LOST_SHOWN = 20


def summary(log: Log) -> Table:
    history = read(log)
    flushes = sum(record.kind == log_module.FLUSH for record in log.records())
    begin, end = history.span()
    rows = (
        ("disk", f"{log.disk_size:,} bytes, write-cache={CACHES[log.write_cache]}"),
        ("records", f"{history.end:,}"),
        ("writes", f"{len(history.writes):,}"),
        ("flushes", f"{flushes:,}"),
        ("marks", f"{len(history.marks):,}"),
        ("epochs", f"{len(history.epochs):,}"),
        ("explored", f"positions {begin:,} to {end:,}"),
        ("its end", "the node was closed" if log.closed() else "cut off: QEMU runs or was killed"),
    )
    table = _table(f"write log {log.path.name}")
    for row in rows:
        table.add_row(*row)
    return table


def flush(log: Log, number: int) -> Table:
    """Found by the index: this does not read the log."""
    found = log.flush(number)
    record = log.record(found.place) if found else None
    if record is None or found is None:
        raise UsageError(f"--flush={number}: the log has no such flush")
    table = _table(f"flush {number}")
    table.add_row("position", str(found.position))
    table.add_row("place in the file", f"{found.place:,}")
    table.add_row("time of the node's clock", f"{record.time_ns:,} ns")
    return table


def state(log: Log, name: str, atomic: int = 4096) -> Table:
    wanted = states.parse(name)
    history = read(log)
    states.check(wanted, history)
    epoch = history.epoch_at(wanted.position)
    optional = {w.number: w for w in history.optional(wanted.position, epoch)}
    lost = sorted(lost_units(wanted, optional.values(), atomic))
    table = _table(f"crash state {name}")
    table.add_row("power cut at", f"{wanted.position}, in epoch {epoch.number}")
    table.add_row("could be lost", f"{len(optional)} writes")
    table.add_row("are lost", f"{len(lost)} writes or parts of them")
    for unit in lost[:LOST_SHOWN]:
        write = optional[unit.number]
        first, count = write.first, write.count
        if unit.part >= 0:
            first, count = states.parts(write, atomic)[unit.part]
        table.add_row(f"  {unit}", f"{count * SECTOR} bytes at {first * SECTOR}")
    if len(lost) > LOST_SHOWN:
        table.add_row("", f"and {len(lost) - LOST_SHOWN} more")
    marks = history.acknowledged(wanted.position)
    table.add_row("marks before", str(len(marks)))
    if marks:
        table.add_row("  the last one", marks[-1].text)
    return table


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column("What")
    table.add_column("Value", overflow="fold")
    return table
