# SPDX-License-Identifier: GPL-2.0-or-later
"""Result files: JSON lines, the first of which says what it is, and a CSV beside it.

A cell that was measured again takes the place of the older record of it, so a file may be
written to by one run after the other.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from batchflush.errors import BatchflushError, UsageError

FORMAT = "batchflush-lab"
VERSION = 1
# What names a cell; the rest of a record says what came out.
LABELS = (
    "class", "disk", "file-system", "setup", "workload", "threads", "kernel", "repetition",
)  # fmt: skip

Record = dict[str, Any]


class File:
    """The results of one experiment."""

    def __init__(self, path: Path, header: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.header: Mapping[str, Any] = header or {}
        self.records: dict[str, Record] = {}

    @classmethod
    def read(cls, path: Path) -> File:
        try:
            lines = path.read_text().splitlines()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        file = cls(path)
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                # The last line of a run that was ended in the middle of it.
                if number == len(lines) and number > 1:
                    break
                raise UsageError(f"{path}: line {number} is not JSON: {error}") from error
            if number == 1:
                file._take_header(record)
            else:
                file.records[record["cell"]] = record
        if not file.header:
            raise UsageError(f"{path} is empty")
        return file

    def _take_header(self, header: Any) -> None:
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise UsageError(f"{self.path} is no result file of the laboratory")
        if header.get("version") != VERSION:
            raise UsageError(
                f"{self.path} is of version {header.get('version')}, "
                f"but this laboratory reads version {VERSION}",
                "run the experiment again",
            )
        self.header = header

    def begin(self) -> None:
        """Write the header anew and the records that are kept."""
        lines = [{"format": FORMAT, "version": VERSION, **self.header}, *self.records.values()]
        self._write("w", lines)

    def add(self, record: Record) -> None:
        """Kept at once, so that a run can be ended at any time."""
        self.records[record["cell"]] = record
        self._write("a", [record])

    def _write(self, mode: str, lines: Iterable[Mapping[str, Any]]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open(mode) as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        except OSError as error:
            raise BatchflushError(f"cannot write {self.path}: {error.strerror}") from error

    def in_order(self) -> list[Record]:
        """The records as the experiment names its cells; those of other experiments come last."""
        order = self.header.get("order", [])
        place = {tuple(labels.values()): number for number, labels in enumerate(order)}

        def key(record: Record) -> int:
            return place.get(tuple(record[label] for label in LABELS), len(place))

        return sorted(self.records.values(), key=key)

    def write_csv(self) -> Path:
        """One line per cell and figure."""
        path = self.path.with_suffix(".csv")
        try:
            with path.open("w", newline="") as file:
                self._write_table(csv.writer(file, lineterminator="\n"))
        except OSError as error:
            raise BatchflushError(f"cannot write {path}: {error.strerror}") from error
        return path

    def _write_table(self, writer: Any) -> None:
        writer.writerow([*LABELS, "status", "figure", "value", "unit", "cell"])
        for record in self.in_order():
            labels = [record[label] for label in LABELS]
            for name, figure in record.get("figures", {"": {"value": "", "unit": ""}}).items():
                writer.writerow(
                    [*labels, record["status"], name, figure["value"], figure["unit"],
                     record["cell"]]
                )  # fmt: skip


def measured(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record["status"] == "ok"]


def grouped(records: Iterable[Record], *labels: str) -> dict[tuple[Any, ...], list[Record]]:
    """The records by the values of some labels, in the order in which they come."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[label] for label in labels), []).append(record)
    return groups


def values(records: Sequence[Record], figure: str) -> list[float]:
    return [r["figures"][figure]["value"] for r in records if figure in r.get("figures", {})]


def mean(records: Sequence[Record], figure: str) -> float:
    return statistics.fmean(values(records, figure))
