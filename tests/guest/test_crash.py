# SPDX-License-Identifier: GPL-2.0-or-later
"""The crash explorer as a user calls it: a broken setting is found, a sound one is not."""

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from batchflush import paths
from batchflush.crash.log import Log

LIMIT_SECONDS = 600
FOUND_SECONDS = 120


def crash(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batchflush", "crash", *arguments],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def processor_seconds() -> float:
    """What our children needed: on a host that has nothing else to do, about the time it took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def report(log: Path) -> dict:
    return json.loads(log.with_name(f"{log.name}.report.json").read_text())


def test_a_mount_without_barriers_is_found_out(tmp_path: Path) -> None:
    """ext4 with barrier=0 sends no flushes: what was synced is lost with the cache."""
    log = tmp_path / "run.log"
    before = processor_seconds()
    done = crash(
        "run", "--mount-options", "barrier=0", "--log", log, "--rounds", "20",
        "--minutes", "1", "--stop-after", "5", "--seed", "1",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert processor_seconds() - before < FOUND_SECONDS
    told = report(log)
    assert told["failing"] >= 5
    assert any("synced" in finding for finding in told["findings"])
    smallest = next(s["smallest"] for s in told["failing-states"] if "smallest" in s)
    assert smallest.split("/")[1] == "lost"
    assert len(smallest.split("/")[2].split(",")) <= 3

    # The command that is told makes the same state again, and it still is broken.
    image = tmp_path / "state.qcow2"
    assert f"crash recreate {log} --state" in done.stdout
    made = crash("recreate", log, "--state", smallest, "-o", image)
    assert made.returncode == 0, made.stderr
    info = json.loads(
        subprocess.run(
            [paths.QEMU_IMG, "info", "--output=json", image], capture_output=True, check=True
        ).stdout
    )
    assert info["virtual-size"] == Log(log).disk_size
    again = crash("show", log, "--state", smallest)
    assert again.returncode == 0 and "are lost" in again.stdout

    # A kernel that mounts the same states finds as much.
    other = Path(shutil.copy(log, tmp_path / "other.log"))
    shutil.copy(log.with_suffix(".json"), tmp_path / "other.json")
    seen = crash(
        "explore", other, "--check", "guest", "--workers", "1", "--states", "4",
        "--minutes", "5", "--minimise", "0", "--seed", "1",
    )  # fmt: skip
    assert seen.returncode == 1, seen.stdout + seen.stderr
    assert any("synced" in finding for finding in report(other)["findings"])

    # Nothing that was tried is tried again.
    more = crash("explore", log, "--states", "10", "--minimise", "0")
    assert more.returncode == 1, more.stderr
    assert report(log)["resumed"] == told["tried"]


def test_a_sound_file_system_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    done = crash("run", "--log", log, "--rounds", "20", "--states", "150", "--minutes", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    told = report(log)
    assert told["failing"] == 0
    assert told["tried"] >= 100
    opened = Log(log)
    assert opened.closed()


def test_a_workload_of_ones_own(tmp_path: Path) -> None:
    """Any command, and a check that sees the files by itself."""
    log = tmp_path / "run.log"
    check = tmp_path / "check"
    # debugfs shows the file once it was synced, and only then it was acknowledged.
    check.write_text(
        "#!/bin/sh\n"
        "PATH=$PATH:/usr/sbin:/sbin\n"
        "e2fsck -fy $1 >/dev/null 2>&1\n"
        "grep -q acknowledged $BATCHFLUSH_MARKS || exit 0\n"
        "debugfs -R 'cat /precious' $1 2>/dev/null | grep -q '^data$'\n"
    )
    check.chmod(0o755)
    work = (
        "echo data >/mnt/precious; sync /mnt/precious; "
        "witness mark /dev/vda 268435456 acknowledged; echo more >/mnt/other; sync"
    )
    done = crash(
        "run", "--log", log, "--check", check, "--minutes", "0.5", "--", "sh", "-c", work
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "broken.log"
    lazy = work.replace("sync /mnt/precious; ", "")
    done = crash(
        "run", "--log", broken, "--check", check, "--minutes", "0.5", "--", "sh", "-c", lazy
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert report(broken)["failing"] > 0


def test_an_address_without_a_scheduler_is_told_in_a_sentence(tmp_path: Path) -> None:
    from batchflush.crash.record import Workload, description

    sys.path.insert(0, str(paths.ROOT / "tests/python"))
    from crash_logs import Maker

    log = Maker().save(tmp_path / "run.log")
    description(log).write_text(json.dumps(Workload().__dict__))
    done = crash("explore", log, "--scheduler", "tcp://127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.strip().startswith(
        "batchflush: --scheduler=tcp://127.0.0.1:9 does not answer; allowed is the address of"
    )
    assert len(done.stderr.strip().splitlines()) == 1
