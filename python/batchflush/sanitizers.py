# SPDX-License-Identifier: GPL-2.0-or-later
"""Our tests, with QEMU, model and store built under AddressSanitizer and UBSan.

It is this program again that runs them, told by its environment to use builds of their own.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from batchflush import paths, processes, progress
from batchflush.errors import BatchflushError

SUITES = ("unit", "qtest", "driver")
# A report ends the program, so that its test fails.
ENVIRONMENT = {
    "BATCHFLUSH_CHECKED_BY": "sanitizers",
    # QEMU leaves to the end of the process what it does not need to free.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}
LIMIT_SECONDS = 3 * 3600


def run_all(report: Path) -> Iterator[dict[str, str]]:
    """The results of all suites, as check writes them."""
    report.unlink(missing_ok=True)
    log = report.with_suffix(".log")
    with progress.step(f"Running {', '.join(SUITES)} under sanitizers") as step:
        code = processes.logged(
            [
                paths.VENV_PYTHON, "-m", "batchflush", "check", *SUITES, "--results", report,
            ],
            log,
            on_line=lambda line: step.say(line.strip()),
            cwd=paths.ROOT,
            env={**ENVIRONMENT, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            time_limit_seconds=LIMIT_SECONDS,
        )  # fmt: skip
    if not report.exists():
        raise BatchflushError(
            f"the suites under sanitizers ended early (exit code {code}); the whole log is "
            f"{paths.shown(log)}\n{processes.tail(log)}"
        )
    for suite, results in json.loads(report.read_text())["results"].items():
        for result in results:
            yield {**result, "name": f"{suite}: {result['name']}"}
