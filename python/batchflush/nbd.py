# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of QEMU's NBD server: as many requests at once as one likes.

Written from the protocol's specification (https://github.com/NetworkBlockDevice/nbd,
doc/proto.md): fixed newstyle handshake, simple replies. libnbd's Python module is no package
of PyPI's, so it cannot be had in the project's own environment.
"""

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator
from pathlib import Path

HANDSHAKE = b"NBDMAGICIHAVEOPT"
OPTION = b"IHAVEOPT"
OPTION_REPLY = 0x3E889045565A9
REQUEST = 0x25609513
REPLY = 0x67446698

FIXED_NEWSTYLE_NO_ZEROES = 3
GO = 7
ACKNOWLEDGED, INFORMATION = 1, 3
EXPORT = 0

READ, WRITE, DISCONNECT, FLUSH, TRIM, WRITE_ZEROES = 0, 1, 2, 3, 4, 6
FUA, NO_HOLE = 1, 2


class RequestError(OSError):
    """The server answered a request with an error; errno says which."""


class ConnectionEnded(Exception):
    """The server closed the connection before it had answered."""


class Connection:
    """A connection to an export; made by connected()."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._cookies = itertools.count()
        self._waiting: dict[int, tuple[int, asyncio.Future[bytes]]] = {}
        self.size = 0

    async def read(self, offset: int, length: int) -> bytes:
        return await self._request(READ, offset, length)

    async def write(self, offset: int, data: bytes, fua: bool = False) -> None:
        await self._request(WRITE, offset, len(data), FUA if fua else 0, data)

    async def zero(self, offset: int, length: int, fua: bool = False, hole: bool = True) -> None:
        flags = (FUA if fua else 0) | (0 if hole else NO_HOLE)
        await self._request(WRITE_ZEROES, offset, length, flags)

    async def discard(self, offset: int, length: int) -> None:
        await self._request(TRIM, offset, length)

    async def flush(self) -> None:
        await self._request(FLUSH, 0, 0)

    async def _request(
        self, command: int, offset: int, length: int, flags: int = 0, data: bytes = b""
    ) -> bytes:
        cookie = next(self._cookies)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[cookie] = (length if command == READ else 0, answer)
        head = struct.pack(">IHHQQI", REQUEST, flags, command, cookie, offset, length)
        try:
            self._writer.write(head + data)
            await self._writer.drain()
        except ConnectionError as error:
            answer.cancel()
            raise ConnectionEnded from error
        return await answer

    async def _receive(self) -> None:
        """Give each answer to the request that it is for."""
        try:
            while True:
                magic, error, cookie = struct.unpack(">IIQ", await self._reader.readexactly(16))
                assert magic == REPLY
                length, answer = self._waiting.pop(cookie)
                data = await self._reader.readexactly(0 if error else length)
                if answer.done():
                    continue
                if error:
                    answer.set_exception(RequestError(error, "the NBD server says"))
                else:
                    answer.set_result(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            for _, answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionEnded())

    async def _shake_hands(self, export: str) -> None:
        assert await self._reader.readexactly(18) == HANDSHAKE + struct.pack(">H", 3)
        name = export.encode()
        go = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self._writer.write(struct.pack(">I", FIXED_NEWSTYLE_NO_ZEROES))
        self._writer.write(OPTION + struct.pack(">II", GO, len(go)) + go)
        while True:
            head = await self._reader.readexactly(20)
            magic, option, kind, length = struct.unpack(">QIII", head)
            data = await self._reader.readexactly(length)
            assert (magic, option) == (OPTION_REPLY, GO)
            if kind == ACKNOWLEDGED:
                return
            if kind != INFORMATION:
                raise ConnectionEnded(f"the NBD server refuses {export}: {data!r}")
            if struct.unpack(">H", data[:2])[0] == EXPORT:
                self.size = struct.unpack(">Q", data[2:10])[0]


@contextlib.asynccontextmanager
async def connected(socket: Path, export: str = "disk") -> AsyncIterator[Connection]:
    """A connection that ends with the block."""
    reader, writer = await asyncio.open_unix_connection(socket)
    connection = Connection(reader, writer)
    receiver = None
    try:
        await connection._shake_hands(export)
        receiver = asyncio.create_task(connection._receive())
        yield connection
        with contextlib.suppress(ConnectionError):
            writer.write(struct.pack(">IHHQQI", REQUEST, 0, DISCONNECT, 0, 0, 0))
            await writer.drain()
    finally:
        if receiver:
            receiver.cancel()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
