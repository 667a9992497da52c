# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's own iotests with our node under them: raw over NBD, served through a batchflush node.

A wrapper (tests/conformance/qemu-nbd.py) stands in for qemu-nbd. First all tests run without it:
that says which ones are for raw over NBD at all, and which of them fail in this environment
without us. Then these run once per mode. Many of QEMU's tests count on a server being there
a second after its start, or gone as soon as it was told to end, so what fails on a busy host
gets a second run, alone and with longer waits; the output names it. What may be skipped stands,
with its reason, in tests/conformance/iotests.toml.
"""

import dataclasses
import os
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from batchflush import paths, processes, progress

FOLDER = paths.ROOT / "tests/conformance"
LISTED = FOLDER / "iotests.toml"
WRAPPER = FOLDER / "qemu-nbd.py"
# Its programs take more time than their namesakes.
PATIENT = FOLDER / "patient"

# How a test of QEMU's says that it is for another format, protocol or system.
NOT_FOR_US = re.compile(r"^not suitable for this ")
PARALLEL = 2
LIMIT_SECONDS = 1800

# Short enough for the tests' own time limits, long enough to be seen.
_TIMES = (
    "read-latency-ns=200000,write-latency-ns=100000,"
    "destage-latency-ns=500000,flush-latency-ns=2000000"
)
# Small, so that the tests' writes stall and destage in the background too.
_CACHE = "cache-size=1M,destage-high-percent=75,destage-low-percent=25"
_NODES = {
    "none": "write-cache=none",
    "volatile": f"write-cache=volatile,{_CACHE}",
    "battery": f"write-cache=battery,{_CACHE}",
}
MODES = {
    f"{name}, {times}": f"driver=batchflush,{node}" + (f",{_TIMES}" if times == "latency" else "")
    for times in ("no latency", "latency")
    for name, node in _NODES.items()
}

PASS, FAIL, NOT_RUN = "pass", "fail", "not run"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What QEMU's test runner said of a test, and whether a node was under it."""

    status: str
    reason: str = ""
    with_node: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What we make of it. kind: "passed", "failed" or "skipped"."""

    kind: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Listed:
    """The reasons in iotests.toml, by test."""

    not_run: Mapping[str, str]
    without_node: Mapping[str, str]
    fails_anyway: Mapping[str, str]
    differs: Mapping[str, str]

    @classmethod
    def load(cls, mode: str) -> "Listed":
        lists = tomllib.loads(LISTED.read_text())
        differs = {
            test: entry["reason"]
            for test, entry in lists["differs"].items()
            if mode not in entry["passes-with"]
        }
        return cls(lists["not-run"], lists["without-node"], lists["fails-anyway"], differs)


def verdict(test: str, outcome: Outcome, plain: Outcome, listed: Listed) -> Verdict:
    """What a test's outcome is worth, given what it did without us and what is listed."""
    if outcome.status == NOT_RUN:
        return _listed(test, listed.not_run, f"not run: {outcome.reason}", "not-run")
    if outcome.status == FAIL:
        if plain.status == FAIL:
            return _listed(test, listed.fails_anyway, "fails without us too", "fails-anyway")
        return _listed(test, listed.differs, outcome.reason, "differs")
    listed_as = {
        "not-run": listed.not_run,
        "fails-anyway": listed.fails_anyway,
        "differs": listed.differs,
    }
    for kind, names in listed_as.items():
        if test in names:
            return Verdict("failed", f"it passes, but is listed under [{kind}]; {_file()}")
    if not outcome.with_node:
        return _listed(test, listed.without_node, "no image went through a node", "without-node")
    if test in listed.without_node:
        return Verdict("failed", f"a node was under it, but it is listed otherwise; {_file()}")
    return Verdict("passed")


def _listed(test: str, names: Mapping[str, str], what: str, kind: str) -> Verdict:
    if test in names:
        return Verdict("skipped", names[test])
    return Verdict("failed", f"{what}, and it is not listed under [{kind}]; {_file()}")


def _file() -> str:
    return paths.shown(LISTED)


def missing(tests: Iterable[str], listed: Listed) -> list[str]:
    """What is listed although QEMU has no such test for us."""
    names = {*listed.not_run, *listed.without_node, *listed.fails_anyway, *listed.differs}
    return sorted(names - set(tests))


def run_all(folder: Path) -> tuple[dict[str, dict[str, Verdict]], dict[str, float]]:
    """Verdicts by mode and test, and seconds by mode; logs and images go into the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    programs = _programs(folder / "programs")
    plain = _run("without us", programs, (), folder / "plain")
    plain = {name: one for name, one in plain.items() if not NOT_FOR_US.search(one.reason)}
    verdicts, seconds = {}, {}
    for mode, node in MODES.items():
        timer = progress.Timer()
        listed = Listed.load(mode)
        own = folder / re.sub(r"\W+", "-", mode)
        served = own / "served"
        environment = {
            **programs,
            "QEMU_NBD_PROG": str(WRAPPER),
            "BATCHFLUSH_QEMU_NBD": programs["QEMU_NBD_PROG"],
            "BATCHFLUSH_NODE": node,
            "BATCHFLUSH_SERVED": str(served),
        }
        outcomes = _run(mode, environment, sorted(plain), own)
        again = [
            test
            for test, one in outcomes.items()
            if one.status == FAIL and plain[test].status != FAIL and test not in listed.differs
        ]
        if again:
            patient = {**environment, "PATH": f"{PATIENT}:{os.environ['PATH']}"}
            outcomes |= _run(f"{mode}, once more: {', '.join(again)}", patient, again, own, 1)
        with_node = _with_node(served)
        verdicts[mode] = {
            test: verdict(
                test,
                dataclasses.replace(outcome, with_node=test in with_node),
                plain[test],
                listed,
            )
            for test, outcome in outcomes.items()
        }
        for test in missing(outcomes, listed):
            verdicts[mode][test] = Verdict("failed", f"there is no such test, but {_file()} has it")
        for test in sorted(set(plain) - set(outcomes)):
            verdicts[mode][test] = Verdict("failed", "the runner ended before it was run")
        seconds[mode] = timer.seconds()
    return verdicts, seconds


def _programs(folder: Path) -> dict[str, str]:
    """The programs under test, as they are now: a build meanwhile changes nothing."""
    folder.mkdir(parents=True)
    named = {
        "QEMU_PROG": paths.QEMU_SYSTEM,
        "QEMU_IMG_PROG": paths.QEMU_IMG,
        "QEMU_IO_PROG": paths.QEMU_IO,
        "QEMU_NBD_PROG": paths.QEMU_NBD,
        "QSD_PROG": paths.STORAGE_DAEMON,
    }
    return {name: str(shutil.copy(program, folder)) for name, program in named.items()}


def _run(
    title: str,
    environment: Mapping[str, str],
    tests: Sequence[str],
    folder: Path,
    parallel: int = PARALLEL,
) -> dict[str, Outcome]:
    """Run the tests (none given: all) with QEMU's own runner."""
    folder.mkdir(parents=True, exist_ok=True)
    runner = paths.QEMU_BUILD / "tests/qemu-iotests/check"
    outcomes: dict[str, Outcome] = {}
    with progress.step(f"Running QEMU's iotests, {title}") as step:

        def show(line: str) -> None:
            parsed = outcome(line)
            if parsed:
                outcomes[parsed[0]] = parsed[1]
                if tests:
                    step.update(len(outcomes), len(tests), parsed[0])
                else:
                    step.say(f"{len(outcomes)} tests, {parsed[0]}")

        processes.logged(
            [paths.VENV_PYTHON, runner, "-raw", "-nbd", "-j", str(parallel), *tests],
            folder / f"log-{parallel}",
            on_line=show,
            cwd=runner.parent,
            env={"TEST_DIR": str(folder / "scratch"), "LC_ALL": "C.UTF-8", **environment},
            time_limit_seconds=LIMIT_SECONDS,
        )
    return outcomes


def outcome(line: str) -> tuple[str, Outcome] | None:
    """Name and outcome in a line of the runner's table; None if it is none."""
    match = re.search(
        r"(\S+) +(pass|fail|not run) +\[[\d:]+\] \[[\d:]+\] +(?:[\d.]+s|\.\.\.) *"
        r"(?:\(last: [\d.]+s\))? *(.*)",
        line,
    )
    return (match[1], Outcome(match[2], match[3].strip())) if match else None


def _with_node(served: Path) -> set[str]:
    """The tests that served an image through a node; each works in a folder of its own."""
    lines = served.read_text().splitlines() if served.exists() else []
    return {match[1] for line in lines if (match := re.search(r"/raw-nbd-([^/]+)/", line))}
