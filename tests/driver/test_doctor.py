# SPDX-License-Identifier: GPL-2.0-or-later
"""`batchflush doctor`: each finding at a QEMU that has it, and none at one that has not."""

import asyncio
import contextlib
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from conftest import MIB
from programs import Options, Program, blockdevs, daemon_command, disk, running

from batchflush import paths, profiles
from batchflush.attach import attached
from batchflush.doctor import facts, findings
from batchflush.guest.command_line import IOTHREAD_DEVICES, Disk, disk_arguments
from batchflush.nbd import connected

MEDIUM: Options = {"driver": "null-co", "node-name": "medium", "size": MIB}
FIRMWARE = b"\xf4" * 65536  # it halts
REAL = ["-accel", "tcg"]
VIRTUAL = ["-accel", "tcg", "-icount", "shift=auto,sleep=on"]
THREAD = ["-object", "iothread,id=thread0"]
US = 1000

VIRTIO = "virtio-blk-pci,id=front,drive=disk"
SCSI = "scsi-hd,id=front,drive=disk"
NVME = "nvme,id=front,serial=1,drive=disk"


def monitor(folder: Path) -> str:
    return f"socket,id=user,path={folder / 'qmp'},server=on,wait=off"


@contextlib.asynccontextmanager
async def machine(folder: Path, *arguments: str, time: Sequence[str] = VIRTUAL) -> AsyncIterator:
    firmware = folder / "firmware"
    firmware.write_bytes(FIRMWARE)
    command = [
        paths.QEMU_SYSTEM, "-machine", "pc", "-bios", firmware, "-nodefaults", "-display", "none",
        *time, *arguments, "-chardev", monitor(folder), "-mon", "chardev=user,mode=control",
    ]  # fmt: skip
    async with running(folder, command) as program:
        yield program


@contextlib.asynccontextmanager
async def exported(folder: Path, *nodes: Options, thread: bool) -> AsyncIterator[Program]:
    """A storage daemon, the node "disk" exported at folder/nbd."""
    iothread = ["--object", "iothread,id=thread0"] if thread else []
    command = [
        *daemon_command(folder, *iothread, *blockdevs(*nodes)),
        "--export", "type=nbd,id=disk,node-name=disk,writable=on"
        + (",iothread=thread0" if thread else ""),
        "--chardev", monitor(folder), "--monitor", "chardev=user",
    ]  # fmt: skip
    async with running(folder, command) as program:
        yield program


def works() -> str:
    return ""


def does_not_work() -> str:
    return "it hangs:\n    Assertion failed"


def not_tried() -> None:
    return None


async def found(folder: Path, kvm: findings.KvmTrouble = not_tried) -> dict[str, findings.Finding]:
    """What is found behind folder/qmp, by its name; each at most once."""
    async with attached(str(folder / "qmp")) as qemu:
        told = findings.examine(await facts.collect(qemu), kvm)
    by_name = {finding.check: finding for finding in told}
    assert len(by_name) == len(told)
    return by_name


async def in_machine(
    folder: Path, node: Options, *devices: str, time: Sequence[str] = VIRTUAL, more: Sequence = ()
) -> dict[str, findings.Finding]:
    arguments = [part for device in devices for part in ("-device", device)]
    async with machine(folder, *more, *blockdevs(MEDIUM, node), *arguments, time=time):
        return await found(folder)


# --- the front end ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cache", "device", "wrong"),
    [
        ("volatile", [f"{VIRTIO},write-cache=on"], False),
        ("volatile", [f"{VIRTIO},write-cache=off"], True),
        ("none", [f"{VIRTIO},write-cache=off"], False),
        ("none", [f"{VIRTIO},write-cache=on"], True),
        ("volatile", ["virtio-scsi-pci", f"{SCSI},write-cache=on"], False),
        ("volatile", ["virtio-scsi-pci", f"{SCSI},write-cache=off"], True),
        # Without a word from us it tells of one.
        ("none", ["virtio-scsi-pci", SCSI], True),
        ("volatile", ["virtio-scsi-pci", SCSI], False),
        ("volatile", [f"{NVME},write-cache=on"], False),
        ("none", [f"{NVME},write-cache=on"], True),
    ],
)
async def test_write_cache(cache: str, device: list[str], wrong: bool, tmp_path: Path) -> None:
    told = await in_machine(tmp_path, disk("medium", write_cache=cache, coalesce="off"), *device)
    assert list(told) == (["write-cache"] if wrong else [])
    if wrong:
        wanted = "on" if cache == "volatile" else "off"
        assert f"write-cache={wanted} for front" in told["write-cache"].change
        assert told["write-cache"].where == "disk"


@pytest.mark.parametrize("reported", ["on", "off"])
async def test_with_a_battery_the_class_decides(reported: str, tmp_path: Path) -> None:
    classes = profiles.load().values()
    battery = next(each for each in classes if each.node["write-cache"].value == "battery")
    wanted = str(battery.front_end["write-cache"].value)
    node = disk("medium", profile=battery.name, cache_size=MIB, coalesce="off")
    told = await in_machine(tmp_path, node, f"{VIRTIO},write-cache={reported}")
    assert ("write-cache" in told) is (reported != wanted)


def of_each_kind() -> list[str]:
    """A class for each combination of what the findings look at."""
    kinds = {
        (front["device"].value, front["write-cache"].value, findings.cache_of(p)): p
        for p in profiles.load().values()
        for front in [p.front_end]
    }
    return [profile.name for profile in kinds.values()]


@pytest.mark.parametrize("name", of_each_kind())
async def test_nothing_is_wrong_with_the_disks_of_our_own_guests(name: str, tmp_path: Path) -> None:
    """In real time too, where an iothread serves them if QEMU has that for the device."""
    ours = Disk(profiles.find(name), {"cache-size": str(MIB)}, size=64 * MIB)
    async with machine(tmp_path, "-smp", "1", *disk_arguments(ours, ioeventfd=True), time=REAL):
        told = await found(tmp_path)
    assert list(told) == ([] if ours.device in IOTHREAD_DEVICES else ["iothread"])


@pytest.mark.parametrize(
    ("options", "devices", "vcpus", "wrong"),
    [
        ({"coalesce": "on"}, [f"{VIRTIO},num-queues=1"], 4, True),
        ({"coalesce": "on"}, [f"{VIRTIO},num-queues=4"], 4, False),
        ({"coalesce": "on"}, [VIRTIO], 4, False),
        ({"coalesce": "on"}, [f"{VIRTIO},num-queues=4"], 1, True),
        ({"coalesce": "auto"}, [f"{VIRTIO},num-queues=1"], 4, True),
        ({"coalesce": "off"}, [f"{VIRTIO},num-queues=1"], 4, False),
        # Nobody waits for company there.
        (
            {"coalesce": "auto", "flush_concurrency": "concurrent"},
            [f"{VIRTIO},num-queues=1"],
            4,
            False,
        ),
        ({"coalesce": "on"}, ["virtio-scsi-pci,num_queues=1", SCSI], 4, True),
        ({"coalesce": "on"}, ["virtio-scsi-pci,num_queues=4", SCSI], 4, False),
        ({"coalesce": "on"}, [f"{NVME},max_ioqpairs=1"], 4, True),
        ({"coalesce": "on"}, [f"{NVME},max_ioqpairs=4"], 4, False),
    ],
)
async def test_queues(
    options: Options, devices: list[str], vcpus: int, wrong: bool, tmp_path: Path
) -> None:
    node = disk("medium", write_cache="volatile", **options)
    told = await in_machine(tmp_path, node, *devices, more=["-smp", str(vcpus)])
    assert list(told) == (["queues"] if wrong else [])


async def test_disks_of_one_controller_share_with_one_queue_each(tmp_path: Path) -> None:
    nodes: list[Options] = []
    arguments = ["-object", "batchflush-controller,id=array"]
    for i in range(2):
        nodes.append({**MEDIUM, "node-name": f"medium{i}"})
        nodes.append({**disk(f"medium{i}", coalesce="on"), "node-name": f"disk{i}"})
        nodes[-1].update({"controller": "array", "write-cache": "volatile"})
        arguments += ["-device", f"virtio-blk-pci,num-queues=1,drive=disk{i}"]
    async with machine(tmp_path, *arguments, *blockdevs(*nodes)):
        assert await found(tmp_path) == {}


@pytest.mark.parametrize(("coalesce", "wrong"), [("on", True), ("off", False)])
async def test_serialised(coalesce: str, wrong: bool, tmp_path: Path) -> None:
    node = disk("medium", write_cache="volatile", coalesce=coalesce)
    above = {"driver": "raw", "node-name": "above", "file": "disk"}
    device = "virtio-blk-pci,drive=above,num-queues=4"
    async with machine(tmp_path, "-smp", "4", *blockdevs(MEDIUM, node, above), "-device", device):
        told = await found(tmp_path)
    assert list(told) == (["serialised"] if wrong else [])
    if wrong:
        assert "the node above above it" in told["serialised"].what


# --- data -------------------------------------------------------------------------------

UNSAFE: Options = {"cache": {"no-flush": True}}


@pytest.mark.parametrize(
    ("node", "medium", "name"),
    [
        (UNSAFE, {}, "no-flush"),
        (UNSAFE, UNSAFE, "no-flush"),
        ({}, UNSAFE, "no-flush-below"),
        ({}, {}, None),
    ],
)
async def test_no_flush(node: Options, medium: Options, name: str | None, tmp_path: Path) -> None:
    of_medium = {"driver": "raw", "node-name": "medium", "file": {**MEDIUM, "node-name": "null"}}
    nodes = {**of_medium, **medium}, {**disk("medium"), **node}
    async with exported(tmp_path, *nodes, thread=True):
        told = await found(tmp_path)
    assert list(told) == ([name] if name else [])
    if name == "no-flush-below":
        assert told[name].what.startswith("cache.no-flush=on for medium and null,")


# --- time -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "time", "wrong"),
    [
        ([VIRTIO], REAL, True),
        ([f"{VIRTIO},iothread=thread0"], REAL, False),
        ([VIRTIO], VIRTUAL, False),
        (["virtio-scsi-pci", SCSI], REAL, True),
        (["virtio-scsi-pci,iothread=thread0", SCSI], REAL, False),
        ([NVME], REAL, True),
    ],
)
@pytest.mark.parametrize("paused", [[], ["-S"]], ids=["running", "paused"])
async def test_iothread(
    devices: list[str], time: list[str], wrong: bool, paused: list[str], tmp_path: Path
) -> None:
    node = disk("medium", write_cache="volatile", coalesce="off")
    told = await in_machine(tmp_path, node, *devices, time=time, more=[*THREAD, *paused])
    assert list(told) == (["iothread"] if wrong else [])


@pytest.mark.parametrize("thread", [True, False])
async def test_iothread_of_an_export(thread: bool, tmp_path: Path) -> None:
    async with exported(tmp_path, MEDIUM, disk("medium"), thread=thread):
        told = await found(tmp_path)
    assert list(told) == ([] if thread else ["iothread"])


async def write(folder: Path, count: int) -> None:
    async with connected(folder / "nbd") as connection:
        for _ in range(count):
            await connection.write(0, bytes(4096))


@pytest.mark.parametrize(("spin_max_ns", "wrong"), [(0, True), (US, True), (10_000 * US, False)])
async def test_spin(spin_max_ns: int, wrong: bool, tmp_path: Path) -> None:
    """The writes are too short for a sleep, so what a thread assumes at first counts: 50 µs."""
    node = disk("medium", write_latency_ns=40 * US, spin_max_ns=spin_max_ns)
    async with exported(tmp_path, MEDIUM, node, thread=True):
        await write(tmp_path, 20)
        told = await found(tmp_path)
    assert list(told) == (["spin"] if wrong else [])
    if wrong:
        assert f"spin-max-ns={spin_max_ns}" in told["spin"].what


@pytest.mark.parametrize("budget", [0, 100 * US, 1_000_000 * US])
async def test_late(budget: int, tmp_path: Path) -> None:
    slow = {**MEDIUM, "latency-ns": 2000 * US}
    node = disk("medium", write_latency_ns=40 * US, max_lateness_ns=budget)
    async with exported(tmp_path, slow, node, thread=True):
        await write(tmp_path, 10)
        told = await found(tmp_path)
    assert list(told) == (["late"] if budget == 100 * US else [])


# --- KVM: this host may not have it, so one machine is only told of ------------------------


@pytest.mark.parametrize(
    ("time", "trouble", "change"),
    [
        (REAL, works, "-accel kvm"),
        (REAL, does_not_work, f"virtual time: {findings.VIRTUAL_TIME}"),
        (REAL, not_tried, None),
        (VIRTUAL, works, None),
        (VIRTUAL, does_not_work, None),
    ],
)
async def test_emulated_processor(
    time: list[str], trouble: findings.KvmTrouble, change: str | None, tmp_path: Path
) -> None:
    node = disk("medium", coalesce="off")
    device = f"{VIRTIO},write-cache=off,iothread=thread0"
    more = ["-device", device] if time == REAL else ["-device", f"{VIRTIO},write-cache=off"]
    async with machine(tmp_path, *THREAD, *blockdevs(MEDIUM, node), *more, time=time):
        told = await found(tmp_path, trouble)
    assert list(told) == (["kvm"] if change else [])
    if change:
        assert told["kvm"].change == change
        assert told["kvm"].what.endswith("it hangs" if trouble is does_not_work else "than KVM")


@pytest.mark.parametrize(("trouble", "wrong"), [(works, False), (does_not_work, True)])
async def test_kvm_on_which_no_guest_boots(
    trouble: findings.KvmTrouble, wrong: bool, tmp_path: Path
) -> None:
    async with (
        exported(tmp_path, MEDIUM, disk("medium"), thread=True),
        attached(str(tmp_path / "qmp")) as qemu,
    ):
        (of_daemon,) = (await facts.collect(qemu)).disks
    told = findings.examine(facts.Facts([of_daemon], facts.Machine(kvm=True, vcpus=1)), trouble)
    assert [finding.check for finding in told] == (["kvm"] if wrong else [])


# --- the command ------------------------------------------------------------------------


async def doctor(folder: Path, *arguments: str) -> tuple[int | None, str]:
    command = [paths.VENV_PYTHON, "-m", "batchflush", "doctor", folder / "qmp", *arguments]
    child = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    said, _ = await child.communicate()
    return child.returncode, said.decode()


async def test_the_exit_code_says_whether_anything_was_found(tmp_path: Path) -> None:
    node = disk("medium", write_cache="volatile", coalesce="off")
    nodes = blockdevs(MEDIUM, node)
    async with machine(tmp_path, *nodes, "-device", f"{VIRTIO},write-cache=on"):
        assert await doctor(tmp_path) == (0, "✓ nothing is wrong with disk\n")
    (tmp_path / "qmp").unlink(missing_ok=True)
    async with machine(tmp_path, *nodes, "-device", f"{VIRTIO},write-cache=off"):
        code, said = await doctor(tmp_path)
        assert code == 1
        assert "✗ disk (write-cache)" in said
        assert "change: write-cache=on for front" in said
        assert (await doctor(tmp_path, "--ignore", "write-cache"))[0] == 0
    code, said = await doctor(tmp_path)
    assert code == 1
    assert "no QMP monitor can be reached" in said
