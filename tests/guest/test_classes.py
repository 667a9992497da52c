# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk does what its class states: computed by hand, by the model, at the node, in a guest."""

import asyncio
from dataclasses import replace

import pytest
from test_boot import kernel  # noqa: F401 - a fixture

from batchflush import build, profiles
from batchflush.benchmarks import classes
from batchflush.benchmarks.classes import LIMIT_PERCENT, Guests
from batchflush.guest import packages

CLASSES = profiles.load()
BY_HAND = [name for name, p in CLASSES.items() if classes.stated_by(p) == "hand"]
# What at least a guest sees of two classes behind the same front end: a volume that writes
# through, and a cache that is drained.
IN_GUEST = {
    "cloud-gcp-pd-ssd": {"read", "stream", "write", "write + flush"},
    "emmc": {"write + flush"},
}
# Too fast for a guest, so checked at the node; the second one has a battery, and destages
# while it is measured.
AT_NODE = ("nvme-consumer", "ssd-sata-plp")


@pytest.fixture(scope="module")
def guests(kernel: packages.Kernel) -> Guests:  # noqa: F811
    return Guests(packages.with_programs(kernel, "fio", ["fio"]))


@pytest.mark.parametrize("name", IN_GUEST)
def test_a_guest_sees_what_the_class_states(guests: Guests, name: str) -> None:
    cells = asyncio.run(classes.check(CLASSES[name], guests))
    seen = {cell.load: cell.guest_percent for cell in cells if cell.guest_percent is not None}
    assert set(seen) >= IN_GUEST[name]
    assert all(abs(percent) <= LIMIT_PERCENT for percent in seen.values()), seen


@pytest.mark.parametrize("name", [*IN_GUEST, *AT_NODE])
def test_the_node_takes_what_the_class_states(name: str) -> None:
    times, _ = classes.stated(CLASSES[name])
    node = asyncio.run(classes.at_node(CLASSES[name], times))
    percent = {load.name: classes.deviation_percent(node[load], times[load]) for load in times}
    assert all(abs(value) <= 1 for value in percent.values()), percent


def test_a_disk_that_reorders_is_measured_too() -> None:
    """Its requests end in another order than they came, and none is left out in the cold."""
    profile = CLASSES["sata-7200-nocache"]
    stated, _ = classes.stated(profile)
    times = {classes.READ_DEEP: stated[classes.READ_DEEP]}
    node = asyncio.run(classes.at_node(profile, times))
    percent = classes.deviation_percent(node[classes.READ_DEEP], times[classes.READ_DEEP])
    assert abs(percent) <= LIMIT_PERCENT


def test_another_node_is_noticed() -> None:
    profile = CLASSES["cloud-gcp-pd-ssd"]
    times, _ = classes.stated(profile)
    read = profile.node["read-latency-ns"]
    slower = replace(read, value=int(read.value) * 11 // 10)
    changed = replace(profile, node={**profile.node, "read-latency-ns": slower}, built_in=False)
    node = asyncio.run(classes.at_node(changed, times))
    assert classes.deviation_percent(node[classes.READ], times[classes.READ]) > LIMIT_PERCENT


@pytest.mark.parametrize("name", BY_HAND)
def test_hand_and_model_agree(name: str) -> None:
    build.model()
    by_hand, by_model = (way(CLASSES[name]) for way in (classes.by_hand, classes.by_model))
    for load in by_model:
        if load is not classes.STREAM:
            assert by_model[load] == pytest.approx(by_hand[load], rel=0.01), load.name
