# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's block jobs and changes of the graph, while writers that verify are at work.

BF_REPEAT=N runs each N times, with other requests and times.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Image
from load import CACHES, MARKS, SEED, SIZE, Load, times
from oracle import Oracle
from programs import Options, Program, daemon, disk, file, run
from qemu.qmp import ExecuteError

from batchflush import paths

# So that a job of the whole disk takes a while.
SPEED = 4 * SIZE
# What backup and mirror copy at once, or leave out.
CLUSTER = 65536


# So long writers may keep ahead of a job; then they wait for it.
HEAD_START_SECONDS = 5


@dataclass
class Bench:
    """Where a test works. node(): our node "disk" over "medium", with other times each time."""

    image: Image
    folder: Path
    cache: str
    load: Load

    def node(self, **options: Any) -> Options:
        chosen = {**CACHES[self.cache], **times(self.load.random), **options}
        if self.cache != "none" and self.load.random.random() < 0.5:
            chosen |= MARKS
        return disk("medium", discard="unmap", **chosen)

    def medium(self, name: str = "medium", pattern: int | None = None) -> tuple[Options, Path]:
        """An image that holds what the writers believe, unless told otherwise."""
        before = self.load.oracle.data[0] if pattern is None else pattern
        path = self.image(size=SIZE, pattern=before, name=name)
        return {**file(path), "node-name": name, "discard": "unmap"}, path

    def qcow2(self, name: str, size: int = SIZE) -> tuple[Options, Path]:
        """An empty image of that format, without a header that names a backing file."""
        path = self.folder / f"{name}.qcow2"
        made = run([paths.QEMU_IMG, "create", "-q", "-f", "qcow2", path, str(size)])
        assert made.code == 0, made.output
        return {
            "driver": "qcow2",
            "node-name": name,
            "discard": "unmap",
            "file": file(path, discard="unmap"),
            "backing": None,
        }, path

    @contextlib.asynccontextmanager
    async def running(self, *nodes: Options, export: str = "disk") -> AsyncIterator[Program]:
        """A storage daemon with the nodes, and the writers at work on one of them."""
        async with daemon(self.folder, *nodes, export=False) as program:
            disk = {"type": "nbd", "id": "disk", "name": "disk", "writable": True}
            await program.execute("block-export-add", node_name=export, **disk)
            async with self.load.connected(), self.load.at_work():
                await self.load.goes_on()
                yield program

    async def end(self, program: Program) -> None:
        """All is as it was written, and nobody complained."""
        await self.load.goes_on()
        await self.load.stop()
        await self.load.check()
        await program.unexport()
        assert await program.quit() == 0
        assert program.said() == ""


@pytest.fixture
def bench(
    cache: str, turn: int, image: Image, tmp_path: Path, request: pytest.FixtureRequest
) -> Bench:
    print(f"BF_SEED={SEED}")
    choose = random.Random(f"{SEED} {request.node.name}")
    # Zeroes are holes, which QEMU's jobs would rather not copy.
    oracle = Oracle(bytearray(choose.choice((b"\0", b"\xaa")) * SIZE))
    return Bench(image, tmp_path, cache, Load(oracle, choose, cache == "none", tmp_path))


@pytest.fixture(params=CACHES)
def cache(request: pytest.FixtureRequest) -> str:
    return request.param


async def job(program: Program, load: Load, command: str, **arguments: Any) -> None:
    """Run a job to its end, in which it is completed if it waits for that."""
    await program.execute(command, job_id="job", auto_dismiss=False, speed=SPEED, **arguments)
    await load.goes_on()
    # Otherwise the writers might keep ahead of it for ever. It may have ended already.
    with contextlib.suppress(ExecuteError):
        await program.execute("block-job-set-speed", device="job", speed=0)
    asked = held = False
    patience = time.monotonic() + HEAD_START_SECONDS
    async with contextlib.AsyncExitStack() as stack:
        while (state := (await program.execute("query-jobs"))[0])["status"] != "concluded":
            if state["status"] == "ready" and not asked:
                if not held:
                    await load.goes_on()
                await program.execute("job-complete", id="job")
                asked = True
            # Where the job writes to a slow disk, and they to a fast one above it, they still do.
            if time.monotonic() > patience and not held:
                await stack.enter_async_context(load.held())
                held = True
            await asyncio.sleep(0.002)
    assert "error" not in state, state
    await program.execute("job-dismiss", id="job")


def holds(path: Path, data: bytes) -> bool:
    """Whether an image in qcow2, by itself, holds the data."""
    raw = path.with_suffix(".raw")
    made = run([paths.QEMU_IMG, "convert", "-f", "qcow2", "-O", "raw", path, raw])
    assert made.code == 0, made.output
    return raw.read_bytes() == data


async def test_backup_off(bench: Bench) -> None:
    """The copy is what the disk held when the job began."""
    medium, path = bench.medium()
    copy, copied = bench.medium("copy", 0x55)
    async with bench.running(medium, bench.node(), copy) as program:
        backup = {"device": "disk", "target": "copy", "sync": "full", "speed": SPEED}
        await bench.load.goes_on()
        async with bench.load.held():
            begun = bytes(bench.load.oracle.data)
            await program.execute("blockdev-backup", job_id="backup", **backup)
        while await program.execute("query-jobs"):
            await bench.load.goes_on(1)
        await bench.end(program)
    assert copied.read_bytes() == begun
    assert path.read_bytes() == bench.load.oracle.data


async def test_backup_onto(bench: Bench) -> None:
    medium, path = bench.medium(pattern=0x55)
    source, _ = bench.medium("source")
    async with bench.running(medium, bench.node(), source, export="source") as program:
        backup = {"device": "source", "target": "disk", "sync": "full", "speed": SPEED}
        async with bench.load.held():
            begun = bytes(bench.load.oracle.data)
            await program.execute("blockdev-backup", job_id="backup", **backup)
        while await program.execute("query-jobs"):
            await bench.load.goes_on(1)
        await bench.end(program)
    assert path.read_bytes() == begun


@pytest.mark.parametrize("mode", ["background", "write-blocking"])
async def test_mirror_off(bench: Bench, mode: str) -> None:
    """The writers go over to the copy when the job completes."""
    medium, path = bench.medium()
    copy, copied = bench.medium("copy", 0x55)
    async with bench.running(medium, bench.node(), copy) as program:
        mirror = {"device": "disk", "target": "copy", "sync": "full", "copy_mode": mode}
        await job(program, bench.load, "blockdev-mirror", **mirror)
        await program.execute("blockdev-del", node_name="disk")
        left = path.read_bytes()
        await bench.end(program)
    assert copied.read_bytes() == bench.load.oracle.data
    assert path.read_bytes() == left


@pytest.mark.parametrize("mode", ["background", "write-blocking"])
async def test_mirror_onto(bench: Bench, mode: str) -> None:
    medium, path = bench.medium(pattern=0x55)
    source, _ = bench.medium("source")
    async with bench.running(medium, bench.node(), source, export="source") as program:
        mirror = {"device": "source", "target": "disk", "sync": "full", "copy_mode": mode}
        await job(program, bench.load, "blockdev-mirror", **mirror)
        await program.execute("blockdev-del", node_name="source")
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


async def test_snapshot_and_commit_onto(bench: Bench) -> None:
    """An overlay is put above the disk, and what it took is written back to it."""
    medium, path = bench.medium()
    overlay, _ = bench.qcow2("overlay")
    async with bench.running(medium, bench.node(), overlay) as program:
        await program.execute("blockdev-snapshot", node="disk", overlay="overlay")
        await bench.load.goes_on()
        commit = {"device": "overlay", "base_node": "disk"}
        await job(program, bench.load, "block-commit", **commit)
        await program.execute("blockdev-del", node_name="overlay")
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


async def test_commit_off(bench: Bench) -> None:
    """The overlay that is committed lies on our disk."""
    base, path = bench.medium("base")
    overlay, made = bench.qcow2("overlay")
    medium = {**file(made), "node-name": "medium", "discard": "unmap"}
    overlay |= {"file": "disk", "backing": "base"}
    nodes = (medium, bench.node(), base, overlay)
    async with bench.running(*nodes, export="overlay") as program:
        commit = {"device": "overlay", "base_node": "base"}
        await job(program, bench.load, "block-commit", **commit)
        await program.execute("blockdev-del", node_name="overlay")
        await program.execute("blockdev-del", node_name="disk")
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


async def test_commit_of_the_middle(bench: Bench) -> None:
    """The overlay in the middle is our disk's, and the one above it is in use."""
    medium, path = bench.medium()
    middle, _ = bench.qcow2("middle")
    top, _ = bench.qcow2("top")
    async with bench.running(medium, bench.node(), middle, top) as program:
        for node, overlay in (("disk", "middle"), ("middle", "top")):
            await program.execute("blockdev-snapshot", node=node, overlay=overlay)
            await bench.load.goes_on()
        nodes = {"device": "top", "top_node": "middle", "base_node": "disk"}
        await job(program, bench.load, "block-commit", **nodes)
        await job(program, bench.load, "block-commit", device="top", base_node="disk")
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


async def test_stream_off(bench: Bench) -> None:
    """The overlay takes over all that our disk holds."""
    medium, path = bench.medium()
    overlay, above = bench.qcow2("overlay")
    async with bench.running(medium, bench.node(), overlay) as program:
        await program.execute("blockdev-snapshot", node="disk", overlay="overlay")
        await job(program, bench.load, "block-stream", device="overlay")
        await program.execute("blockdev-del", node_name="disk")
        left = path.read_bytes()
        await bench.end(program)
    assert holds(above, bench.load.oracle.data)
    assert path.read_bytes() == left


async def test_stream_onto(bench: Bench) -> None:
    """The overlay lies on our disk."""
    base, _ = bench.medium("base")
    overlay, made = bench.qcow2("overlay")
    medium = {**file(made), "node-name": "medium", "discard": "unmap"}
    overlay |= {"file": "disk", "backing": "base"}
    nodes = (medium, bench.node(), base, overlay)
    async with bench.running(*nodes, export="overlay") as program:
        await job(program, bench.load, "block-stream", device="overlay")
        await program.execute("blockdev-del", node_name="base")
        await bench.end(program)
    assert holds(made, bench.load.oracle.data)


async def test_a_job_that_is_cancelled(bench: Bench) -> None:
    """A mirror that is ready is let go: the disk stays in use, the copy is of that moment."""
    medium, path = bench.medium()
    copy, copied = bench.medium("copy", 0x55)
    async with bench.running(medium, bench.node(), copy) as program:
        mirror = {"device": "disk", "target": "copy", "sync": "full"}
        await program.execute("blockdev-mirror", job_id="job", **mirror)
        while (await program.execute("query-jobs"))[0]["status"] != "ready":
            await bench.load.goes_on(1)
        async with bench.load.held():
            begun = bytes(bench.load.oracle.data)
            await program.execute("block-job-cancel", device="job")
            while await program.execute("query-jobs"):
                await asyncio.sleep(0.002)
        assert copied.read_bytes() == begun
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


@pytest.mark.parametrize("command", ["blockdev-backup", "blockdev-mirror", "block-stream"])
async def test_a_job_sees_what_only_the_cache_holds(bench: Bench, cache: str, command: str) -> None:
    """On the medium there is a hole, which it need not copy."""
    load, size = bench.load, 64 * CLUSTER
    path, data = bench.image(size=size), bytearray(size)
    medium = {**file(path), "node-name": "medium"}
    copied = bench.image(size=size, pattern=0x55, name="copy")
    copy = {**file(copied), "node-name": "copy"}
    overlay, above = bench.qcow2("overlay", size)
    options = {"cache_size": size} if cache != "none" else {}
    node = disk("medium", write_cache=cache, **options)
    async with daemon(bench.folder, medium, node, copy, overlay) as program, load.connected():
        for start in range(0, size, size // 8):
            # Whole clusters, as jobs look at them.
            written = load.random.randbytes(2 * CLUSTER)
            data[start : start + 2 * CLUSTER] = written
            await load.connections[0].write(start, written)
        if command == "block-stream":
            await program.execute("blockdev-snapshot", node="disk", overlay="overlay")
            await program.execute(command, device="overlay", job_id="job")
        else:
            target = {"device": "disk", "target": "copy", "sync": "full"}
            await program.execute(command, job_id="job", **target)
        while jobs := await program.execute("query-jobs"):
            if jobs[0]["status"] == "ready":
                await program.execute("block-job-cancel", device="job")
            await asyncio.sleep(0.002)
        await program.unexport()
        assert await program.quit() == 0
    if command == "block-stream":
        assert holds(above, bytes(data))
    else:
        assert copied.read_bytes() == data


async def test_a_filter_is_put_between_and_taken_out(bench: Bench) -> None:
    """Above the disk, where what is above it is told to take another child."""
    medium, path = bench.medium()
    top = {"driver": "raw", "node-name": "top", "file": "disk", "discard": "unmap"}
    between = {**top, "node-name": "between", "driver": "copy-on-read"}
    async with bench.running(medium, bench.node(), top, export="top") as program:
        for _ in range(3):
            await program.execute("blockdev-add", **between)
            for child in ("between", "disk"):
                await program.execute("blockdev-reopen", options=[{**top, "file": child}])
                await bench.load.goes_on()
            await program.execute("blockdev-del", node_name="between")
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


async def test_a_filter_below_the_disk(bench: Bench) -> None:
    medium, path = bench.medium()
    between = {"driver": "copy-on-read", "node-name": "between", "file": "medium"}
    async with bench.running(medium, bench.node()) as program:
        for _ in range(3):
            await program.execute("blockdev-add", **between, discard="unmap")
            for child in ("between", "medium"):
                options = {**bench.node(), "file": child}
                await program.execute("blockdev-reopen", options=[options])
                await bench.load.goes_on()
            await program.execute("blockdev-del", node_name="between")
        await bench.end(program)
    assert path.read_bytes() == bench.load.oracle.data


async def test_another_medium(bench: Bench) -> None:
    """All that was completed is on the old one; from then on the disk is the new one."""
    medium, path = bench.medium()
    other, taken = bench.medium("other")
    async with bench.running(medium, bench.node()) as program:
        await bench.load.goes_on(100)
        async with bench.load.held():
            left = bytes(bench.load.oracle.data)
            # What it holds is what the writers know: they are not to notice.
            taken.write_bytes(left)
            await program.execute("blockdev-add", **other)
            options = {**bench.node(), "file": "other"}
            await program.execute("blockdev-reopen", options=[options])
            await program.execute("blockdev-del", node_name="medium")
        await bench.end(program)
    assert path.read_bytes() == left
    assert taken.read_bytes() == bench.load.oracle.data
