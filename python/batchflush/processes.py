# SPDX-License-Identifier: GPL-2.0-or-later
"""Child processes: each leads a process group of its own, and none outlives us.

A child started here is ended, with everything it started, when this program
ends: at its normal end, at an exception, at Ctrl-C, SIGTERM and SIGHUP.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from batchflush import paths
from batchflush.errors import BatchflushError

GRACE_SECONDS = 5
TAIL_LINES = 20
TAIL_COLUMNS = 200

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_children: list[subprocess.Popen[Any]] = []
# Signals that came while they could not be acted on.
_deferring = False
_deferred: list[int] = []

Command = Sequence[str | os.PathLike[str]]


def start(command: Command, **popen: Any) -> subprocess.Popen[Any]:
    """Start a child that is ended with us; otherwise as subprocess.Popen."""
    popen.setdefault("stdin", subprocess.DEVNULL)
    # A signal that ended us before the child is on the list would leave it behind.
    with _signals_deferred():
        try:
            child = subprocess.Popen(command, start_new_session=True, **popen)
        except OSError as error:
            raise BatchflushError(f"cannot start {command[0]}: {error.strerror}") from error
        _children.append(child)
    return child


def stop(child: subprocess.Popen[Any], grace_seconds: float = GRACE_SECONDS) -> int:
    """End a child and its process group; returns its return code. Harmless if it has ended."""
    if child.poll() is None:
        _signal_group(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_seconds)
    # What the child left behind in its group, or the child itself.
    _signal_group(child, signal.SIGKILL)
    code = child.wait()
    if child in _children:
        _children.remove(child)
    return code


@contextlib.contextmanager
def running(command: Command, **popen: Any) -> Iterator[subprocess.Popen[Any]]:
    """A child that lives as long as the block."""
    child = start(command, **popen)
    try:
        yield child
    finally:
        stop(child)


def run_logged(command: Command, log: Path, what: str, **options: Any) -> None:
    """As `logged`, but raises BatchflushError if the command fails.

    what: says in the error what failed ("configuring QEMU").
    hint: says in the error what to do.
    """
    hint = options.pop("hint", None)
    code = logged(command, log, **options)
    if code != 0:
        raise failure(what, code, log, hint)


def logged(
    command: Command,
    log: Path,
    *,
    on_line: Callable[[str], bool | None] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    time_limit_seconds: float | None = None,
) -> int:
    """Run a command with its output in a log; returns its return code.

    on_line: sees each line of output; where it returns True the line is left out of the log.
    env: variables on top of our own.
    time_limit_seconds: when it has passed the command is ended; the log says so.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as file,
        running(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child,
        _time_limit(child, time_limit_seconds) as expired,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            if on_line is None or not on_line(line.rstrip("\n")):
                file.write(line)
                file.flush()
        code = child.wait()
        if expired.is_set():
            file.write(f"ended after its time limit of {time_limit_seconds:.0f} s\n")
    return code


@contextlib.contextmanager
def _time_limit(child: subprocess.Popen[Any], seconds: float | None) -> Iterator[threading.Event]:
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        _signal_group(child, signal.SIGKILL)

    timer = threading.Timer(seconds, expire) if seconds else None
    if timer:
        timer.start()
    try:
        yield expired
    finally:
        if timer:
            timer.cancel()


def tail(log: Path) -> str:
    """The last lines of a log, indented, long ones cut."""
    lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    cut = (line if len(line) <= TAIL_COLUMNS else line[:TAIL_COLUMNS] + "…" for line in lines)
    return "\n".join(f"    {line}" for line in cut)


def failure(what: str, code: int, log: Path, hint: str | None = None) -> BatchflushError:
    """What is told about a command that failed: the end of its log, and where the log is."""
    ended = f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
    return BatchflushError(
        f"{what} failed ({ended}); the whole log is {paths.shown(log)}\n{tail(log)}", hint
    )


def end_children_when_told_to_end() -> None:
    """Let SIGINT, SIGTERM and SIGHUP end us by an exception, so that the children end too."""
    for number in _ENDING:
        # nohup, and a shell without job control, want some of them ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _told_to_end)


def _told_to_end(number: int, _frame: FrameType | None) -> None:
    if _deferring:
        _deferred.append(number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(128 + number)


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Blocking the signals instead would block them in the child too."""
    global _deferring
    _deferring = True
    try:
        yield
    finally:
        _deferring = False
        if _deferred:
            signal.raise_signal(_deferred.pop())


def _signal_group(child: subprocess.Popen[Any], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@atexit.register
def _stop_all() -> None:
    # Whoever is impatient now would leave children behind.
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    for child in list(_children):
        stop(child)
