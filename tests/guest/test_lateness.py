# SPDX-License-Identifier: GPL-2.0-or-later
"""A run on a disk that was later than it may be fails; in virtual time nothing is late."""

import pytest
from test_boot import FS_MARK_JOB, accelerator, kernel, run_job  # noqa: F401 - fixtures

from batchflush.errors import BatchflushError
from batchflush.guest import kvm, packages


def test_a_run_beyond_the_budget_fails(
    kernel: packages.Kernel,  # noqa: F811
    accelerator: kvm.Accelerator,  # noqa: F811
) -> None:
    """Nobody is on time to the nanosecond on the host's clock."""
    budget = {"clock": "realtime", "max-lateness-ns": "1", "spin-max-ns": "0"}
    with pytest.raises(BatchflushError, match=r"the disk disk was late.*max-lateness-ns=1 "):
        run_job(kernel, accelerator, "sata-7200", FS_MARK_JOB, budget)


def test_in_virtual_time_nothing_is_late(kernel: packages.Kernel) -> None:  # noqa: F811
    virtual = kvm.Accelerator("tcg", "time is the guest's")
    outcome = run_job(kernel, virtual, "sata-7200", FS_MARK_JOB, {"max-lateness-ns": "1"})
    assert outcome.code == 0, outcome.output
    assert outcome.counted["flush-arrivals"] > 0
