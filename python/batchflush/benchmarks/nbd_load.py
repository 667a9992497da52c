# SPDX-License-Identifier: GPL-2.0-or-later
"""fio as a client of an NBD server: so many 4 KiB writes at once."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from batchflush import processes
from batchflush.errors import BatchflushError

# For fio to start, to end and to write its log, on a busy machine.
SPARE_SECONDS = 20
FIO = "fio"


def write(
    server: Path,
    export: str,
    seconds: float,
    *,
    connections: int = 1,
    rate: int | None = None,
    prefix: Sequence[str] = (),
) -> list[int]:
    """Write for so long, one request at a time on each connection; what each took, in ns.

    The first one of each connection is left out: it finds cold caches.

    rate: requests per second of all together, at random instants (a Poisson process); without
    it each connection sends a request as soon as it has its answer. Connections rather than a
    depth, as fio waits for all that is in flight before it sleeps until the next instant.
    prefix: what fio is run under, taskset for instance.
    """
    with tempfile.TemporaryDirectory(prefix="batchflush-") as folder:
        command = [
            *prefix, FIO, "--name=load", "--ioengine=nbd", f"--uri={_uri(server, export)}",
            "--rw=randwrite", "--bs=4k", "--thread", f"--numjobs={connections}", "--iodepth=1",
            "--time_based", f"--runtime={round(seconds * 1000)}ms",
            f"--write_lat_log={folder}/load", *_pace(rate, connections),
        ]  # fmt: skip
        try:
            _run(command, seconds + SPARE_SECONDS)
            return _completions(Path(folder))
        except OSError as error:
            raise BatchflushError(f"fio left no log: {error}") from error


def _pace(rate: int | None, connections: int) -> list[str]:
    return [f"--rate_iops={rate // connections}", "--rate_process=poisson"] if rate else []


def _uri(server: Path, export: str) -> str:
    return f"nbd+unix:///{export}?socket={server}"


def _run(command: Sequence[str], limit_seconds: float) -> None:
    with processes.running(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as child:
        try:
            said, _ = child.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            raise BatchflushError(f"fio was not done in {limit_seconds:.0f} s") from None
    if child.returncode != 0:
        raise BatchflushError(f"fio failed: {said.strip().splitlines()[-1] if said else '?'}")


def _completions(folder: Path) -> list[int]:
    """fio has a log per connection, and in it a line per request: time in ms, ns, and more."""
    took = []
    for log in folder.glob("load_clat.*.log"):
        took += [int(line.split(",")[1]) for line in log.read_text().splitlines()[1:]]
    if not took:
        raise BatchflushError("fio has not completed a single request")
    return took
