# SPDX-License-Identifier: GPL-2.0-or-later
"""The arithmetic of the benchmarks of coalescing."""

import asyncio
from pathlib import Path

import pytest

from batchflush import bench
from batchflush.benchmarks import coalesce, coalesce_guest, coalesce_load, waiters
from batchflush.benchmarks.coalesce_guest import Cell
from batchflush.benchmarks.coalesce_load import Effort, Median


def cell(mode: str, writes_per_s: float, disk: str = "sata-7200", **differs: object) -> Cell:
    plain = {
        "flush_concurrency": "serial", "jobs": 1, "writes": 1000, "flush_arrivals": 1000,
        "flushes_issued": 500, "flush_average_ns": 8_000_000, "batch_sizes": {2: 500},
    }  # fmt: skip
    return Cell(disk, mode, **{**plain, **differs}, writes_per_s=writes_per_s)


def row(disk: str, off: float, on: float, auto: float, jobs: int = 1) -> list[Cell]:
    rates = {"off": off, "on": on, "auto": auto}
    return [cell(mode, value, disk, jobs=jobs) for mode, value in rates.items()]


def test_every_benchmark_can_be_called_by_its_name() -> None:
    for name in bench.BENCHMARKS:
        module = bench._benchmark(name)
        assert name == module.NAME


def test_rate_counts_whole_batches() -> None:
    # Batches of 4 every second; the window begins and ends inside a pause.
    completions = [float(second) for second in range(10) for _ in range(4)]
    assert coalesce_load.rate(completions, 1.5, 8.5) == pytest.approx(4)


def test_rate_ends_with_the_last_completion_if_none_is_later() -> None:
    assert coalesce_load.rate([0, 1, 2, 3], 0.5, 9) == pytest.approx(1)


def test_no_rate_without_two_completions() -> None:
    assert coalesce_load.rate([], 0, 1) is None
    assert coalesce_load.rate([0.1, 0.2, 5, 5], 1, 2) is None


def test_median_and_spread() -> None:
    assert Median.of([5]) == Median(5, 0)
    assert Median.of([1, 2, 3, 4, 100]) == Median(3, 1)


def test_the_error_shrinks_with_the_root_of_the_count() -> None:
    assert Median(0, 1).error(100) == pytest.approx(Median(0, 1).error(25) / 2)


def test_slowdown_is_against_the_better_of_the_others_round_by_round() -> None:
    rates = {"off": [90, 45], "on": [100, 50], "auto": [80, 40]}
    result = coalesce_load.compared(rates, "auto")
    assert result.slowdown == Median(25, 0)
    assert result.rounds == 2


@pytest.mark.parametrize(
    ("slowdown", "rounds", "enough"),
    [
        (Median(0, 0), 4, False),  # too few rounds
        (Median(0, 0), 5, True),
        (Median(4, 4), 5, False),  # could be above the limit
        (Median(-40, 4), 5, True),  # could not
        (Median(4, 4), 50, True),
        (Median(4, 400), 60, True),  # at most so many
    ],
)
def test_effort_ends_when_the_result_is_clear(
    slowdown: Median, rounds: int, enough: bool
) -> None:  # fmt: skip
    assert Effort(fewest=5, most=60, error=1.1, limit=5).enough(slowdown, rounds) == enough


def test_compare_measures_in_turns_and_nobody_is_always_first() -> None:
    called: list[str] = []

    def way(name: str, value: float) -> coalesce_load.Measurement:
        async def measure() -> float:
            called.append(name)
            return value

        return measure

    ways = {"off": way("off", 10), "auto": way("auto", 5)}
    result = asyncio.run(coalesce_load.compare(ways, "auto", Effort(2, 2, 0, 0)))
    assert called == ["off", "auto", "auto", "off"]
    assert result.slowdown.value == pytest.approx(100)


def test_compare_measures_at_once() -> None:
    async def load() -> coalesce_load.Comparison:
        # Each waits for the other.
        both = asyncio.Barrier(2)

        async def measure() -> float:
            async with asyncio.timeout(5):
                await both.wait()
            return 1

        ways = {"off": measure, "auto": measure}
        return await coalesce_load.compare(ways, "auto", Effort(2, 2, 0, 0), at_once=True)

    assert asyncio.run(load()).rounds == 2


def test_the_plot_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce_guest, "PICTURE", tmp_path / "coalesce.png")
    cells = row(coalesce_guest.TRIAL, 100, 200, 300, jobs=8)
    for disk, writes in coalesce_guest.WRITES.items():
        for jobs in writes:
            cells += row(disk, 100, 200, 300, jobs=jobs)
    coalesce_guest.draw(cells)
    assert (tmp_path / "coalesce.png").read_bytes().startswith(b"\x89PNG")


def test_shared_percent_counts_leaders_with_company() -> None:
    assert coalesce.shared_percent({"flush-arrivals": 10, "flushes-alone": 2}) == 80


def test_model_slowdown_is_against_the_better_one() -> None:
    assert coalesce.model_slowdown_percent({"off": 50, "on": 110, "auto": 100}) == pytest.approx(10)


def test_waiters_may_cost_half_as_much_again() -> None:
    told = {"waiter_growth_ratio": 1.6, "waiter_10_ns": 10.0, "waiter_10000_ns": 16.0}
    assert [number.good() for number in waiters.numbers(told)] == [False, True, True]


def test_difference_of_histograms() -> None:
    before = [{"upper": 1, "count": 5}, {"upper": 2, "count": 3}]
    after = [{"upper": 1, "count": 5}, {"upper": 2, "count": 4}, {"upper": 4, "count": 7}]
    assert coalesce_guest.difference(before, after) == {2: 1, 4: 7}


def test_guest_numbers() -> None:
    trial = cell("auto", 550, coalesce_guest.TRIAL, jobs=8, writes=1250, flushes_issued=300)
    cells = [
        *row("sata-7200", 100, 90, 98),
        *row("sata-7200", 100, 220, 200, jobs=4),
        *row("array-battery", 100, 90, 101),
        # A plain node is not a class; its off is not the trial's.
        *row(coalesce_guest.TRIAL, 1000, 1000, 550)[:2],
        trial,
    ]
    values = {number.name: number.value for number in coalesce_guest.numbers(cells)}
    assert values == {
        "coalesce_guest_auto_worst_percent": pytest.approx(10),
        "coalesce_guest_trial_writes_per_s": 550,
        "coalesce_guest_trial_flushes": pytest.approx(600),
    }


def test_each_guest_differs_in_what_it_compares() -> None:
    guests = coalesce_guest._guests()
    seen = {(g.name, g.option("flush-concurrency"), g.option("coalesce")) for g in guests}
    assert len(seen) == len(guests)
    for name in coalesce_guest.WRITES:
        assert {mode for disk, _, mode in seen if disk == name} == set(coalesce_guest.MODES)
    assert all(guest.disk.properties()["num-queues"] == "4" for guest in guests)
