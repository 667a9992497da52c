# SPDX-License-Identifier: GPL-2.0-or-later
"""The load of the benchmarks of coalescing is what they take it for."""

from batchflush.benchmarks.coalesce import _slow
from batchflush.benchmarks.coalesce_load import MS, cycles_per_second, daemon, together_ms

WRITERS = 4


async def test_four_writers_flush_at_once() -> None:
    async with daemon({"disk": _slow(10 * MS, "on")}) as running:
        assert await cycles_per_second(await running.writers("disk", WRITERS), 0.3) > 0
        told = await running.statistics("disk")
    assert max(record["members"] for record in told["ledger"]) == WRITERS


async def test_staggered_writers_do_not_begin_together() -> None:
    async with daemon({"disk": _slow(10 * MS, "off")}) as running:
        await cycles_per_second(await running.writers("disk", WRITERS), 0.3, 0.05)
        told = await running.statistics("disk")
    arrivals = [record["arrival-ns"] for record in told["ledger"]]
    # For 50 ms the first writer was alone, in cycles of 10 ms at least.
    alone = [arrival for arrival in arrivals if arrival < arrivals[0] + 45 * MS]
    assert len(alone) <= 5


async def test_a_serialised_node_sees_one_flush_after_the_other() -> None:
    nodes = {"below": _slow(5 * MS, "on"), "above": {"serialised-by": "below"}}
    async with daemon(nodes) as running:
        await together_ms(await running.writers("above", WRITERS))
        told = await running.statistics("below")
    assert (told["flushes-issued"], told["flushes-joined"]) == (WRITERS, 0)
