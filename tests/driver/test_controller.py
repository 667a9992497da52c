# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks behind one controller, of which one medium fails: nobody hangs, no data is lost."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from conftest import MIB, Image
from programs import Options, Program, blockdevs, daemon_command, disk, failing, file, promptly
from programs import running as started

from batchflush.nbd import Connection, RequestError, connected

BLOCK = 4096
CACHE = 65536
SHARED = {"controller": "array", "write_cache": "volatile", "cache_size": CACHE}


@contextlib.asynccontextmanager
async def array(
    folder: Path, media: list[Options], **options: object
) -> AsyncIterator[tuple[Program, list[Connection]]]:
    """A storage daemon with disk0, disk1, … behind one controller, and a connection to each."""
    command = daemon_command(folder, "--object", "batchflush-controller,id=array")
    for index, medium in enumerate(media):
        name = f"disk{index}"
        node = disk(medium, **{**SHARED, **options}) | {"node-name": name}
        command += blockdevs(node)
        command += ["--export", f"type=nbd,id={name},node-name={name},writable=on"]
    async with started(folder, command) as program, contextlib.AsyncExitStack() as stack:
        yield (
            program,
            [
                await stack.enter_async_context(connected(folder / "nbd", f"disk{index}"))
                for index in range(len(media))
            ],
        )


BROKEN = {"iotype": "write", "errno": errno.EIO}


async def test_a_writer_does_not_wait_for_ever_for_another_disk(
    image: Image, tmp_path: Path
) -> None:
    """The cache is full of data that another disk's medium does not take."""
    media = [failing(file(image()), BROKEN), file(image(name="good"))]
    async with array(tmp_path, media) as (program, (broken, good)):
        for offset in range(0, CACHE, BLOCK):
            await broken.write(offset, b"x" * BLOCK)
        with pytest.raises(RequestError) as caught:
            await promptly(good.write(0, b"y" * BLOCK))
        assert caught.value.errno == errno.EIO
        # And nobody keeps the program from anything else.
        assert await promptly(broken.read(0, BLOCK)) == b"x" * BLOCK
        await promptly(program.quit())


@pytest.mark.parametrize("coalesce", ["off", "on", "auto"])
async def test_a_disk_that_fails_loses_no_data_of_another(
    coalesce: str, image: Image, tmp_path: Path
) -> None:
    """A flush reports the error of the disk it was for, or of its batch; it can be repeated."""
    good_path = image(name="good")
    media = [failing(file(image()), BROKEN), file(good_path)]
    async with array(tmp_path, media, coalesce=coalesce) as (program, (broken, good)):
        await broken.write(0, b"x" * BLOCK)
        await good.write(0, b"y" * BLOCK)
        results = await promptly(
            asyncio.gather(broken.flush(), good.flush(), return_exceptions=True)
        )
        assert isinstance(results[0], RequestError)
        if results[1] is not None:
            await promptly(asyncio.gather(good.flush(), return_exceptions=True))
        assert good_path.read_bytes()[:BLOCK] == b"y" * BLOCK
        assert (await program.statistics("disk0"))["dirty-bytes"] == BLOCK
        await promptly(program.quit())


async def test_writers_of_all_disks_share_the_room(image: Image, tmp_path: Path) -> None:
    """Eight disks fill one small cache together, each with its own data."""
    paths = [image(name=f"image{index}", size=MIB) for index in range(8)]
    options = {"destage_high_percent": 60, "destage_low_percent": 20, "flush_latency_ns": 10**6}
    async with array(tmp_path, [file(path) for path in paths], **options) as (program, disks):

        async def loop(connection: Connection, index: int) -> None:
            for offset in range(0, 64 * BLOCK, BLOCK):
                await connection.write(offset, bytes([index + 1]) * BLOCK)
                if offset % (8 * BLOCK) == 0:
                    await connection.flush()
            await connection.flush()

        await asyncio.gather(*(loop(c, i) for i, c in enumerate(disks)))
        for index, path in enumerate(paths):
            assert path.read_bytes()[: 64 * BLOCK] == bytes([index + 1]) * 64 * BLOCK
        statistics = [await program.statistics(f"disk{i}") for i in range(8)]
        assert sum(each["flush-arrivals"] for each in statistics) == 8 * 9
        assert await promptly(program.quit()) == 0
