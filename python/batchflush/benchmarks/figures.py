# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of a benchmark as a table: on the terminal, and as a CSV file that a page can hold."""

from __future__ import annotations

import csv
from collections.abc import Sequence

from rich.table import Table

from batchflush import paths, progress

# The headings first.
Rows = Sequence[Sequence[str]]


def keep(name: str, rows: Rows) -> None:
    """As build/bench/NAME.csv."""
    paths.BENCH.mkdir(parents=True, exist_ok=True)
    with (paths.BENCH / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def show(name: str, title: str, rows: Rows) -> None:
    """Print a table, and keep it."""
    keep(name, rows)
    table = Table(title=title, title_justify="left")
    for i, heading in enumerate(rows[0]):
        table.add_column(heading, justify="right" if i else "left")
    for row in rows[1:]:
        table.add_row(*row)
    progress.console.print(table)
