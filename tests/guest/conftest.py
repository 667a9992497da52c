# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests with a guest share."""

import pytest

from batchflush import build


@pytest.fixture(scope="session", autouse=True)
def qemu() -> None:
    """As check does, so that a run of single tests finds it too, and none is skipped."""
    build.qemu()
