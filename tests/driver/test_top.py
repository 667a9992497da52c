# SPDX-License-Identifier: GPL-2.0-or-later
"""`batchflush top` at a real QEMU, and at what is none."""

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from pathlib import Path

from conftest import MIB
from programs import Options, Program, blockdevs, daemon_command, disk, running

from batchflush import paths
from batchflush.nbd import connected

BLOCK = bytes(4096)
MEDIUM: Options = {"driver": "null-co", "size": MIB}


@contextlib.asynccontextmanager
async def watched(folder: Path, node: Options) -> AsyncIterator[Program]:
    """A storage daemon with that node, exported at folder/nbd, whose monitor is folder/qmp."""
    command = [
        *daemon_command(folder, *blockdevs(node)),
        "--export", "type=nbd,id=disk,node-name=disk,writable=on",
        "--chardev", f"socket,id=user,path={folder / 'qmp'},server=on,wait=off",
        "--monitor", "chardev=user,mode=control",
    ]  # fmt: skip
    async with running(folder, command) as program:
        yield program


async def start(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    command = [paths.VENV_PYTHON, "-m", "batchflush", "top", folder / "qmp", *arguments]
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)


async def output(folder: Path, *arguments: str, code: int = 0) -> str:
    child = await start(folder, *arguments)
    said, _ = await child.communicate()
    assert child.returncode == code, said.decode()
    return said.decode()


async def told(folder: Path, *arguments: str) -> dict[str, str]:
    head, line = (await output(folder, "--once", *arguments)).splitlines()
    return dict(zip(head.split("\t"), line.split("\t"), strict=True))


async def work(folder: Path) -> None:
    """Read, write and flush, over and over."""
    async with connected(folder / "nbd") as connection:
        while True:
            await connection.read(0, 4096)
            await connection.write(0, BLOCK)
            await connection.flush()


async def test_rates_of_a_disk_at_work(tmp_path: Path) -> None:
    node = disk(MEDIUM, write_cache="volatile", flush_latency_ns=1_000_000, coalesce="off")
    async with watched(tmp_path, node):
        working = asyncio.create_task(work(tmp_path))
        found = await told(tmp_path, "--interval", "0.5")
        working.cancel()
    for name in ("reads/s", "writes/s", "flushes/s", "medium-flushes/s", "destaged-bytes/s"):
        # A turn takes at least the millisecond of its flush.
        assert 0 < float(found[name]) <= 4096 * 1000, name
    assert float(found["flushes/s"]) <= 1000
    assert float(found["flushes-per-batch"]) == 1
    assert int(found["flush-average-ns"]) >= 1_000_000
    assert int(found["lateness-p50-ns"]) <= int(found["lateness-p99-ns"])


async def test_state_of_a_disk_that_rests(tmp_path: Path) -> None:
    node = disk(MEDIUM, profile="array-battery", cache_size=MIB)
    async with watched(tmp_path, node) as program:
        async with connected(tmp_path / "nbd") as connection:
            for i in range(3):
                await connection.write(i * len(BLOCK), BLOCK)
        found = await told(tmp_path, "--interval", "0.1")
        assert found["class"] == "array-battery"
        assert found["write-cache"] == "battery"
        assert found["cache-size"] == str(MIB)
        assert found["dirty-bytes"] == str(3 * len(BLOCK))
        assert (found["powered"], found["battery"]) == ("yes", "charged")
        assert found["writes/s"] == "0.00"

        await program.execute("batchflush-battery", state="failed")
        await program.execute("batchflush-power-cut", guest="run")
        found = await told(tmp_path, "--interval", "0.1")
        assert (found["powered"], found["battery"]) == ("no", "failed")


async def until_seen(child: asyncio.subprocess.Process, text: str) -> None:
    assert child.stdout is not None
    seen = ""
    while text not in seen:
        line = await child.stdout.readline()
        assert line, seen
        seen += line.decode()


async def test_ctrl_c_ends_the_view(tmp_path: Path) -> None:
    async with watched(tmp_path, disk(MEDIUM)):
        child = await start(tmp_path, "--interval", "3600")
        await until_seen(child, "may be late")
        child.send_signal(signal.SIGINT)
        said, _ = await child.communicate()
        assert child.returncode == 0
        assert b"Traceback" not in said


async def test_the_view_ends_with_qemu(tmp_path: Path) -> None:
    async with watched(tmp_path, disk(MEDIUM)) as program:
        child = await start(tmp_path, "--interval", "0.1")
        await until_seen(child, "may be late")
        assert await program.quit() == 0
        said, _ = await child.communicate()
        assert child.returncode == 0
        assert f"QEMU behind {tmp_path / 'qmp'} has ended." in said.decode()
        assert b"Traceback" not in said


async def test_nobody_listens(tmp_path: Path) -> None:
    said = await output(tmp_path, code=1)
    assert f"no QMP monitor can be reached at {tmp_path / 'qmp'}: No such file" in said


async def test_who_listens_says_nothing(tmp_path: Path) -> None:
    """So does QEMU to its second client."""
    async with watched(tmp_path, disk(MEDIUM)):
        _, first = await asyncio.open_unix_connection(tmp_path / "qmp")
        said = await output(tmp_path, code=1)
        first.close()
    assert f"{tmp_path / 'qmp'} does not answer within 5 s" in said
    assert "is another one attached?" in said


async def test_who_listens_is_no_qemu(tmp_path: Path) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        await writer.drain()

    async with await asyncio.start_unix_server(greet, tmp_path / "qmp"):
        said = await output(tmp_path, code=1)
    assert "no QMP monitor can be reached" in said
    assert "Traceback" not in said


async def test_a_qemu_without_such_a_disk(tmp_path: Path) -> None:
    async with watched(tmp_path, {**MEDIUM, "node-name": "disk"}):
        said = await output(tmp_path, code=1)
    assert f"QEMU behind {tmp_path / 'qmp'} has no batchflush node" in said
