# SPDX-License-Identifier: GPL-2.0-or-later
"""A storm of mkdir against a small write cache: watermarks keep its writers from stalling."""

import asyncio

import pytest
from test_boot import accelerator, kernel  # noqa: F401 - fixtures

from batchflush.benchmarks import watermarks
from batchflush.guest import packages

TASKS = 4
DIRECTORIES = 8000


@pytest.fixture(scope="module")
def storms(kernel: packages.Kernel) -> dict[str, watermarks.Cell]:  # noqa: F811
    """One storm on each arm; in virtual time, so that the host's speed does not matter."""
    cells: list[watermarks.Cell] = []
    for arm in watermarks.WATERMARKS:
        storm = watermarks.storms(
            kernel, arm, TASKS, cells.append, runs=1, directories=DIRECTORIES
        )  # fmt: skip
        asyncio.run(storm)
    return {cell.watermarks: cell for cell in cells}


def test_writers_stall_without_watermarks(storms: dict[str, watermarks.Cell]) -> None:
    assert storms["off"].stalls > 0
    assert storms["off"].stall_seconds > 0


def test_nobody_stalls_with_them(storms: dict[str, watermarks.Cell]) -> None:
    assert storms["on"].stalls == 0
    assert storms["on"].stall_seconds == 0


def test_background_destage_has_moved_the_data_meanwhile(
    storms: dict[str, watermarks.Cell],
) -> None:
    # More than the cache holds: without it, the writers would have had to wait.
    assert storms["on"].destaged_bytes > watermarks.CACHE_BYTES
