# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's own qtests of virtio-blk, nvme and virtio-scsi, with our node as each drive.

A wrapper (tests/conformance/qemu-system.py) stands in for QEMU. Each test runs by itself, so
that it is known of each that a node was under it.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from batchflush import iotests, paths, processes, progress

PROGRAM = "tests/qtest/qos-test"
WRAPPER = iotests.FOLDER / "qemu-system.py"
FRONT_ENDS = ("virtio-blk-pci", "nvme", "virtio-scsi-pci")
LIMIT_SECONDS = 60

# A qtest's virtual clock stands still while a test waits for something else.
MODES = {mode: f"{node},clock=realtime" for mode, node in iotests.MODES.items()}


def run_all(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Name, mode and what went wrong (nothing: "") of each test in each mode."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # The program learns the architecture from this name.
    wrapper = folder / paths.QEMU_SYSTEM.name
    wrapper.symlink_to(WRAPPER)
    tests = _tests()
    with progress.step("Running QEMU's qtests of virtio-blk, nvme and virtio-scsi") as step:
        for number, (mode, test) in enumerate((m, t) for m in MODES for t in tests):
            step.update(number, len(MODES) * len(tests), f"{mode}: {test.rsplit('/', 1)[-1]}")
            yield _short(test), mode, _run(test, MODES[mode], folder, wrapper)


def _tests() -> list[str]:
    """QEMU's tests that put a drive behind one of the front ends."""
    done = subprocess.run(
        [paths.QEMU_BUILD / PROGRAM, "-l"],
        env={"QTEST_QEMU_BINARY": str(paths.QEMU_SYSTEM)}, capture_output=True, text=True,
    )  # fmt: skip
    front_end = "|".join(FRONT_ENDS)
    return re.findall(rf"^/\S+/(?:{front_end})/\S+$", done.stdout, re.M)


def _short(test: str) -> str:
    return re.sub(r".*/pci-bus/", "", test)


def _run(test: str, node: str, folder: Path, wrapper: Path) -> str:
    served, log = folder / "served", folder / "log"
    served.unlink(missing_ok=True)
    code = processes.logged(
        [paths.QEMU_BUILD / PROGRAM, "--tap", "-k", "-p", test],
        log,
        cwd=paths.QEMU_BUILD,
        env={
            "QTEST_QEMU_BINARY": str(wrapper),
            "QTEST_QEMU_IMG": str(paths.QEMU_IMG),
            "BATCHFLUSH_QEMU": str(paths.QEMU_SYSTEM),
            "BATCHFLUSH_NODE": node,
            "BATCHFLUSH_SERVED": str(served),
        },
        time_limit_seconds=LIMIT_SECONDS,
    )
    if code != 0 or not re.search(rf"^ok \d+ {re.escape(test)}$", log.read_text(), re.M):
        return processes.tail(log)
    if not served.exists() or not served.read_text():
        return "it passes, but no drive of it went through a node"
    return ""
