# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the tests: each suite with its own runner, all results counted alike.

The last line of output is "N passed, N failed". What keeps a suite from running
counts as a failed test, so that a broken build never looks like a success.
"""

import argparse
import dataclasses
import json
import os
import re
import signal
import xml.etree.ElementTree as xml
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from batchflush import (
    analysis,
    build,
    configure,
    docs,
    iotests,
    paths,
    processes,
    progress,
    qemu_qtests,
    qemu_versions,
    sanitizers,
    source,
    variants,
)
from batchflush.errors import BatchflushError, UsageError

NAME = "check"
HELP = "run the tests"

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclasses.dataclass(frozen=True)
class Result:
    """One test. detail: why it failed or was skipped."""

    name: str
    outcome: str
    detail: str = ""


# The suites


def _unit() -> list[Result]:
    """The model and the store, without QEMU."""
    folder = build.model()
    report = folder / "meson-logs/testlog.junit.xml"
    command = [
        *build.MESON, "test", "-C", folder, "--no-rebuild", "--print-errorlogs",
        f"--timeout-multiplier={variants.PATIENCE}",
    ]  # fmt: skip
    return _junit("unit tests", command, report, r"\s*(\d+)/(\d+) ", time_limit_seconds=600)


def _qtest() -> list[Result]:
    """The driver and the control device in QEMU, under a stepped clock."""
    folder = build.qemu((*build.PROGRAMS, *build.QTESTS))
    return [result for program in build.QTESTS for result in _qtest_program(folder / program)]


def _qtest_program(program: Path) -> list[Result]:
    seen: list[str] = []
    with progress.step(f"Running {program.name}") as step:

        def show(line: str) -> None:
            seen.append(line)
            if re.match(r"(not )?ok ", line):
                results, planned = tap(seen)
                step.update(len(results), planned, results[-1].name)

        log = paths.CHECK / f"{program.name}.log"
        code = processes.logged(
            [program, "--tap", "-k"],
            log,
            on_line=show,
            cwd=paths.QEMU_BUILD,
            env={
                "QTEST_QEMU_BINARY": str(paths.QEMU_SYSTEM),
                "QTEST_QEMU_IMG": str(paths.QEMU_IMG),
                "QTEST_QEMU_STORAGE_DAEMON_BINARY": str(paths.STORAGE_DAEMON),
            },
            time_limit_seconds=600 * variants.PATIENCE,
        )
    results, planned = tap(seen)
    failed = any(result.outcome == FAILED for result in results)
    if len(results) < planned or not planned or (code != 0 and not failed):
        results.append(_aborted(f"the program {program.name}", code, log))
    return results


def _python() -> list[Result]:
    """The command line."""
    return _pytest("python", time_limit_seconds=300)


def _driver() -> list[Result]:
    """The driver from outside: qemu-io, the storage daemon, a machine without a guest."""
    build.qemu()
    return _pytest("driver", time_limit_seconds=600)


def _jobs() -> list[Result]:
    """Block jobs, changes of the graph and migration under load: the driver's tests, often."""
    build.qemu()
    repeat = os.environ.get("BF_REPEAT") or "100"
    files = [f"driver/test_{name}.py" for name in ("block_jobs", "machine_jobs", "migration")]
    limit = 120 * max(int(repeat), 10)
    return _pytest("jobs", limit, files, env={"BF_REPEAT": repeat})


def _cuts() -> list[Result]:
    """Ten thousand power cuts in a process, under each kind of cache."""
    build.qemu()
    cuts = os.environ.get("BF_CUTS") or "10000"
    limit = 20 * (60 + max(int(cuts), 10))
    return _pytest("cuts", limit, ["driver/test_cuts.py"], env={"BF_CUTS": cuts})


def _guest() -> list[Result]:
    """Real kernels on the emulated disks."""
    build.qemu()
    return _pytest("guest", time_limit_seconds=1200)


def _style() -> list[Result]:
    """The Python code's form."""
    code = [folder for folder in ("python", "tests") if (paths.ROOT / folder).is_dir()]
    options = ["--config", "python/pyproject.toml", "--cache-dir", paths.CHECK / "ruff"]
    results = []
    for name, arguments in (("ruff check", ["check"]), ("ruff format", ["format", "--diff"])):
        log = paths.CHECK / f"{name.replace(' ', '-')}.log"
        command = [paths.VENV_PYTHON, "-m", "ruff", *arguments, *options, *code]
        failed = processes.logged(command, log, cwd=paths.ROOT) != 0
        results.append(
            Result(name, FAILED, processes.tail(log)) if failed else Result(name, PASSED)
        )
    return results


def _docs() -> list[Result]:
    """The pages, of which Sphinx says a warning where something is wrong."""
    try:
        docs.html()
    except BatchflushError as error:
        return [Result("docs", FAILED, error.message)]
    return [Result("docs", PASSED)]


def _iotests() -> list[Result]:
    """QEMU's own iotests, with our node under them."""
    build.qemu()
    verdicts, seconds = iotests.run_all(paths.CHECK / "iotests")
    results = {
        mode: [Result(f"{test} ({mode})", v.kind, v.detail) for test, v in tests.items()]
        for mode, tests in verdicts.items()
    }
    progress.console.print(_table("mode", results, seconds))
    return [result for tests in results.values() for result in tests]


def _qemu_qtests() -> list[Result]:
    """QEMU's own qtests of the front ends, with our node as the drive."""
    build.qemu((*build.PROGRAMS, qemu_qtests.PROGRAM))
    results = [
        Result(f"{test} ({mode})", FAILED if wrong else PASSED, wrong)
        for test, mode, wrong in qemu_qtests.run_all(paths.CHECK / "qemu-qtests")
    ]
    return results or [Result("no such test in QEMU", FAILED)]


def _static() -> list[Result]:
    """What can be said of the C code without running it."""
    build.qemu()
    looks = analysis.run_all(source.prepare(configure.own_tree()))
    return [Result(look, FAILED if wrong else PASSED, wrong) for look, wrong in looks]


def _addresses() -> list[Result]:
    """Our suites, with everything built under AddressSanitizer and UBSan."""
    return [Result(**result) for result in sanitizers.addresses()]


def _threads() -> list[Result]:
    """Those that have threads, with everything built under ThreadSanitizer."""
    return [Result(**result) for result in sanitizers.threads()]


def _sanitizers() -> list[Result]:
    """Whatever finds what no test asked for."""
    return [*_static(), *_addresses(), *_threads()]


def _front_ends() -> list[Result]:
    """A node behind QEMU's servers, to programs that are not QEMU's."""
    build.qemu()
    return _pytest("front_ends", time_limit_seconds=900)


def _qemu_versions() -> list[Result]:
    """The short tests, with every QEMU that Debian offers the source of."""
    return [Result(**result) for result in qemu_versions.run_all()]


# The quick ones first.
SUITES: dict[str, Callable[[], list[Result]]] = {
    "style": _style,
    "python": _python,
    "docs": _docs,
    "unit": _unit,
    "qtest": _qtest,
    "driver": _driver,
    "guest": _guest,
}
# Only by name: they take long, and tell less about an edit.
LONG_SUITES: dict[str, Callable[[], list[Result]]] = {
    "static": _static,
    "qemu-qtests": _qemu_qtests,
    "iotests": _iotests,
    "jobs": _jobs,
    "cuts": _cuts,
    "addresses": _addresses,
    "threads": _threads,
    "sanitizers": _sanitizers,
    "front-ends": _front_ends,
    "qemu-versions": _qemu_versions,
}


# Runners that write JUnit's XML


def _pytest(
    name: str,
    time_limit_seconds: float,
    files: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> list[Result]:
    """Tests in files below tests/, or in the folder of that name."""
    report = paths.CHECK / f"{name}.xml"
    command = [
        paths.VENV_PYTHON, "-m", "pytest", "-v", f"--junitxml={report}",
        "-o", f"cache_dir={paths.CHECK / 'pytest'}",
        *(f"tests/{file}" for file in files or [name]),
    ]  # fmt: skip
    pattern = r".*::.*\[ *(\d+)(%)\]"
    return _junit(f"{name} tests", command, report, pattern, time_limit_seconds, env)


def _junit(
    title: str,
    command: processes.Command,
    report: Path,
    progress_pattern: str,
    time_limit_seconds: float,
    env: Mapping[str, str] | None = None,
) -> list[Result]:
    """progress_pattern: two groups, done and total, the total may be a percent sign."""
    report.unlink(missing_ok=True)
    log = paths.CHECK / f"{title.replace(' ', '-')}.log"
    with progress.step(f"Running {title}") as step:

        def show(line: str) -> None:
            match = re.match(progress_pattern, line)
            if match:
                step.update(int(match[1]), 100 if match[2] == "%" else int(match[2]), line)

        code = processes.logged(
            command,
            log,
            on_line=show,
            cwd=paths.ROOT,
            env=env,
            time_limit_seconds=time_limit_seconds * variants.PATIENCE,
        )
    results = list(junit(report)) if report.exists() else []
    if not results or (code != 0 and not any(r.outcome == FAILED for r in results)):
        results.append(_aborted(f"the runner of the {title}", code, log))
    return results


def junit(report: Path) -> Iterator[Result]:
    """The tests in a report in JUnit's format."""
    for case in xml.parse(report).iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        skipped = case.find("skipped")
        if any(part.tag in ("failure", "error") for part in case):
            yield Result(name, FAILED, "\n".join(_said(part) for part in case))
        elif skipped is not None:
            # The text: of a whole module that is skipped, pytest's message tells no reason.
            yield Result(name, SKIPPED, _said(skipped))
        else:
            yield Result(name, PASSED)


def _said(part: xml.Element) -> str:
    return (part.text or part.get("message") or "").strip()


def tap(lines: Sequence[str]) -> tuple[list[Result], int]:
    """The tests in output in the Test Anything Protocol, and how many were announced."""
    results, planned, comments = [], 0, []
    for line in lines:
        plan = re.match(r"1\.\.(\d+)", line)
        test = re.match(r"(not )?ok \d+ (?:- )?(.*?)(?:\s+# (SKIP|TODO)\b\s*(.*))?$", line, re.I)
        if plan:
            planned = int(plan[1])
        elif test and test[3] and not test[1]:
            results.append(Result(test[2], SKIPPED, test[4]))
        elif test:
            detail = "\n".join(comments) if test[1] else ""
            results.append(Result(test[2], FAILED if test[1] else PASSED, detail))
        # What was said since the last test belongs to the next one.
        comments = [] if test else [*comments, line]
    return results, planned


def _aborted(what: str, code: int, log: Path) -> Result:
    ended = f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
    return Result(f"{what} did not finish ({ended})", FAILED, processes.tail(log))


# The report


def _run_suite(name: str) -> list[Result]:
    try:
        return {**SUITES, **LONG_SUITES}[name]()
    except BatchflushError as error:
        return [
            Result(f"{name}: set-up", FAILED, "\n".join(filter(None, (error.message, error.hint))))
        ]


def _count(results: Sequence[Result], outcome: str) -> int:
    return sum(result.outcome == outcome for result in results)


def _report(results: dict[str, list[Result]], seconds: dict[str, float]) -> None:
    for name, tests in results.items():
        for test in tests:
            if test.outcome == FAILED:
                progress.console.print(f"\n[bold red]FAILED[/] {name}: {escape(test.name)}")
                progress.console.print(escape(test.detail))
            elif test.outcome == SKIPPED:
                reason = test.detail or "no reason given"
                progress.console.print(f"skipped {name}: {escape(test.name)}: {escape(reason)}")
    progress.console.print(_table("suite", results, seconds))


def _table(title: str, results: dict[str, list[Result]], seconds: dict[str, float]) -> Table:
    table = Table(title, *(PASSED, FAILED, SKIPPED), "time")
    for name, tests in results.items():
        counts = (str(_count(tests, outcome)) for outcome in (PASSED, FAILED, SKIPPED))
        table.add_row(name, *counts, progress.duration(seconds[name]))
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "suites", metavar="SUITE", nargs="*",
        help=f"which tests to run (default: all of {', '.join(SUITES)}); "
        f"longer ones, only by name: {', '.join(LONG_SUITES)}",
    )  # fmt: skip

    parser.add_argument(
        "--results", metavar="FILE", type=Path, help="write the results there too, as JSON"
    )


def run(args: argparse.Namespace) -> int:
    for name in args.suites:
        known = (*SUITES, *LONG_SUITES)
        if name not in known:
            raise UsageError(f"there is no suite {name!r}; the suites are {', '.join(known)}")
    results, seconds = {}, {}
    for name in args.suites or SUITES:
        timer = progress.Timer()
        results[name] = _run_suite(name)
        seconds[name] = timer.seconds()
    _report(results, seconds)
    if args.results:
        told = {name: [vars(test) for test in tests] for name, tests in results.items()}
        args.results.write_text(json.dumps({"seconds": seconds, "results": told}, indent=1) + "\n")
    everything = [test for tests in results.values() for test in tests]
    passed, failed, skipped = (_count(everything, o) for o in (PASSED, FAILED, SKIPPED))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed and not failed else 1
