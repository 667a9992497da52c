# SPDX-License-Identifier: GPL-2.0-or-later
"""What the user sees while something takes time: which step, how far, how long still.

On a terminal a step is one live line. Elsewhere it is a line at its start, one
every REPORT_SECONDS, and one at its end, so that a CI log shows progress too.
"""

import contextlib
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from batchflush.errors import BatchflushError

REPORT_SECONDS = 10

console = Console(highlight=False, soft_wrap=True)
_errors = Console(stderr=True, highlight=False, soft_wrap=True)


class Timer:
    """How long something takes, from now on."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started


class Step(Timer):
    """Something that takes time. update() may be called as often as one likes."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def update(self, done: float, total: float, note: str = "") -> None:
        """How far it is, and what it does at the moment."""
        raise NotImplementedError

    def say(self, note: str) -> None:
        """What it does at the moment, where it cannot be said how far it is."""
        raise NotImplementedError


@contextlib.contextmanager
def step(title: str) -> Iterator[Step]:
    """A step; when the block ends without an exception it is reported as done."""
    with _live(title) if console.is_terminal else _plain(title) as current:
        yield current
    console.print(f"[green]✓[/] {escape(title)}  [dim]{duration(current.seconds())}[/]")


def duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def print_error(error: BatchflushError) -> None:
    _errors.print(f"[bold red]batchflush:[/] {escape(error.message)}")
    if error.hint:
        _errors.print(f"[bold]hint:[/] {escape(error.hint)}")


class _LiveStep(Step):
    def __init__(self, title: str, bar: Progress) -> None:
        super().__init__(title)
        self._bar = bar
        self._task = bar.add_task(escape(title), total=None, note="")

    def update(self, done: float, total: float, note: str = "") -> None:
        self._bar.update(self._task, completed=done, total=total, note=escape(note))

    def say(self, note: str) -> None:
        self._bar.update(self._task, note=escape(note))


@contextlib.contextmanager
def _live(title: str) -> Iterator[Step]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}[/]"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield _LiveStep(title, bar)


class _PlainStep(Step):
    def __init__(self, title: str) -> None:
        super().__init__(title)
        self._reported = self.started
        self._print("...")

    def update(self, done: float, total: float, note: str = "") -> None:
        left = self.seconds() * (total - done) / done if done else 0
        self._report(f"{100 * done / total if total else 0:.0f} %, {duration(left)} left", note)

    def say(self, note: str) -> None:
        self._report(duration(self.seconds()), note)

    def _report(self, how_far: str, note: str) -> None:
        if time.monotonic() - self._reported >= REPORT_SECONDS:
            self._reported = time.monotonic()
            self._print(f"{how_far}  {note}")

    def _print(self, text: str) -> None:
        console.print(f"  {escape(self.title)}: {escape(text)}")
        sys.stdout.flush()


@contextlib.contextmanager
def _plain(title: str) -> Iterator[Step]:
    yield _PlainStep(title)
