# SPDX-License-Identifier: GPL-2.0-or-later
"""A node behind each NBD server of QEMU's, to clients that are not QEMU's: nbdcopy and fio."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import programs
import pytest

from batchflush import paths

MIB = 1 << 20
SIZE = 32 * MIB
FLUSH_NS = 4_000_000
FSYNCS = 50
LIMIT_SECONDS = 60


async def client(*command: str | Path) -> str:
    """The output of a program that has to succeed."""
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, output.decode()
    return output.decode()


@contextlib.asynccontextmanager
async def storage_daemon(folder: Path, node: programs.Options) -> AsyncIterator[str]:
    async with programs.daemon(folder, node):
        yield f"nbd+unix:///disk?socket={folder / 'nbd'}"


@contextlib.asynccontextmanager
async def qemu_nbd(folder: Path, node: programs.Options) -> AsyncIterator[str]:
    socket = folder / "nbd"
    child = await asyncio.create_subprocess_exec(
        paths.QEMU_NBD, f"--socket={socket}", "--shared=8", "--persistent", "--cache=writeback",
        "--image-opts", programs.dotted({k: v for k, v in node.items() if k != "node-name"}),
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not socket.exists():
                assert child.returncode is None, "qemu-nbd ended"
                await asyncio.sleep(0.01)
        yield f"nbd+unix:///?socket={socket}"
    finally:
        if child.returncode is None:
            child.terminate()
        # What the cache holds goes to the file now.
        assert await child.wait() == 0


SERVERS = {"storage-daemon": storage_daemon, "qemu-nbd": qemu_nbd}


def node(image: Path, **options: Any) -> programs.Options:
    with image.open("wb") as stream:
        stream.truncate(SIZE)
    # A guest's disk of 10 MB/s and more; small, so that destage has work meanwhile.
    return programs.disk(
        programs.file(image), write_cache="volatile", cache_size=4 * MIB, **options
    )


@pytest.mark.parametrize("server", SERVERS)
def test_nbdcopy_reads_what_it_wrote(tmp_path: Path, server: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source, copy = tmp_path / "source", tmp_path / "copy"
    # Not all of it: nbdcopy turns what is zero into requests of their own.
    half = random.Random(seed).randbytes(SIZE // 2)
    source.write_bytes(half + bytes(SIZE - len(half)))

    async def there_and_back() -> None:
        async with SERVERS[server](tmp_path, node(tmp_path / "image")) as uri:
            await client("nbdcopy", "--flush", source, uri)
            await client("nbdcopy", uri, copy)

    asyncio.run(there_and_back())
    assert copy.read_bytes() == source.read_bytes()
    assert (tmp_path / "image").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("server", SERVERS)
def test_fio_waits_for_its_flushes_and_finds_its_data(tmp_path: Path, server: str) -> None:
    async def write_and_verify() -> dict[str, Any]:
        disk = node(tmp_path / "image", flush_latency_ns=FLUSH_NS)
        async with SERVERS[server](tmp_path, disk) as uri:
            output = await client(
                "fio", "--name=fsync", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite",
                "--bs=4k", f"--size={SIZE}", f"--number_ios={FSYNCS}", "--fsync=1",
                "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0",
                # The processor's own clock has a rate that fio has to guess.
                "--clocksource=clock_gettime", "--output-format=json",
            )  # fmt: skip
        return json.loads(output[output.index("{") :])["jobs"][0]

    job = asyncio.run(write_and_verify())
    assert job["error"] == 0
    assert job["write"]["total_ios"] == FSYNCS
    assert job["read"]["total_ios"] == FSYNCS
    assert job["sync"]["total_ios"] >= FSYNCS - 1
    # In all: of a single flush fio's clock may start when it is under way already.
    assert job["write"]["runtime"] >= (FSYNCS - 1) * FLUSH_NS / 1e6
