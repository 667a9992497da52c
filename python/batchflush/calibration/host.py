# SPDX-License-Identifier: GPL-2.0-or-later
"""The probe on the real thing, ahead of whatever else the host does."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from batchflush import processes
from batchflush.calibration import probe
from batchflush.calibration.probe import Limits, Measured, Probe, Run
from batchflush.calibration.target import Target
from batchflush.errors import BatchflushError

# Beyond its own limit: to start, to end, and to wait for what it has in flight.
GRACE_SECONDS = 60
# That fio takes to start and to end.
START_SECONDS = 0.5
PRESSURE = Path("/proc/pressure/cpu")

# So far apart that a disturbance of some seconds hits one of them only.
ROUNDS = 3

OnRun = Callable[[int, int, str], None]


def ahead_of_others() -> list[str]:
    """What to put before a command, so that the processor is there when the disk is done.

    A busy host wakes an ordinary process some milliseconds late; a fast disk would be taken
    for a slow one.
    """
    command = ["chrt", "--fifo", "10"]
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return command if done.returncode == 0 else []


def run(target: Target, limits: Limits, on_run: OnRun) -> Probe:
    """on_run: is told how many are done, of how many, and the name of the next."""
    prefix = ahead_of_others()
    selected = list(probe.runs(target.writable))
    once = replace(limits, seconds=limits.seconds / ROUNDS, requests=limits.requests // ROUNDS)
    measured: dict[str, list[Measured]] = {run.name: [] for run in selected}

    def printed(each: Run) -> str:
        return _fio([*prefix, *probe.command(each, target.path, once)], each, once)

    if target.is_file:
        on_run(0, ROUNDS * len(selected), probe.FILL.name)
        printed(probe.FILL)
    for number, each in enumerate(ROUNDS * selected):
        on_run(number, ROUNDS * len(selected), each.name)
        measured[each.name].append(probe.parse(each, printed(each)))
    return Probe({name: probe.middle(rounds) for name, rounds in measured.items()})


def _fio(command: list[str], each: Run, limits: Limits) -> str:
    seconds = limits.seconds + GRACE_SECONDS
    with (
        tempfile.TemporaryFile("w+") as output,
        processes.running(command, stdout=output, stderr=subprocess.STDOUT) as child,
    ):
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BatchflushError(
                f"fio was not done with '{each.name}' in {seconds:.0f} s"
            ) from None
        output.seek(0)
        printed = output.read()
    if code != 0:
        # fio's own words about it stand before the JSON.
        said = printed.partition("{\n")[0].strip().splitlines() or ["fio said nothing"]
        raise BatchflushError(f"fio failed at '{each.name}': {said[-1].strip()}")
    return printed


class Pressure:
    """For how much of the time since it was made somebody waited for a processor."""

    def __init__(self) -> None:
        self._before = _waited_us()

    def seconds(self) -> float | None:
        """None if the kernel does not say."""
        after = _waited_us()
        return None if after is None or self._before is None else (after - self._before) / 1e6


def _waited_us() -> int | None:
    try:
        return int(PRESSURE.read_text().splitlines()[0].rpartition("total=")[2])
    except (OSError, ValueError, IndexError):
        return None
