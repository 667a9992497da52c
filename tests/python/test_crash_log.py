# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading a write log: whole, cut off, damaged; and any flush by the index alone."""

import random
from pathlib import Path

import pytest
from crash_logs import FLUSH, Maker, random_log

from batchflush.crash.history import read
from batchflush.crash.log import Log
from batchflush.errors import BatchflushError

FLUSHES = 50


def many_flushes(path: Path, per_index: int, closed: bool) -> Path:
    maker = Maker()
    for i in range(FLUSHES):
        maker.done(maker.write(i % 8, bytes([i]) * 512))
        maker.done(maker.flush())
        if len(maker.flushes) == per_index:
            maker.index()
    if closed:
        maker.end()
    return maker.save(path)


@pytest.mark.parametrize("per_index", [1, 7, 1024])
@pytest.mark.parametrize("closed", [True, False])
def test_every_flush_is_found(tmp_path: Path, per_index: int, closed: bool) -> None:
    log = Log(many_flushes(tmp_path / "log", per_index, closed))
    expected = [r for r in log.records() if r.kind == FLUSH]
    assert len(expected) == FLUSHES
    for number, record in enumerate(expected):
        found = log.flush(number)
        assert found is not None
        assert (found.position, found.place) == (record.position, record.place)
    assert log.flush(FLUSHES) is None
    assert log.closed() == closed


def test_a_flush_with_an_index_is_found_without_reading_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(many_flushes(tmp_path / "log", 10, True))
    read_at = []
    record = log.record
    monkeypatch.setattr(log, "record", lambda place: (read_at.append(place), record(place))[1])
    assert log.flush(3) is not None
    # Each index once, and nothing else.
    assert len(read_at) <= FLUSHES // 10 + 1


def test_each_record_leads_back_to_the_flush_before(tmp_path: Path) -> None:
    log = Log(many_flushes(tmp_path / "log", 7, True))
    before = 0
    for record in log.records():
        assert record.flush == before
        if record.kind == FLUSH:
            before = record.place


def positions(log: Log) -> list[tuple[int, int, int]]:
    return [(r.kind, r.position, r.offset) for r in log.records()]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    maker, _ = random_log(random.Random(1), 30)
    return maker.save(tmp_path / "log")


def test_a_log_cut_anywhere_is_shorter_and_as_true(whole: Path, tmp_path: Path) -> None:
    content, all_records = whole.read_bytes(), positions(Log(whole))
    cut = tmp_path / "cut"
    borders = [r.next_place for r in Log(whole).records()]
    near = {at + i for at in borders for i in (-1, 0, 1, 64)}
    for length in sorted({*range(0, 520, 40), 511, 512, *near} & set(range(len(content)))):
        cut.write_bytes(content[:length])
        if length < 512:
            with pytest.raises(BatchflushError, match=r"no write log"):
                Log(cut)
            continue
        log = Log(cut)
        records = positions(log)
        assert records == all_records[: len(records)]
        # A record is lost only if it is not there as a whole.
        assert len(records) == sum(r.next_place <= length for r in Log(whole).records())
        read(log)


@pytest.mark.parametrize("start", range(8))
def test_a_flipped_bit_ends_the_log_or_is_named(whole: Path, tmp_path: Path, start: int) -> None:
    content, all_records = whole.read_bytes(), positions(Log(whole))
    flushes = [r for r in Log(whole).records() if r.kind == FLUSH]
    damaged = tmp_path / "damaged"
    for byte in [*range(start, 512 + 64, 8), *range(576 + start, len(content), 56)]:
        changed = bytearray(content)
        changed[byte] ^= 1 << byte // 8 % 8
        damaged.write_bytes(changed)
        try:
            log = Log(damaged)
        except BatchflushError as error:
            assert byte < 48 and error.message.count("\n") == 0
            continue
        records = positions(log)
        assert records == all_records[: len(records)]
        read(log)
        for number, flush in enumerate(flushes):
            found = log.flush(number)
            assert found is None or found.position == flush.position


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"x", b"QFI\xfb" * 500, bytes(4096)):
        path = tmp_path / "file"
        path.write_bytes(content)
        with pytest.raises(BatchflushError, match="no write log"):
            Log(path)
    with pytest.raises(BatchflushError, match="No such file"):
        Log(tmp_path / "nothing")


def test_another_version_is_refused(tmp_path: Path) -> None:
    import struct
    import zlib

    path = Maker().save(tmp_path / "log")
    content = bytearray(path.read_bytes())
    content[16:20] = struct.pack("<I", 2)
    content[36:40] = struct.pack("<I", zlib.crc32(content[:36]))
    path.write_bytes(content)
    with pytest.raises(BatchflushError, match="of version 2"):
        Log(path)


@pytest.mark.parametrize(("first", "wrong"), [(0, 1), (5, 0), (900, 1)])
def test_indexes_that_go_in_circles_or_jump_are_left_alone(
    tmp_path: Path, first: int, wrong: int
) -> None:
    """Each is good for itself, but not with the others."""
    maker = Maker()
    for _ in range(3):
        maker.flush()
    at = len(maker.out)
    # It names itself, or nothing, as the one before it.
    maker.index_place, maker.indexed = wrong * at, first
    maker.index()
    for _ in range(2):
        maker.flush()
    log = Log(maker.save(tmp_path / "log"))
    places = [record.place for record in log.records() if record.kind == FLUSH]
    for number in range(2000):
        found = log.flush(number)
        assert found is None or found.place in places
