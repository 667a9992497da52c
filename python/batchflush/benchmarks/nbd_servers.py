# SPDX-License-Identifier: GPL-2.0-or-later
"""NBD servers to measure: QEMU's storage daemon with any nodes, and nbdkit's delay filter."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qemu.qmp.legacy import QEMUMonitorProtocol

from batchflush import paths, processes
from batchflush.errors import BatchflushError

START_SECONDS = 10
SIZE = 1 << 30

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Server:
    """socket: where it listens. monitor: the storage daemon's."""

    socket: Path
    monitor: Path

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Of each batchflush node, by name."""
        client = QEMUMonitorProtocol(str(self.monitor))
        client.connect()
        try:
            told = client.cmd("query-blockstats", **{"query-nodes": True})
        finally:
            client.close()
        return {node["node-name"]: node.get("driver-specific", {}) for node in told}


@contextlib.contextmanager
def storage_daemon(
    nodes: Mapping[str, Options], *, iothread: bool = True, prefix: Sequence[str] = ()
) -> Iterator[Server]:
    """Each node, by name, is exported under its name."""
    with _folder() as server:
        arguments = ["--object", "iothread,id=thread"] if iothread else []
        for name, options in nodes.items():
            export = f"type=nbd,id={name},node-name={name},writable=on"
            arguments += [
                "--blockdev", json.dumps({**options, "node-name": name}),
                "--export", export + (",iothread=thread" if iothread else ""),
            ]  # fmt: skip
        command = [
            *prefix, str(paths.STORAGE_DAEMON),
            "--nbd-server", f"addr.type=unix,addr.path={server.socket},max-connections=0",
            *arguments,
            # Last: where there is a monitor, all of the above is done.
            "--chardev", f"socket,id=monitor,path={server.monitor},server=on,wait=off",
            "--monitor", "chardev=monitor",
        ]  # fmt: skip
        with _running(command, server, server.monitor):
            yield server


@contextlib.contextmanager
def nbdkit(
    export: str, delay_ms: int, threads: int, prefix: Sequence[str] = ()
) -> Iterator[Server]:
    """nbdkit's null plugin, behind its delay filter if there is a delay."""
    with _folder() as server:
        command = [
            *prefix, "nbdkit", "--foreground", "--unix", str(server.socket), "--exportname", export,
            "--threads", str(threads), *(["--filter=delay"] if delay_ms else []),
            "null", f"size={SIZE}", *([f"wdelay={delay_ms}ms"] if delay_ms else []),
        ]  # fmt: skip
        with _running(command, server, server.socket):
            yield server


@contextlib.contextmanager
def _folder() -> Iterator[Server]:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory(prefix="batchflush-") as name:
        yield Server(Path(name) / "nbd", Path(name) / "qmp")


@contextlib.contextmanager
def _running(command: Sequence[str], server: Server, ready: Path) -> Iterator[None]:
    log = server.socket.with_name("log")
    with (
        log.open("wb") as file,
        processes.running(command, stdout=file, stderr=subprocess.STDOUT) as child,
    ):
        deadline = time.monotonic() + START_SECONDS
        while not ready.exists():
            if child.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace").strip()
                raise BatchflushError(f"the NBD server did not start: {said}")
            time.sleep(0.01)
        yield
