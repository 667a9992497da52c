# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's command line says what the class says; a QEMU that misbehaves is ended."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from batchflush import cli, paths, profiles
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import command_line, initramfs, kvm, machine
from batchflush.guest.command_line import Boot, Disk
from batchflush.guest.packages import Kernel


def device_of(disk: Disk) -> dict[str, str]:
    """The properties of the disk's device on the command line."""
    arguments = command_line.disk_arguments(disk, ioeventfd=False)
    devices = [argument for argument in arguments if "drive=disk" in argument]
    assert len(devices) == 1
    return dict(item.split("=") for item in devices[0].split(",")[1:])


def node_of(disk: Disk) -> dict[str, str]:
    arguments = command_line.disk_arguments(disk, ioeventfd=False)
    node = next(argument for argument in arguments if argument.startswith("batchflush,"))
    return dict(item.split("=") for item in node.split(",")[1:])


@pytest.mark.parametrize("name", list(profiles.load()))
def test_the_front_end_is_set_as_the_class_says(name: str) -> None:
    profile = profiles.find(name)
    device = device_of(Disk(profile))
    for setting, prop in command_line.PROPERTIES.items():
        if setting in profile.front_end:
            assert device[prop] == str(profile.front_end[setting].value)


def test_a_disk_without_its_cache_reports_none() -> None:
    disk = Disk(profiles.find("sata-7200"), {"write-cache": "none"})
    assert device_of(disk)["write-cache"] == "off"
    assert node_of(disk)["write-cache"] == "none"


def test_an_option_stands_beside_the_class() -> None:
    disk = Disk(profiles.find("sata-7200"), {"coalesce": "on"})
    assert node_of(disk)["profile"] == "sata-7200"
    assert node_of(disk)["coalesce"] == "on"


def boot(accelerator: str, vcpus: int = 1) -> Boot:
    return Boot(Path("k"), Path("i"), Disk(profiles.find("ramdisk")), accelerator, vcpus)


def test_virtual_time_is_used_with_tcg_only() -> None:
    assert "shift=0,sleep=off" in command_line.boot_arguments(boot("tcg"))
    assert "-icount" not in command_line.boot_arguments(boot("kvm"))


def test_only_one_processor_does_without_the_apic_timer() -> None:
    assert "noapictimer" in command_line.kernel_parameters(boot("tcg"))
    assert "noapictimer" not in command_line.kernel_parameters(boot("tcg", vcpus=2))


def test_the_users_line_names_class_image_and_cache() -> None:
    line = command_line.user_line(profiles.find("sata-7200-nocache"))
    assert "-drive driver=batchflush,profile=sata-7200-nocache,file.driver=file," in line
    assert "-device virtio-blk-pci,drive=disk0,write-cache=off," in line


def test_in_real_time_an_iothread_serves_the_disk_if_the_device_can() -> None:
    for profile in profiles.load().values():
        device = str(profile.front_end["device"].value)
        can = device in command_line.IOTHREAD_DEVICES
        line = command_line.user_line(profile)
        ours = " ".join(command_line.disk_arguments(Disk(profile), ioeventfd=True))
        for arguments in (line, ours):
            assert ("-object iothread,id=disk-thread" in arguments) is can
            assert (",iothread=disk-thread" in arguments) is can
        virtual = " ".join(command_line.disk_arguments(Disk(profile), ioeventfd=False))
        assert "iothread" not in virtual


def test_another_monitor_listens_for_the_user() -> None:
    arguments = command_line.boot_arguments(replace(boot("tcg"), monitor=Path("/a,b/qmp")))
    assert "socket,id=user,path=/a,,b/qmp,server=on,wait=off" in arguments
    assert "chardev=user,mode=control" in arguments
    assert "chardev=user,mode=control" not in command_line.boot_arguments(boot("tcg"))


def test_a_file_is_no_place_for_a_monitor(tmp_path: Path) -> None:
    """QEMU would remove it."""
    file = tmp_path / "disk.img"
    file.write_bytes(b"precious")
    args = cli.parse(["run", "--class", "ramdisk", "--qmp", str(file)])
    with pytest.raises(UsageError, match=r"--qmp=.*disk.img exists and is no socket"):
        args.run(args)


def test_a_comma_in_a_value_is_doubled() -> None:
    assert command_line.joined("file", {"filename": "a,b"}) == "file,filename=a,,b"


@pytest.mark.parametrize(
    ("text", "complaint", "hint"),
    [
        ("coalesce", "not of the form key=value", None),
        ("coalesce=", "not of the form key=value", None),
        ("coalesc=on", "the node has no option coalesc", "did you mean coalesce?"),
    ],
)
def test_a_wrong_option_is_refused(text: str, complaint: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        command_line.parse_options([text])
    assert f"--option={text}" in caught.value.message
    assert complaint in caught.value.message
    assert caught.value.hint == hint


# --- KVM --------------------------------------------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    for name in ("vmlinuz", "base.cpio"):
        (tmp_path / name).write_bytes(b"")
    return Kernel(tmp_path / "vmlinuz", initramfs.Modules(None), tmp_path / "base.cpio")


def test_an_unknown_accelerator_is_refused(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL", "xen")
    with pytest.raises(UsageError, match="ACCEL=xen is not known; allowed are kvm and tcg"):
        kvm.choose(kernel)


@pytest.mark.parametrize("name", kvm.ACCELERATORS)
def test_the_environment_decides(
    name: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCEL", name)
    assert kvm.choose(kernel).name == name


def test_kvm_is_tried_by_booting_and_the_answer_kept(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed: list[Kernel] = []

    def probe(kernel: Kernel) -> str:
        probed.append(kernel)
        return "it hangs"

    monkeypatch.delenv("ACCEL", raising=False)
    monkeypatch.setattr(kvm, "DEVICE", tmp_path)  # something that exists
    monkeypatch.setattr(kvm, "ANSWER", tmp_path / "kvm.json")
    monkeypatch.setattr(kvm, "_probe", probe)
    monkeypatch.setattr(paths, "QEMU_SYSTEM", kernel.image)
    assert kvm.choose(kernel) == kvm.Accelerator("tcg", "it hangs")
    assert kvm.choose(kernel) == kvm.Accelerator("tcg", "it hangs")
    assert len(probed) == 1
    kernel.image.write_bytes(b"another kernel")
    kvm.choose(kernel)
    assert len(probed) == 2


# --- a QEMU that is none ----------------------------------------------------------------

FakeQemu = Callable[[str], None]


@pytest.fixture
def fake_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeQemu:
    """Puts a shell script in QEMU's place."""

    def put(script: str) -> None:
        program = tmp_path / "qemu"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(paths, "QEMU_SYSTEM", program)
        monkeypatch.setattr(paths, "GUEST", tmp_path)

    return put


def run_guest(kernel: Kernel, limit_seconds: float = 30) -> None:
    async def go() -> None:
        async with machine.running(
            boot("tcg"), kernel, "true", lambda _: None, limit_seconds=limit_seconds
        ) as guest:
            async for _ in guest.messages():
                pass

    asyncio.run(go())


def test_what_qemu_complains_about_is_shown(kernel: Kernel, fake_qemu: FakeQemu) -> None:
    fake_qemu("echo 'cache-size=1 is out of range' >&2; exit 1")
    with pytest.raises(BatchflushError) as caught:
        run_guest(kernel)
    assert "QEMU did not start" in caught.value.message
    assert "cache-size=1 is out of range" in caught.value.message


def test_a_qemu_that_hangs_and_ignores_sigterm_is_killed(
    kernel: Kernel, fake_qemu: FakeQemu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid_file = tmp_path / "pid"
    fake_qemu(f"trap '' TERM; echo $$ >{pid_file}; while :; do sleep 0.1; done")
    monkeypatch.setattr(machine, "GRACE_SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(BatchflushError, match="was not done within 1 s"):
        run_guest(kernel, limit_seconds=1)
    assert time.monotonic() - started < 15
    assert not Path("/proc", pid_file.read_text().strip()).exists()


def test_a_cancelled_guest_leaves_nothing(
    kernel: Kernel, fake_qemu: FakeQemu, tmp_path: Path
) -> None:
    """Ctrl-C cancels a guest's task, and may do so again while the guest is being ended."""
    pid_file = tmp_path / "pid"
    fake_qemu(f"echo $$ >{pid_file}; exec sleep 1000")

    async def go() -> None:
        running = machine.running(boot("tcg"), kernel, "true", lambda _: None, limit_seconds=30)
        task = asyncio.create_task(running.__aenter__())
        while not pid_file.exists() or not pid_file.read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(go())
    assert not Path("/proc", pid_file.read_text().strip()).exists()
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_failed_guest_leaves_its_logs_but_not_its_initramfs(
    kernel: Kernel, fake_qemu: FakeQemu, tmp_path: Path
) -> None:
    fake_qemu("echo trouble; exit 1")
    with pytest.raises(BatchflushError):
        run_guest(kernel)
    left = {file.name for file in (tmp_path / "runs").glob("*/*")}
    assert left == {"qemu.log"}
