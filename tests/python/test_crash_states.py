# SPDX-License-Identifier: GPL-2.0-or-later
"""The crash states of small logs, against the contract applied naively.

BF_SEED=N repeats a run.
"""

import os
import random
from pathlib import Path

import pytest
from crash_logs import SECTOR, Maker, all_images, at, image_of, permitted, positions, random_log

from batchflush.crash import states
from batchflush.crash.history import read
from batchflush.crash.image import Image
from batchflush.crash.log import Log
from batchflush.crash.plan import Plan
from batchflush.crash.states import DROP_ALL, LOST, TORN, State, Unit
from batchflush.errors import UsageError

SEED = int(os.environ.get("BF_SEED") or random.randrange(1 << 32))
LOGS = 8
SECTORS = 16


def opened(tmp_path: Path, number: int, requests: int = 40) -> tuple[Log, list]:
    print(f"BF_SEED={SEED}")
    maker, story = random_log(random.Random(f"{SEED} {number}"), requests, SECTORS)
    return Log(maker.save(tmp_path / f"log{number}")), story


def shown(image: Image, state: State) -> bytes:
    """What a program reads of a state, and that its hash was known before."""
    image.go_to(image.history.epoch_at(state.position))
    pieces = image.kept(state)
    image.show(pieces)
    return image.read(0, image.size)


@pytest.mark.parametrize("number", range(LOGS))
def test_what_is_durable_and_what_is_optional(tmp_path: Path, number: int) -> None:
    log, story = opened(tmp_path, number)
    history = read(log)
    image = Image(log, history, 512)
    for position in positions(story):
        durable, optional = at(story, position)
        epoch = history.epoch_at(position)
        assert [w.number for w in history.optional(position, epoch)] == [r.number for r in optional]
        assert shown(image, State(position, DROP_ALL)) == image_of(durable, SECTORS)
    image.close()


@pytest.mark.parametrize("number", range(LOGS))
def test_systematic_states_are_all_there_are(tmp_path: Path, number: int) -> None:
    """Within the bound every image is made that losing whole writes can make, and no other."""
    log, story = opened(tmp_path, number, 24)
    history = read(log)
    image = Image(log, history, 512)
    for epoch in history.epochs:
        if len(history.optional(epoch.end, epoch)) > 10:
            continue
        found = {shown(image, s) for s in states.systematic(history, epoch, 1 << 10)}
        assert found == all_images(story, epoch.end, SECTORS)
    image.close()


@pytest.mark.parametrize("atomic", [512, 4096])
@pytest.mark.parametrize("number", range(2))
def test_torn_states_keep_the_contract_and_are_not_too_kind(
    tmp_path: Path, number: int, atomic: int
) -> None:
    log, story = opened(tmp_path, number, 30)
    history = read(log)
    image = Image(log, history, atomic)
    position = history.end
    seen: dict[int, set[bytes]] = {sector: set() for sector in range(SECTORS)}
    for seed in range(200):
        data = shown(image, State(position, TORN, seed))
        for sector in range(SECTORS):
            seen[sector].add(data[sector * SECTOR : (sector + 1) * SECTOR])
    for sector in range(SECTORS):
        allowed = permitted(story, position, sector, SECTORS)
        assert seen[sector] <= allowed
        assert seen[sector] == allowed, f"sector {sector}: not every outcome occurs"
    image.close()


@pytest.mark.parametrize("number", range(LOGS))
def test_hashes_are_equal_where_contents_are(tmp_path: Path, number: int) -> None:
    log, _ = opened(tmp_path, number)
    history = read(log)
    image = Image(log, history, 512)
    draw = random.Random(f"{SEED} hashes {number}")
    by_hash: dict[int, bytes] = {}
    by_content: dict[bytes, int] = {}
    for _ in range(80):
        position = draw.randrange(history.end + 1)
        policy = draw.choice(("all", DROP_ALL, "subset", TORN))
        state = State(position, policy, draw.randrange(1000))
        content = shown(image, state)
        number_of = image.hash(image.kept(state))
        assert by_hash.setdefault(number_of, content) == content
        assert by_content.setdefault(content, number_of) == number_of
    assert len(by_hash) > 5
    image.close()


def test_a_state_adds_its_own_pages_only(tmp_path: Path) -> None:
    maker = Maker(sectors=8 * 1024)
    maker.done(maker.write(0, b"a" * 4096))
    maker.done(maker.flush())
    maker.write(8, b"b" * 4096)
    maker.write(17, b"c" * 512)
    log = Log(maker.save(tmp_path / "log"))
    history = read(log)
    image = Image(log, history, 4096)
    shown(image, State(history.end, "all"))
    assert bytes(image.pages).count(1) == 2
    assert os.pread(image.base, 4096, 4096) == bytes(4096), "the base was written to"
    image.close()


def test_a_name_leads_back_to_its_state() -> None:
    for state in (
        State(7, "all"),
        State(7, DROP_ALL),
        State(7, "subset", 99),
        State(7, TORN, 99),
        State(7, LOST, lost=(Unit(3), Unit(4, 0), Unit(4, 12))),
    ):
        assert states.parse(state.name) == state


@pytest.mark.parametrize(
    "name", ["", "7", "x/all", "7/some", "7/torn", "7/torn/x", "7/lost/a", "7/lost/1.2.3", "-1/all"]
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no state; allowed are"):
        states.parse(name)


def test_a_state_that_the_log_has_not_is_refused(tmp_path: Path) -> None:
    maker = Maker()
    maker.done(maker.write(0, bytes(512)))
    maker.done(maker.flush())
    history = read(Log(maker.save(tmp_path / "log")))
    with pytest.raises(UsageError, match="allowed are positions up to 4"):
        states.check(State(5, "all"), history)
    with pytest.raises(UsageError, match="no power cut at 4 takes write 0"):
        states.check(State(4, LOST, lost=(Unit(0),)), history)
    states.check(State(3, LOST, lost=(Unit(0),)), history)


@pytest.mark.parametrize(("first", "count", "expected"), [
    (0, 16, [(0, 8), (8, 8)]),
    (3, 8, [(3, 5), (8, 3)]),
    (3, 2, [(3, 2)]),
    (8, 8, [(8, 8)]),
])  # fmt: skip
def test_a_write_is_torn_at_the_disks_own_borders(
    tmp_path: Path, first: int, count: int, expected: list[tuple[int, int]]
) -> None:
    maker = Maker(sectors=64)
    maker.write(first, bytes(count * SECTOR))
    write = read(Log(maker.save(tmp_path / "log"))).writes[0]
    assert states.parts(write, 4096) == expected
    assert len(states.parts(write, 512)) == count


def test_a_plan_tries_each_content_once_with_the_most_owed(tmp_path: Path) -> None:
    """What is durable at a flush's end was all that could be there before it."""
    maker = Maker(sectors=64)
    mark = b"batchflush mark 0 replace a 1"
    for i in range(6):
        maker.done(maker.write(i, bytes([i + 1]) * 512))
        maker.done(maker.flush())
        maker.done(maker.write(40, mark.ljust(4096, b"\0")))
    log = Log(maker.save(tmp_path / "log"))
    history = read(log)
    image = Image(log, history, 512)

    def hash_of(state: State) -> int:
        image.go_to(history.epoch_at(state.position))
        return image.hash(image.kept(state))

    plan = Plan(history, hash_of, 64, 1)
    tried = [states.parse(name) for chunk in plan for name, _ in chunk]
    assert len({hash_of(state) for state in tried}) == len(tried) == 7
    # The state with all six writes is held against the last position there is.
    assert max(state.position for state in tried) == history.end
    assert plan.considered > len(tried)
    image.close()
