# SPDX-License-Identifier: GPL-2.0-or-later
"""battery-file: what a battery-backed cache holds outlives the process."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import MIB, Image
from programs import (
    Options,
    Program,
    blockdevs,
    daemon,
    daemon_command,
    disk,
    file,
    qemu_io,
    running,
)

from batchflush.nbd import connected

KIB = 1024
PATTERN = 0x5A
HEADER_BYTES = 72


def node(path: Path, battery_file: Path, **options: Any) -> Options:
    cache = {"write_cache": "battery", "cache_size": 256 * KIB}
    return disk(file(path), battery_file=str(battery_file), **{**cache, **options})


async def write_and_cut(program: Program, folder: Path, **cut: Any) -> None:
    async with connected(folder / "nbd") as connection:
        await connection.write(8 * KIB, bytes([PATTERN]) * 12 * KIB)
        await connection.flush()
    await program.execute("batchflush-power-cut", guest="run", **cut)


async def saved(battery_file: Path) -> None:
    """Wait until the file holds something; the test's time limit ends a wait in vain."""
    while int.from_bytes(battery_file.read_bytes()[24:32], "little") == 0:
        await asyncio.sleep(0.002)


def holds(path: Path) -> bool:
    """Whether the medium has what was written."""
    data = path.read_bytes()
    return data[8 * KIB : 20 * KIB] == bytes([PATTERN]) * 12 * KIB


def opened(path: Path, battery_file: Path, **options: Any) -> str:
    """Open the node and close it; what is said."""
    return qemu_io(node(path, battery_file, **options), "quit").output


@pytest.mark.parametrize("end", ["quit", "term", "kill"])
async def test_the_next_start_destages_it(end: str, image: Image, tmp_path: Path) -> None:
    path, battery = image(), tmp_path / "battery"
    async with daemon(tmp_path, node(path, battery)) as program:
        await write_and_cut(program, tmp_path)
        await saved(battery)
        if end == "quit":
            assert await program.quit() == 0
            assert program.said() == ""
        else:
            await program.terminate(signal.SIGTERM if end == "term" else signal.SIGKILL)
    assert not holds(path)
    assert opened(path, battery) == ""
    assert holds(path)
    assert battery.stat().st_size == HEADER_BYTES


async def test_it_is_empty_after_restoring(image: Image, tmp_path: Path) -> None:
    path, battery = image(), tmp_path / "battery"
    async with daemon(tmp_path, node(path, battery)) as program:
        await write_and_cut(program, tmp_path)
        await saved(battery)
        await program.execute("batchflush-power-restore")
        assert battery.stat().st_size == HEADER_BYTES
        assert await program.quit() == 0
    assert holds(path)


async def test_it_is_empty_when_the_hold_up_is_over(image: Image, tmp_path: Path) -> None:
    path, battery = image(), tmp_path / "battery"
    async with daemon(tmp_path, node(path, battery)) as program:
        await write_and_cut(program, tmp_path, policy="drop-all")
        await saved(battery)
        await program.execute("batchflush-battery", state="failed")
        assert await program.quit() == 0
    assert battery.stat().st_size == HEADER_BYTES
    assert opened(path, battery) == ""
    assert not holds(path)


async def left_behind(image: Image, folder: Path) -> tuple[Path, Path]:
    """A disk, and a battery file with its data."""
    path, battery = image(), folder / "battery"
    async with daemon(folder, node(path, battery)) as program:
        await write_and_cut(program, folder)
        assert await program.quit() == 0
    return path, battery


@pytest.mark.parametrize("at", [40, HEADER_BYTES + 5, HEADER_BYTES + 100, -1])
async def test_a_damaged_file_is_refused(at: int, image: Image, tmp_path: Path) -> None:
    path, battery = await left_behind(image, tmp_path)
    data = bytearray(battery.read_bytes())
    data[at] ^= 1
    battery.write_bytes(data)
    said = opened(path, battery)
    assert f"battery-file={battery} is damaged" in said and "allowed is" in said
    assert battery.read_bytes() == data and not holds(path)


async def test_a_file_that_ends_early_is_refused(image: Image, tmp_path: Path) -> None:
    path, battery = await left_behind(image, tmp_path)
    data = battery.read_bytes()[:-4096]
    battery.write_bytes(data)
    assert "is damaged" in opened(path, battery)
    assert battery.read_bytes() == data


async def test_a_file_of_another_disk_is_refused(image: Image, tmp_path: Path) -> None:
    _, battery = await left_behind(image, tmp_path)
    other = image(size=2 * MIB, name="other")
    assert "is of a disk of 1048576 bytes, and this one has 2097152" in opened(other, battery)


def test_a_foreign_file_is_refused(image: Image, tmp_path: Path) -> None:
    path, battery = image(), tmp_path / "battery"
    battery.write_bytes(b"my thesis, chapter 1\n" * 100)
    assert f"battery-file={battery} is no battery file of version 1" in opened(path, battery)
    assert battery.read_bytes().startswith(b"my thesis")


async def test_a_read_only_disk_is_refused(image: Image, tmp_path: Path) -> None:
    path, battery = await left_behind(image, tmp_path)
    said = qemu_io({**node(path, battery), "read-only": True}, "quit").output
    assert "allowed is read-only=off" in said


def test_it_needs_a_battery(image: Image, tmp_path: Path) -> None:
    said = opened(image(), tmp_path / "battery", write_cache="volatile")
    assert "needs write-cache=battery; without one allowed is none" in said
    assert not (tmp_path / "battery").exists()


async def test_it_belongs_to_one_disk(image: Image, tmp_path: Path) -> None:
    path, battery = image(), tmp_path / "battery"
    async with daemon(tmp_path, node(path, battery)):
        said = opened(image(name="other"), battery)
        assert f"battery-file={battery} is in use" in said


async def test_a_full_disk_is_said_and_loses_nothing(image: Image, tmp_path: Path) -> None:
    """The power can still be restored: the cache is in memory, too."""
    path, battery = image(), tmp_path / "battery"
    data = bytes([PATTERN]) * MIB
    # SIGXFSZ is ignored, so that a write fails with EFBIG; the image does not get longer.
    limited = ["/usr/bin/env", "--ignore-signal=XFSZ", "prlimit", f"--fsize={MIB}"]
    command = daemon_command(tmp_path, *blockdevs(node(path, battery, cache_size=2 * MIB)))
    command += ["--export", "type=nbd,id=disk,node-name=disk,writable=on"]
    async with running(tmp_path, [*limited, *command]) as program:
        async with connected(tmp_path / "nbd") as connection:
            await connection.write(0, data)
            await program.execute("batchflush-power-cut", guest="run")
            while f"battery-file={battery} cannot be written" not in program.said():
                await program.execute("query-batchflush")
            await program.execute("batchflush-power-restore")
            assert await connection.read(0, MIB) == data
        assert await program.quit() == 0
    assert path.read_bytes() == data
    assert battery.stat().st_size == HEADER_BYTES
