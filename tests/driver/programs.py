# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs that carry the driver. Each has a time limit: a hang is a failure.

A program that has not ended by itself when its test is over is killed.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from qemu.qmp import ExecuteError, QMPClient
from qemu.qmp.error import QMPError

from batchflush import paths, variants

# For all of a test; the machine may be busy.
LIMIT_SECONDS = 40
# Far below LONG_NS, which nothing that has to be prompt may wait for.
PROMPT_SECONDS = 4
LONG_NS = 10_000_000_000

# For tests with limits of microseconds.
AS_BUILT = pytest.mark.skipif(
    variants.PATIENCE > 1, reason="its limits are for a build without the compiler's checks"
)

Options = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """How a program ended. A negative code is the signal that ended it."""

    code: int
    output: str


def run(command: Sequence[str | Path], limit_seconds: float = LIMIT_SECONDS) -> Outcome:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=limit_seconds * variants.PATIENCE,
    )
    return Outcome(done.returncode, _own_words(done.stdout))


# What AddressSanitizer says of coroutines, whose stacks are their own.
_OF_COROUTINES = re.compile(
    r"^==\d+==WARNING: ASan (?:doesn't fully support makecontext.*\n"
    r"|is ignoring requested __asan_handle_no_return.*\nFalse positive.*\nFor details.*\n)",
    re.M,
)


def _own_words(said: str) -> str:
    return _OF_COROUTINES.sub("", said)


def qemu_io(disk: Options, *commands: str, cache: str = "writeback") -> Outcome:
    """Run qemu-io's commands one after the other on a disk opened with --image-opts.

    By default qemu-io is in its "writethrough" mode, in which every write is FUA.
    """
    each = [part for command in commands for part in ("-c", command)]
    return run([paths.QEMU_IO, "-t", cache, "--image-opts", dotted(disk), *each])


def dotted(options: Options, prefix: str = "") -> str:
    """Options as -drive and --image-opts take them."""
    parts = []
    items = options.items() if isinstance(options, dict) else enumerate(options)
    for name, value in items:
        if isinstance(value, dict | list):
            parts.append(dotted(value, f"{prefix}{name}."))
        else:
            text = {True: "on", False: "off"}.get(value, value) if type(value) is bool else value
            parts.append(f"{prefix}{name}={str(text).replace(',', ',,')}")
    return ",".join(filter(None, parts))


class Program:
    """A program with a monitor, storage daemon or machine; made by running()."""

    def __init__(self, child: asyncio.subprocess.Process, monitor: QMPClient, log: Path) -> None:
        self.child, self.monitor, self._log = child, monitor, log

    async def execute(self, command: str, **arguments: Any) -> Any:
        """A command of the monitor; "_" in the name of an argument stands for "-"."""
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        return await self.monitor.execute(command, named)

    async def refuses(self, command: str, **arguments: Any) -> str:
        """What the monitor says against a command; fails if it obeys."""
        try:
            await self.execute(command, **arguments)
        except ExecuteError as error:
            return str(error)
        raise AssertionError(f"{command} {arguments} was obeyed")

    async def statistics(self, node: str = "disk") -> dict[str, Any]:
        for entry in await self.execute("query-blockstats", query_nodes=True):
            if entry.get("node-name") == node:
                return entry["driver-specific"]
        raise AssertionError(f"query-blockstats does not know the node {node}")

    async def until(self, condition: Callable[[dict[str, Any]], bool], node: str = "disk") -> None:
        """Wait until the statistics of a node fulfil a condition."""
        while not condition(await self.statistics(node)):
            await asyncio.sleep(0.005)

    async def unexport(self) -> None:
        """End the export of the disk, and wait until it is gone."""
        await self.execute("block-export-del", id="disk", mode="hard")
        while await self.execute("query-block-exports"):
            await asyncio.sleep(0.005)

    async def quit(self) -> int:
        with contextlib.suppress(QMPError):
            await self.execute("quit")
        return await self.child.wait()

    async def terminate(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.signal(number)
        return await self.child.wait()

    def signal(self, number: signal.Signals) -> None:
        # Not asyncio's own: it may take the return code away from wait().
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child.pid, number)

    def said(self) -> str:
        return _own_words(self._log.read_text(errors="replace"))


async def promptly(work: Awaitable[Any]) -> Any:
    """Fails unless it is done far sooner than the emulated times would let it."""
    async with asyncio.timeout(PROMPT_SECONDS):
        return await work


@contextlib.asynccontextmanager
async def running(folder: Path, command: Sequence[str | Path]) -> AsyncIterator[Program]:
    """A program whose monitor we are; it is killed at the end of the block."""
    ours, theirs = socket.socketpair()
    log = folder / "log"
    with log.open("wb") as file, theirs:
        child = await asyncio.create_subprocess_exec(
            # It dies with us, even if we are killed.
            *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
            *command,
            "--chardev", f"socket,id=monitor,fd={theirs.fileno()}",
            "--mon", "chardev=monitor,mode=control",
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, pass_fds=[theirs.fileno()],
        )  # fmt: skip
    monitor = QMPClient("driver test")
    program = Program(child, monitor, log)
    try:
        try:
            await monitor.connect(ours)
        except (QMPError, OSError) as error:
            raise AssertionError(program.said()) from error
        yield program
    except BaseException:
        # It may have ended by itself, in an assertion for instance; pytest shows what we print.
        print(f"{command[0]} said:\n{program.said()}")
        raise
    finally:
        if child.returncode is None:
            await program.terminate(signal.SIGKILL)
        with contextlib.suppress(QMPError, OSError, EOFError):
            await monitor.disconnect()


def daemon_command(
    folder: Path, *arguments: str | Path, program: Path = paths.STORAGE_DAEMON
) -> list[str | Path]:
    nbd = f"addr.type=unix,addr.path={folder / 'nbd'},max-connections=0"
    return [program, *arguments, "--nbd-server", nbd]


def blockdevs(*nodes: Options) -> list[str]:
    return [part for node in nodes for part in ("--blockdev", json.dumps(node))]


@contextlib.asynccontextmanager
async def daemon(
    folder: Path,
    *nodes: Options,
    export: bool = True,
    iothread: bool = False,
    program: Path = paths.STORAGE_DAEMON,
) -> AsyncIterator[Program]:
    """A storage daemon with these nodes, the one called "disk" exported at folder/nbd."""
    command = daemon_command(
        folder,
        *(["--object", "iothread,id=thread"] if iothread else []),
        *blockdevs(*nodes),
        program=program,
    )
    if export:
        threads = ",iothread=thread" if iothread else ""
        command += ["--export", f"type=nbd,id=disk,node-name=disk,writable=on{threads}"]
    async with running(folder, command) as started:
        yield started


def disk(file: Options | str, **options: Any) -> Options:
    """A batchflush node called "disk"; "_" in the name of an option stands for "-"."""
    named = {name.replace("_", "-"): value for name, value in options.items()}
    return {"driver": "batchflush", "node-name": "disk", "file": file, **named}


def file(path: Path, **options: Any) -> Options:
    return {"driver": "file", "filename": os.fspath(path), **options}


def failing(image: Options, *rules: Options, name: str = "medium") -> Options:
    """A child that fails where a rule says so: {"iotype": …, "errno": …, "once": …}."""
    always = {"event": "none", "immediately": False}
    return {
        "driver": "blkdebug",
        "node-name": name,
        "image": image,
        "inject-error": [{**always, **rule} for rule in rules],
    }
