# SPDX-License-Identifier: GPL-2.0-or-later
"""Each device that a class may name boots, reads its disk, flushes it and tells its serial."""

import dataclasses
from pathlib import Path

import pytest
from test_boot import accelerator, kernel, run_job  # noqa: F401 - fixtures

from batchflush import profiles
from batchflush.crash.log import FUA, WRITE, Log
from batchflush.guest import jobs, kvm, packages
from batchflush.guest.command_line import DISK_FILE

# Where Linux shows the serial number, and what stands before it.
SERIAL = {
    "virtio-blk-pci": ("/sys/block/vda/serial", 0),
    "scsi-hd": ("/sys/block/sda/device/vpd_pg80", 4),
    "nvme": ("/sys/block/nvme0n1/device/serial", 0),
}
WRITE_AND_READ_BACK = """\
head -c 300000 /dev/urandom >/tmp/data
dd if=/tmp/data of=/mnt/file bs=300000 conv=fsync 2>/dev/null || exit 1
echo 3 >/proc/sys/vm/drop_caches
cmp /mnt/file /tmp/data
"""


@pytest.mark.parametrize("device", DISK_FILE)
def test_a_front_end_reads_what_it_wrote(
    kernel: packages.Kernel,  # noqa: F811
    accelerator: kvm.Accelerator,  # noqa: F811
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    sata = profiles.find("sata-7200")
    setting = dataclasses.replace(sata.front_end["device"], value=device)
    profile = dataclasses.replace(sata, front_end={**sata.front_end, "device": setting})
    log = tmp_path / "log"
    monkeypatch.setattr(profiles, "find", lambda name: profile)
    file, before = SERIAL[device]
    job = jobs.fresh_file_system(DISK_FILE[device])
    job += f"echo serial $(tail -c +{before + 1} {file})\n"
    job += jobs.measured_command(["sh", "-c", WRITE_AND_READ_BACK])

    outcome = run_job(kernel, accelerator, "sata-7200", job, {"log": str(log)})

    assert outcome.code == 0, outcome.output
    assert outcome.output.split() == ["serial", "disk"]
    assert outcome.counted["flush-arrivals"] > 0
    assert outcome.counted["destaged-bytes"] >= 300000
    # The journal's commits: Linux knows a front end without FUA, and flushes behind them.
    with_fua = [r for r in Log(log).records() if r.kind == WRITE and r.flags & FUA]
    assert bool(with_fua) == (device == "nvme")


@pytest.mark.parametrize("name", [name for name in jobs.FILE_SYSTEMS if name != "ext4"])
def test_other_file_systems_are_made_and_mounted(
    kernel: packages.Kernel,  # noqa: F811
    accelerator: kvm.Accelerator,  # noqa: F811
    name: str,
) -> None:
    with_tools = packages.with_file_system(kernel, name)
    job = jobs.fresh_file_system("/dev/vda", name)
    job += jobs.measured_command(["sh", "-c", WRITE_AND_READ_BACK])
    outcome = run_job(with_tools, accelerator, "sata-7200", job, modules=(name,))
    assert outcome.code == 0, outcome.output
    assert outcome.output == ""
    assert outcome.counted["destaged-bytes"] >= 300000
