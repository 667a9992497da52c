# SPDX-License-Identifier: GPL-2.0-or-later
"""A medium that fails: the flush that needed it says so, and no data is given up.

The child is blkdebug, which fails the requests that a rule names: the next one ("once") or
every one.
"""

import asyncio
import errno
import os
from pathlib import Path

import pytest
from conftest import MIB, Image
from programs import Options, daemon, disk, failing, file, promptly

from batchflush.nbd import Connection, RequestError, connected

BLOCK = 4096
CACHE = 65536
VOLATILE = {"write_cache": "volatile", "cache_size": CACHE, "coalesce": "off"}
BATTERY = {**VOLATILE, "write_cache": "battery"}
ERRORS = [errno.EIO, errno.ENOSPC]
ONCE = {"once": True}


def rule(iotype: str, number: int = errno.EIO, **more: object) -> Options:
    return {"iotype": iotype, "errno": number, **more}


async def fails(request, number: int = errno.EIO) -> None:
    with pytest.raises(RequestError) as caught:
        await promptly(request)
    assert caught.value.errno == number


async def fill(connection: Connection, path: Path) -> bytes:
    """Write three blocks, none next to the other, which are in no hurry to the medium."""
    for index in (1, 3, 5):
        await connection.write(index * BLOCK, bytes([index]) * BLOCK)
    assert path.read_bytes() == bytes(MIB)
    expected = bytearray(MIB)
    for index in (1, 3, 5):
        expected[index * BLOCK : (index + 1) * BLOCK] = bytes([index]) * BLOCK
    return bytes(expected)


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("iotype", ["write", "flush"])
async def test_a_flush_that_fails_once(
    iotype: str, number: int, image: Image, tmp_path: Path
) -> None:
    """It reports the error, the data stays dirty, and the next flush brings it to the medium."""
    path = image()
    node = disk(failing(file(path), rule(iotype, number, **ONCE)), **VOLATILE)
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        expected = await fill(connection, path)
        await fails(connection.flush(), number)
        statistics = await program.statistics()
        assert statistics["dirty-bytes"] == 3 * BLOCK
        assert statistics["flushes-failed"] == 1
        assert statistics["destage-failures"] == 1
        assert await connection.read(0, MIB) == expected

        await connection.flush()
        assert path.read_bytes() == expected
        assert (await program.statistics())["dirty-bytes"] == 0
        assert await program.quit() == 0
        assert "lost" not in program.said()


@pytest.mark.parametrize("coalesce", ["off", "on", "auto"])
@pytest.mark.parametrize("iotype", ["write", "flush"])
async def test_a_flush_that_always_fails(
    iotype: str, coalesce: str, image: Image, tmp_path: Path
) -> None:
    """Every flush reports it; the end of the node says how much is lost."""
    path = image()
    node = disk(failing(file(path), rule(iotype)), **{**VOLATILE, "coalesce": coalesce})
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        await fill(connection, path)
        for _ in range(3):
            await fails(connection.flush())
        assert (await program.statistics())["flushes-failed"] == 3
        assert (await program.statistics())["dirty-bytes"] == 3 * BLOCK
        assert await promptly(program.quit()) == 0
        assert (
            f"batchflush: node 'disk': {3 * BLOCK} bytes in the write cache "
            "could not be written to its file and are lost"
        ) in program.said()


async def test_removing_a_node_whose_data_cannot_be_destaged(image: Image, tmp_path: Path) -> None:
    path = image()
    node = disk(failing(file(path), rule("write")), **BATTERY)
    async with daemon(tmp_path, node) as program:
        async with connected(tmp_path / "nbd") as connection:
            await fill(connection, path)
            await connection.flush()
        await program.unexport()
        await promptly(program.execute("blockdev-del", node_name="disk"))
        assert f"{3 * BLOCK} bytes in the write cache" in program.said()
        assert await program.quit() == 0


async def test_a_battery_hides_errors_of_the_medium_from_flushes(
    image: Image, tmp_path: Path
) -> None:
    path = image()
    node = disk(failing(file(path), rule("write", **ONCE)), **BATTERY)
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        expected = await fill(connection, path)
        await connection.flush()
        assert path.read_bytes() == bytes(MIB)
        # QEMU flushes when the node is closed, and again if that fails.
        await program.unexport()
        await promptly(program.execute("blockdev-del", node_name="disk"))
        if "lost" not in program.said():
            assert path.read_bytes() == expected


async def test_a_fua_write_that_fails(image: Image, tmp_path: Path) -> None:
    """It reports the error, and what was cached for its range is still there."""
    path = image()
    node = disk(failing(file(path), rule("write", **ONCE)), **VOLATILE)
    async with daemon(tmp_path, node), connected(tmp_path / "nbd") as connection:
        await connection.write(0, b"a" * BLOCK)
        await fails(connection.write(0, b"b" * BLOCK, fua=True))
        assert await connection.read(0, BLOCK) in (b"a" * BLOCK, b"b" * BLOCK)
        await connection.write(0, b"c" * BLOCK, fua=True)
        assert path.read_bytes()[:BLOCK] == b"c" * BLOCK
        await connection.flush()
        assert path.read_bytes()[:BLOCK] == b"c" * BLOCK


@pytest.mark.parametrize("iotype", ["write-zeroes", "discard"])
async def test_zeroes_and_discards_that_fail(iotype: str, image: Image, tmp_path: Path) -> None:
    path = image()
    node = disk(failing(file(path), rule(iotype)), **VOLATILE)
    async with daemon(tmp_path, node), connected(tmp_path / "nbd") as connection:
        await connection.write(0, b"a" * BLOCK)
        change = connection.zero if iotype == "write-zeroes" else connection.discard
        if iotype == "write-zeroes":
            await fails(change(0, BLOCK))
        else:
            # The block layer may ignore that a discard failed.
            await asyncio.gather(change(0, BLOCK), return_exceptions=True)
        assert await connection.read(0, BLOCK) == b"a" * BLOCK
        await connection.flush()
        assert path.read_bytes()[:BLOCK] == b"a" * BLOCK


@pytest.mark.parametrize("cache", ["none", "volatile", "battery"])
async def test_a_read_that_fails(cache: str, image: Image, tmp_path: Path) -> None:
    node = disk(
        failing(file(image(pattern=7)), rule("read", **ONCE)), write_cache=cache, cache_size=CACHE
    )
    async with daemon(tmp_path, node), connected(tmp_path / "nbd") as connection:
        await fails(connection.read(0, BLOCK))
        assert await connection.read(0, BLOCK) == bytes([7]) * BLOCK


@pytest.mark.parametrize("options", [VOLATILE, BATTERY], ids=["volatile", "battery"])
async def test_background_destage_that_fails_once(
    options: Options, image: Image, tmp_path: Path
) -> None:
    path = image()
    marks = {"destage_high_percent": 50, "destage_low_percent": 10}
    node = disk(failing(file(path), rule("write", **ONCE)), **options, **marks)
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        expected = bytearray(MIB)
        for index in range(9):
            await connection.write(2 * index * BLOCK, bytes([index + 1]) * BLOCK)
            expected[2 * index * BLOCK : (2 * index + 1) * BLOCK] = bytes([index + 1]) * BLOCK
        await program.until(lambda statistics: statistics["destage-failures"] == 1)
        assert await connection.read(0, MIB) == bytes(expected)
        # The next write tries again, without anybody noticing.
        await connection.write(0, b"\1")
        await program.until(lambda statistics: statistics["dirty-bytes"] <= CACHE // 10 + BLOCK)
        await connection.flush()
        assert await connection.read(0, MIB) == bytes(expected)
        assert await program.quit() == 0
        assert path.read_bytes() == bytes(expected)


@pytest.mark.parametrize("options", [VOLATILE, BATTERY], ids=["volatile", "battery"])
@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
async def test_a_writer_that_waits_for_room(
    options: Options, number: int, image: Image, tmp_path: Path
) -> None:
    """It fails with the error of the medium instead of waiting for ever."""
    node = disk(failing(file(image()), rule("write", number)), **options)
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        for offset in range(0, CACHE, BLOCK):
            await connection.write(offset, b"x" * BLOCK)
        writers = [fails(connection.write(CACHE + i * BLOCK, b"y"), number) for i in range(8)]
        await asyncio.gather(*writers)
        assert (await program.statistics())["dirty-bytes"] == CACHE
        # What is cached can still be read and written.
        await connection.write(0, b"z" * BLOCK)
        assert await connection.read(0, 2 * BLOCK) == b"z" * BLOCK + b"x" * BLOCK
        await promptly(program.quit())


async def test_every_member_of_a_batch_gets_its_error(image: Image, tmp_path: Path) -> None:
    """A batch fails as one, the next one tries again."""
    path = image()
    slow = {"coalesce": "on", "flush_latency_ns": 300_000_000, "coalesce_max_wait_ns": 200_000_000}
    node = disk(failing(file(path), rule("write", **ONCE)), **{**VOLATILE, **slow})
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        expected = await fill(connection, path)
        batch = [asyncio.create_task(fails(connection.flush())) for _ in range(6)]
        await asyncio.gather(*batch)
        statistics = await program.statistics()
        assert statistics["flushes-issued"] == statistics["flushes-failed"] == 1
        assert statistics["flushes-joined"] == 5
        assert statistics["dirty-bytes"] == 3 * BLOCK
        await asyncio.gather(*(connection.flush() for _ in range(6)))
        assert path.read_bytes() == expected


async def test_data_that_a_failed_child_flush_left_behind(image: Image, tmp_path: Path) -> None:
    """A flush that failed in the child is done again even if nothing was written since."""
    node = disk(failing(file(image()), rule("flush", **ONCE)), **VOLATILE)
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        await connection.write(0, b"x", fua=False)
        await fails(connection.flush())
        await connection.flush()
        statistics = await program.statistics()
        assert statistics["flushes-issued"] == 2
        assert statistics["destaged-bytes"] == 512


@pytest.mark.parametrize("cache", ["none", "volatile", "battery"])
async def test_an_image_that_shrank(cache: str, image: Image, tmp_path: Path) -> None:
    """Somebody else cuts the file; what was cached or is written later is not lost."""
    path = image(pattern=7)
    node = disk(file(path), write_cache=cache, cache_size=CACHE)
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        await connection.write(MIB - BLOCK, b"a" * BLOCK)
        os.truncate(path, CACHE)
        assert await connection.read(0, BLOCK) == bytes([7]) * BLOCK
        assert await connection.read(MIB // 2, BLOCK) == bytes(BLOCK)
        await connection.flush()
        await connection.write(MIB // 2, b"b" * BLOCK)
        await connection.flush()
        assert await connection.read(MIB // 2, BLOCK) == b"b" * BLOCK
        assert await program.quit() == 0
    data = path.read_bytes()
    assert data[MIB // 2 :][:BLOCK] == b"b" * BLOCK
    if cache != "none":
        assert data[MIB - BLOCK :] == b"a" * BLOCK


async def test_a_flush_covers_what_background_destage_failed_to_move(
    image: Image, tmp_path: Path
) -> None:
    """The sweep that failed still serves its time; nothing it claimed may be taken for durable."""
    path = image()
    options = {"destage_high_percent": 10, "destage_latency_ns": 400_000_000}
    node = disk(failing(file(path), rule("write", **ONCE)), **{**VOLATILE, **options})
    async with daemon(tmp_path, node) as program, connected(tmp_path / "nbd") as connection:
        expected = await fill(connection, path)
        await program.until(lambda statistics: statistics["destage-failures"] == 1)
        await connection.flush()
        assert path.read_bytes() == expected
        assert (await program.statistics())["dirty-bytes"] == 0


@pytest.mark.parametrize("cache", ["volatile", "battery"])
async def test_an_inactive_node_has_given_everything_away(
    cache: str, image: Image, tmp_path: Path
) -> None:
    """It may be handed to another process, battery or not, and touches its child no more."""
    path = image()
    options = {**VOLATILE, "write_cache": cache}
    node = disk(file(path), **options)
    async with daemon(tmp_path, node) as program:
        async with connected(tmp_path / "nbd") as connection:
            expected = await fill(connection, path)
        await program.unexport()
        await promptly(program.execute("blockdev-set-active", node_name="disk", active=False))
        assert path.read_bytes() == expected
        assert (await program.statistics())["dirty-bytes"] == 0
        assert await promptly(program.quit()) == 0
