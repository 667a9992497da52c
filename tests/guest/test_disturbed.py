# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest with four queues syncs files while the host stops, continues and reopens its disk."""

import asyncio
import itertools
from typing import Any

import pytest
from test_boot import LIMIT_SECONDS, accelerator, kernel  # noqa: F401 - fixtures

from batchflush import profiles
from batchflush.guest import jobs, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk

VCPUS = 4
FILES = 40
# Four writers, each file synced; then all of it is read back, and not from the page cache.
WRITE_AND_READ_BACK = f"""\
head -c 20000 /dev/urandom >/tmp/data
for writer in $(seq {VCPUS}); do
    (for i in $(seq {FILES}); do
        dd if=/tmp/data of=/mnt/$writer.$i bs=20000 conv=fsync 2>/dev/null || exit 1
    done) &
    writers="$writers $!"
done
for writer in $writers; do wait $writer || exit 1; done
echo 3 >/proc/sys/vm/drop_caches
for file in /mnt/*.*; do cmp $file /tmp/data || exit 3; done
ls /mnt/*.* | wc -l
"""


async def disturb(guest: machine.Machine, node: dict[str, Any]) -> int:
    """Stop, continue and reopen with one mode of coalescing after the other; how often."""
    for count, coalesce in enumerate(itertools.cycle(["off", "on", "auto"])):
        try:
            await guest.monitor.execute("stop")
            await guest.monitor.execute("cont")
            options = {**node, "coalesce": coalesce}
            await guest.monitor.execute("blockdev-reopen", {"options": [options]})
            await asyncio.sleep(0.02)  # the guest shall get somewhere in between
        except asyncio.CancelledError:
            return count
    raise AssertionError


@pytest.mark.parametrize("profile", ["sata-7200", "array-battery"])
def test_synced_files_are_whole(
    kernel: packages.Kernel,  # noqa: F811
    accelerator: kvm.Accelerator,  # noqa: F811
    profile: str,
) -> None:
    options = {"coalesce": "auto", "flush-latency-ns": "4000000", "flush-concurrency": "serial"}
    disk = Disk(profiles.find(profile), options)
    on_kvm = accelerator.name == "kvm"
    boot = Boot(kernel.image, kernel.base, disk, accelerator.name, VCPUS, ioeventfd=on_kvm)
    node = {"driver": "batchflush", "node-name": "disk", "profile": profile, "file": "medium"}
    node |= {**options, "flush-latency-ns": int(options["flush-latency-ns"])}
    job = jobs.fresh_file_system("/dev/vda") + jobs.measured_command(
        ["sh", "-c", WRITE_AND_READ_BACK]
    )
    output = bytearray()

    async def go() -> tuple[int, int, dict[str, Any]]:
        disturbances = 0
        task = None
        async with machine.running(
            boot, kernel, job, output.extend, limit_seconds=LIMIT_SECONDS
        ) as guest:
            async for message in guest.messages():
                if message["type"] == "begin":
                    task = asyncio.create_task(disturb(guest, node))
                elif message["type"] == "end" and task:
                    task.cancel()
                    disturbances = await task
                    statistics = await guest.statistics()
        return int(message["code"]), disturbances, statistics

    code, disturbances, statistics = asyncio.run(go())
    assert code == 0, output.decode()
    assert output.decode().split()[-1] == str(VCPUS * FILES)
    assert disturbances >= 5
    assert statistics["flush-arrivals"] == (
        statistics["flushes-issued"] + statistics["flushes-joined"]
    )
    assert statistics["flushes-failed"] == 0
