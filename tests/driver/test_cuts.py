# SPDX-License-Identifier: GPL-2.0-or-later
"""Power cuts of a disk at work, again and again: what is left is what the contract permits.

BF_SEED=N repeats the requests of a run, BF_CUTS=N makes it longer.
"""

import asyncio
from pathlib import Path

import mutants
import pytest
from conftest import MIB, Image
from cuts import CUTS, cut_often
from load import CACHES, KIB, MARKS, SEED
from mutants import Mutant
from programs import LONG_NS, Options, Program, daemon, disk, file

from batchflush.nbd import RequestError, connected

LIMIT_SECONDS = 60 + CUTS
TRIES = 400


@pytest.fixture(params=[512, 4096])
def unit(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.mark.limit(LIMIT_SECONDS)
@pytest.mark.parametrize("iothread", [False, True], ids=["main", "iothread"])
@pytest.mark.parametrize(
    ("cache", "marks"),
    [("none", {}), ("volatile", {}), ("volatile", MARKS), ("battery", MARKS)],
    ids=["none", "volatile", "volatile-marks", "battery-marks"],
)
async def test_what_is_left(
    cache: str, marks: Options, iothread: bool, unit: int, image: Image, tmp_path: Path
) -> None:
    print(f"BF_SEED={SEED}")
    options = {**CACHES[cache], **marks, "atomic_write_size": unit}
    seed = f"{SEED} {cache} {marks} {iothread} {unit}"
    found = await cut_often(tmp_path, image, options, CUTS, seed, iothread=iothread)
    assert not found.wrong
    assert found.cuts == CUTS
    # The cuts met something, and what they met was not always kept, nor always lost.
    assert found.kept_bytes + found.lost_bytes > 0
    if cache == "volatile":
        assert found.kept_bytes > 0 and found.lost_bytes > 0
    if cache == "battery":
        assert found.hold_ups_over > 0


@pytest.mark.limit(LIMIT_SECONDS)
@pytest.mark.parametrize("lie", ["flush", "fua", "delayed"])
async def test_a_lie_is_found_out(lie: str, image: Image, tmp_path: Path) -> None:
    """The oracle notices a disk that acknowledges what it has not done."""
    print(f"BF_SEED={SEED}")
    options = {**CACHES["volatile"], "cache_size": 1 << 20, "lie": lie}
    found = await cut_often(tmp_path, image, options, TRIES, f"{SEED}", until_wrong=True)
    assert found.wrong


@pytest.mark.limit(LIMIT_SECONDS)
@pytest.mark.parametrize("mutant", mutants.ALL, ids=lambda mutant: mutant.name)
async def test_a_mutant_is_found_out(mutant: Mutant, image: Image, tmp_path: Path) -> None:
    """Nor does a mistake in the driver escape it."""
    print(f"BF_SEED={SEED}")
    options = {**CACHES["volatile"], **MARKS}
    program = mutant.build(tmp_path)
    found = await cut_often(
        tmp_path, image, options, TRIES, f"{SEED}", until_wrong=True, program=program
    )
    assert found.wrong


async def until_written(program: Program, node: str, writes: int) -> None:
    """Wait until so many writes have arrived there."""
    while True:
        nodes = await program.execute("query-batchflush")
        if any(info["node-name"] == node and info["writes"] == writes for info in nodes):
            return


@pytest.mark.parametrize("zero_latency_ns", [0, 1000], ids=["now", "later"])
async def test_zeroes_in_flight_take_no_completed_write(
    zero_latency_ns: int, image: Image, tmp_path: Path
) -> None:
    """The cut falls while the child is at it: the cache keeps what its battery holds.

    It holds the only copy. What has been destaged of it is taken back, for its time is not over.
    """
    path = image(pattern=0xAA)
    slow = {"driver": "batchflush", "node-name": "slow", "zero-latency-ns": LONG_NS}
    medium = {**slow, "file": file(path)}
    times = {"destage_latency_ns": LONG_NS, "zero_latency_ns": zero_latency_ns}
    marks = {"destage_high_percent": 1, "destage_low_percent": 0}
    node = disk("slow", write_cache="battery", cache_size=MIB, **times, **marks)
    written = bytes([0xBB]) * (64 * KIB)
    order = {"guest": "run", "policy": "drop-all"}
    async with (
        daemon(tmp_path, medium, node) as program,
        connected(tmp_path / "nbd") as connection,
    ):
        await connection.write(0, written)
        await until_written(program, "slow", 1)
        zeroes = asyncio.create_task(connection.zero(0, len(written)))
        await until_written(program, "slow", 2)
        await program.execute("batchflush-power-cut", node_name="disk", **order)
        await program.execute("batchflush-power-restore", node_name="disk")
        with pytest.raises(RequestError):
            await zeroes
        left = await connection.read(0, len(written))
    assert left in (written, bytes(len(written)))


async def test_a_node_on_another_comes_back(image: Image, tmp_path: Path) -> None:
    """What survived on the upper one is written to the lower one, whose power has to be on."""
    path = image(size=MIB, pattern=0xAA)
    medium = {"driver": "batchflush", "node-name": "below", "write-cache": "volatile"}
    node = disk({**medium, "file": file(path)}, write_cache="volatile", cache_size=MIB)
    async with (
        daemon(tmp_path, node) as program,
        connected(tmp_path / "nbd") as connection,
    ):
        for block in range(64):
            await connection.write(block * 4 * KIB, bytes([block]) * 4 * KIB)
        with program.monitor.listener("BATCHFLUSH_POWER_CUT") as events:
            await program.execute("batchflush-power-cut", guest="run", policy="subset", seed=1)
            nodes = (await events.get())["data"]["nodes"]
        await program.execute("batchflush-power-restore")
        left = await connection.read(0, 64 * 4 * KIB)
    kept = {info["node-name"]: info["kept-bytes"] for info in nodes}
    assert kept["disk"] > 0
    new = [left[block * 4 * KIB] == block for block in range(64)]
    assert kept["disk"] == 4 * KIB * sum(new)
