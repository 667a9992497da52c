# SPDX-License-Identifier: GPL-2.0-or-later
"""A disk whose times are known, probed by fio in a guest: the fit finds them again.

In virtual time, so that the host's speed does not matter. All times are long beside what the
guest itself takes for a request, some 100 µs.
"""

import asyncio

import pytest
from test_boot import kernel  # noqa: F401 - a fixture

from batchflush import curve
from batchflush.calibration import fit, probe, verify
from batchflush.calibration.probe import Probe
from batchflush.guest import packages
from batchflush.guest.command_line import Disk
from batchflush.profiles import Profile, Setting

REAL = {
    "write-cache": "volatile",
    "read-latency-ns": 3_000_000,
    "write-latency-ns": 2_000_000,
    "destage-latency-ns": 4_000_000,
    "flush-latency-ns": 7_000_000,
    "bandwidth": 40_000_000,
    "queue-depth": 4,
}
RUNS = (
    "read at depth 1", "read at depth 32", "read in sequence",
    "write at depth 1", "write at depth 32", "write in sequence",
    "flush after 1 writes", "flush after 64 writes",
)  # fmt: skip
REQUESTS = 128


@pytest.fixture(scope="module")
def measured(kernel: packages.Kernel) -> Probe:  # noqa: F811
    with_fio = packages.with_programs(kernel, "fio", ["fio"])
    front_end = {
        name: Setting(value, "", "folk", "of this test")
        for name, value in (("device", "virtio-blk-pci"), ("write-cache", "on"))
    }
    disk = Disk(
        Profile("known", "a disk whose times are known", {}, front_end, built_in=False),
        {name: str(value) for name, value in REAL.items()},
    )
    selected = [run for run in probe.runs(writes=True) if run.name in RUNS]
    return asyncio.run(
        verify.probe_guest(with_fio, disk, selected, False, lambda *_: None, REQUESTS)
    )


def test_the_fit_finds_the_disks_numbers(measured: Probe) -> None:
    found = fit.options(fit.fit(measured))
    assert found["write-cache"] == "volatile"
    assert found["queue-depth"] == REAL["queue-depth"]
    for name, value in REAL.items():
        if name.endswith("-ns"):
            assert found[name] == pytest.approx(value, rel=0.1), name


def test_the_class_takes_what_the_disk_takes(measured: Probe) -> None:
    residuals = fit.residuals(measured, curve.of(fit.options(fit.fit(measured))))
    off = {r.name: r.percent for r in residuals if abs(r.percent) > 15}
    assert not off
