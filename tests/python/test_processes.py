# SPDX-License-Identifier: GPL-2.0-or-later
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchflush import processes
from batchflush.errors import BatchflushError

# A process with a child of its own; both hold the write end of their output open.
FAMILY = ["sh", "-c", "sleep 1000 & echo started; wait"]
PATIENCE_SECONDS = 20


def ends(stream) -> bool:
    """Whether everyone who could write to the stream ends."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while select.select([stream], [], [], max(0, limit - time.monotonic()))[0]:
        if not os.read(stream.fileno(), 1000):
            return True
    return False


def test_stop_ends_the_children_of_the_child_too() -> None:
    child = processes.start(FAMILY, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"started\n"
    assert processes.stop(child) == -signal.SIGTERM
    assert ends(child.stdout)


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    stubborn = ["sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done"]
    child = processes.start(stubborn, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert processes.stop(child, grace_seconds=0.1) == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_child_outlives_us(number: signal.Signals) -> None:
    program = (
        "import signal\n"
        "from batchflush import processes\n"
        # Whoever runs the tests may ignore it.
        f"signal.signal({number}, signal.SIG_DFL)\n"
        "processes.end_children_when_told_to_end()\n"
        f"processes.start({FAMILY!r}).wait()\n"
    )
    us = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert us.stdout.readline() == b"started\n"
    us.send_signal(number)
    assert ends(us.stdout)
    assert us.wait(PATIENCE_SECONDS) != 0


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    program = (
        "import signal\n"
        "from batchflush import processes\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "processes.end_children_when_told_to_end()\n"
        "signal.raise_signal(signal.SIGHUP)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_failing_command_tells_the_end_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(BatchflushError) as caught:
        processes.run_logged(
            ["sh", "-c", "seq 1000; echo broken >&2; exit 3"], log, "counting", hint="count less"
        )
    message = caught.value.message
    assert "counting failed (exit code 3)" in message
    assert str(log) in message
    assert message.endswith("999\n    1000\n    broken")
    assert "\n    900\n" not in message
    assert caught.value.hint == "count less"
    assert log.read_text().startswith("1\n2\n")


def test_a_long_line_is_cut_in_the_message_but_not_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(BatchflushError) as caught:
        processes.run_logged(["sh", "-c", "printf %01000d 0; exit 1"], log, "printing")
    assert len(caught.value.message) < 500
    assert len(log.read_text()) == 1000


def test_each_line_can_be_watched_and_left_out(tmp_path: Path) -> None:
    log, seen = tmp_path / "log", []

    def watch(line: str) -> bool:
        seen.append(line)
        return line == "2"

    processes.run_logged(["seq", "3"], log, "counting", on_line=watch)
    assert seen == ["1", "2", "3"]
    assert log.read_text() == "1\n3\n"


def test_a_time_limit_ends_the_command_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert processes.logged(FAMILY, log, time_limit_seconds=0.2) == -signal.SIGKILL
    assert "time limit" in log.read_text()


def test_a_missing_program_is_named() -> None:
    with pytest.raises(BatchflushError, match="cannot start no-such-program"):
        processes.start(["no-such-program"])
