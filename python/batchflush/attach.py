# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU that somebody runs, machine or storage daemon, asked through its QMP socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qemu.qmp import ExecuteError, QMPClient
from qemu.qmp.error import QMPError

from batchflush.errors import BatchflushError

ANSWER_SECONDS = 5
HOW_TO_LISTEN = "start QEMU with -qmp unix:qmp.sock,server=on,wait=off and give qmp.sock"

Entry = Mapping[str, Any]


class Ended(BatchflushError):
    """QEMU has ended, or has closed its monitor."""


@dataclass(frozen=True)
class Node:
    """A batchflush node at one moment.

    info: what query-batchflush tells of it. statistics: what query-blockstats does.
    """

    info: Entry
    statistics: Entry

    @property
    def name(self) -> str:
        return str(self.info["node-name"])


class Qemu:
    """Made by attached()."""

    def __init__(self, monitor: QMPClient, address: str) -> None:
        self._monitor, self.address = monitor, address

    async def ask(self, command: str, arguments: Entry | None = None) -> Any:
        """What a command returns. An ExecuteError says why there is no answer."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._monitor.execute(command, arguments)
        except ExecuteError:
            raise
        except TimeoutError:
            raise BatchflushError(
                f"QEMU behind {self.address} does not answer {command} within {ANSWER_SECONDS} s"
            ) from None
        except (QMPError, OSError, EOFError) as error:
            raise Ended(f"QEMU behind {self.address} has ended") from error

    async def ask_machine(self, command: str) -> Any:
        """Likewise, but None of a storage daemon, which has no machine to tell about."""
        try:
            return await self.ask(command)
        except ExecuteError as error:
            if error.error_class == "CommandNotFound":
                return None
            raise

    async def nodes(self) -> list[Node]:
        """All batchflush nodes by name, at least one."""
        try:
            infos = await self.ask("query-batchflush")
        except ExecuteError as error:
            raise BatchflushError(
                f"QEMU behind {self.address} does not know batchflush",
                "./batchflush build makes one that does",
            ) from error
        told = await self.ask("query-blockstats", {"query-nodes": True})
        statistics = {node["node-name"]: node.get("driver-specific") for node in told}
        # One that came or went between the two answers is left out.
        nodes = [
            Node(info, statistics[info["node-name"]])
            for info in infos
            if statistics.get(info["node-name"])
        ]
        if not nodes:
            raise BatchflushError(
                f"QEMU behind {self.address} has no batchflush node",
                "docs/howto/qemu.rst shows how to give it one",
            )
        return sorted(nodes, key=lambda node: node.name)


@contextlib.asynccontextmanager
async def attached(address: str) -> AsyncIterator[Qemu]:
    """The QEMU whose monitor listens there: the path of a socket, or HOST:PORT."""
    # Whatever happens to the connection is told in our own words.
    logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)
    monitor = QMPClient("batchflush")
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await monitor.connect(_socket_address(address))
    except TimeoutError:
        raise BatchflushError(
            f"{address} does not answer within {ANSWER_SECONDS} s",
            "a QMP socket serves one client at a time; is another one attached?",
        ) from None
    except (QMPError, OSError, EOFError) as error:
        raise BatchflushError(
            f"no QMP monitor can be reached at {address}: {_reason(error)}", HOW_TO_LISTEN
        ) from error
    try:
        yield Qemu(monitor, address)
    finally:
        with contextlib.suppress(QMPError, OSError, EOFError):
            await monitor.disconnect()


def _socket_address(address: str) -> str | tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and not Path(address).exists():
        return host.strip("[]") or "localhost", int(port)
    return address


def _reason(error: BaseException) -> str:
    """The last error of the chain that says something."""
    while error.__cause__ is not None:
        error = error.__cause__
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
