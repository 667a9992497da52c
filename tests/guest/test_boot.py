# SPDX-License-Identifier: GPL-2.0-or-later
"""A Debian kernel boots on each kind of write cache, and what it flushes arrives or not."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from batchflush import profiles
from batchflush.guest import jobs, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk

LIMIT_SECONDS = 120
FSYNCS = 40
FS_MARK = f"fs_mark -d /mnt/fs_mark -s 4096 -n {FSYNCS // 4} -D 64 -t 4 -l /tmp/fs_log.txt"


@pytest.fixture(scope="session")
def kernel() -> packages.Kernel:
    return packages.prepare()


@pytest.fixture(scope="session")
def accelerator(kernel: packages.Kernel) -> kvm.Accelerator:
    return kvm.choose(kernel)


@dataclass
class Outcome:
    """What a guest said and printed, and what the disk counted while the command ran."""

    messages: list[machine.Message]
    output: str
    counted: dict[str, int]

    @property
    def code(self) -> int:
        return int(self.messages[-1]["code"])


def run_job(
    kernel: packages.Kernel,
    accelerator: kvm.Accelerator,
    profile: str,
    job: str,
    options: Mapping[str, str] | None = None,
    modules: tuple[str, ...] = ("ext4",),
) -> Outcome:
    disk = Disk(profiles.find(profile), options or {})
    kvm_used = accelerator.name == "kvm"
    boot = Boot(
        kernel.image, kernel.base, disk, accelerator.name, ioeventfd=kvm_used, modules=modules
    )
    output = bytearray()

    async def go() -> tuple[list[machine.Message], dict[str, Any]]:
        messages, statistics = [], {}
        async with machine.running(
            boot, kernel, job, output.extend, limit_seconds=LIMIT_SECONDS
        ) as guest:
            async for message in guest.messages():
                messages.append(message)
                statistics[message["type"]] = await guest.statistics()
        return messages, statistics

    messages, statistics = asyncio.run(go())
    counted = {
        name: value - statistics["begin"][name]
        for name, value in statistics.get("end", {}).items()
        if isinstance(value, int) and "begin" in statistics
    }
    return Outcome(messages, output.decode(), counted)


FS_MARK_JOB = jobs.fresh_file_system("/dev/vda") + jobs.measured_command(FS_MARK.split())


@pytest.mark.parametrize("profile", ["sata-7200", "array-battery"])
def test_a_disk_with_a_cache_gets_flushes(
    kernel: packages.Kernel, accelerator: kvm.Accelerator, profile: str
) -> None:
    outcome = run_job(kernel, accelerator, profile, FS_MARK_JOB)
    assert outcome.code == 0, outcome.output
    # Four threads share a commit at best, and a commit flushes twice.
    assert FSYNCS / 4 <= outcome.counted["flush-arrivals"] <= 3 * FSYNCS
    assert outcome.counted["flushes-issued"] == outcome.counted["flush-arrivals"]
    assert (outcome.counted["destaged-bytes"] > 0) == (profile == "sata-7200")


@pytest.mark.parametrize(
    ("profile", "options"),
    [("sata-7200-nocache", {}), ("ramdisk", {}), ("sata-7200", {"write-cache": "none"})],
)
def test_a_disk_that_reports_no_cache_gets_none(
    kernel: packages.Kernel,
    accelerator: kvm.Accelerator,
    profile: str,
    options: dict[str, str],
) -> None:
    outcome = run_job(kernel, accelerator, profile, FS_MARK_JOB, options)
    assert outcome.code == 0, outcome.output
    assert outcome.counted["flush-arrivals"] == 0


def test_output_and_exit_code_come_back(
    kernel: packages.Kernel, accelerator: kvm.Accelerator
) -> None:
    job = "echo to stdout\necho to stderr >&2\nseq 5000\nexit 7\n"
    outcome = run_job(kernel, accelerator, "ramdisk", job)
    assert outcome.code == 7
    assert outcome.output == "to stdout\nto stderr\n" + "".join(f"{i}\n" for i in range(1, 5001))


def test_virtual_time_repeats(kernel: packages.Kernel, accelerator: kvm.Accelerator) -> None:
    if accelerator.name == "kvm":
        pytest.skip("KVM runs in real time")
    job = jobs.fresh_file_system("/dev/vda") + jobs.fs_mark_cell("/dev/vda", 4, 25)
    first, second = (run_job(kernel, accelerator, "sata-7200", job) for _ in range(2))
    assert first.code == second.code == 0, first.output + second.output
    rates = [float(o.messages[0]["fs_mark"].split()[3]) for o in (first, second)]
    assert rates[0] == pytest.approx(rates[1], rel=0.03), json.dumps(rates)
