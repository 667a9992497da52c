# SPDX-License-Identifier: GPL-2.0-or-later
"""Build QEMU with batchflush in it, and the model and the store without QEMU."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from batchflush import configure, paths, processes, progress, variants

NAME = "build"
HELP = "build QEMU with batchflush in it"

# What the laboratory runs; the rest of QEMU is not built.
PROGRAMS = (
    "qemu-system-x86_64",
    "qemu-img",
    "qemu-io",
    "qemu-nbd",
    "storage-daemon/qemu-storage-daemon",
)
MESON = (paths.VENV_PYTHON, "-m", "mesonbuild.mesonmain")
QTESTS = ("tests/qtest/batchflush-test", "tests/qtest/batchflush-control-test")
HINT = "if the error is in QEMU's own files, a fresh start may help: rm -r build/qemu"


def qemu(targets: Sequence[str] = PROGRAMS, *, debug: bool = False) -> Path:
    """Build what has changed; returns the build folder."""
    folder = configure.configure(debug)
    with configure.locked(folder):
        _ninja(folder, "Building QEMU", targets)
    return folder


def model(targets: Sequence[str] = ()) -> Path:
    """Build the model and the store, on glib alone; returns the folder.

    targets: only these; otherwise all, with the tests.
    """
    folder = paths.MODEL_BUILD
    sanitizer = variants.MODEL_SANITIZER.get(paths.VARIANT)
    sanitizers = (f"-Db_sanitize={sanitizer}",) if sanitizer else ()
    with configure.locked(folder):
        if not (folder / "build.ninja").exists():
            with progress.step("Configuring the model"):
                processes.run_logged(
                    # An optimised build: its benchmarks count.
                    [*MESON, "setup",
                     "--buildtype=debugoptimized", *sanitizers, folder, paths.ROOT],
                    paths.BUILD / "model-configure.log",
                    "configuring the model",
                )  # fmt: skip
        _ninja(folder, "Building the model", targets)
    return folder


def _ninja(folder: Path, title: str, targets: Sequence[str]) -> None:
    with progress.step(title) as step:

        def show(line: str) -> None:
            match = re.match(r"\[(\d+)/(\d+)\] (.*)", line)
            if match:
                step.update(int(match[1]), int(match[2]), match[3].split("/")[-1])

        processes.run_logged(
            ["ninja", "-C", folder, *targets],
            paths.BUILD / f"{folder.name}-build.log",
            title[0].lower() + title[1:],
            hint=HINT if folder != paths.MODEL_BUILD else None,
            on_line=show,
            env={"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C.UTF-8"},
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--debug", action="store_true",
        help=f"with QEMU's debugging checks, in {paths.shown(paths.QEMU_DEBUG_BUILD)}",
    )  # fmt: skip
    parser.add_argument(
        "programs", metavar="PROGRAM", nargs="*", default=PROGRAMS,
        help=f"what to build (default: {', '.join(PROGRAMS)})",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    folder = qemu(args.programs, debug=args.debug)
    print(f"built in {paths.shown(folder)}: {', '.join(args.programs)}")
    return 0
