# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine starts, stops, continues and ends promptly, whatever the disk's times are.

No guest runs: requests come from the device model, which reads the disk when it is realized,
and over NBD. The firmware only halts; a real one resets the disk, and that drains it.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import Image
from programs import LONG_NS, Options, Program, blockdevs, disk, file, promptly, run, running

from batchflush import paths
from batchflush.nbd import connected

SLOW = {
    name: LONG_NS
    for name in (
        "read_latency_ns",
        "write_latency_ns",
        "destage_latency_ns",
        "flush_latency_ns",
        "coalesce_max_wait_ns",
    )
}
HALT = b"\xf4"
FIRMWARE_SIZE = 65536
CLOCKS = {
    "qtest": ["-accel", "qtest"],
    "tcg": ["-accel", "tcg"],
    "icount": ["-accel", "tcg", "-icount", "shift=auto,sleep=on"],
}
CACHES = ["none", "volatile", "battery"]


@contextlib.asynccontextmanager
async def machine(
    folder: Path,
    node: Options,
    *more: str | Path,
    clock: str = "tcg",
    paused: bool = False,
    serve: bool = True,
) -> AsyncIterator[Program]:
    """A machine with the disk behind virtio-blk, and at folder/nbd for us."""
    firmware = folder / "firmware"
    firmware.write_bytes(HALT * FIRMWARE_SIZE)
    command = [
        paths.QEMU_SYSTEM, "-machine", "pc", "-bios", firmware, "-nodefaults", "-display", "none",
        *CLOCKS[clock], *(["-S"] if paused else []), *blockdevs(node),
        "-device", "virtio-blk-pci,id=front,drive=disk,share-rw=on", *more,
    ]  # fmt: skip
    async with running(folder, command) as program:
        if serve:
            await export(program, folder)
        yield program


async def export(program: Program, folder: Path, node: str = "disk") -> None:
    address = {"type": "unix", "data": {"path": str(folder / "nbd")}}
    await program.execute("nbd-server-start", addr=address, max_connections=0)
    disk = {"type": "nbd", "id": "disk", "name": "disk", "writable": True}
    await program.execute("block-export-add", node_name=node, **disk)


def slow_disk(path: Path, cache: str, **options: object) -> Options:
    return disk(file(path), write_cache=cache, cache_size=65536, **{**SLOW, **options})


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "running"])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("clock", CLOCKS)
async def test_start_and_end(
    clock: str, cache: str, paused: bool, image: Image, tmp_path: Path
) -> None:
    """The geometry guess, stop, cont and every way to end."""
    node = slow_disk(image(), cache)
    for end in ("quit", signal.SIGTERM):
        async with (
            asyncio.timeout(20),
            machine(tmp_path, node, clock=clock, paused=paused) as program,
        ):
            assert (await program.execute("query-status"))["running"] is not paused
            for command in ("stop", "cont", "stop", "cont"):
                await promptly(program.execute(command))
            ended = program.quit() if end == "quit" else program.terminate(end)
            assert await promptly(ended) == 0
        (tmp_path / "nbd").unlink(missing_ok=True)


@pytest.mark.parametrize("cache", CACHES)
async def test_a_paused_machine_serves_no_times(cache: str, image: Image, tmp_path: Path) -> None:
    path = image(pattern=7)
    async with (
        machine(tmp_path, slow_disk(path, cache), paused=True) as program,
        connected(tmp_path / "nbd") as connection,
    ):
        await promptly(connection.write(0, b"x" * 512))
        assert await promptly(connection.read(0, 1024)) == b"x" * 512 + b"\7" * 512
        await promptly(asyncio.gather(*(connection.flush() for _ in range(8))))
        # QEMU wants the image complete while the machine is stopped, battery or not.
        assert path.read_bytes()[:512] == b"x" * 512
        assert await promptly(program.quit()) == 0


@pytest.mark.parametrize("clock", ["tcg", "icount"])
@pytest.mark.parametrize("cache", CACHES)
async def test_stop_ends_what_is_in_flight(
    cache: str, clock: str, image: Image, tmp_path: Path
) -> None:
    path = image()
    node = slow_disk(path, cache, write_latency_ns=0)
    async with (
        machine(tmp_path, node, clock=clock) as program,
        connected(tmp_path / "nbd") as connection,
    ):
        await connection.write(0, b"x" * 512)
        requests = [connection.flush() for _ in range(4)]
        requests += [connection.read(65536, 512), connection.read(131072, 512)]
        tasks = [asyncio.create_task(request) for request in requests]
        await program.until(lambda statistics: statistics["flush-arrivals"] == 4)
        assert not any(task.done() for task in tasks)
        await promptly(program.execute("stop"))
        await promptly(asyncio.gather(*tasks))
        assert path.read_bytes()[:512] == b"x" * 512
        assert await promptly(program.quit()) == 0


async def test_times_are_served_again_after_cont(image: Image, tmp_path: Path) -> None:
    node = disk(file(image()), write_cache="volatile", flush_latency_ns=LONG_NS // 50)
    async with machine(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        clock = asyncio.get_running_loop().time
        for command in ("stop", "cont"):
            await program.execute(command)
            await connection.write(0, b"x" * 512)
            begin = clock()
            await connection.flush()
            if command == "cont":
                assert clock() - begin >= LONG_NS / 50 / 1e9


async def test_after_stop_and_cont_the_hardware_is_idle(image: Image, tmp_path: Path) -> None:
    node = slow_disk(image(), "volatile", write_latency_ns=0, flush_clean_latency_ns=0)
    async with machine(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        await connection.write(0, b"x" * 512)
        flush = asyncio.create_task(connection.flush())
        await program.until(lambda statistics: statistics["flush-arrivals"] == 1)
        await promptly(program.execute("stop"))
        await promptly(flush)
        await promptly(program.execute("cont"))
        await promptly(connection.flush())


async def test_times_are_served_again_after_loadvm(image: Image, tmp_path: Path) -> None:
    """It closes the node and opens it again within a drain."""
    path = image()
    made = run([paths.QEMU_IMG, "create", "-q", "-f", "qcow2", path, "1M"])
    assert made.code == 0
    qcow2 = {"driver": "qcow2", "file": file(path)}
    node = disk(qcow2, write_cache="volatile", flush_latency_ns=LONG_NS // 50)
    async with machine(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        await connection.write(0, b"x" * 512)
        for command in ("savevm one", "loadvm one"):
            said = await program.execute("human-monitor-command", command_line=command)
            assert said == ""
        assert await connection.read(0, 512) == b"x" * 512
        await connection.write(0, b"y" * 512)
        begin = asyncio.get_running_loop().time()
        await connection.flush()
        assert asyncio.get_running_loop().time() - begin >= LONG_NS / 50 / 1e9
