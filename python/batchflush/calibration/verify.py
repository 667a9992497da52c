# SPDX-License-Identifier: GPL-2.0-or-later
"""The same probe in a guest on the fitted class, in virtual time.

The guest has a processor of its own that each request takes time on. A second guest, on a
node whose times are known, says how much, and that is subtracted from the time of a request.
Those times are short, but not none, so that the guest goes to sleep and is woken. Where many
requests overlap nothing can be subtracted: then a rate that is near the guest's own limit says
nothing of the class.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchflush.calibration import probe
from batchflush.calibration.fit import Residual
from batchflush.calibration.probe import Limits, Measured, Probe, Run
from batchflush.errors import BatchflushError
from batchflush.guest import jobs, machine, packages
from batchflush.guest.command_line import Boot, Disk
from batchflush.profiles import Profile

LIMIT_SECONDS = 600
# Requests per run: enough for a median, few enough for a guest that is simulated.
REQUESTS = 2000
BYTES = 64 << 20
FILE = "/mnt/probe"
# What the guest has to reach by itself, over a rate that is to say something of the class.
FASTER = 1.5

KNOWN_NS = 50_000
KNOWN = {
    "read-latency-ns": str(KNOWN_NS),
    "write-latency-ns": str(KNOWN_NS),
    "flush-latency-ns": str(KNOWN_NS),
    "queue-depth": "1024",
    "coalesce": "off",
    "flush-concurrency": "concurrent",
}

OnRun = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Distance:
    """Each number of the probe on the real thing, and in the guest less the guest's own."""

    numbers: Sequence[Residual]
    unsaid: Sequence[str]  # runs in which the guest itself is what limits


def run(profile: Profile, real: Probe, on_file: bool, on_run: OnRun) -> Distance:
    """on_file: probe a file on ext4, as on the host; else the bare disk."""
    kernel = packages.with_programs(packages.prepare(), "fio", ["fio"])
    selected = list(probe.runs(real.writes))
    total = 2 * len(selected)

    def probed(disk: Disk, before: int) -> Probe:
        def told(done: int, name: str) -> None:
            on_run(before + done, total, name)

        return asyncio.run(probe_guest(kernel, disk, selected, on_file, told))

    own = probed(Disk(_bare(profile), KNOWN), 0)
    inside = probed(Disk(profile), len(selected))
    return distance(real, inside, own)


def _bare(profile: Profile) -> Profile:
    """The same device in front of a node with its defaults only."""
    return Profile(profile.name, profile.title, {}, profile.front_end, built_in=False)


async def probe_guest(
    kernel: packages.Kernel,
    disk: Disk,
    selected: Sequence[Run],
    on_file: bool,
    told: Callable[[int, str], None],
    requests: int = REQUESTS,
) -> Probe:
    """What fio says in a guest. told: how many runs are done, and the name of the last."""
    measured: dict[str, Measured] = {}
    printed = bytearray()
    boot = Boot(kernel.image, kernel.base, disk, "tcg")
    async with machine.running(
        boot,
        kernel,
        script(disk, selected, on_file, requests),
        printed.extend,
        limit_seconds=LIMIT_SECONDS,
    ) as guest:
        async for message in guest.messages():
            if message["type"] == "probed":
                each = selected[len(measured)]
                measured[each.name] = probe.extract(each, message["fio"])
                told(len(measured), each.name)
            elif message["type"] == "exit" and message["code"] != 0:
                raise BatchflushError(
                    f"fio failed in the guest: {printed.decode(errors='replace').strip()}"
                )
    return Probe(measured)


def script(disk: Disk, selected: Sequence[Run], on_file: bool, requests: int) -> str:
    """Each run ends with a "probed" that carries what fio tells."""
    limits = Limits(seconds=LIMIT_SECONDS, requests=requests, bytes=BYTES)
    file = FILE if on_file else disk.guest_file
    parts = [
        jobs.fresh_file_system(disk.guest_file) if on_file
        else f"await test -b {disk.guest_file} || exit 125\n",
        "cd /tmp\n",
    ]  # fmt: skip
    for each in (probe.FILL, *selected) if on_file else selected:
        line = shlex.join([*probe.command(each, file, limits), "--output=/tmp/fio.json"])
        parts.append(f"{line} || exit 1\n")
        if each is not probe.FILL:
            parts.append("told=$(tr -d '\\n' </tmp/fio.json)\n")
            parts.append('report "{\\"type\\": \\"probed\\", \\"fio\\": $told}"\n')
    return "".join(parts)


def distance(real: Probe, inside: Probe, own: Probe) -> Distance:
    numbers: list[Residual] = []
    unsaid: list[str] = []
    for kind in ("read", "write") if real.writes else ("read",):
        mine = own.latency(kind).mean_ns - KNOWN_NS
        limit = max(own.iops(kind).values())
        for depth, rate in real.iops(kind).items():
            name = f"{kind} at depth {depth}"
            if depth > 1 and limit < FASTER * rate:
                unsaid.append(name)
                continue
            time = depth * 1e9 / inside.iops(kind)[depth]
            less = depth * 1e9 / max(1.0, time - mine)
            numbers.append(Residual(name, "requests/s", rate, less))
        name, rate = f"{kind} in sequence", real.bandwidth(kind) / 1e6
        if own.bandwidth(kind) / 1e6 < FASTER * rate:
            unsaid.append(name)
        else:
            numbers.append(Residual(name, "MB/s", rate, inside.bandwidth(kind) / 1e6))
    for dirty, flush in real.flushes().items():
        mine = own.flushes()[dirty].median_ns - KNOWN_NS
        less = inside.flushes()[dirty].median_ns - mine
        name = f"flush after {dirty} writes"
        numbers.append(Residual(name, "µs", flush.median_ns / 1e3, max(0.0, less) / 1e3))
    return Distance(numbers, unsaid)
