# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a workload in a guest once, on a disk that logs what it is asked to do.

The file system does not fill the disk: what is left at its end takes the marks that tell
the log what was acknowledged (witness.c). Whatever happens before the mark "begin", making
the file system above all, no crash state is taken of; nor of what comes after "end".
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from batchflush import paths, profiles
from batchflush.crash.compiled import compile_c
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import initramfs, jobs, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk
from batchflush.progress import step

MIB = 1 << 20
MARK_ZONE = MIB
SOURCE = Path(__file__).with_name("witness.c")


# Commands that make a file system of {size} bytes at the beginning of {disk}.
MAKE = {
    "ext4": f"{jobs.FILE_SYSTEMS['ext4']} -b 4096 {{disk}} {{kib}}k",
    "xfs": f"{jobs.FILE_SYSTEMS['xfs']} -d size={{size}} {{disk}}",
    "btrfs": f"{jobs.FILE_SYSTEMS['btrfs']} -b {{size}} {{disk}}",
}
# What their tools take at least.
LEAST_MIB = {"ext4": 16, "xfs": 300, "btrfs": 128}


@dataclass(frozen=True)
class Workload:
    """What runs in the guest. command: empty for the witness, else any command, in /mnt.

    fill_mib: files that are there before it begins; threads, rounds: the witness's.
    """

    file_system: str = "ext4"
    size_mib: int = 256
    mount_options: str = ""
    profile: str = "sata-7200"
    options: tuple[tuple[str, str], ...] = ()
    fill_mib: int = 0
    threads: int = 2
    rounds: int = 40
    command: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.size_mib * MIB


def description(log: Path) -> Path:
    """The file beside a log that tells what was run."""
    return log.with_suffix(".json")


def recorded(log: Path) -> Workload | None:
    """What was run when a log was recorded, None if it is not known."""
    try:
        told = json.loads(description(log).read_text())
        told["options"] = tuple(map(tuple, told["options"]))
        return Workload(**{**told, "command": tuple(told["command"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def witness() -> Path:
    """The guest's program."""
    return compile_c(SOURCE, "witness", ("-static", "-pthread"))


def job(workload: Workload, disk: str) -> str:
    """The script that the guest runs."""
    size = workload.size
    make = MAKE[workload.file_system].format(disk=disk, size=size, kib=size // 1024)
    options = f"-o {shlex.quote(workload.mount_options)} " if workload.mount_options else ""
    mark = f"/bin/witness mark {disk} {workload.size}"
    command = shlex.join(workload.command) or (
        f"/bin/witness run /mnt/witness {disk} {workload.size} {workload.threads} {workload.rounds}"
    )
    fill = f"/bin/witness fill /mnt {workload.fill_mib * MIB} || exit 125" * bool(workload.fill_mib)
    return f"""\
await test -b {disk} || exit 125
{make} >/dev/null || exit 125
mount -t {workload.file_system} {options}{disk} /mnt || exit 125
mkdir /mnt/witness
{fill}
sync
cd /mnt
{mark} begin || exit 125
report '{{"type": "begun"}}'
{command}
code=$?
{mark} end || exit 125
exit $code
"""


def guest_kernel(file_system: str) -> packages.Kernel:
    """Debian's kernel with the witness and the file system's tools in its initramfs."""
    return with_program(packages.with_file_system(packages.prepare(), file_system), witness())


def with_program(kernel: packages.Kernel, program: Path) -> packages.Kernel:
    """The same kernel, its initramfs with a program that compile_c() made, in /bin."""
    base = paths.GUEST / f"{kernel.base.stem}-{program.name}.cpio"
    if not base.exists():
        name = program.name.split("-")[0]
        entry = initramfs.Entry.file(f"bin/{name}", program.read_bytes(), executable=True)
        packages._write(base, kernel.base.read_bytes() + initramfs.cpio([entry]))
    return replace(kernel, base=base)


def check(workload: Workload) -> None:
    least = LEAST_MIB[workload.file_system]
    if workload.size_mib < least:
        raise UsageError(
            f"--size-mib={workload.size_mib} is too small for {workload.file_system}; "
            f"allowed are {least} and more"
        )
    if workload.fill_mib > workload.size_mib * 3 // 4:
        raise UsageError(
            f"--fill-mib={workload.fill_mib} does not fit; allowed are up to three quarters of "
            f"--size-mib={workload.size_mib}"
        )


def record(workload: Workload, log: Path, limit_seconds: float = 600) -> None:
    """Run the workload; its log is written anew, and a description beside it."""
    check(workload)
    kernel = guest_kernel(workload.file_system)
    accelerator = kvm.choose(kernel)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    disk = Disk(
        profiles.find(workload.profile),
        {**dict(workload.options), "log": str(log)},
        workload.size + MARK_ZONE,
    )
    boot = Boot(
        kernel.image, kernel.base, disk, accelerator.name,
        ioeventfd=accelerator.name == "kvm", modules=(workload.file_system,),
    )  # fmt: skip
    with step(f"Running the workload on {workload.file_system} once, its writes logged") as shown:
        asyncio.run(_run(boot, kernel, job(workload, disk.guest_file), limit_seconds, shown.say))
    description(log).write_text(json.dumps(asdict(workload), indent=1) + "\n")


async def _run(
    boot: Boot,
    kernel: packages.Kernel,
    script: str,
    limit_seconds: float,
    say: Callable[[str], None],
) -> None:
    output = bytearray()
    code = None
    async with machine.running(
        boot, kernel, script, output.extend, limit_seconds=limit_seconds
    ) as guest:
        async for message in guest.messages():
            if message["type"] == "begun":
                say("the workload has begun")
            elif message["type"] == "exit":
                code = message["code"]
    if code != 0:
        said = output.decode(errors="replace").strip()
        raise BatchflushError(f"the workload failed in the guest with exit code {code}: {said}")
