# SPDX-License-Identifier: GPL-2.0-or-later
"""Run our suites with everything built in another way: under sanitizers, or with another QEMU.

It is this program again that runs them. Its environment names the variant, and so it builds in
folders of the variant's own.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from batchflush import paths, processes, progress
from batchflush.errors import BatchflushError

ADDRESSES, THREADS, FUZZING = "sanitizers", "threads", "fuzzing"

# What configures QEMU, and the model, for a variant.
QEMU_ARGUMENTS = {
    ADDRESSES: ("--enable-asan", "--enable-ubsan"),
    THREADS: ("--enable-tsan",),
    # Only the machine is fuzzed, and no guest runs in it.
    FUZZING: (
        "--enable-fuzzing", "--enable-asan", "--cc=clang-19", "--cxx=clang++-19",
        "--disable-tools", "--disable-tcg",
    ),
}  # fmt: skip
MODEL_SANITIZER = {ADDRESSES: "address,undefined", THREADS: "thread"}

# How much longer than usual a test may take.
PATIENCE = {ADDRESSES: 5, THREADS: 10}.get(paths.VARIANT, 1)

# The source tree of this variant.
QEMU_SOURCE = os.environ.get("BATCHFLUSH_QEMU_SOURCE", "")

LIMIT_SECONDS = 3 * 3600


def check(
    variant: str,
    suites: Sequence[str],
    *,
    tree: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[dict[str, str]]:
    """The results of the suites, as check writes them, each with its suite in its name.

    variant: names the folders; the usual ones if it is empty.
    tree: QEMU's source, if not the usual one.
    env: variables for the programs under test.
    """
    title = variant or "as usual"
    report = paths.CHECK / f"results-{variant}.json"
    report.unlink(missing_ok=True)
    log = report.with_suffix(".log")
    with progress.step(f"Running {', '.join(suites)} ({title})") as step:
        code = processes.logged(
            [paths.VENV_PYTHON, "-m", "batchflush", "check", *suites, "--results", report],
            log,
            on_line=lambda line: step.say(line.strip()),
            cwd=paths.ROOT,
            env={
                **(env or {}),
                "BATCHFLUSH_VARIANT": variant,
                **({"BATCHFLUSH_QEMU_SOURCE": str(tree)} if tree else {}),
            },
            time_limit_seconds=LIMIT_SECONDS,
        )
    if not report.exists():
        raise BatchflushError(
            f"{', '.join(suites)} ({title}) ended early (exit code {code}); the whole log is "
            f"{paths.shown(log)}\n{processes.tail(log)}"
        )
    for suite, results in json.loads(report.read_text())["results"].items():
        for result in results:
            yield {**result, "name": f"{title}, {suite}: {result['name']}"}
