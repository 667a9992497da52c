# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that runs: QEMU, its monitor and the two channels between host and guest.

The *report channel* is a virtio serial port in which either side says one JSON object per
line. The guest's /init (init.sh) and the job that it runs say

    {"type": "begin", …}   something is about to be measured; the guest waits
    {"type": "end", …}     it was measured; the guest waits
    {"type": "exit", "code": N}   the job is over; the guest waits until it is ended

and whatever else a job may define, for which it does not wait. The host answers "begin" and
"end" with {"type": "go"}; meanwhile it reads the disk's statistics through the monitor.
Virtual time runs on while a guest waits, and how far depends on the host: what has to
repeat exactly must not wait.

The *output channel* carries what the job prints. The kernel's console goes to a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qemu.qmp import EventListener, QMPClient
from qemu.qmp.error import QMPError

from batchflush import paths, processes
from batchflush.errors import BatchflushError
from batchflush.guest import initramfs, lateness
from batchflush.guest.command_line import Boot, boot_arguments
from batchflush.guest.packages import Kernel

# Between SIGTERM, at which QEMU ends cleanly, and SIGKILL.
GRACE_SECONDS = 3
CONNECT_SECONDS = 10
TAIL_LINES = 15

Message = dict[str, Any]
OnOutput = Callable[[bytes], None]


class Machine:
    """A running guest; made by running()."""

    def __init__(self, child: subprocess.Popen[bytes], folder: Path) -> None:
        self.child = child
        self.folder = folder
        self.monitor = QMPClient("batchflush")
        self._late = EventListener(lateness.EVENT)
        self.monitor.register_listener(self._late)
        self._report: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._output: asyncio.Task[None] | None = None
        # Nothing is written to it, but a stream whose writer is forgotten is closed.
        self._output_writer: asyncio.StreamWriter | None = None

    async def connect(
        self, monitor: socket.socket, report: socket.socket, output: socket.socket, sink: OnOutput
    ) -> None:
        self._report = await asyncio.open_connection(sock=report)
        reader, self._output_writer = await asyncio.open_connection(sock=output)
        self._output = asyncio.create_task(_copy(reader, sink))
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.monitor.connect(monitor)
        except (QMPError, OSError, TimeoutError) as error:
            raise self.failure("QEMU did not start") from error

    async def messages(self, resets: bool = False) -> AsyncIterator[Message]:
        """What the guest says, until its job has ended; the last message is its "exit".

        When the caller asks for the next message, the guest gets its answer to this one.
        Raises BatchflushError in place of a good end if its disk was later than it may be.
        resets: the guest may be reset, and leave half a line.
        """
        assert self._report is not None
        reader, writer = self._report
        while True:
            line = await reader.readline()
            if not line:
                raise self.failure("the guest ended before its job did")
            try:
                message = json.loads(line)
            except ValueError as error:
                if resets:
                    continue
                raise self.failure(f"the guest said {line!r}, which is not JSON") from error
            if message["type"] == "exit" and message["code"] == 0:
                await self._check_lateness()
            yield message
            if message["type"] == "exit":
                return
            if message["type"] in ("begin", "end"):
                writer.write(b'{"type": "go"}\n')
                await writer.drain()

    async def say(self, message: Message) -> None:
        """Answer what messages() does not answer."""
        assert self._report is not None
        self._report[1].write(json.dumps(message).encode() + b"\n")
        await self._report[1].drain()

    async def statistics(self) -> Message:
        """What query-blockstats tells of the batchflush node."""
        try:
            return (await self._all_statistics())["disk"]
        except KeyError:
            raise BatchflushError("query-blockstats does not tell of the node 'disk'") from None

    async def _all_statistics(self) -> dict[str, Message]:
        told = await self.monitor.execute("query-blockstats", {"query-nodes": True})
        return {node["node-name"]: node.get("driver-specific", {}) for node in told}

    async def _check_lateness(self) -> None:
        nodes = await self.monitor.execute("query-batchflush")
        statistics = await self._all_statistics()
        # Whatever was emitted before those answers is in the queue.
        events = [event["data"] for event in self._late.history]
        lateness.check(events, nodes, statistics)

    def failure(self, what: str) -> BatchflushError:
        """An error with the last lines of QEMU's messages or else of the console."""
        for log in (self.folder / "qemu.log", self.folder / "console.log"):
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            if lines:
                tail = "".join(f"\n    {line.strip()}" for line in lines[-TAIL_LINES:])
                return BatchflushError(f"{what}:{tail}", f"all of it is in {paths.shown(log)}")
        return BatchflushError(f"{what}; neither QEMU nor the kernel said why")

    def end(self) -> None:
        """End QEMU, whatever state it is in.

        On purpose not a coroutine: Ctrl-C cancels those, and more than once.
        """
        processes.stop(self.child, GRACE_SECONDS)

    async def close(self) -> None:
        """Read what an ended QEMU still printed, and close the channels."""
        if self._output is not None:
            await asyncio.wait([self._output])
        for writer in (self._report and self._report[1], self._output_writer):
            if writer is not None:
                writer.close()
        # After Ctrl-C the client's own tasks have been cancelled, and it says so.
        with contextlib.suppress(QMPError, OSError, EOFError, asyncio.CancelledError):
            await self.monitor.disconnect()


@contextlib.asynccontextmanager
async def running(
    boot: Boot,
    kernel: Kernel,
    job: str,
    on_output: OnOutput,
    *,
    limit_seconds: float,
    keep_logs: bool = True,
) -> AsyncIterator[Machine]:
    """A guest that boots and runs the job, a shell script; it ends with the block.

    limit_seconds: of the host's time, for all of it.
    keep_logs: after a failure, because they tell why.
    """
    runs = paths.GUEST / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=runs, prefix=f"{boot.disk.profile.name}-"))
    order = kernel.load_order(boot.disk.device, boot.modules)
    archive = folder / "initramfs.cpio"
    of_job = initramfs.job_archive(job, order, kernel.not_in_base(order))
    archive.write_bytes(kernel.base.read_bytes() + of_job)

    machine = None
    failed = False
    try:
        async with asyncio.timeout(limit_seconds):
            machine = await _start(replace(boot, initramfs=archive), folder, on_output)
            yield machine
    except BatchflushError:
        failed = True
        raise
    except TimeoutError as error:
        failed = True
        what = f"the guest was not done within {limit_seconds:.0f} s"
        raise machine.failure(what) if machine else BatchflushError(what) from error
    finally:
        if machine is not None:
            machine.end()
        archive.unlink()
        if not failed or not keep_logs:
            shutil.rmtree(folder)
        if machine is not None:
            await machine.close()


async def _start(boot: Boot, folder: Path, on_output: OnOutput) -> Machine:
    channels = [socket.socketpair() for _ in range(3)]
    ours, theirs = [pair[0] for pair in channels], [pair[1] for pair in channels]
    monitor, report, output = (end.fileno() for end in theirs)
    ioeventfd = [] if boot.ioeventfd else ["ioeventfd=off"]
    command: list[str] = [
        # QEMU dies with us, even if we are killed.
        *(["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []),
        str(boot.qemu or paths.QEMU_SYSTEM),
        *boot_arguments(boot),
        "-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control",
        "-chardev", f"file,id=console,path={_escaped(folder / 'console.log')}",
        "-serial", "chardev:console",
        "-device", ",".join(["virtio-serial-pci", *ioeventfd]),
        "-chardev", f"socket,id=report,fd={report}",
        "-device", "virtserialport,chardev=report,name=org.batchflush.report",
        "-chardev", f"socket,id=output,fd={output}",
        "-device", "virtserialport,chardev=output,name=org.batchflush.output",
    ]  # fmt: skip
    with (folder / "qemu.log").open("wb") as log:
        child = processes.start(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=[end.fileno() for end in theirs],
        )
    for end in theirs:
        end.close()
    machine = Machine(child, folder)
    try:
        await machine.connect(*ours, on_output)
    except BaseException:
        machine.end()
        await machine.close()
        raise
    return machine


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")


async def _copy(reader: asyncio.StreamReader, sink: OnOutput) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            sink(data)
