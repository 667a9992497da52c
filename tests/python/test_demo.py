# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's numbers: from fs_mark's last line to the table and results.json."""

import json
import subprocess

import pytest
from rich.console import Console

from batchflush import demo
from batchflush.errors import BatchflushError
from batchflush.guest import jobs

# What fs_mark -v -t 4 -n 100 prints last: 4 threads that took 2 s each.
LINE = (
    "     6          400         4096        200.0            40000"
    "       50      100      900       20       40       90     9000    19700    30000"
    "        0        0        0       30       60       90       10       20       30"
)
STUBS = f"""
fs_mark() {{ echo "# a heading"; echo "{LINE}"; }}
umount() {{ :; }}
report() {{ echo "$1"; }}
ask() {{ echo "$1"; }}
cat() {{ echo 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 77 17; }}
"""


def cell(profile: str, threads: int, rate: float, flushes: int = 0) -> demo.Cell:
    return demo.Cell(profile, threads, 100, rate, flushes, rate, 1.0)


def test_the_rate_is_all_files_over_the_mean_threads_time() -> None:
    columns = [float(column) for column in LINE.split()]
    # Per file 100 + 40 + 19700 + 60 µs, and 10 ms of overhead per thread.
    assert demo.files_per_second(columns, 4, 100) == pytest.approx(400 / 2.0)


def test_a_cells_script_says_what_the_cell_needs() -> None:
    script = STUBS + jobs.fs_mark_cell("/dev/vda", 4, 100)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    message = json.loads(done.stdout)
    assert message["type"] == "cell"
    assert message["flushes"] == [77, 77]
    made = demo.cell_of("ramdisk", message)
    assert (made.threads, made.files, made.flushes_issued) == (4, 400, 0)
    assert made.files_per_s == pytest.approx(200.0)
    assert made.files_per_s_fs_mark == 200.0


def test_the_flushes_of_a_cell_are_those_sent_meanwhile() -> None:
    message = {"threads": 4, "files": 100, "fs_mark": LINE, "uptime": [5, 7], "flushes": [19, 419]}
    assert demo.cell_of("sata-7200", message).flushes_issued == 400
    assert demo.cell_of("sata-7200", message).flushes_per_file == 1.0
    assert demo.cell_of("sata-7200", message).guest_seconds == 2.0


def test_the_end_of_the_script_tells_the_kernels_count() -> None:
    script = STUBS + jobs.tell_flushes("/dev/vda")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"type": "end", "flushes": 77}


@pytest.mark.parametrize("name", ["flush-arrivals", "flushes-issued"])
def test_a_device_that_counts_differently_is_noticed(name: str) -> None:
    statistics = {"flush-arrivals": 77, "flushes-issued": 77}
    demo._check_flushes("sata-7200", 77, statistics)
    statistics[name] = 76
    with pytest.raises(BatchflushError, match=f"sent 77 flushes, but the disk's {name} is 76"):
        demo._check_flushes("sata-7200", 77, statistics)


def test_results_name_the_class() -> None:
    record = demo._record(cell("ramdisk", 2, 1000.0))
    assert record["class"] == "ramdisk"
    assert {"threads", "files_per_s", "flushes_issued"} <= set(record)


def test_the_table_shows_rates_flushes_and_gain(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [cell("sata-7200", 2, 30.0, 200), cell("sata-7200", 32, 450.0, 12)]
    Console(width=80).print(demo.table(cells))
    shown = capsys.readouterr().out
    for text in ("30.0 (2.00)", "450.0 (0.12)", "15.0", "400, 60 files per thread"):
        assert text in shown
