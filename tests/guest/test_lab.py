# SPDX-License-Identifier: GPL-2.0-or-later
"""Cells of the laboratory in real guests: measured, failed in each way there is, repeated."""

from pathlib import Path

import pytest

from batchflush.guest import packages
from batchflush.lab import cell, experiment, kernels, results, workloads


@pytest.fixture(scope="session")
def kernel() -> packages.Kernel:
    return packages.prepare()


def run(
    kernel: packages.Kernel,
    folder: Path,
    script: str,
    *,
    limit_seconds: int = 60,
    parameters: tuple[str, ...] = (),
    shape: str = "exact",
) -> results.Record:
    described = experiment.Experiment(
        name="test",
        kernels=(kernels.Spec("debian", package="linux-image-cloud-amd64", parameters=parameters),),
        classes=("ramdisk",),
        workload=workloads.Workload("script", threads=(2,), script=script),
        shape=shape,
        limit_seconds=limit_seconds,
    )
    [one] = described.cells()
    return cell.run(cell.Task(one, kernel, "image", "key", folder))


FS_MARK = """
fs_mark -d /mnt/fs_mark -s 4096 -n 100 -D 64 -t 4 -v -l /tmp/fs_log.txt >/tmp/out 2>&1 || exit 1
set -- $(tail -n 1 /tmp/out)
figure rate $4 files/s
"""


def test_a_script_gives_its_figures(kernel: packages.Kernel, tmp_path: Path) -> None:
    record = run(kernel, tmp_path, "figure answer $((40 + THREADS)) s less")
    assert record["status"] == "ok", record
    assert record["figures"] == {"answer": {"value": 42, "unit": "s", "better": "less"}}
    assert record["statistics"]["flush-arrivals"] == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("script", "said", "in_console"),
    [
        ("echo what went wrong; exit 3", "exit code 3\nwhat went wrong", "what went wrong"),
        ("sleep 100000", "not done within 20 s of its own time", ""),
        ("echo c >/proc/sysrq-trigger", "the guest ended before its job did", "sysrq"),
        ("true", "no figure", ""),
    ],
)
def test_a_failed_cell_says_why_and_leaves_its_console(
    kernel: packages.Kernel, tmp_path: Path, script: str, said: str, in_console: str
) -> None:
    record = run(kernel, tmp_path, script, limit_seconds=20)
    assert record["status"] == "failed"
    assert said in record["error"]
    assert in_console in Path(record["console"]).read_text()


def test_a_switch_that_the_kernel_does_not_have_is_noticed(
    kernel: packages.Kernel, tmp_path: Path
) -> None:
    record = run(kernel, tmp_path, "figure a 1 s", parameters=("batchflush.coordinate=1",))
    assert "batchflush.coordinate=1 had no effect" in record["error"]


@pytest.mark.parametrize(("shape", "within"), [("exact", 0.01), ("mq", 0.03)])
def test_a_cell_repeats(kernel: packages.Kernel, tmp_path: Path, shape: str, within: float) -> None:
    records = [run(kernel, tmp_path, FS_MARK, shape=shape) for _ in range(2)]
    rates = [record["figures"]["rate"]["value"] for record in records]
    assert rates[0] == pytest.approx(rates[1], rel=within)
