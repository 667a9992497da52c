# SPDX-License-Identifier: GPL-2.0-or-later
"""What a log says about order: which writes there were, and since when each is durable.

A write is durable from the moment at which a flush that covers it completes, or, with FUA,
at which it completes itself: docs/contract.rst. Until then a power cut may take it or leave
it. One that failed is never durable.

Positions count the log's records. "At position P" means: a power cut after all records
below P and before record P. An epoch is a stretch of positions in which nothing becomes
durable, so that what a cut at its end may leave includes what one before could.
"""

from __future__ import annotations

import bisect
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field

from batchflush.crash import log as log_module
from batchflush.crash.log import SECTOR, Log, Record

NEVER = 1 << 62
MARK = b"batchflush mark "
MARK_BYTES = 4096


@dataclass(slots=True)
class Write:
    """A write, zero write or discard; offset and length in sectors.

    number: position at which it was issued; it names the write.
    place: where its data is in the log, None for zeroes.
    """

    number: int
    first: int
    count: int
    place: int | None
    fua: bool
    durable_at: int = NEVER


@dataclass(frozen=True)
class Mark:
    """What the guest said at a position: something was acknowledged before."""

    position: int
    text: str


@dataclass(frozen=True)
class Epoch:
    """Positions from start to end, both included; durable is what its start made durable.

    oldest: index of the first write that is not durable in it.
    """

    number: int
    start: int
    end: int
    durable: tuple[Write, ...]
    oldest: int


@dataclass
class History:
    """Everything that was asked of a disk, in order."""

    disk_size: int
    writes: list[Write] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    end: int = 0

    def optional(self, position: int, epoch: Epoch) -> list[Write]:
        """The writes that a power cut at a position of the epoch may take or leave."""
        stop = bisect.bisect_left(self.writes, position, key=lambda write: write.number)
        return [w for w in self.writes[epoch.oldest : stop] if w.durable_at > epoch.start]

    def epoch_at(self, position: int) -> Epoch:
        index = bisect.bisect_right(self.epochs, position, key=lambda epoch: epoch.start)
        return self.epochs[index - 1]

    def acknowledged(self, position: int) -> Sequence[Mark]:
        """The marks that had been issued."""
        return self.marks[: bisect.bisect_left(self.marks, position, key=lambda m: m.position)]

    def span(self) -> tuple[int, int]:
        """The positions between the marks "begin" and "end", else all."""
        begin = next((m.position for m in self.marks if m.text == "begin"), 0)
        end = next((m.position for m in self.marks if m.text == "end"), self.end)
        return begin, end


def read(log: Log) -> History:
    """The history of a log."""
    return _Reader(log).history


class _Reader:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.history = History(log.disk_size)
        # Issued and not completed; flushes with the number of completions before them.
        self.open: dict[int, Write] = {}
        self.flushes: dict[int, int] = {}
        # Completed and not durable yet, in order of completion; counted since the start.
        self.completed: list[Write] = []
        self.forgotten = 0
        self.start, self.durable, self.oldest = 0, (), 0
        for record in log.records():
            self._record(record)
        self._end_epoch(self.history.end, ())

    def _record(self, record: Record) -> None:
        if record.kind in (log_module.INDEX, log_module.END):
            return
        self.history.end = record.position + 1
        if record.kind == log_module.FLUSH:
            self.flushes[record.position] = self.forgotten + len(self.completed)
        elif record.kind == log_module.DONE:
            self._done(record)
        elif not self._mark(record):
            self._issue(record)

    def _mark(self, record: Record) -> bool:
        data = self.log.data(record) if record.data_length == MARK_BYTES else b""
        if not data.startswith(MARK):
            return False
        words = data.rstrip(b"\0").decode(errors="replace").split(" ", 3)
        self.history.marks.append(Mark(record.position, words[-1]))
        return True

    def _issue(self, record: Record) -> None:
        write = Write(
            record.position,
            record.offset // SECTOR,
            record.length // SECTOR,
            record.data_place if record.kind == log_module.WRITE else None,
            bool(record.flags & log_module.FUA) or self.log.write_cache != log_module.VOLATILE,
        )
        self.history.writes.append(write)
        self.open[write.number] = write

    def _done(self, record: Record) -> None:
        covered = self.flushes.pop(record.offset, None)
        if covered is not None:
            if record.length == 0:
                self._flushed(record.position, covered)
            return
        write = self.open.pop(record.offset, None)
        if write is None:
            return  # of a mark
        if record.length == errno.ENOTSUP:
            self.history.writes.remove(write)
        elif record.length == 0 and write.fua:
            self._becomes_durable(record.position, (write,))
        elif record.length == 0:
            self.completed.append(write)

    def _flushed(self, position: int, covered: int) -> None:
        count = max(0, covered - self.forgotten)
        writes = tuple(w for w in self.completed[:count] if w.durable_at == NEVER)
        del self.completed[:count]
        self.forgotten += count
        if writes:
            self._becomes_durable(position, writes)

    def _becomes_durable(self, position: int, writes: tuple[Write, ...]) -> None:
        self._end_epoch(position, writes)
        for write in writes:
            write.durable_at = position + 1
        all_writes = self.history.writes
        while self.oldest < len(all_writes) and all_writes[self.oldest].durable_at < NEVER:
            self.oldest += 1

    def _end_epoch(self, position: int, durable: tuple[Write, ...]) -> None:
        number = len(self.history.epochs)
        epoch = Epoch(number, self.start, position, self.durable, self.oldest)
        self.history.epochs.append(epoch)
        self.start, self.durable = position + 1, durable
