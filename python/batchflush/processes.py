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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batchflush import paths
from batchflush.errors import BatchflushError

GRACE_SECONDS = 5
TAIL_LINES = 20
TAIL_COLUMNS = 200

_children: list[subprocess.Popen[Any]] = []

Command = Sequence[str | os.PathLike[str]]


def start(command: Command, **popen: Any) -> subprocess.Popen[Any]:
    """Start a child that is ended with us; otherwise as subprocess.Popen."""
    popen.setdefault("stdin", subprocess.DEVNULL)
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


def run_logged(
    command: Command,
    log: Path,
    what: str,
    *,
    hint: str | None = None,
    on_line: Callable[[str], bool | None] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    append: bool = False,
) -> None:
    """Run a command with its output in a log; raise BatchflushError if it fails.

    what: says in the error what failed ("configuring QEMU").
    on_line: sees each line of output; where it returns True the line is left out of the log.
    env: variables on top of our own.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with (
        log.open("a" if append else "w") as logged,
        running(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child,
    ):
        assert child.stdout is not None
        for line in child.stdout:
            if on_line is not None and on_line(line.rstrip("\n")):
                continue
            logged.write(line)
            tail.append(line.rstrip("\n"))
        code = child.wait()
    if code != 0:
        raise failure(what, code, tail, log, hint)


def failure(
    what: str, code: int, tail: Sequence[str], log: Path, hint: str | None
) -> BatchflushError:
    """What is told about a command that failed: the end of its log, and where the log is."""
    ended = f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
    last = "".join(
        f"\n    {line[:TAIL_COLUMNS]}{'…' if len(line) > TAIL_COLUMNS else ''}" for line in tail
    )
    return BatchflushError(
        f"{what} failed ({ended}); the whole log is {paths.shown(log)}{last}", hint
    )


def end_children_when_told_to_end() -> None:
    """Let SIGTERM and SIGHUP end us as an exception does, so that the children end too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))


def _signal_group(child: subprocess.Popen[Any], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


@atexit.register
def _stop_all() -> None:
    for child in list(_children):
        stop(child)
