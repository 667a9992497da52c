# SPDX-License-Identifier: GPL-2.0-or-later
"""What is done to a machine's disk while writers that verify are at work on it.

The machine runs no guest; the writers come over NBD. BF_REPEAT=N runs each test N times.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import Image
from load import CACHES, SEED, SIZE, Load, times
from oracle import Oracle
from programs import Options, Program, disk, file, promptly, run
from test_machine import export, machine

from batchflush import paths
from batchflush.nbd import ConnectionEnded

BLOCK = 4096
# Of the model's times; a head's first, for others depend on it.
HEAD = {
    "rpm": 60000, "bandwidth": 100_000_000, "seek_settle_ns": 1000, "seek_average_ns": 2000,
    "seek_full_ns": 3000,
}  # fmt: skip
# Two values of each option that may change while a disk is open.
VALUES = {
    "destage-high-percent": (60, 80),
    "destage-low-percent": (30, 40),
    "read-latency-ns": (0, 200_000),
    "write-latency-ns": (0, 200_000),
    "destage-latency-ns": (0, 200_000),
    "discard-latency-ns": (0, 200_000),
    "zero-latency-ns": (0, 200_000),
    "fua-latency-ns": (0, 200_000),
    "flush-latency-ns": (0, 500_000),
    "flush-clean-latency-ns": (0, 500_000),
    "latency-spread": ("fixed", "log-normal:50"),
    "flush-spread": ("fixed", "table:50=1/99=2"),
    "bandwidth": (100_000_000, 200_000_000),
    "interface-bandwidth": (0, 100_000_000),
    "seek-settle-ns": (1000, 1500),
    "seek-average-ns": (2000, 2500),
    "seek-full-ns": (3000, 3500),
    "stroke-size": (0, 10_000_000),
    "tracks-per-cylinder": (1, 4),
    "track-switch-ns": (0, 1000),
    "queue-order": ("fifo", "nearest", "deadline"),
    "queue-deadline-ns": (1_000_000, 500_000_000),
    "idle-window-ns": (0, 500_000),
    "flush-concurrency": ("exclusive", "serial", "concurrent"),
    "coalesce": ("off", "on", "auto"),
    "coalesce-wait": ("delta", "average"),
    "coalesce-max-wait-ns": (1000, 500_000),
    "coalesce-min-flush-ns": (0, 1_000_000),
    "spin-max-ns": (0, 300_000),
    "max-lateness-ns": (0, 10_000_000_000),
    "power-cut-policy": ("drop-all", "prefix", "subset", "torn"),
    "battery-hold-up-ns": (0, 10_000_000_000),
    "lie": ("none", "flush", "fua", "delayed"),
    "lie-delay-ns": (1, 1_000_000),
}

# What an option needs for another value than its default.
NEEDS = {
    "destage-high-percent": ("volatile", "battery"),
    "destage-low-percent": ("volatile", "battery"),
    "battery-hold-up-ns": ("battery",),
    "lie": ("volatile",),
    "lie-delay-ns": ("volatile",),
}


@pytest.fixture(params=CACHES)
def cache(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def load(cache: str, turn: int, tmp_path: Path, request: pytest.FixtureRequest) -> Load:
    print(f"BF_SEED={SEED}")
    choose = random.Random(f"{SEED} {request.node.name}")
    return Load(Oracle(bytearray(SIZE)), choose, cache == "none", tmp_path)


def our_disk(load: Load, medium: Options | str, cache: str, **options: object) -> Options:
    return disk(medium, discard="unmap", **CACHES[cache], **times(load.random), **options)


def medium(image: Image) -> tuple[Options, Path]:
    path = image(size=SIZE)
    return file(path, discard="unmap"), path


@contextlib.asynccontextmanager
async def at_work(load: Load) -> AsyncIterator[None]:
    async with load.connected(), load.at_work():
        await load.goes_on()
        yield
        await load.goes_on()
        await load.stop()
        await load.check()


async def end(program: Program) -> None:
    assert await promptly(program.quit()) == 0
    assert program.said() == ""


async def human(program: Program, command: str) -> str:
    return await program.execute("human-monitor-command", command_line=command)


def changeable() -> set[str]:
    page = (paths.ROOT / "docs/options.rst").read_text()
    rows = page.split("   * - ``")[1:]
    cells = {row.split("``")[0]: row.splitlines()[4].split() for row in rows}
    return {name for name, last in cells.items() if last == ["-", "changeable"]}


def test_no_changeable_option_is_forgotten() -> None:
    assert set(VALUES) == changeable()


async def test_each_option_changes(load: Load, cache: str, image: Image, tmp_path: Path) -> None:
    child, path = medium(image)
    marks = {} if cache == "none" else {"destage_high_percent": 60, "destage_low_percent": 30}
    base = disk({**child, "node-name": "medium"}, discard="unmap", **CACHES[cache], **HEAD, **marks)
    again = {**base, "file": "medium"}
    async with machine(tmp_path, base) as program:
        async with at_work(load):
            for name, values in VALUES.items():
                if cache not in NEEDS.get(name, (cache,)):
                    continue
                for value in values:
                    await program.execute("blockdev-reopen", options=[{**again, name: value}])
                    await load.goes_on(2)
        await end(program)
    assert path.read_bytes() == load.oracle.data


async def test_snapshots_in_the_image(load: Load, cache: str, image: Image, tmp_path: Path) -> None:
    """savevm while the writers are at work; loadvm brings back what was there at savevm."""
    path = tmp_path / "image.qcow2"
    assert run([paths.QEMU_IMG, "create", "-q", "-f", "qcow2", path, str(SIZE)]).code == 0
    node = our_disk(load, {"driver": "qcow2", "file": file(path), "discard": "unmap"}, cache)
    async with machine(tmp_path, node) as program:
        async with at_work(load):
            for name in ("one", "two"):
                assert await human(program, f"savevm {name}") == ""
                await load.goes_on()
            async with load.held():
                saved = bytes(load.oracle.data)
                assert await human(program, "savevm three") == ""
            await load.goes_on()
            async with load.held():
                assert await human(program, "loadvm three") == ""
                load.oracle.data[:] = saved
                await load.check()
            await load.goes_on()
            assert await human(program, "delvm two") == ""
        await end(program)


async def test_a_raw_image_takes_no_snapshot(
    load: Load, cache: str, image: Image, tmp_path: Path
) -> None:
    child, path = medium(image)
    async with machine(tmp_path, our_disk(load, child, cache)) as program:
        async with at_work(load):
            assert "Error" in await human(program, "savevm one")
            assert "node 'disk': its file takes no snapshots" in program.said()
        assert await promptly(program.quit()) == 0
    assert path.read_bytes() == load.oracle.data


async def test_devices_come_and_go(load: Load, cache: str, image: Image, tmp_path: Path) -> None:
    """Disks on the same node are plugged in and pulled out."""
    child, path = medium(image)
    node = our_disk(load, child, cache)
    async with machine(tmp_path, node, "-device", "virtio-scsi-pci,id=bus") as program:
        async with at_work(load):
            for turn in range(4):
                plugged = {"driver": "scsi-hd", "bus": "bus.0", "id": f"disk{turn}"}
                await program.execute("device_add", **plugged, drive="disk", share_rw=True)
                await load.goes_on(5)
                await program.execute("device_del", id=f"disk{turn}")
                await load.goes_on(5)
        await end(program)
    assert path.read_bytes() == load.oracle.data


async def test_another_disk_behind_a_device(
    load: Load, cache: str, image: Image, tmp_path: Path
) -> None:
    """The device changes between two nodes, of which the writers use one."""
    child, path = medium(image)
    node = our_disk(load, child, cache)
    other = disk(file(image(name="other", size=SIZE)), write_cache="volatile")
    async with machine(tmp_path, node) as program:
        await program.execute("blockdev-add", **{**other, "node-name": "other"})
        async with at_work(load):
            for name in ("other", "disk") * 3:
                front = {"path": "/machine/peripheral/front", "property": "drive"}
                await program.execute("qom-set", **front, value=name)
                await load.goes_on(5)
        await end(program)
    assert path.read_bytes() == load.oracle.data


async def test_a_medium_is_inserted_and_removed(
    load: Load, cache: str, image: Image, tmp_path: Path
) -> None:
    child, path = medium(image)
    floppy = ["-device", "floppy,id=floppy,share-rw=on"]
    async with machine(tmp_path, our_disk(load, child, cache), *floppy, serve=False) as program:
        # A node that somebody uses cannot be inserted; the writers use the one above it.
        await program.execute("blockdev-add", driver="null-co", node_name="nothing")
        front = {"path": "/machine/peripheral/front", "property": "drive"}
        await program.execute("qom-set", **front, value="nothing")
        top = {"driver": "raw", "node-name": "top", "file": "disk", "discard": "unmap"}
        await program.execute("blockdev-add", **top)
        await export(program, tmp_path, "top")
        async with at_work(load):
            for _ in range(3):
                await program.execute("blockdev-open-tray", id="floppy", force=True)
                await program.execute("blockdev-insert-medium", id="floppy", node_name="disk")
                await program.execute("blockdev-close-tray", id="floppy")
                await load.goes_on(5)
                await program.execute("blockdev-open-tray", id="floppy", force=True)
                await program.execute("blockdev-remove-medium", id="floppy")
                await load.goes_on(5)
        await end(program)
    assert path.read_bytes() == load.oracle.data


async def test_a_disk_is_pulled_out(load: Load, cache: str, image: Image, tmp_path: Path) -> None:
    """Requests are under way; what was completed is on the medium, cached or not."""
    child, path = medium(image)
    node = our_disk(load, child, cache)
    async with machine(tmp_path, node) as program:
        async with load.connected():
            writers = [asyncio.create_task(load.writer(i, 10**6)) for i in range(4)]
            await load.goes_on(100)
            await promptly(program.unexport())
            ended = await promptly(asyncio.gather(*writers, return_exceptions=True))
            assert all(isinstance(each, ConnectionEnded) for each in ended), ended
        assert await promptly(program.quit()) == 0
        # The server complains of clients that are gone, and nobody of data.
        assert all("Disconnect client" in line for line in program.said().splitlines())
    # To end, QEMU has flushed it.
    load.oracle.flushed(load.oracle.flush())
    assert load.oracle.lost(path.read_bytes()) == []


async def test_resize(load: Load, cache: str, image: Image, tmp_path: Path) -> None:
    """The disk grows and shrinks while writes to the part that stays are under way.

    They come through the device, for QEMU's servers do not let anybody resize what they serve.
    """
    child, path = medium(image)
    slow = {f"{kind}_latency_ns": 5_000_000 for kind in ("write", "destage", "flush")}
    options = {**times(load.random), **CACHES[cache], **slow}
    node = disk(child, discard="unmap", **options)
    blocks: dict[int, int] = {}
    async with machine(tmp_path, node, serve=False) as program:

        async def io(command: str) -> None:
            device = "/machine/peripheral/front/virtio-backend"
            assert await human(program, f'qemu-io -d {device} "{command}"') == ""

        for size in [load.random.randrange(64, 512) * 512 + SIZE // 2 for _ in range(8)]:
            chosen = load.random.sample(range(SIZE // 2 // BLOCK), 12)
            for block in chosen:
                blocks[block] = load.random.randrange(1, 256)
                await io(f"aio_write -q -P {blocks[block]} {block * BLOCK} {BLOCK}")
            await program.execute("block_resize", node_name="disk", size=size)
            await io(f"read -q -P {blocks[chosen[0]]} {chosen[0] * BLOCK} {BLOCK}")
            await io("aio_flush")
        await end(program)
    data = path.read_bytes()
    assert len(data) == size
    for block in range(SIZE // 2 // BLOCK):
        expected = bytes([blocks.get(block, 0)]) * BLOCK
        assert data[block * BLOCK : (block + 1) * BLOCK] == expected, block
