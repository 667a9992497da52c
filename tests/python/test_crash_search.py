# SPDX-License-Identifier: GPL-2.0-or-later
"""A search as a user runs it: ended by Ctrl-C and taken up again, and on a cluster of one's own."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_logs import random_log

from batchflush import paths

LIMIT_SECONDS = 240
PAUSE_SECONDS = 0.01


@pytest.fixture
def log(tmp_path: Path) -> Path:
    maker, _ = random_log(random.Random(5), 3000, sectors=64)
    return maker.save(tmp_path / "run.log")


@pytest.fixture
def check(tmp_path: Path) -> Path:
    """A check that takes a while, and finds nothing."""
    script = tmp_path / "check"
    script.write_text("#!/bin/sh\nexec sleep 0.05\n")
    script.chmod(0o755)
    return script


def explore(log: Path, check: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "batchflush", "crash", "explore", str(log), "--check", str(check),
        "--workers", "2", *more,
    ]  # fmt: skip


def outcomes(log: Path) -> list[dict]:
    """What has been tried, the half line at the end left out."""
    path = log.with_name(f"{log.name}.states.jsonl")
    lines = path.read_text().split("\n")[1:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def of_session(session: int) -> Iterator[str]:
    """The processes of a session, by their command lines."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                yield (folder / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it has ended


def until(deadline: float, condition) -> None:
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_SECONDS)


def test_ctrl_c_leaves_nothing_running_and_the_search_goes_on(log: Path, check: Path) -> None:
    search = subprocess.Popen(
        explore(log, check, "--minutes", "5"), cwd=paths.ROOT, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        until(time.monotonic() + LIMIT_SECONDS, lambda: len(outcomes(log)) >= 10)
        os.killpg(search.pid, signal.SIGINT)
        said, _ = search.communicate(timeout=LIMIT_SECONDS)
    finally:
        search.kill()
    assert search.returncode == 130, said
    assert "Traceback" not in said
    until(time.monotonic() + LIMIT_SECONDS, lambda: not list(of_session(search.pid)))
    tried = outcomes(log)
    done = subprocess.run(
        explore(log, check, "--states", "20"), cwd=paths.ROOT, capture_output=True, text=True,
        timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    again = outcomes(log)
    assert again[: len(tried)] == tried and len(again) == len(tried) + 20
    # No content against the same marks a second time.
    assert len({(line["hash"], line["owed"]) for line in again}) == len(again)
    assert f"{len(tried)} of them before" in done.stdout


def test_a_cluster_of_ones_own(log: Path, check: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        address = cluster.scheduler_address
        done = subprocess.run(
            explore(log, check, "--states", "20", "--scheduler", address), cwd=paths.ROOT,
            capture_output=True, text=True, timeout=LIMIT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(outcomes(log)) == 20
        # It is not ours to end.
        assert len(cluster.scheduler.workers) == 1


def test_the_command_that_is_told_makes_the_same_state(tmp_path: Path) -> None:
    """Torn at 512 bytes, on a disk that was not empty."""
    maker, _ = random_log(random.Random(5), 100, sectors=64)
    log = maker.save(tmp_path / "run.log")
    base = tmp_path / "base.img"
    base.write_bytes(random.Random(6).randbytes(64 * 512))
    check = tmp_path / "check"
    check.write_text(
        f"#!/bin/sh\ncp $1 {tmp_path}/seen-$(echo $BATCHFLUSH_STATE | tr / _)\nexit 1\n"
    )
    check.chmod(0o755)
    done = subprocess.run(
        explore(log, check, "--states", "60", "--minimise", "0", "--seed", "1", "--bound", "2",
                "--atomic-write-size", "512", "--base", str(base)),
        cwd=paths.ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads(log.with_name(f"{log.name}.report.json").read_text())
    torn = [told for told in report["failing-states"] if "/torn/" in told["state"]]
    assert torn
    for told in torn[:3]:
        image = tmp_path / f"{told['state'].replace('/', '-')}.img"
        command = told["recreate"].replace("./batchflush", f"{sys.executable} -m batchflush")
        command = command.replace("-o state.qcow2", f"-o {image}")
        made = subprocess.run(command.split(), cwd=paths.ROOT, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        seen = tmp_path / f"seen-{told['state'].replace('/', '_')}"
        assert image.read_bytes() == seen.read_bytes()
