# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests of any shape, and options by any way in, through qemu-io."""

import json
import signal
from pathlib import Path

import pytest
from conftest import MIB, Image
from programs import Options, disk, dotted, failing, file, qemu_io, run

from batchflush import paths

CACHES = {
    "none": {"write_cache": "none"},
    "slow": {"write_cache": "none", "write_latency_ns": 1000, "read_latency_ns": 1000},
    "volatile": {"write_cache": "volatile", "cache_size": 65536},
    "battery": {"write_cache": "battery", "cache_size": 65536},
}


@pytest.fixture(params=CACHES)
def options(request: pytest.FixtureRequest) -> Options:
    return CACHES[request.param]


def well(node: Options, *commands: str) -> None:
    """All of it succeeds, and every pattern that is read is the one expected."""
    outcome = qemu_io(node, *commands)
    assert outcome.code == 0, outcome.output
    for sign in ("failed", "rror", "abort"):
        assert sign not in outcome.output, outcome.output


def test_unaligned_requests(options: Options, image: Image) -> None:
    path = image(pattern=9)
    well(
        disk(file(path), **options),
        "write -P 1 1 1",
        "write -P 2 511 2",
        "write -P 3 4095 8194",
        "write -P 4 -f 100001 3",
        "write -z 5000 999",
        "read -P 9 0 1",
        "read -P 1 1 1",
        "read -P 2 511 2",
        "read -P 9 513 3582",
        "read -P 3 4095 905",
        "read -P 0 5000 999",
        "read -P 3 5999 6290",
        "read -P 9 12289 500",
        "read -P 4 100001 3",
    )
    expected = bytearray(bytes([9]) * MIB)
    expected[1:2] = b"\1"
    expected[511:513] = b"\2" * 2
    expected[4095 : 4095 + 8194] = b"\3" * 8194
    expected[100001:100004] = b"\4" * 3
    expected[5000:5999] = bytes(999)
    assert path.read_bytes() == expected


def test_zero_length_requests(options: Options, image: Image) -> None:
    path = image(pattern=9)
    well(
        disk(file(path), **options),
        "write 0 0", "write 512 0", f"write {MIB} 0", "read 0 0", "read 77 0", "write -z 0 0",
        "discard 0 0", "discard 512 0", "flush",
    )  # fmt: skip
    assert path.read_bytes() == bytes([9]) * MIB


def test_unaligned_discards(options: Options, image: Image) -> None:
    """The block layer offers the driver each piece of one, however small."""
    path = image(pattern=9)
    medium = {**file(path), "discard": "unmap"}
    well(
        disk(medium, discard="unmap", **options),
        "write -P 1 0 16384",
        "discard 1 8191",
        "discard 12289 4",
        "read -P 1 0 1",
        "read -P 1 8192 4096",
        "read -P 1 12293 4091",
    )


def test_a_request_beyond_the_end_fails(options: Options, image: Image) -> None:
    node = disk(file(image()), **options)
    for command in (f"read {MIB} 512", f"write {MIB - 512} 1024"):
        outcome = qemu_io(node, command)
        assert outcome.code == 1
        assert outcome.output.strip().endswith("failed: Input/output error")


def test_a_request_larger_than_the_cache(options: Options, image: Image) -> None:
    path = image()
    well(disk(file(path), **options), "write -P 5 513 300000", "read -P 5 513 300000")
    assert path.read_bytes() == bytes(513) + b"\5" * 300000 + bytes(MIB - 300513)


def test_an_image_of_odd_size(options: Options, image: Image) -> None:
    path = image(size=100_001, pattern=9)
    well(
        disk(file(path), **options),
        "read -P 9 99000 1001", "write -P 5 99990 11", "read -P 5 99990 11",
    )  # fmt: skip
    assert path.read_bytes()[:100_001] == bytes([9]) * 99990 + b"\5" * 11


def cut_and_grown(options: Options, path: Path, cut: int) -> None:
    """What is cut off does not come back, neither from the cache nor from the medium."""
    well(
        disk(file(path), **options),
        "write -P 1 8192 8192",
        f"truncate {cut}",
        "truncate 20480",
        f"read -P 1 8192 {cut - 8192}",
        f"read -P 0 {cut} {20480 - cut}",
        "write -P 2 19000 1000",
    )
    expected = bytes([9]) * 8192 + b"\1" * (cut - 8192) + bytes(19000 - cut)
    assert path.read_bytes() == expected + b"\2" * 1000 + bytes(480)


def test_truncate(options: Options, image: Image) -> None:
    cut_and_grown(options, image(pattern=9), 9728)


def test_truncate_within_a_sector(options: Options, image: Image) -> None:
    cut_and_grown(options, image(pattern=9), 10000)


@pytest.mark.parametrize("cache", ["volatile", "none"])
def test_cache_unsafe_moves_data_but_does_not_flush_the_child(cache: str, image: Image) -> None:
    path = image()
    broken = failing(file(path), {"iotype": "flush", "errno": 5})
    node = disk(broken, write_cache=cache)
    assert qemu_io(node, "write -P 5 0 4096", "flush").code == 1

    # "abort" is a crash: what is in the file then, a flush has brought there.
    path.write_bytes(bytes(MIB))
    outcome = qemu_io(node, "write -P 5 0 4096", "flush", "abort", cache="unsafe")
    assert outcome.code == -signal.SIGABRT
    assert "failed" not in outcome.output
    assert path.read_bytes() == b"\5" * 4096 + bytes(MIB - 4096)


def test_every_way_in_understands_sizes_and_profiles(image: Image) -> None:
    path = image()
    typed = disk(
        file(path), profile="sata-7200", write_cache="volatile", cache_size=MIB, flush_latency_ns=7
    )
    texts = {**typed, "cache-size": "1M", "flush-latency-ns": "7"}
    machine = [paths.QEMU_SYSTEM, "-machine", "none", "-display", "none", "-nodefaults"]
    # A second node of the same name makes it end, and shows that the first was there.
    wrong = ["-blockdev", "driver=null-co,node-name=disk,read-zeroes=on"]
    for option, value in (
        ("-drive", f"if=none,id=drive,{dotted(texts)}"),
        ("-blockdev", dotted(texts)),
        ("-blockdev", json.dumps(typed)),
    ):
        outcome = run([*machine, option, value, *wrong])
        assert outcome.code == 1
        assert outcome.output.splitlines()[-1].endswith("Duplicate nodes with node-name='disk'")
    well(texts, "write 0 4096", "flush")


def qcow2(path: Path, size: int = MIB) -> Options:
    made = run([paths.QEMU_IMG, "create", "-q", "-f", "qcow2", path, str(size)])
    assert made.code == 0, made.output
    return {"driver": "qcow2", "file": file(path, discard="unmap"), "discard": "unmap"}


@pytest.mark.parametrize("cache", ["volatile", "battery"])
def test_a_discard_brings_nothing_older_back(cache: str, tmp_path: Path) -> None:
    """The file discards whole clusters only, and says nothing of the rest."""
    node = disk(qcow2(tmp_path / "image"), discard="unmap", write_cache=cache)
    well(
        node, "write -q -P 0x11 0 64k", "flush", "write -q -P 0x22 0 64k",
        "discard -q 4k 8k", "read -q -P 0x22 0 4k", "read -q -P 0 4k 8k", "read -q -P 0x22 12k 52k",
    )  # fmt: skip


def test_a_cluster_larger_than_a_write_into_the_cache(image: Image, tmp_path: Path) -> None:
    """Above such a disk, copy-on-read takes clusters as a whole."""
    overlay = qcow2(tmp_path / "overlay")
    small = disk(overlay["file"], write_cache="volatile", cache_size=65536)
    backing = file(image(pattern=0x33))
    node = {"driver": "copy-on-read", "file": {**overlay, "file": small, "backing": backing}}
    well(node, "read -q -P 0x33 60k 512", "read -q -P 0x33 0 1M")
