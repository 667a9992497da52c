# SPDX-License-Identifier: GPL-2.0-or-later
"""fio on the bare disk of a guest, in virtual time: nanoseconds per request of a load."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from batchflush.errors import BatchflushError
from batchflush.guest import machine, packages
from batchflush.guest.command_line import Boot, Disk

if TYPE_CHECKING:
    from batchflush.benchmarks.classes import Load

LIMIT_SECONDS = 300

GLOBAL = """\
[global]
filename={disk}
direct=1
thread
stonewall
norandommap
"""
# Empties a volatile cache between two loads.
DRAIN = """\
[drain]
rw=write
bs=4k
ioengine=psync
number_ios=1
fdatasync=1
"""


async def measure(
    kernel: packages.Kernel, disk: Disk, counts: Mapping["Load", int]
) -> dict["Load", float]:
    """One guest; load → how many requests, in the order in which they are run."""
    boot = Boot(kernel.image, kernel.base, disk, "tcg", modules=())
    printed = bytearray()
    told: list[Mapping[str, Any]] = []
    async with machine.running(
        boot, kernel, script(disk.guest_file, counts), printed.extend, limit_seconds=LIMIT_SECONDS
    ) as guest:
        async for message in guest.messages():
            match message["type"]:
                case "fio":
                    told = message["fio"]["jobs"]
                case "exit" if message["code"] != 0:
                    text = printed.decode(errors="replace").strip()
                    raise BatchflushError(f"fio failed on {disk.profile.name}: {text}")
    by_name = {job["jobname"]: job for job in told}
    return {load: per_request_ns(load, by_name[load.name]) for load in counts}


def script(disk: str, counts: Mapping["Load", int]) -> str:
    sections = "".join(section(load, count) for load, count in counts.items())
    queue = f"/sys/block/{PurePosixPath(disk).name}/queue"
    return f"""\
await test -b {disk} || exit 125
echo none >{queue}/scheduler || exit 125
echo 0 >{queue}/add_random || exit 125
cat >/tmp/jobs.fio <<'END'
{GLOBAL.format(disk=disk)}{sections}END
fio --output-format=json --output=/tmp/fio.json /tmp/jobs.fio || exit 1
told=$(tr -d '\\n' </tmp/fio.json)
report "{{\\"type\\": \\"fio\\", \\"fio\\": $told}}"
"""


def section(load: "Load", count: int) -> str:
    kind = ("" if load.sequential else "rand") + ("write" if load.write else "read")
    lines = [
        f"[{load.name}]",
        f"rw={kind}",
        f"bs={load.block}",
        f"number_ios={count}",
        f"iodepth={min(load.depth, count)}",
        # A flush is told for by itself only where one thread does one thing after the other.
        f"ioengine={'libaio' if load.depth > 1 else 'psync'}",
    ]
    if load.flush:
        lines.append("fdatasync=1")
    return "\n".join(lines) + "\n" + DRAIN * load.write


def per_request_ns(load: "Load", job: Mapping[str, Any]) -> float:
    done = job["write" if load.write else "read"]
    if load.depth > 1:
        return done["runtime"] * 1e6 / done["total_ios"]
    flush = job["sync"]["lat_ns"]["mean"] if load.flush else 0
    return done["lat_ns"]["mean"] + flush
