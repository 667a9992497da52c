# SPDX-License-Identifier: GPL-2.0-or-later
"""The reader of write logs on any file: it refuses in a sentence, or reads to an end.

Half of the inputs are files as they are. The other half are records of any kind whose checksums
are right: as no damage leaves them, but a tool might.
"""

import itertools
import os
import struct
import sys
import zlib
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["batchflush.crash"]):
    from batchflush.crash import history, log

from batchflush.errors import BatchflushError

RECORDS_MAX = 64
FILE = os.memfd_create("log")


def checked(head: bytes) -> bytes:
    return head + struct.pack("<I", zlib.crc32(head))


def whole_records(data: atheris.FuzzedDataProvider) -> bytes:
    """A log in which every record is good for itself."""
    head = struct.pack(
        "<16sIIQI", log.MAGIC, log.VERSION, log.SECTOR,
        data.ConsumeIntInRange(0, 1 << 20), data.ConsumeIntInRange(0, 3),
    )  # fmt: skip
    places, body = [0], b""
    for _ in range(data.ConsumeIntInRange(0, RECORDS_MAX)):
        places.append(log.HEADER_BYTES + len(body))
        body += record(data, places)
    index = struct.pack("<Q", number(data, places))
    return (checked(head) + checked(index)).ljust(log.HEADER_BYTES, b"\0") + body


def record(data: atheris.FuzzedDataProvider, places: list[int]) -> bytes:
    content = data.ConsumeBytes(data.ConsumeIntInRange(0, 64))
    head = struct.pack(
        "<4sHHQQQQIIQI", b"BFLR", data.ConsumeIntInRange(0, 9), data.ConsumeIntInRange(0, 3),
        data.ConsumeIntInRange(0, RECORDS_MAX), data.ConsumeIntInRange(0, 1 << 40),
        number(data, places), number(data, places), len(content), zlib.crc32(content),
        number(data, places), 0,
    )  # fmt: skip
    whole = checked(head) + content
    return whole + bytes(-len(whole) % log.ALIGN)


def number(data: atheris.FuzzedDataProvider, places: list[int]) -> int:
    """A place of a record, a small number, or any."""
    kind = data.ConsumeIntInRange(0, 2)
    if kind == 0:
        return data.PickValueInList(places)
    return data.ConsumeIntInRange(0, RECORDS_MAX if kind == 1 else (1 << 64) - 1)


def test_one_input(raw: bytes) -> None:
    data = atheris.FuzzedDataProvider(raw)
    content = whole_records(data) if data.ConsumeBool() else data.ConsumeBytes(len(raw))
    os.ftruncate(FILE, 0)
    os.pwrite(FILE, content, 0)
    try:
        opened = log.Log(Path(f"/proc/self/fd/{FILE}"))
    except BatchflushError as error:
        assert error.message
        return
    records = list(opened.records())
    assert all(a.place < b.place for a, b in itertools.pairwise(records))
    opened.closed()
    flushes = sum(one.kind == log.FLUSH for one in records)
    for which in range(flushes + 2):
        opened.flush(which)
    told = history.read(opened)
    for epoch in told.epochs:
        told.optional(epoch.end, epoch)
    told.span()


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
