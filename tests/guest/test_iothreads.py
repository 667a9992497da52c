# SPDX-License-Identifier: GPL-2.0-or-later
"""Four virtual processors, four queues, four iothreads, one disk: what was synced is whole."""

import asyncio
import json
from typing import Any

import pytest
from test_boot import LIMIT_SECONDS, accelerator, kernel  # noqa: F401 - fixtures
from test_disturbed import FILES, VCPUS, WRITE_AND_READ_BACK

from batchflush import profiles
from batchflush.guest import command_line, jobs, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk

# The processors are emulated one by one, in real time.
FEW = 8
CHANGES = 3


async def disturb(guest: machine.Machine, node: dict[str, Any]) -> None:
    """Reopen the disk, each time the guest has got somewhere."""
    seen = 0
    for coalesce in ("off", "on", "auto")[:CHANGES]:
        while (flushes := (await guest.statistics())["flush-arrivals"]) < seen + 4:
            await asyncio.sleep(0.02)
        seen = flushes
        await guest.monitor.execute(
            "blockdev-reopen", {"options": [{**node, "coalesce": coalesce}]}
        )


def in_iothreads(arguments: list[str]) -> list[str]:
    """Each queue of the disk is served by a thread of its own; -device takes that as JSON."""
    properties = dict(part.partition("=")[::2] for part in arguments[-1].split(",")[1:])
    assert arguments[-1].startswith("virtio-blk-pci,")
    device = {
        "driver": "virtio-blk-pci",
        **{name: value for name, value in properties.items() if name in ("drive", "serial")},
        "num-queues": VCPUS,
        "iothread-vq-mapping": [{"iothread": f"thread{i}"} for i in range(VCPUS)],
    }
    threads = [part for i in range(VCPUS) for part in ("-object", f"iothread,id=thread{i}")]
    return [*threads, *arguments[:-1], json.dumps(device)]


def test_queues_in_threads_of_their_own(
    kernel: packages.Kernel,  # noqa: F811
    accelerator: kvm.Accelerator,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = command_line.disk_arguments
    # Without icount, the processors are threads, too.
    accel = "kvm" if accelerator.name == "kvm" else "tcg,thread=multi"
    monkeypatch.setattr(
        command_line, "disk_arguments", lambda *them: in_iothreads(arguments(*them))
    )
    monkeypatch.setattr(command_line, "_time_arguments", lambda boot: ["-accel", accel])
    options = {
        "write-cache": "volatile", "cache-size": "4194304", "coalesce": "auto",
        "destage-high-percent": "60", "destage-low-percent": "20",
    }  # fmt: skip
    disk = Disk(profiles.find("ssd-sata-plp"), options)
    boot = Boot(kernel.image, kernel.base, disk, accelerator.name, VCPUS, ioeventfd=True)
    node: dict[str, Any] = {
        **options,
        "driver": "batchflush",
        "node-name": "disk",
        "file": "medium",
    }
    for name in ("cache-size", "destage-high-percent", "destage-low-percent"):
        node[name] = int(options[name])
    node["profile"] = disk.profile.name
    job = jobs.fresh_file_system("/dev/vda") + jobs.measured_command(
        ["sh", "-c", WRITE_AND_READ_BACK.replace(f"$(seq {FILES})", f"$(seq {FEW})")]
    )
    output = bytearray()

    async def go() -> int:
        async with machine.running(
            boot, kernel, job, output.extend, limit_seconds=LIMIT_SECONDS
        ) as guest:
            async for message in guest.messages():
                if message["type"] == "begin":
                    changes = asyncio.create_task(disturb(guest, node))
                elif message["type"] == "end":
                    await changes
        return int(message["code"])

    assert asyncio.run(go()) == 0, output.decode()
    assert output.decode().split()[-1] == str(VCPUS * FEW)
