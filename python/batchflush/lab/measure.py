# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab run`: measure every cell of an experiment that is not measured yet."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from batchflush import build, cluster, paths, profiles
from batchflush.errors import UsageError
from batchflush.lab import cell, experiment, kernels, results, show, workloads
from batchflush.progress import console, step

NAME = "run"
HELP = "measure an experiment: storage classes × threads × kernels, each cell in a guest"
FOLDER = paths.BUILD / "lab"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment_arguments(parser)
    add_common_arguments(parser)


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "experiment", metavar="EXPERIMENT.toml", type=Path, nargs="?",
        help="what to measure; without it the flags say so",
    )  # fmt: skip
    parser.add_argument(
        "--cell", metavar="KEY", action="append", default=[],
        help="only this cell, and again even if it is measured; may be given again",
    )  # fmt: skip
    flags = parser.add_argument_group("without a file")
    flags.add_argument(
        "--kernel", metavar="[NAME=]KERNEL[,PARAMETER...]", action="append", default=[],
        help="a bzImage, 'debian', a package linux-image-..., or linux-source-6.1[@HZ] with the "
        "project's graft; may be given again",
    )  # fmt: skip
    flags.add_argument("--class", dest="classes", metavar="NAME,...", default="")
    flags.add_argument("--workload", choices=workloads.KINDS, default="fs_mark")
    flags.add_argument(
        "--arguments", default="", help="of the workload's program; or the script itself"
    )
    flags.add_argument("--threads", metavar="N,...", default="2,4,8,16,32")
    flags.add_argument("--repetitions", metavar="N", type=int, default=1)
    flags.add_argument("--shape", choices=experiment.SHAPES, default="exact")
    flags.add_argument("--fs", choices=experiment.FILE_SYSTEMS, default="ext4")
    flags.add_argument("--mkfs", metavar="OPTIONS", default="")
    flags.add_argument("--mount", metavar="OPTIONS", default="")
    flags.add_argument("--option", metavar="KEY=VALUE", action="append", default=[])
    flags.add_argument("--name", default="by-flags", help="of the folder below build/lab")


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--again", action="store_true", help="measure what is measured, too")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="of a Dask cluster (default: this machine's cores)"
    )
    parser.add_argument(
        "--qemu", metavar="PATH", type=Path, help="another qemu-system-x86_64 than the built one"
    )


def run(args: argparse.Namespace) -> int:
    file = measure(experiment_of(args), args)
    return show.everything(file)


def experiment_of(args: argparse.Namespace) -> experiment.Experiment:
    if args.experiment is not None:
        if args.kernel or args.classes:
            raise UsageError(f"{args.experiment} and --kernel or --class exclude each other")
        return experiment.load(args.experiment)
    if not args.kernel or not args.classes:
        raise UsageError("lab run needs an EXPERIMENT.toml, or --kernel and --class")
    try:
        threads = [int(count) for count in args.threads.split(",")]
    except ValueError:
        raise UsageError(f"--threads={args.threads} is not a list of numbers") from None
    described = experiment.of_flags(
        kernel=args.kernel, classes=args.classes.split(","), workload=args.workload,
        arguments=args.arguments, threads=threads, repetitions=args.repetitions,
        shape=args.shape, file_system=args.fs, mkfs=args.mkfs, mount=args.mount,
        options=args.option, name=args.name,
    )  # fmt: skip
    return dataclasses.replace(described, source=_flags_again(args))


def _flags_again(args: argparse.Namespace) -> str:
    said = [f"--kernel={k}" for k in args.kernel]
    said += [f"--option={o}" for o in args.option]
    names = ("workload", "arguments", "threads", "repetitions", "shape", "fs", "mkfs", "mount")
    said += [f"--class={args.classes}", f"--name={args.name}"]
    said += [f"--{name}={getattr(args, name)}" for name in names if getattr(args, name)]
    return shlex.join(["run", *said])


def measure(wanted: experiment.Experiment, args: argparse.Namespace) -> results.File:
    """The results of the experiment, complete but for cells that failed."""
    qemu = _qemu(args.qemu)
    qemu_identity = hashlib.sha256(qemu.read_bytes()).hexdigest()[:16]
    tasks = _tasks(wanted, qemu, qemu_identity)
    file = _file(wanted, qemu_identity, tasks)
    missing = _missing(file, tasks, args)
    if missing:
        _run(wanted, missing, file, args.scheduler)
    file.write_csv()
    return file


def _qemu(own: Path | None) -> Path:
    if own is None:
        build.qemu()
        return paths.QEMU_SYSTEM
    if not own.is_file():
        raise UsageError(f"--qemu={own} is not a file")
    return own.resolve()


def _tasks(wanted: experiment.Experiment, qemu: Path, qemu_identity: str) -> list[cell.Task]:
    builder = kernels.Builder()
    logs = FOLDER / wanted.name / "failed"
    tasks = []
    for one in wanted.cells():
        built = builder.build(one.kernel)
        kernel = cell.with_programs(one, built.kernel)
        key = one.key(built.identity, qemu_identity)
        tasks.append(cell.Task(one, kernel, built.identity, key, logs, qemu))
    return tasks


def _file(
    wanted: experiment.Experiment, qemu_identity: str, tasks: Sequence[cell.Task]
) -> results.File:
    """The file of results: what it holds of these cells stays, what it holds of others goes."""
    path = FOLDER / wanted.name / "results.jsonl"
    old = results.File.read(path) if path.exists() else None
    file = results.File(path, _header(wanted, qemu_identity))
    keys = {task.key for task in tasks}
    if old is not None:
        file.records = {key: record for key, record in old.records.items() if key in keys}
    file.begin()
    return file


def _header(wanted: experiment.Experiment, qemu_identity: str) -> dict[str, Any]:
    return {
        "experiment": wanted.name,
        "title": wanted.title,
        "command": f"./batchflush lab {wanted.source}",
        "qemu": qemu_identity,
        "shape": wanted.shape,
        "seed": wanted.seed,
        "order": [task.labels() for task in wanted.cells()],
        "kernels": {kernel.name: kernel.described() for kernel in wanted.kernels},
        "classes": {name: _class(name) for name in wanted.classes},
    }


def _class(name: str) -> dict[str, Any]:
    profile = profiles.find(name)
    return {
        "title": profile.title,
        "node": {key: setting.value for key, setting in profile.node.items()},
        "front-end": {key: setting.value for key, setting in profile.front_end.items()},
    }


def _missing(
    file: results.File, tasks: Sequence[cell.Task], args: argparse.Namespace
) -> list[cell.Task]:
    if args.cell:
        chosen = [task for task in tasks if task.key in args.cell]
        unknown = set(args.cell) - {task.key for task in chosen}
        if unknown:
            raise UsageError(
                f"--cell={unknown.pop()} is not a cell of this experiment",
                "its key changes with kernel, class and QEMU; the results hold the present ones",
            )
        return chosen
    if args.again:
        return list(tasks)
    ok = {key for key, record in file.records.items() if record["status"] == "ok"}
    return [task for task in tasks if task.key not in ok]


def _run(
    wanted: experiment.Experiment,
    tasks: Sequence[cell.Task],
    file: results.File,
    scheduler: str | None,
) -> None:
    shutil.rmtree(FOLDER / wanted.name / "failed", ignore_errors=True)
    with (
        step(f"Measuring {len(tasks)} cells of {wanted.name}") as progress,
        cluster.connected(scheduler) as client,
    ):
        by_key = {task.key: task.cell for task in tasks}
        for done, record in enumerate(cluster.completed(client, cell.run, tasks), 1):
            file.add(record)
            said = by_key[record["cell"]].described()
            progress.update(done, len(tasks), said)
            if record["status"] != "ok":
                console.print(f"[bold red]failed[/] {escape(said)}: {escape(record['error'])}")
