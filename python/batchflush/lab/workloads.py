# SPDX-License-Identifier: GPL-2.0-or-later
"""What a cell's guest runs, and the figures that come out.

A workload is a piece of shell that runs in /mnt and ends with one report, and a function
that makes figures of it. What the guest says is described in docs/lab.rst.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchflush import demo
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import jobs

DEFAULT_THREADS = (2, 4, 8, 16, 32)
# Files of each thread: enough that a cell repeats, few enough that it is short.
FILES_PER_THREAD = demo.FILES_PER_THREAD


@dataclass(frozen=True)
class Figure:
    """A number that a cell is measured for; better: "more" or "less" of it."""

    value: float
    unit: str
    better: str = "more"


# What the guest's "result" holds.
Said = Mapping[str, Any]
Figures = dict[str, Figure]


@dataclass(frozen=True)
class Workload:
    """name: one of KINDS; arguments: of the program; script: the user's own."""

    name: str
    threads: tuple[int, ...] = DEFAULT_THREADS
    arguments: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    script: str = ""
    # Files of each thread of an fs_mark before the one that is measured.
    warm_up_files: int = 0

    def files_per_thread(self, threads: int) -> int:
        given = self.files.get(str(threads))
        return given or FILES_PER_THREAD.get(threads) or max(10, 1600 // threads)


@dataclass(frozen=True)
class Kind:
    """A workload's program: which package has it, how it runs, what it tells."""

    package: str | None
    programs: tuple[str, ...]
    shell: Callable[[Workload, int], str]
    figures: Callable[[Workload, int, Said], Figures]
    # Files of the package that the program reads from /share.
    data: tuple[str, ...] = ()


def parse(where: str, table: Mapping[str, Any]) -> Workload:
    known = ("name", "threads", "arguments", "files-per-thread", "script", "warm-up-files")
    for key in table:
        if key not in known:
            raise UsageError(f"{where}: workload: {key} is not known; known are {', '.join(known)}")
    name = table.get("name")
    if name not in KINDS:
        raise UsageError(f"{where}: workload {name} is not known; allowed are {', '.join(KINDS)}")
    threads = tuple(table.get("threads", DEFAULT_THREADS))
    for count in threads:
        if not isinstance(count, int) or not 1 <= count <= 1024:
            raise UsageError(f"{where}: threads={count} is out of range; allowed are 1 to 1024")
    if not threads:
        raise UsageError(f"{where}: threads is empty")
    if (name == "script") != ("script" in table):
        raise UsageError(f"{where}: the workload 'script', and only that, takes a script")
    files = {str(key): int(value) for key, value in table.get("files-per-thread", {}).items()}
    warm_up = table.get("warm-up-files", 0)
    if not isinstance(warm_up, int) or warm_up < 0:
        raise UsageError(f"{where}: warm-up-files={warm_up} is not a number of files")
    return Workload(
        name, threads, table.get("arguments", ""), files, table.get("script", ""), warm_up
    )


def digest() -> str:
    """Changes when what a guest does may have changed."""
    content = Path(__file__).read_bytes() + Path(jobs.__file__).read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]


def _measured(columns: Sequence[str]) -> list[float]:
    return [float(column) for column in columns]


# --- fs_mark ------------------------------------------------------------------------------


def _fs_mark(workload: Workload, threads: int) -> str:
    arguments = workload.arguments or "-s 4096 -D 64"

    def run(files: int) -> str:
        command = [
            "fs_mark", "-d", "/mnt/fs_mark", *shlex.split(arguments),
            "-n", str(files), "-t", str(threads), "-v", "-l", "/tmp/fs_log.txt",
        ]  # fmt: skip
        return f"{shlex.join(command)} >/tmp/out 2>&1 || {{ cat /tmp/out; exit 1; }}"

    warm_up = f"{run(workload.warm_up_files)}\nsync" if workload.warm_up_files else ""
    return f"""\
{warm_up}
{run(workload.files_per_thread(threads))}
report "{{\\"type\\": \\"result\\", \\"text\\": \\"$(tail -n 1 /tmp/out)\\"}}"
"""


def _fs_mark_figures(workload: Workload, threads: int, said: Said) -> Figures:
    columns = _measured(said["text"].split())
    files = workload.files_per_thread(threads)
    rate = demo.files_per_second(columns, threads, files)
    return {
        "files_per_s": Figure(round(rate, 3), "files/s"),
        "fsync_us": Figure(columns[demo.FSYNC], "µs", "less"),
    }


# --- fio ----------------------------------------------------------------------------------


def _fio(workload: Workload, threads: int) -> str:
    arguments = workload.arguments.replace("{threads}", str(threads))
    return f"""\
fio --output-format=json --output=/tmp/out --directory=/mnt {arguments} ||
    {{ cat /tmp/out; exit 1; }}
report "{{\\"type\\": \\"result\\", \\"json\\": $(sed -n '/^{{/,$p' /tmp/out | tr -d '\\n')}}"
"""


def _fio_figures(workload: Workload, threads: int, said: Said) -> Figures:
    del workload, threads
    found: dict[str, Figure] = {}
    jobs_said = said["json"]["jobs"]
    for job in jobs_said:
        prefix = f"{job['jobname']}_" if len(jobs_said) > 1 else ""
        for direction in ("read", "write"):
            side = job[direction]
            if side["total_ios"]:
                found[f"{prefix}{direction}_iops"] = Figure(round(side["iops"], 3), "1/s")
                found[f"{prefix}{direction}_mb_per_s"] = Figure(
                    round(side["bw_bytes"] / 1e6, 4), "MB/s"
                )
        sync = job.get("sync", {}).get("lat_ns", {})
        if sync.get("N") or sync.get("mean"):
            found[f"{prefix}sync_mean_us"] = Figure(round(sync["mean"] / 1e3, 2), "µs", "less")
            found[f"{prefix}sync_max_us"] = Figure(round(sync["max"] / 1e3, 2), "µs", "less")
    return found


# --- dbench -------------------------------------------------------------------------------


def _dbench(workload: Workload, threads: int) -> str:
    arguments = workload.arguments or "-t 60"
    return f"""\
dbench -D /mnt -c /share/client.txt {arguments} {threads} >/tmp/out 2>&1 ||
    {{ tail /tmp/out; exit 1; }}
throughput=$(grep '^Throughput' /tmp/out | tail -n 1)
operations=$(sed -n '/^ Operation/,/^Throughput/p' /tmp/out | awk '
    $2 + 0 > 0 && NF == 4 {{ printf "%s\\"%s\\": [%s, %s]", comma, $1, $3, $4; comma = ", " }}')
text="\\"text\\": \\"$throughput\\", \\"operations\\": {{$operations}}"
report "{{\\"type\\": \\"result\\", $text}}"
"""


def _dbench_figures(workload: Workload, threads: int, said: Said) -> Figures:
    del workload, threads
    words = said["text"].split()
    latency = words[-2].removeprefix("max_latency=")
    # dbench's name for fsync; of each operation it tells mean and maximum.
    mean, maximum = said["operations"]["Flush"]
    return {
        "mb_per_s": Figure(float(words[1]), "MB/s"),
        "max_latency_ms": Figure(float(latency or words[-1]), "ms", "less"),
        "fsync_ms": Figure(mean, "ms", "less"),
        "max_fsync_ms": Figure(maximum, "ms", "less"),
    }


# --- the user's script --------------------------------------------------------------------


def _script(workload: Workload, threads: int) -> str:
    """The script says `figure NAME VALUE UNIT more|less` for each of its figures."""
    return f"""\
figures=
figure() {{
    figures="$figures${{figures:+, }}$(printf \
        '"%s": {{"value": %s, "unit": "%s", "better": "%s"}}' "$1" "$2" "$3" "${{4:-more}}")"
}}
THREADS={threads}
{workload.script}
report "{{\\"type\\": \\"result\\", \\"figures\\": {{$figures}}}}"
"""


def _script_figures(workload: Workload, threads: int, said: Said) -> Figures:
    del workload, threads
    if not said["figures"]:
        raise BatchflushError("the script gave no figure", "it says: figure NAME VALUE UNIT")
    return {name: Figure(**figure) for name, figure in said["figures"].items()}


KINDS: Mapping[str, Kind] = {
    "fs_mark": Kind(None, (), _fs_mark, _fs_mark_figures),
    "fio": Kind("fio", ("fio",), _fio, _fio_figures),
    "dbench": Kind(
        "dbench", ("dbench",), _dbench, _dbench_figures, ("usr/share/dbench/client.txt",)
    ),
    "script": Kind(None, (), _script, _script_figures),
}
