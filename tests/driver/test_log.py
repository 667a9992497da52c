# SPDX-License-Identifier: GPL-2.0-or-later
"""The write log holds every request, in an order that agrees with what a client sees.

BF_SEED=N repeats the requests of a run, though not the moments at which they meet.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MIB, Image
from programs import (
    Options,
    Program,
    blockdevs,
    daemon,
    daemon_command,
    disk,
    dotted,
    file,
    promptly,
    qemu_io,
    run,
    running,
)
from test_machine import FIRMWARE_SIZE, HALT

from batchflush import paths
from batchflush.crash import log as log_module
from batchflush.crash.log import DISCARD, DONE, FLUSH, FUA, WRITE, ZERO, Log, Record
from batchflush.nbd import Connection, ConnectionEnded, connected

SEED = int(os.environ.get("BF_SEED") or random.randrange(1 << 32))
WRITERS = 4
REQUESTS = 150
SECTOR = 512
CACHES = {
    "none": {"write_cache": "none"},
    "volatile": {"write_cache": "volatile", "cache_size": 256 * 1024},
    "battery": {"write_cache": "battery", "cache_size": 256 * 1024},
}


@dataclass
class Seen:
    """A request as its client saw it, on a clock of its own that only counts."""

    kind: int
    flags: int
    offset: int
    data: bytes
    sent: int = 0
    answered: int = 0


class Client:
    """Sends random requests from several writers and notes when each was answered."""

    def __init__(self, connection: Connection, draw: random.Random) -> None:
        self.connection, self.draw = connection, draw
        self.clock = 0
        self.seen: list[Seen] = []

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    async def work(self, requests: int) -> None:
        await asyncio.gather(*(self.writer(i, requests) for i in range(WRITERS)))

    async def writer(self, index: int, requests: int) -> None:
        for _ in range(requests):
            await self.step(index)

    async def step(self, index: int) -> None:
        """A request to the writer's own part of the disk; its data is unlike any other."""
        part = MIB // WRITERS
        length = SECTOR * self.draw.randint(1, 16)
        offset = part * index + self.draw.randrange((part - length) // SECTOR) * SECTOR
        kind = self.draw.choices((WRITE, ZERO, DISCARD, FLUSH), (60, 8, 7, 25))[0]
        flags = FUA if kind == WRITE and self.draw.random() < 0.2 else 0
        data = self.draw.randbytes(length) if kind == WRITE else bytes(length)
        seen = Seen(kind, flags, offset, data if kind != FLUSH else b"", self.tick())
        if kind == WRITE:
            await self.connection.write(offset, data, fua=bool(flags))
        elif kind == ZERO:
            await self.connection.zero(offset, length)
        elif kind == DISCARD:
            await self.connection.discard(offset, length)
        else:
            await self.connection.flush()
        seen.answered = self.tick()
        self.seen.append(seen)


@dataclass
class Logged:
    """A request in the log; done is None if it had not been completed."""

    issue: Record
    data: bytes
    done: int | None = None
    error: int = 0


def logged(log: Log) -> list[Logged]:
    requests: dict[int, Logged] = {}
    for position, record in enumerate(
        r for r in log.records() if r.kind not in (log_module.INDEX, log_module.END)
    ):
        assert record.position == position
        if record.kind == DONE:
            requests[record.offset].done = position
            requests[record.offset].error = record.length
        else:
            data = log.data(record)
            requests[position] = Logged(record, data)
    return list(requests.values())


def replayed(requests: list[Logged], image: bytes) -> bytes:
    """All requests applied in the order of their issue."""
    result = bytearray(image)
    for request in requests:
        if request.issue.kind != FLUSH:
            data = request.data or bytes(request.issue.length)
            result[request.issue.offset : request.issue.offset + len(data)] = data
    return bytes(result)


def check_order(client: list[Seen], requests: list[Logged]) -> None:
    """What the client saw one after the other, the log has one after the other."""
    # Discards and zeroes may be split; writes are told apart by their data.
    known = {r.data: r for r in requests if r.issue.kind == WRITE}
    flushes = [r for r in requests if r.issue.kind == FLUSH and r.error == 0]
    for seen in (s for s in client if s.kind == WRITE):
        record = known[seen.data]
        assert (record.issue.offset, record.issue.flags) == (seen.offset, seen.flags)
        assert record.done is not None and record.error == 0
    for flush in (s for s in client if s.kind == FLUSH):
        before = [s for s in client if s.kind == WRITE and s.answered < flush.sent]
        after = [s for s in client if s.kind == WRITE and s.sent > flush.answered]
        last = max((known[s.data].done or 0 for s in before), default=-1)
        first = min((known[s.data].issue.position for s in after), default=1 << 60)
        assert any(last < f.issue.position and (f.done or 0) < first for f in flushes)


@pytest.mark.parametrize("cache", CACHES)
async def test_random_requests(cache: str, image: Image, tmp_path: Path) -> None:
    """Several writers at once; the image is what the log says."""
    print(f"BF_SEED={SEED}")
    path, log = image(pattern=0x55), tmp_path / "writes.log"
    before = path.read_bytes()
    medium = {**file(path), "node-name": "medium", "discard": "unmap"}
    node = disk("medium", discard="unmap", log=str(log), write_latency_ns=100_000, **CACHES[cache])
    async with daemon(tmp_path, medium, node) as program:
        async with connected(tmp_path / "nbd") as connection:
            client = Client(connection, random.Random(f"{SEED} {cache}"))
            await client.work(REQUESTS)
        assert await program.quit() == 0
    opened = Log(log)
    assert opened.closed() and opened.disk_size == MIB
    requests = logged(opened)
    check_order(client.seen, requests)
    assert replayed(requests, before) == path.read_bytes()


async def test_a_killed_daemon_leaves_every_completed_flush(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    node = disk(file(image()), log=str(log), write_cache="volatile")
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        client = Client(connection, random.Random(SEED))
        work = asyncio.create_task(client.work(10_000))
        while sum(s.kind == FLUSH for s in client.seen) < 100:
            await asyncio.sleep(0.001)
        await program.terminate(signal.SIGKILL)
        with contextlib.suppress(ConnectionEnded):
            await work
    opened = Log(log)
    assert not opened.closed()
    requests = logged(opened)
    # All that was answered before a flush was sent that was answered.
    last = max(s.sent for s in client.seen if s.kind == FLUSH)
    covered = [s for s in client.seen if s.answered < last]
    known = {r.data for r in requests if r.issue.kind == WRITE and r.done is not None}
    assert all(s.data in known for s in covered if s.kind == WRITE)
    check_order(covered, requests)
    flushes = [r.issue.position for r in requests if r.issue.kind == FLUSH]
    assert [opened.flush(i).position for i in range(len(flushes))] == flushes  # type: ignore[union-attr]


def test_an_index_is_written_while_the_disk_is_in_use(tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    node = disk({"driver": "null-co", "size": MIB}, log=str(log))
    outcome = qemu_io(node, *["write 0 512", "flush"] * 1100)
    assert outcome.code == 0, outcome.output
    opened = Log(log)
    indexes = [r for r in opened.records() if r.kind == log_module.INDEX]
    # The second when the disk was closed; closing flushes, too.
    assert [(r.length, r.data_length // 16) for r in indexes] == [(0, 1024), (1024, 77)]
    expected = [r.position for r in opened.records() if r.kind == FLUSH]
    for number in (0, 1023, 1024, 1099):
        found = opened.flush(number)
        assert found is not None and found.position == expected[number]


def test_a_disk_that_emulates_nothing_is_logged_in_sectors(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    path = image(pattern=1)
    outcome = qemu_io(disk(file(path), log=str(log)), "write -P 9 100 5", "flush")
    assert outcome.code == 0, outcome.output
    (write,) = [r for r in logged(Log(log)) if r.issue.kind == WRITE]
    assert (write.issue.offset, write.issue.length) == (0, SECTOR)
    assert write.data == b"\1" * 100 + b"\t" * 5 + b"\1" * (SECTOR - 105)


def test_a_request_that_fails_is_logged_as_such(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    child = {
        "driver": "blkdebug",
        "image": file(image()),
        "inject-error": [{"event": "none", "iotype": "write", "errno": 5}],
    }
    qemu_io(disk(child, log=str(log)), "write 0 512")
    (write,) = [r for r in logged(Log(log)) if r.issue.kind == WRITE]
    assert write.error == 5


def refused(log: Path, image: Path, sentence: str) -> None:
    node = disk(file(image), log=str(log))
    outcome = run([paths.QEMU_IO, "--image-opts", dotted(node), "-c", "read 0 512"])
    assert outcome.code == 1
    assert outcome.output.strip().endswith(sentence), outcome.output


def test_a_log_that_cannot_be_made(image: Image, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("precious")
    refused(taken, image(), f"log={taken} exists; allowed is a file that does not")
    assert taken.read_text() == "precious"
    nowhere = tmp_path / "no" / "log"
    refused(nowhere, image(), f"log={nowhere} cannot be created: No such file or directory")
    refused(tmp_path, image(), f"log={tmp_path} exists; allowed is a file that does not")


def test_a_disk_that_is_refused_leaves_no_log(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    node = disk(file(image()), log=str(log), controller="nobody")
    assert run([paths.QEMU_IO, "--image-opts", dotted(node), "-c", "read 0 512"]).code == 1
    assert not log.exists()


async def test_a_log_stays_with_its_disk(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    node = disk(file(image()), log=str(log), write_cache="volatile")
    async with daemon(tmp_path, node) as program:
        other = {**node, "log": str(tmp_path / "other")}
        said = await program.refuses("blockdev-reopen", options=[other])
        assert "log=" in said and f"cannot be set while the node is open; allowed is {log}" in said
        said = await program.refuses("blockdev-reopen", options=[{**node, "log": ""}])
        assert "cannot be set while the node is open" in said
        await program.execute("blockdev-reopen", options=[{**node, "write-latency-ns": 5}])
        await program.unexport()
        said = await program.refuses("block_resize", node_name="disk", size=2 * MIB)
        assert f"size={2 * MIB} cannot be set while log={log} is written" in said
        assert await program.quit() == 0


# --- a full disk ------------------------------------------------------------------------

# The host has no small file system for us; a limit on the size of files ends a write, too.
LIMIT = 300_000


@contextlib.asynccontextmanager
async def limited(folder: Path, command: list[str | Path]) -> AsyncIterator[Program]:
    """SIGXFSZ is ignored, as Python does for itself, so that a write fails with EFBIG."""
    ignore = ["/usr/bin/env", "--ignore-signal=XFSZ", "prlimit", f"--fsize={LIMIT}"]
    async with running(folder, [*ignore, *command]) as program:
        yield program


def small_disk(log: Path) -> list[Options]:
    medium = {"driver": "batchflush-memory", "node-name": "medium", "size": MIB}
    return [medium, disk("medium", log=str(log), write_cache="volatile")]


async def fill(connection: Connection) -> bytearray:
    """Write until the log is long past its end; what the disk has to hold then."""
    expected = bytearray(MIB)
    draw = random.Random(SEED)
    for i in range(2 * LIMIT // 4096):
        offset = draw.randrange(MIB // 4096) * 4096
        expected[offset : offset + 4096] = data = draw.randbytes(4096)
        await connection.write(offset, data)
        if i % 10 == 9:
            await connection.flush()
    return expected


async def log_error(program: Program) -> Options:
    """The event, however many others come before it."""
    while True:
        event = await program.monitor.events.get()
        if event["event"] == "BATCHFLUSH_LOG_ERROR":
            return event["data"]


async def check_full(program: Program, log: Path, folder: Path) -> None:
    async with connected(folder / "nbd") as connection:
        expected = await promptly(fill(connection))
        event = await promptly(log_error(program))
        # Nothing of the disk is lost.
        assert await connection.read(0, MIB) == expected
    opened = Log(log)
    records = list(opened.records())
    assert not opened.closed() and opened.size == records[-1].next_place
    assert event == {
        "node-name": "disk",
        "log": str(log),
        "position": len(records),
        "error": "File too large",
    }
    assert f"log={log} cannot be written: File too large; it ends after {len(records)} records" in (
        program.said()
    )


async def test_a_full_disk_stops_the_machine(tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    firmware = tmp_path / "firmware"
    firmware.write_bytes(HALT * FIRMWARE_SIZE)
    command = [
        paths.QEMU_SYSTEM, "-machine", "pc", "-bios", firmware, "-nodefaults", "-display", "none",
        "-accel", "tcg", *blockdevs(*small_disk(log)),
        "-device", "virtio-blk-pci,drive=disk,share-rw=on",
    ]  # fmt: skip
    async with limited(tmp_path, command) as program:
        address = {"type": "unix", "data": {"path": str(tmp_path / "nbd")}}
        await program.execute("nbd-server-start", addr=address, max_connections=0)
        export = {"type": "nbd", "id": "disk", "node-name": "disk", "writable": True}
        await program.execute("block-export-add", **export)
        await check_full(program, log, tmp_path)
        status = await program.execute("query-status")
        assert (status["status"], status["running"]) == ("io-error", False)
        await promptly(program.execute("cont"))
        assert await promptly(program.quit()) == 0


async def test_a_full_disk_does_not_stop_the_daemon(tmp_path: Path) -> None:
    log = tmp_path / "writes.log"
    nodes = blockdevs(*small_disk(log))
    export = ["--export", "type=nbd,id=disk,node-name=disk,writable=on"]
    async with limited(tmp_path, daemon_command(tmp_path, *nodes) + export) as program:
        await check_full(program, log, tmp_path)
        assert await promptly(program.quit()) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the host has no /dev/full")
def test_a_device_is_no_log(image: Image) -> None:
    refused(Path("/dev/full"), image(), "log=/dev/full exists; allowed is a file that does not")


def test_options_are_taken_in_json(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "a,b=c"
    outcome = run(
        [paths.QEMU_IO, "--image-opts", dotted(disk(file(image()), log=str(log))), "-c", "flush"]
    )
    assert outcome.code == 0 and Log(log).closed(), json.dumps(outcome.output)
