# SPDX-License-Identifier: GPL-2.0-or-later
"""A node on a stepped clock: what it takes, to the nanosecond, without any guest.

A QEMU without machine and processor, whose virtual clock stands still until qtest's clock_step
moves it to the next timer. Requests come through its NBD server. Before a step everything that
was sent has to have begun: a read behind the end of the disk, which is refused at once, tells
when that is so, because the server begins the requests of a connection in their order.
"""

import asyncio
import contextlib
import random
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient

from batchflush import nbd, paths, processes
from batchflush.guest.command_line import joined

# The NBD server takes 16 requests of a connection at once; one is the barrier.
PER_CONNECTION = 8
CONNECTIONS = 4
DEPTH_MAX = PER_CONNECTION * CONNECTIONS
EXPORT = "disk"
GRACE_SECONDS = 3


class SteppedNode:
    """A node of some options; made by running()."""

    def __init__(self, clock: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self._clock = clock
        self.connections: list[nbd.Connection] = []
        self.now_ns = 0

    async def _step(self) -> None:
        """Move the clock to the next timer."""
        reader, writer = self._clock
        writer.write(b"clock_step\n")
        while not (line := await reader.readline()).startswith(b"OK"):
            if not line:
                raise nbd.ConnectionEnded("QEMU ended")
        self.now_ns = int(line.split()[1])

    async def _begun(self) -> None:
        """Everything sent so far has begun, and what is complete has been answered."""

        async def passed(connection: nbd.Connection) -> None:
            with contextlib.suppress(nbd.RequestError):
                await connection.read(connection.size, 512)

        await asyncio.gather(*map(passed, self.connections))

    async def takes(self, request: Coroutine[Any, Any, Any]) -> int:
        """How long one request takes, alone."""
        start = self.now_ns
        await self._some_done({asyncio.ensure_future(request)})
        return self.now_ns - start

    async def _some_done(self, pending: set[asyncio.Future[Any]]) -> set[asyncio.Future[Any]]:
        """Step until at least one of them is done; the others."""
        await asyncio.sleep(0)  # the tasks send
        await self._begun()
        while not (done := {future for future in pending if future.done()}):
            await self._step()
            await self._begun()
        for future in done:
            future.result()
        return pending - done

    async def closed_loop(
        self, write: bool, depth: int, count: int, block: int, sequential: bool, seed: int = 1
    ) -> float:
        """Nanoseconds per request with `depth` under way at once.

        Counted from when `depth` are done, while as many are under way all the time.
        """
        places = random.Random(seed)
        blocks = self.connections[0].size // block
        data = b"\xa5" * block
        sent = 0

        def send(connection: nbd.Connection) -> asyncio.Future[Any]:
            nonlocal sent
            offset = (sent % blocks if sequential else places.randrange(blocks)) * block
            sent += 1
            request = connection.write(offset, data) if write else connection.read(offset, block)
            return asyncio.ensure_future(request)

        # A disk may end them in any order, but a connection must not have too many under way.
        first = (self.connections[number // PER_CONNECTION] for number in range(depth))
        sent_on = {send(connection): connection for connection in first}
        done, counted_from, since = 0, 0, 0
        while done - counted_from < count or counted_from == 0:
            left = await self._some_done(set(sent_on))
            free = [sent_on.pop(future) for future in list(sent_on) if future not in left]
            done += len(free)
            if counted_from == 0 and done >= depth:
                counted_from, since = done, self.now_ns
            sent_on |= {send(connection): connection for connection in free}
        per_request = (self.now_ns - since) / (done - counted_from)
        pending = set(sent_on)
        while pending:
            pending = await self._some_done(pending)
        return per_request

    async def durable(self, count: int, flush: bool, block: int = 4096, seed: int = 1) -> float:
        """Nanoseconds of a random write, and of a flush after it."""
        places = random.Random(seed)
        connection = self.connections[0]
        start = self.now_ns
        for _ in range(count):
            offset = places.randrange(connection.size // block) * block
            await self.takes(connection.write(offset, b"\x5a" * block))
            if flush:
                await self.takes(connection.flush())
        return (self.now_ns - start) / count

    async def flush(self) -> None:
        await self.takes(self.connections[0].flush())


@contextlib.asynccontextmanager
async def running(options: Mapping[str, str], size: int) -> AsyncIterator[SteppedNode]:
    """A node of these options on fresh memory; it ends with the block."""
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    clock, monitor = (end.fileno() for end in theirs)
    node = {"node-name": "disk", **options, "file": "medium"}
    command = [
        str(paths.QEMU_SYSTEM),
        "-machine", "none", "-accel", "qtest", "-nodefaults", "-display", "none",
        "-chardev", f"socket,id=clock,fd={clock}", "-qtest", "chardev:clock",
        "-qtest-log", "none",
        "-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control",
        "-blockdev", joined("batchflush-memory", {"node-name": "medium", "size": str(size)}),
        "-blockdev", joined("batchflush", node),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="batchflush-") as folder:
        child = processes.start(
            command, pass_fds=[end.fileno() for end in theirs], stderr=subprocess.DEVNULL
        )
        for end in theirs:
            end.close()
        qmp = QMPClient("batchflush")
        try:
            stepped = SteppedNode(await asyncio.open_connection(sock=ours[0]))
            await qmp.connect(ours[1])
            async with contextlib.AsyncExitStack() as stack:
                await _connect(stack, stepped, qmp, Path(folder) / "nbd.sock")
                yield stepped
        finally:
            processes.stop(child, GRACE_SECONDS)
            with contextlib.suppress(Exception):
                await qmp.disconnect()


async def _connect(
    stack: contextlib.AsyncExitStack, stepped: SteppedNode, qmp: QMPClient, file: Path
) -> None:
    address = {"type": "unix", "data": {"path": str(file)}}
    await qmp.execute("nbd-server-start", {"addr": address})
    export = {"type": "nbd", "id": EXPORT, "node-name": "disk", "name": EXPORT, "writable": True}
    await qmp.execute("block-export-add", export)
    for _ in range(CONNECTIONS):
        connection = await stack.enter_async_context(nbd.connected(file, EXPORT))
        stepped.connections.append(connection)
