# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of the driver share. A test may be a coroutine; none runs for ever."""

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import programs
import pytest

from batchflush import variants

MIB = 1 << 20

# How often a test runs that has a turn.
REPEAT = int(os.environ.get("BF_REPEAT") or 1)

Image = Callable[..., Path]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "turn" in metafunc.fixturenames:
        metafunc.parametrize("turn", range(REPEAT))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): time limit of a test that is a coroutine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of one turn come before the next one, so that half a run says something of each."""

    def turn(item: pytest.Item) -> int:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        return parameters.get("turn", 0)

    items.sort(key=turn)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, within its time limit."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    mark = pyfuncitem.get_closest_marker("limit")
    seconds = (mark.args[0] if mark else programs.LIMIT_SECONDS) * variants.PATIENCE
    test = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(_limited(test, seconds))
    return True


async def _limited(test: Coroutine[Any, Any, None], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await test


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """Makes image files: image(size, pattern) fills it with a byte, else it is all zeroes."""

    def make(size: int = MIB, pattern: int = 0, name: str = "image") -> Path:
        path = tmp_path / name
        with path.open("wb") as stream:
            if pattern:
                stream.write(bytes([pattern]) * size)
            stream.truncate(size)
        return path

    return make
