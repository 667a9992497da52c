# SPDX-License-Identifier: GPL-2.0-or-later
"""`batchflush crash`: the explorer's command line."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from batchflush import build, paths
from batchflush.crash import (
    checkers,
    cut_command,
    explore,
    export,
    guest_check,
    record,
    recreate,
    results,
    show,
)
from batchflush.crash.log import Log
from batchflush.crash.trial import Setting
from batchflush.errors import UsageError
from batchflush.guest.command_line import parse_options
from batchflush.progress import console

NAME = "crash"
HELP = "find what a power cut can break: try crash states of a workload that ran once"

DEFAULT_LOG = paths.BUILD / "crash/run.log"
ATOMIC_SIZES = (512, 4096)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(crash=_no_command)
    cut_command.add_soak_arguments(parser)
    commands = parser.add_subparsers(metavar="WHAT")
    for name, told, arguments, function in (
        ("run", "run a workload once, then try its crash states", _run_arguments, _run),
        ("explore", "try the crash states of a log that is there", _explore_arguments, _explore),
        ("show", "tell what a log holds, or what a state loses", _show_arguments, _show),
        ("recreate", "make an image of a crash state", _recreate_arguments, _recreate),
        ("export", "write a log in another format", _export_arguments, _export),
        (
            "cut",
            "cut the power of a running guest, again and again",
            cut_command.add_cut_arguments,
            cut_command.run_cut,
        ),
    ):
        command = commands.add_parser(name, help=told, description=told)
        arguments(command)
        command.set_defaults(crash=function)


def run(args: argparse.Namespace) -> int:
    if args.soak and args.crash is not _no_command:
        raise UsageError("crash --soak does it all; it stands alone, without run, cut and so on")
    return args.crash(args)


def _no_command(args: argparse.Namespace) -> int:
    if args.soak:
        return cut_command.run_soak(args)
    raise UsageError(
        "crash needs to be told what; allowed are run, explore, show, recreate, export, cut "
        "and --soak"
    )


# --- run and explore --------------------------------------------------------------------


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    default = record.Workload()
    add = parser.add_argument
    add("--fs", choices=tuple(record.MAKE), default="ext4", help="file system (default: ext4)")
    add("--mount-options", metavar="OPTIONS", default="", help="as mount -o takes them: barrier=0")
    add("--size-mib", metavar="N", type=int, help="size of the file system (default: 256, xfs 320)")
    add("--fill-mib", metavar="N", type=int, default=0, help="files that are there before (0)")
    add(
        "--class", dest="profile", metavar="NAME", default=default.profile,
        help=f"storage class of the disk (default: {default.profile})",
    )  # fmt: skip
    add(
        "--option", metavar="KEY=VALUE", action="append", default=[],
        help="an option of the node that differs from the class; may be given again",
    )  # fmt: skip
    add("--threads", metavar="N", type=int, default=default.threads, help="that sync files (2)")
    add("--rounds", metavar="N", type=int, default=default.rounds, help="that each does (40)")
    add(
        "--log",
        metavar="FILE",
        type=Path,
        default=DEFAULT_LOG,
        help="where to (build/crash/run.log)",
    )
    add("--limit", metavar="SECONDS", type=int, default=600, help="for the guest (600)")
    _search_arguments(parser)
    add(
        "command", metavar="COMMAND", nargs="*",
        help="what to run in /mnt (default: the witness, which syncs files and remembers)",
    )  # fmt: skip


def _explore_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", type=Path)
    _search_arguments(parser)
    parser.add_argument(
        "--base", metavar="IMAGE", type=Path,
        help="raw image of what the disk held before the log began (default: zeroes)",
    )  # fmt: skip


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    limits = explore.Limits()
    add = parser.add_argument
    add(
        "--check", metavar="WHAT", action="append", default=[],
        help="guest, fsck, witness or a command that gets the path of the state; may be given "
        "again (default: on ext4 fsck, and witness if that ran; else guest)",
    )  # fmt: skip
    add(
        "--minutes", metavar="N", type=float, default=limits.minutes, help="time for the search (5)"
    )
    add("--states", metavar="N", type=int, help="states to try at most")
    add("--stop-after", metavar="N", type=int, default=0, help="end after so many failing states")
    add(
        "--bound", metavar="N", type=int, default=limits.bound,
        help="try all subsets of lost writes where there are at most so many (64)",
    )  # fmt: skip
    _atomic_argument(parser)
    add("--minimise", metavar="N", type=int, default=limits.minimise, help="failing states (3)")
    add("--seed", metavar="N", type=int, help="of the samples (default: drawn, and told)")
    add("--fresh", action="store_true", help="forget what an earlier search of this log has tried")
    add("--workers", metavar="N", type=int, help="processes (default: one per core)")
    add("--scheduler", metavar="ADDRESS", help="of an existing Dask cluster to work on")


def _atomic_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--atomic-write-size", metavar="BYTES", type=int, choices=ATOMIC_SIZES,
        default=results.ATOMIC, help="what is written as a whole or not at all, 512 or 4096 (4096)",
    )  # fmt: skip


def _run(args: argparse.Namespace) -> int:
    size = args.size_mib or max(256, 320 if args.fs == "xfs" else 0)
    workload = record.Workload(
        args.fs, size, args.mount_options, args.profile,
        tuple(sorted(parse_options(args.option).items())),
        args.fill_mib, args.threads, args.rounds, tuple(args.command),
    )  # fmt: skip
    _check_numbers(args, ("threads", 1, 64), ("rounds", 1, 1_000_000), ("limit", 1, 86_400))
    chosen = _checks(args.check, workload)
    _check_search(args)
    build.qemu()
    record.record(workload, args.log, args.limit)
    return _search(args, args.log, chosen, workload, None)


def _explore(args: argparse.Namespace) -> int:
    _check_search(args)
    workload = record.recorded(args.log)
    if args.base and not args.base.is_file():
        raise UsageError(f"--base={args.base} is not a file")
    chosen = _checks(args.check, workload)
    if checkers.GUEST in chosen:
        build.qemu()
    return _search(args, args.log, chosen, workload, args.base)


def _checks(asked: list[str], workload: record.Workload | None) -> tuple[str, ...]:
    if asked:
        chosen = tuple(asked)
    elif workload is None:
        raise UsageError(
            "of this log it is not known which file system it holds; say how to check it, "
            "with --check=COMMAND"
        )
    elif workload.file_system != "ext4":
        chosen = (checkers.GUEST,)
    else:
        chosen = (checkers.FSCK, *([] if workload.command else [checkers.WITNESS]))
    checkers.find(chosen, workload.file_system if workload else None)
    return chosen


def _check_search(args: argparse.Namespace) -> None:
    _check_numbers(
        args, ("minutes", 0.01, 100_000), ("states", 1, 1 << 40), ("bound", 2, 1 << 20),
        ("workers", 1, 1024), ("minimise", 0, 1000), ("stop_after", 0, 1 << 40),
        ("seed", 0, (1 << 63) - 1),
    )  # fmt: skip


def _check_numbers(args: argparse.Namespace, *ranges: tuple[str, float, float]) -> None:
    for name, least, most in ranges:
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            option = name.replace("_", "-")
            raise UsageError(f"--{option}={value} is out of range; allowed are {least} to {most}")


def _search(
    args: argparse.Namespace,
    log: Path,
    chosen: tuple[str, ...],
    workload: record.Workload | None,
    base: Path | None,
) -> int:
    setting = Setting(
        str(log.resolve()),
        Log(log).size,
        args.atomic_write_size,
        chosen,
        workload.file_system if workload else None,
        str(base.resolve()) if base else None,
    )
    if checkers.GUEST in chosen and workload:
        guest_check.prepare(workload.file_system)
    seed = args.seed if args.seed is not None else _seed_of_last(setting, args.fresh)
    limits = explore.Limits(args.minutes, args.states, args.bound, args.minimise, args.stop_after)
    found = explore.explore(
        setting, limits, seed,
        scheduler=args.scheduler, workers=args.workers, fresh=args.fresh,
    )  # fmt: skip
    return _tell(setting, found, seed)


def _seed_of_last(setting: Setting, fresh: bool) -> int:
    """A search goes on with its seed; another one draws one."""
    try:
        with results.beside(Path(setting.log), "states.jsonl").open() as stream:
            told = json.loads(stream.readline())
        if not fresh and told["size"] == setting.size:
            return int(told["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return random.randrange(1 << 32)


def _tell(setting: Setting, found: explore.Search, seed: int) -> int:
    log, kept = Path(setting.log), found.results
    failing = kept.failing()
    told = {
        "log": str(log),
        "seed": seed,
        "considered": found.considered,
        "equal": found.equal,
        "resumed": kept.resumed,
        "seconds": round(found.seconds, 3),
        "states-per-minute": round(found.per_minute, 1),
        "exhausted": found.exhausted,
    }
    report = results.beside(log, "report.json")
    document = results.report(kept, found.smallest, setting, told)
    report.write_text(json.dumps(document, indent=1) + "\n")
    resumed = f", {kept.resumed} of them before" if kept.resumed else ""
    ended = "nothing new is left to try" if found.exhausted else "the search can go on"
    console.print(
        f"{len(kept.outcomes)} crash states tried{resumed}, {kept.distinct()} of them different, "
        f"{found.per_minute:,.0f} per minute; {ended}"
    )
    if failing:
        console.print(results.table(kept, found.smallest))
        best = next(iter(found.smallest.values()), failing[0])
        console.print("to make an image of one of them:")
        console.print(f"    {results.recreate_command(setting, best.state)}", soft_wrap=True)
    console.print(
        f"[bold red]{len(failing)} fail[/]" if failing else "[green]none fails[/]",
        f"(seed {seed}; all of it is in {paths.shown(report)})",
    )
    return 1 if failing else 0


# --- the others -------------------------------------------------------------------------


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", type=Path)
    parser.add_argument("--flush", metavar="N", type=int, help="tell of the flush of this number")
    parser.add_argument("--state", metavar="STATE", help="tell of a crash state")
    _atomic_argument(parser)


def _show(args: argparse.Namespace) -> int:
    log = Log(args.log)
    if args.flush is not None:
        console.print(show.flush(log, args.flush))
    elif args.state:
        console.print(show.state(log, args.state, args.atomic_write_size))
    else:
        console.print(show.summary(log))
    return 0


def _recreate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", type=Path)
    parser.add_argument("--state", metavar="STATE", required=True, help="a crash state's name")
    parser.add_argument(
        "-o", dest="output", metavar="IMAGE", type=Path, required=True,
        help="image to write; qcow2 if it is called so, else raw",
    )  # fmt: skip
    parser.add_argument("--base", metavar="IMAGE", type=Path, help="as for explore")
    _atomic_argument(parser)


def _recreate(args: argparse.Namespace) -> int:
    recreate.recreate(Log(args.log), args.state, args.output, args.atomic_write_size, args.base)
    console.print(f"{args.state} is in {paths.shown(args.output)}")
    return 0


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", type=Path)
    parser.add_argument(
        "--dm-log-writes", metavar="FILE", type=Path, required=True,
        help="write the log of Linux's dm-log-writes, for replay-log and the like",
    )  # fmt: skip


def _export(args: argparse.Namespace) -> int:
    entries = export.dm_log_writes(Log(args.log), args.dm_log_writes)
    console.print(f"{entries} entries are in {paths.shown(args.dm_log_writes)}")
    return 0
