# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a storage class of real storage: probe it, fit a class, say how good the fit is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from batchflush import build, curve, paths, profiles
from batchflush.calibration import class_file, fit, host, probe, target, verify
from batchflush.calibration.fit import Residual
from batchflush.errors import BatchflushError, UsageError
from batchflush.progress import console, step

NAME = "calibrate"
HELP = "probe real storage with fio and make a storage class of it"

SECONDS = 2.0
MIB = 1 << 20
SIZE_MIB = 256
REQUESTS = 20_000
# Of the probe's time; beyond that somebody else's work is in the numbers.
BUSY = 0.1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", metavar="DEVICE-OR-FILE", nargs="?", type=Path,
        help="a device, which is only read; or a file that is not there: it is made on the "
        "storage in question, used and removed",
    )  # fmt: skip
    parser.add_argument(
        "--write-to", metavar="DEVICE", type=Path,
        help="a device to write to as well: WHAT IS ON IT IS LOST",
    )  # fmt: skip
    parser.add_argument("--name", default="calibrated", help="of the class (default: calibrated)")
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=Path,
        help="write the class there instead of printing it",
    )  # fmt: skip
    parser.add_argument(
        "--verify", action="store_true",
        help="probe a guest's disk of that class, too, and show the distance",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=float, default=SECONDS,
        help=f"that each of some twenty runs takes at most (default: {SECONDS:g})",
    )  # fmt: skip
    parser.add_argument(
        "--size", metavar="MIB", type=int, default=SIZE_MIB,
        help=f"how much of the storage is touched (default: {SIZE_MIB})",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    path = _path(args)
    limits = probe.Limits(args.seconds, REQUESTS, args.size * MIB)
    if args.verify:
        build.qemu()
    with target.opened(path, args.write_to, limits.bytes) as opened:
        limits = probe.Limits(limits.seconds, limits.requests, opened.bytes)
        _announce(opened, limits)
        measured, remark = _probe(opened, limits)
    choices = fit.fit(measured)
    made = class_file.profile(args.name, opened, choices)
    remarks = ["Made by ./batchflush calibrate. Times are those that software saw: the "
               "kernel's part is in them.", remark]  # fmt: skip
    if not measured.writes:
        remarks.append(_missing(path))
    text = class_file.text(made, remarks)
    _write(text, made, args)
    residuals = fit.residuals(measured, curve.of(fit.options(choices)))
    title = f"Goodness of fit: the model misses by a factor of {fit.miss(residuals):.2f} on average"
    console.print(table(title, residuals))
    distance = _verify(made, measured, opened.is_file) if args.verify else None
    _keep(made, measured, residuals, distance)
    return 0


def _path(args: argparse.Namespace) -> Path:
    if args.path and args.write_to and args.path != args.write_to:
        raise UsageError(f"{args.path} and --write-to={args.write_to} are two; give one of them")
    path = args.write_to or args.path
    if path is None:
        raise UsageError("what is to be probed? Give a device or the path of a new file")
    if not profiles.NAME_FORM.fullmatch(args.name):
        raise UsageError(
            f"--name={args.name} is no name of a class; allowed are small letters, digits, dashes"
        )
    if args.name in profiles.load():
        raise UsageError(f"--name={args.name} is the name of a built-in class; take another")
    for name, value, low, high in (
        ("seconds", args.seconds, 0.05, 60),
        ("size", args.size, 4, 65536),
    ):
        if not low <= value <= high:
            raise UsageError(f"--{name}={value:g} is out of range; allowed are {low:g} to {high:g}")
    if args.output and not args.output.parent.is_dir():
        raise UsageError(f"-o {args.output}: there is no folder {args.output.parent}")
    return path


def _announce(opened: target.Target, limits: probe.Limits) -> None:
    selected = [*probe.runs(opened.writable), *([probe.FILL] if opened.is_file else [])]
    written = probe.bytes_written(selected, limits)
    seconds = len(selected) * (limits.seconds + host.ROUNDS * host.START_SECONDS)
    does = f"writes at most {written / 1e9:.1f} GB" if opened.writable else "only reads"
    console.print(f"{escape(opened.shown)}: the probe {does}, in at most about {seconds:.0f} s.")


def _missing(path: Path) -> str:
    return (
        f"{path} was only read: times of writes and flushes, the kind of cache and what it drains "
        f"are missing. --write-to {path} measures them and destroys what is on it."
    )


def _probe(opened: target.Target, limits: probe.Limits) -> tuple[probe.Probe, str]:
    """What was measured, and a remark about how."""
    pressure = host.Pressure()
    ahead = bool(host.ahead_of_others())
    with step(f"Probing {opened.shown}") as progress:
        measured = host.run(opened, limits, progress.update)
        waited, took = pressure.seconds(), progress.seconds()
    if ahead:
        return measured, "fio ran ahead of everything else on the host (SCHED_FIFO)."
    if waited is None or waited < BUSY * took:
        return measured, "The host's processors were free while fio ran."
    remark = (
        f"Programs waited for a processor during {100 * waited / took:.0f} % of the probe, and fio "
        "may have been one of them: times may be too long. Repeat it on an idle host or as root."
    )
    console.print(f"[yellow]{remark}[/]")
    return measured, remark


def _write(text: str, made: profiles.Profile, args: argparse.Namespace) -> None:
    if not args.output:
        console.out("\n" + text)
        return
    try:
        args.output.write_text(text)
    except OSError as error:
        raise BatchflushError(f"cannot write {args.output}: {error.strerror}") from error
    # Whatever we write has to be taken by --classes.
    profiles.load(args.output)
    shown = paths.shown(args.output)
    console.print(f"class: {shown}; try ./batchflush run --classes {shown} --class {made.name}")


def _verify(made: profiles.Profile, measured: probe.Probe, on_file: bool) -> verify.Distance:
    with step("Probing the class in a guest") as progress:
        distance = verify.run(made, measured, on_file, progress.update)
    title = "Distance: the real one, and the class in a guest less the guest's own time"
    console.print(table(title, distance.numbers))
    if distance.unsaid:
        console.print(
            f"The guest itself is too slow to say anything of {', '.join(distance.unsaid)}."
        )
    return distance


def _keep(
    made: profiles.Profile,
    measured: probe.Probe,
    residuals: Sequence[Residual],
    distance: verify.Distance | None,
) -> None:
    record = {
        "class": made.name,
        "node": {name: setting.value for name, setting in made.node.items()},
        "probe": measured.record(),
        "fit": [_record(residual) for residual in residuals],
        "distance": [_record(number) for number in distance.numbers] if distance else None,
    }
    results = paths.CALIBRATE / f"{made.name}.json"
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(record, indent=1) + "\n")
    console.print(f"numbers: {paths.shown(results)}")


def _record(residual: Residual) -> dict[str, object]:
    return {**asdict(residual), "percent": residual.percent}


def table(title: str, residuals: Sequence[Residual]) -> Table:
    result = Table(title=title, title_justify="left")
    result.add_column("Run", no_wrap=True)
    for heading in ("real", "class", "differs by"):
        result.add_column(heading, justify="right")
    result.add_column("unit")
    for r in residuals:
        result.add_row(r.name, f"{r.real:,.1f}", f"{r.fitted:,.1f}", f"{r.percent:+.1f} %", r.unit)
    return result
