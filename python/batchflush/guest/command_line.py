# SPDX-License-Identifier: GPL-2.0-or-later
"""The qemu-system-x86_64 command line of a storage class: our guests' and the user's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batchflush import paths
from batchflush.errors import UsageError
from batchflush.profiles import NODE_KINDS, Profile

GIB = 1 << 30

# Options of the node that no class sets.
OTHER_NODE_OPTIONS = (
    "seed",
    "clock",
    "spin-max-ns",
    "max-lateness-ns",
    "atomic-write-size",
    "power-cuts",
    "power-cut-policy",
    "power-cut-history-size",
    "battery-hold-up-ns",
    "lie",
    "lie-delay-ns",
)

# Where the guest finds the disk.
DISK_FILE = {"virtio-blk-pci": "/dev/vda", "scsi-hd": "/dev/sda", "nvme": "/dev/nvme0n1"}

# Devices whose requests QEMU can serve in an iothread.
IOTHREAD_DEVICES = ("virtio-blk-pci", "scsi-hd")
IOTHREAD = "disk-thread"

# Our name of a front end's setting → QEMU's name of the device property.
PROPERTIES = {
    "write-cache": "write-cache",
    "num-queues": "num-queues",
    "logical-block-size": "logical_block_size",
    "physical-block-size": "physical_block_size",
    "rotation-rate": "rotation_rate",
}


@dataclass(frozen=True)
class Disk:
    """A disk of some class, with node options that differ from the class."""

    profile: Profile
    options: Mapping[str, str] = field(default_factory=dict)
    size: int = GIB
    # In place of the class's number of queues.
    queues: int | None = None
    # A raw file of that size in place of fresh memory.
    medium: Path | None = None

    @property
    def device(self) -> str:
        return str(self.profile.front_end["device"].value)

    @property
    def guest_file(self) -> str:
        return DISK_FILE[self.device]

    def properties(self) -> dict[str, str]:
        """The properties of the device in front of the node.

        A node without a cache must not stand behind a device that reports one: Linux
        would send flushes that the hardware would never get.
        """
        settings = self.profile.front_end.items()
        values = {name: str(s.value) for name, s in settings if name in PROPERTIES}
        if self.options.get("write-cache") == "none":
            values["write-cache"] = "off"
        if self.queues is not None:
            values["num-queues"] = str(self.queues)
        return {PROPERTIES[name]: value for name, value in values.items()}


@dataclass(frozen=True)
class Boot:
    """What is booted, and on what machine."""

    kernel: Path
    initramfs: Path
    disk: Disk
    accelerator: str
    vcpus: int = 1
    ioeventfd: bool = False
    # Kernel parameters beside our own.
    parameters: tuple[str, ...] = ()
    seed: int = 1
    # Of virtual time; a power of two.
    instruction_ns: int = 1
    # In place of the one that is built.
    qemu: Path | None = None
    # Kernel modules beside those of the disk: file system, I/O scheduler.
    modules: tuple[str, ...] = ("ext4",)
    # Where another monitor listens, for the user.
    monitor: Path | None = None
    # QEMU's arguments for devices beside the disk.
    devices: tuple[str, ...] = ()


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """The node options of `--option key=value`; what the values may be, the driver says."""
    known = (*NODE_KINDS, *OTHER_NODE_OPTIONS)
    options = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not value:
            raise UsageError(f"--option={text} is not of the form key=value")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"--option={text}: the node has no option {key}", hint)
        options[key] = value
    return options


def joined(head: str, settings: Mapping[str, str]) -> str:
    """`head,key=value,…` as QEMU reads it: a comma in a value is doubled."""
    return ",".join([head, *(f"{k}={v.replace(',', ',,')}" for k, v in settings.items())])


def disk_arguments(disk: Disk, ioeventfd: bool) -> list[str]:
    """Medium, node and device, for a guest of ours.

    ioeventfd: time is real, and an iothread serves the disk: only there requests are on time.
    """
    options = {**disk.profile.node_options(), **disk.options}
    node = {"node-name": "disk", **options, "file": "medium"}
    memory = joined("batchflush-memory", {"node-name": "medium", "size": str(disk.size)})
    file = {"node-name": "medium", "filename": str(disk.medium), "discard": "unmap"}
    arguments = [
        "-blockdev",
        joined("file", file) if disk.medium else memory,
        "-blockdev",
        joined("batchflush", node),
    ]
    if ioeventfd and disk.device in IOTHREAD_DEVICES:
        arguments += ["-object", f"iothread,id={IOTHREAD}"]
        transport = {"iothread": IOTHREAD}
    else:
        transport = {} if ioeventfd else {"ioeventfd": "off"}
    # By the serial number a guest finds the disk's page of the control device.
    return arguments + _device_arguments(disk, "disk", transport, {"serial": "disk"})


def _device_arguments(
    disk: Disk, drive: str, transport: Mapping[str, str], more: Mapping[str, str]
) -> list[str]:
    """transport: properties of the PCI function that carries the requests; more: of the disk."""
    properties = {"drive": drive, **disk.properties(), **more}
    if disk.device == "scsi-hd":
        queues = {"num_queues": properties.pop("num-queues", "1")}
        bus = ["-device", joined("virtio-scsi-pci", {**queues, **transport})]
        return [*bus, "-device", joined("scsi-hd", properties)]
    if disk.device == "nvme":
        # nvme always reports a write cache, and its queues are set in pairs.
        properties.pop("write-cache", None)
        properties = {"serial": drive, **properties}
        queues = {"max_ioqpairs": properties.pop("num-queues", "1")}
        return ["-device", joined("nvme", {**properties, **queues, **transport})]
    return ["-device", joined(disk.device, {**properties, **transport})]


def boot_arguments(boot: Boot) -> list[str]:
    """The machine, without the channels to the host (machine.py)."""
    return [
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", "pc", "-m", "1G", "-smp", str(boot.vcpus),
        *_time_arguments(boot),
        "-kernel", str(boot.kernel), "-initrd", str(boot.initramfs),
        "-append", " ".join(kernel_parameters(boot)),
        *_monitor_arguments(boot.monitor),
        *disk_arguments(boot.disk, boot.ioeventfd), *boot.devices,
    ]  # fmt: skip


def _monitor_arguments(path: Path | None) -> list[str]:
    if path is None:
        return []
    address = joined("socket", {"id": "user", "path": str(path), "server": "on", "wait": "off"})
    return ["-chardev", address, "-mon", "chardev=user,mode=control"]


def _time_arguments(boot: Boot) -> list[str]:
    if boot.accelerator == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    # A discrete-event simulation: an instruction takes its time, idle time is skipped, and
    # nothing depends on when the host does something.
    shift = boot.instruction_ns.bit_length() - 1
    return [
        "-accel", "tcg", "-icount", f"shift={shift},sleep=off",
        "-rtc", "clock=vm,base=2026-01-01", "-seed", str(boot.seed),
    ]  # fmt: skip


def kernel_parameters(boot: Boot) -> list[str]:
    parameters = ["console=ttyS0", "quiet", "nokaslr", "panic=-1", "cryptomgr.notests"]
    if boot.accelerator == "tcg":
        # The virtual clock is exact by definition, so nothing is gained from watching it.
        parameters += ["tsc=reliable", "no_timer_check"]
        if boot.vcpus == 1:
            # Calibrating the APIC timer is a loop of 100 ms of pause and rdtsc, which take
            # 3 s under icount.  One processor is as well served by the HPET.
            parameters.append("noapictimer")
    return [*parameters, *boot.parameters]


def user_line(profile: Profile) -> str:
    """The command line for a guest of the user's own, in real time, on the image disk.img."""
    node = {
        "driver": "batchflush",
        **profile.node_options(),
        "file.driver": "file",
        "file.filename": "disk.img",
        "if": "none",
        "id": "disk0",
    }
    drive = ",".join(f"{key}={value}" for key, value in node.items())
    disk = Disk(profile)
    threaded = disk.device in IOTHREAD_DEVICES
    thread = ["-object", f"iothread,id={IOTHREAD}"] if threaded else []
    transport = {"iothread": IOTHREAD} if threaded else {}
    device = _device_arguments(disk, "disk0", transport, {})
    return " ".join([paths.shown(paths.QEMU_SYSTEM), "-drive", drive, *thread, *device])
