# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzz model, store and readers with libFuzzer; what is C under AddressSanitizer and UBSan.

A target is a file tests/fuzz/fuzz-NAME.c or .py; what it asserts is the oracle. Target "device" is
the control device under QEMU's own generic fuzzer, for which QEMU is built once more. A run begins
with the inputs in tests/fuzz/corpus/NAME, which are kept small, and keeps what it finds new in
build/.
"""

import argparse
import dataclasses
import re
import subprocess
from pathlib import Path

from rich.table import Table

from batchflush import analysis, build, paths, processes, progress, variants
from batchflush.errors import BatchflushError, UsageError

NAME = "fuzz"
HELP = "fuzz model, store and readers with libFuzzer"

FOLDER = paths.BUILD / "fuzz"
SOURCES = paths.ROOT / "tests/fuzz"
MODEL = paths.ROOT / "block/batchflush/model"
STORE = paths.ROOT / "block/batchflush/store"
FLAGS = (
    "-g", "-O2", "-std=gnu11", "-D_GNU_SOURCE", "-fsanitize=fuzzer,address,undefined",
    "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer",
)  # fmt: skip
# Of the driver itself, by target: what is QEMU's in it the target stands in for.
OF_QEMU = {"battery": "block/batchflush/battery-file.c"}
# Not for every machine's environment, as only this needs it.
ATHERIS = FOLDER / "python"
DEFAULT_SECONDS = 60

DEVICE = "device"
FUZZED_QEMU = "qemu-fuzz-x86_64"
# A guest that cuts its power goes on with the next input.
MACHINE = (
    "-machine q35 -nodefaults -no-shutdown "
    "-blockdev driver=batchflush,node-name=disk0,write-cache=volatile,power-cuts=on,"
    "clock=realtime,file.driver=null-co,file.size=1048576 "
    "-device virtio-blk-pci,drive=disk0 -device batchflush-control,nodes=disk0"
)


@dataclasses.dataclass(frozen=True)
class Run:
    """What a target's run came to."""

    executions: int
    coverage: int
    corpus: int
    findings: tuple[Path, ...]


def targets() -> list[str]:
    return [*sorted(file.stem.removeprefix("fuzz-") for file in SOURCES.glob("fuzz-*.*")), DEVICE]


def program(target: str) -> processes.Command:
    """How a target is started, once it is built."""
    if target == DEVICE:
        return [_fuzzed_qemu(), "--fuzz-target=generic-fuzz"]
    script = SOURCES / f"fuzz-{target}.py"
    if not script.exists():
        return [_compiled(target)]
    if not (ATHERIS / "atheris").is_dir():
        with progress.step("Fetching atheris, a libFuzzer for Python"):
            processes.run_logged(
                [paths.VENV_PYTHON, "-m", "pip", "install", "-q", "--target", ATHERIS, "atheris"],
                FOLDER / "atheris.log",
                "fetching atheris",
            )
    return [paths.VENV_PYTHON, script]


def _fuzzed_qemu() -> Path:
    with progress.step("Building QEMU for its fuzzer") as step:
        processes.run_logged(
            [paths.VENV_PYTHON, "-m", "batchflush", "build", FUZZED_QEMU],
            FOLDER / f"{DEVICE}-build.log",
            "building QEMU for its fuzzer",
            on_line=lambda line: step.say(line.strip()),
            cwd=paths.ROOT,
            env={"BATCHFLUSH_VARIANT": variants.FUZZING},
        )
    return paths.BUILD / f"qemu-{variants.FUZZING}" / FUZZED_QEMU


def _compiled(target: str) -> Path:
    """Compile a target together with model and store."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = FOLDER / "batchflush-profiles.h"
    generate = [paths.VENV_PYTHON, MODEL / "profile-gen.py", paths.PROFILES, table]
    processes.run_logged(generate, FOLDER / "profiles.log", "making the table of classes")
    glib = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "glib-2.0"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    binary = FOLDER / f"fuzz-{target}"
    sources = [SOURCES / f"fuzz-{target}.c", *sorted(MODEL.glob("*.c")), *sorted(STORE.glob("*.c"))]
    flags: list[str] = []
    if target in OF_QEMU:
        file = paths.ROOT / OF_QEMU[target]
        sources.append(file)
        flags = _flags_of_qemu(file)
    processes.run_logged(
        [
            analysis.CLANG, *FLAGS, *flags, "-I", MODEL, "-I", STORE, "-I", FOLDER, "-o", binary,
            *sources, *glib, "-lm",
        ],
        FOLDER / f"{target}-build.log",
        f"compiling the target {target}",
        hint="clang and its libFuzzer are Debian's packages clang-19 and libclang-rt-19-dev",
        cwd=paths.QEMU_BUILD if target in OF_QEMU else None,
    )  # fmt: skip
    return binary


def _flags_of_qemu(file: Path) -> list[str]:
    """What QEMU's build gives a file of the driver; the build has to be there."""
    build.qemu()
    command = analysis.commands()[file]
    return [*analysis.meaning(command), "-I", str(file.parent)]


def fuzz(target: str, seconds: int, seed: int | None) -> Run:
    """Run a target for some seconds; what crashed it is kept in build/fuzz/findings."""
    command = program(target)
    found = FOLDER / "corpus" / target
    findings = FOLDER / "findings" / target
    for folder in (found, findings):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    known = SOURCES / "corpus" / target
    log = FOLDER / f"{target}.log"
    with progress.step(f"Fuzzing {target}") as step:
        timer = progress.Timer()

        def show(line: str) -> None:
            match = re.match(r"#(\d+)\s", line)
            if match:
                step.update(min(timer.seconds(), seconds), seconds, f"{int(match[1]):,} inputs")

        code = processes.logged(
            [
                *command, f"-max_total_time={seconds}", "-len_control=0", "-timeout=20",
                "-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={findings}/",
                *([f"-seed={seed}"] if seed is not None else []),
                found, *([known] if known.is_dir() else []),
            ],
            log,
            on_line=show,
            env={
                "PYTHONPATH": f"{ATHERIS}:{paths.ROOT / 'python'}",
                "QEMU_FUZZ_ARGS": MACHINE,
                "QEMU_FUZZ_OBJECTS": "batchflush*",
                # QEMU keeps for ever what lives as long as it does.
                "ASAN_OPTIONS": "detect_leaks=0" if target == DEVICE else "",
            },
            time_limit_seconds=seconds + 120,
        )  # fmt: skip
    new = tuple(sorted(set(findings.iterdir()) - before))
    if code != 0 and not new:
        raise processes.failure(f"fuzzing {target}", code, log)
    return told(log.read_text(errors="replace"), len(list(found.iterdir())), new)


def told(text: str, corpus: int, findings: tuple[Path, ...]) -> Run:
    executions = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    coverage = re.findall(r"\bcov: (\d+)", text)
    return Run(
        int(executions[1]) if executions else 0,
        int(coverage[-1]) if coverage else 0,
        corpus,
        findings,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "targets", metavar="TARGET", nargs="*",
        help=f"what to fuzz (default: all): {', '.join(targets())}",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", metavar="N", type=int, default=DEFAULT_SECONDS,
        help="how long each target runs (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=int, help="repeats a run, as its log names it")


def run(args: argparse.Namespace) -> int:
    for target in args.targets:
        if target not in targets():
            raise UsageError(f"there is no target {target!r}; there are {', '.join(targets())}")
    if args.seconds < 1:
        raise UsageError(f"--seconds={args.seconds} is out of range; allowed is 1 or more")
    runs = {target: fuzz(target, args.seconds, args.seed) for target in args.targets or targets()}
    table = Table("target", "inputs", "coverage", "corpus", "findings")
    for target, told in runs.items():
        table.add_row(
            target, f"{told.executions:,}", f"{told.coverage:,}", f"{told.corpus:,}",
            str(len(told.findings)),
        )  # fmt: skip
    progress.console.print(table)
    findings = [finding for told in runs.values() for finding in told.findings]
    for finding in findings:
        target = finding.parent.name
        print(f"finding of {target}: {paths.shown(finding)}")
    if findings:
        raise BatchflushError(f"{len(findings)} inputs broke a target")
    return 0
