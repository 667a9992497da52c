# SPDX-License-Identifier: GPL-2.0-or-later
"""The dm-log-writes stream, read back as the kernel's documentation describes it."""

import random
import struct
from pathlib import Path

import pytest
from crash_logs import FUA, Maker, at, image_of, random_log

from batchflush.crash.export import dm_log_writes
from batchflush.crash.log import Log
from batchflush.errors import UsageError

FLUSH_FLAG, FUA_FLAG, DISCARD_FLAG, MARK_FLAG = 1, 2, 4, 8


def entries(path: Path) -> list[tuple[int, int, int, bytes]]:
    """Sector, count, flags and data of each entry; of a mark, its text."""
    raw = path.read_bytes()
    magic, version, count, size = struct.unpack_from("<QQQI", raw)
    assert (magic, version, size) == (0x6A736677736872, 1, 512)
    found, place = [], size
    for _ in range(count):
        sector, sectors, flags, length = struct.unpack_from("<QQQQ", raw, place)
        data = raw[place + 32 : place + 32 + length]
        # replay-log takes an entry with anything behind its head for damaged.
        assert flags == MARK_FLAG or not any(raw[place + 32 : place + size])
        place += size
        if not flags & DISCARD_FLAG:
            data = data or raw[place : place + sectors * size]
            place += sectors * size
        found.append((sector, sectors, flags, data))
    assert place == len(raw)
    return found


def exported(maker: Maker, tmp_path: Path) -> list[tuple[int, int, int, bytes]]:
    path = tmp_path / "dm"
    assert dm_log_writes(Log(maker.save(tmp_path / "log")), path) == len(entries(path))
    return entries(path)


def test_the_documentations_own_example(tmp_path: Path) -> None:
    """W1,W2,W3,C3,C2,Wflush,C1,Cflush is logged as W3,W2,flush,W1."""
    maker = Maker()
    w1, w2, w3 = (maker.write(i, bytes([i]) * 512) for i in (1, 2, 3))
    maker.done(w3)
    maker.done(w2)
    flush = maker.flush()
    maker.done(w1)
    maker.done(flush)
    assert [(e[0], e[2]) for e in exported(maker, tmp_path)] == [
        (3, 0), (2, 0), (0, FLUSH_FLAG), (1, 0),
    ]  # fmt: skip


def test_fua_is_logged_when_it_completes(tmp_path: Path) -> None:
    """Wa,Wb,Wc,Cc,Ca,FLUSH,FUAd,Cb,CFLUSH,CFUAd is logged as c,a,flush,fuad and then b."""
    maker = Maker()
    a, b, c = (maker.write(i, bytes([i]) * 512) for i in (1, 2, 3))
    maker.done(c)
    maker.done(a)
    flush = maker.flush()
    d = maker.write(4, b"d" * 512, FUA)
    maker.done(b)
    maker.done(flush)
    maker.done(d)
    assert [(e[0], e[2]) for e in exported(maker, tmp_path)] == [
        (3, 0), (1, 0), (0, FLUSH_FLAG), (4, FUA_FLAG), (2, 0),
    ]  # fmt: skip


def test_marks_discards_and_zeroes(tmp_path: Path) -> None:
    maker = Maker(sectors=64)
    maker.done(maker.zero(2, 3))
    maker.done(maker.zero(8, 4, kind=3))
    maker.done(maker.write(32, b"batchflush mark 0 fsynced".ljust(4096, b"\0")))
    maker.done(maker.flush())
    assert exported(maker, tmp_path) == [
        (0, 0, MARK_FLAG, b"0 fsynced"),
        (2, 3, 0, bytes(3 * 512)),
        (8, 4, DISCARD_FLAG, b""),
        (0, 0, FLUSH_FLAG, b""),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_before_a_flush_is_what_it_made_durable(tmp_path: Path, seed: int) -> None:
    """Without FUA and overlaps in flight, a replay up to a flush gives the durable image."""
    maker, story = Maker(), []
    draw = random.Random(seed)
    flushes = []
    for _ in range(40):
        data = draw.randbytes(512)
        first = draw.randrange(16)
        from crash_logs import Request

        request = Request(maker.write(first, data), first, data, False)
        story.append(("issue", request))
        request.done = maker.done(request.number)
        if draw.random() < 0.3:
            flush = maker.flush()
            flushes.append(maker.done(flush))
            story.append(("flushed", flush, flushes[-1]))
    found = exported(maker, tmp_path)
    borders = [i for i, entry in enumerate(found) if entry[2] == FLUSH_FLAG]
    assert len(borders) == len(flushes)
    for border, position in zip(borders, flushes, strict=True):
        image = bytearray(16 * 512)
        for sector, count, _, data in found[:border]:
            image[sector * 512 : (sector + count) * 512] = data
        assert bytes(image) == image_of(at(story, position + 1)[0], 16)


@pytest.mark.parametrize("seed", range(5))
def test_an_entry_for_each_write_that_succeeded(tmp_path: Path, seed: int) -> None:
    maker, story = random_log(random.Random(seed), 60)
    succeeded = [r for kind, r, *_ in story if kind == "done" and not r.failed]
    found = [e for e in exported(maker, tmp_path) if e[1]]
    assert sorted((e[0], e[3]) for e in found) == sorted((r.first, r.data) for r in succeeded)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "dm"
    path.write_text("precious")
    with pytest.raises(UsageError, match="exists; allowed is a file that does not"):
        dm_log_writes(Log(Maker().save(tmp_path / "log")), path)
    assert path.read_text() == "precious"
