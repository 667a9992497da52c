# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage classes: read and check profiles.toml, and show it.

The file says what it holds and in which units. QEMU's build reads it through this module
too (profile-gen.py), with nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchflush import paths, rules, spread
from batchflush.errors import BatchflushError, UsageError

NAME = "profiles"
HELP = "list the storage classes, with the source of each number"

GRADES = ("measured", "data sheet", "published test", "folk", "fitted")


@dataclass(frozen=True)
class Kind:
    """What a setting may hold: a whole number of a unit, one of some words, or a spread."""

    unit: str = ""
    words: tuple[str, ...] = ()
    smallest: int = 0
    largest: int | None = None
    is_spread: bool = False

    def complaint(self, value: object) -> str:
        """What is wrong with a value, to follow its name; empty if nothing is."""
        if self.is_spread:
            wrong = spread.complaint(value)
            return f"is {value!r}, which {wrong}" if wrong else ""
        good = value in self.words if self.words else self._in_range(value)
        return "" if good else f"is {value!r}; allowed is {self}"

    def _in_range(self, value: object) -> bool:
        if type(value) is not int or value < self.smallest:
            return False
        return self.largest is None or value <= self.largest

    def __str__(self) -> str:
        if self.words:
            return f"one of {', '.join(self.words)}"
        unit = f" of {self.unit}" if self.unit else ""
        if self.largest is None:
            return f"a whole number{unit}, at least {self.smallest}"
        return f"a whole number{unit}, {self.smallest} to {self.largest}"


MINUTE_NS = 60_000_000_000
KIB, TIB = 1 << 10, 1 << 40

_TIME = Kind("ns", largest=MINUTE_NS)
_RATE = Kind("bytes/s", largest=TIB)
_SPREAD = Kind(is_spread=True)
_ON_OFF = Kind(words=("on", "off"))
_SECTOR = Kind("bytes", smallest=512, largest=32 * KIB)

# The options that a class may set, with the model's own ranges.
NODE_KINDS = {
    "write-cache": Kind(words=("none", "volatile", "battery")),
    "cache-size": Kind("bytes", smallest=64 * KIB, largest=TIB),
    "destage-high-percent": Kind("percent", largest=100),
    "destage-low-percent": Kind("percent", largest=99),
    "read-latency-ns": _TIME,
    "write-latency-ns": _TIME,
    "destage-latency-ns": _TIME,
    "discard-latency-ns": _TIME,
    "zero-latency-ns": _TIME,
    "fua-latency-ns": _TIME,
    "flush-latency-ns": _TIME,
    "flush-clean-latency-ns": _TIME,
    "latency-spread": _SPREAD,
    "flush-spread": _SPREAD,
    "bandwidth": _RATE,
    "interface-bandwidth": _RATE,
    "queue-depth": Kind("requests", smallest=1, largest=1024),
    "rpm": Kind("turns/min", largest=rules.LARGEST_RPM),
    "seek-settle-ns": _TIME,
    "seek-average-ns": _TIME,
    "seek-full-ns": _TIME,
    "stroke-size": Kind("bytes", largest=1024 * TIB),
    "tracks-per-cylinder": Kind("tracks", smallest=1, largest=64),
    "track-switch-ns": _TIME,
    "queue-order": Kind(words=("fifo", "nearest", "deadline")),
    "queue-deadline-ns": _TIME,
    "idle-window-ns": _TIME,
    "flush-concurrency": Kind(words=("exclusive", "serial", "concurrent")),
    "coalesce": Kind(words=("off", "on", "auto")),
    "coalesce-wait": Kind(words=("delta", "average")),
    "coalesce-max-wait-ns": Kind("ns", smallest=1000, largest=MINUTE_NS),
    "coalesce-min-flush-ns": _TIME,
}
FRONT_END_KINDS = {
    "device": Kind(words=("virtio-blk-pci", "scsi-hd", "nvme")),
    "write-cache": _ON_OFF,
    "num-queues": Kind("queues", smallest=1, largest=1024),
    "logical-block-size": _SECTOR,
    "physical-block-size": _SECTOR,
    "rotation-rate": Kind("rpm", smallest=1, largest=0xFFFF),
}
REQUIRED_FRONT_END = ("device", "write-cache")
# Also a word in a list of options.
NAME_FORM = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Setting:
    """A value beside what makes us believe it."""

    value: int | str
    unit: str
    grade: str
    source: str


@dataclass(frozen=True)
class Profile:
    """A storage class: options of the node, and properties of the device in front of it.

    built_in: QEMU knows it by its name; the options of any other have to be spelled out.
    """

    name: str
    title: str
    node: Mapping[str, Setting]
    front_end: Mapping[str, Setting]
    built_in: bool = True

    def node_options(self) -> dict[str, str]:
        """What makes a batchflush node one of this class."""
        if self.built_in:
            return {"profile": self.name}
        return {name: str(setting.value) for name, setting in self.node.items()}


# --- reading ----------------------------------------------------------------------------


def load(path: Path = paths.PROFILES) -> dict[str, Profile]:
    """All classes by name, in the order of the file; BatchflushError says what is wrong."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BatchflushError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BatchflushError(f"{path} is not TOML: {error}") from error
    return {name: _profile(path, name, table) for name, table in document.items()}


def known(file: Path | None = None) -> dict[str, Profile]:
    """The project's classes, and those of a file of the user's."""
    built_in = load()
    own = {} if file is None else load(file)
    for name in own:
        if name in built_in:
            raise BatchflushError(f"{file}: [{name}] is the name of a built-in class; take another")
    return built_in | own


def find(name: str, profiles: Mapping[str, Profile] | None = None) -> Profile:
    """The class of that name; if there is none, the error names the nearest ones."""
    profiles = load() if profiles is None else profiles
    if name in profiles:
        return profiles[name]
    near = difflib.get_close_matches(name, profiles, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(profiles)}."
    raise UsageError(f"there is no storage class '{name}'", hint=hint)


def _profile(path: Path, name: str, table: object) -> Profile:
    if not NAME_FORM.fullmatch(name):
        raise BatchflushError(
            f"{path}: [{name}] is no name of a class; allowed are small letters, digits and dashes"
        )
    table = _table(f"{path}: [{name}]", table, required=("title", "node", "front-end"))
    if not isinstance(table["title"], str) or not table["title"]:
        raise BatchflushError(f"{path}: [{name}] title must be a text")
    node = _settings(f"{path}: [{name}.node]", table["node"], NODE_KINDS)
    if complaint := rules.complaint({key: setting.value for key, setting in node.items()}):
        raise BatchflushError(f"{path}: [{name}.node] {complaint}")
    front_end = _settings(f"{path}: [{name}.front-end]", table["front-end"], FRONT_END_KINDS)
    for key in REQUIRED_FRONT_END:
        if key not in front_end:
            raise BatchflushError(f"{path}: [{name}.front-end] {key} is missing")
    if "rotation-rate" in front_end and front_end["device"].value != "scsi-hd":
        raise BatchflushError(
            f"{path}: [{name}.front-end] rotation-rate is given, but of QEMU's disks only "
            f"scsi-hd has one, not {front_end['device'].value}"
        )
    return Profile(name, table["title"], node, front_end, built_in=path == paths.PROFILES)


def _settings(where: str, table: object, kinds: Mapping[str, Kind]) -> dict[str, Setting]:
    if not isinstance(table, dict):
        raise BatchflushError(f"{where} must be a table")
    settings = {}
    for key, value in table.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(kinds)}."
            raise BatchflushError(f"{where} {key} is not known", hint=hint)
        settings[key] = _setting(f"{where} {key}", value, kinds[key])
    return settings


def _setting(where: str, table: object, kind: Kind) -> Setting:
    table = _table(where, table, required=("value", "grade", "source"))
    if complaint := kind.complaint(table["value"]):
        raise BatchflushError(f"{where} {complaint}")
    if table["grade"] not in GRADES:
        raise BatchflushError(
            f"{where} has the grade {table['grade']!r}; allowed is one of {', '.join(GRADES)}"
        )
    if not isinstance(table["source"], str) or not table["source"].strip():
        raise BatchflushError(f"{where} has no source")
    return Setting(table["value"], kind.unit, table["grade"], table["source"].strip())


def _table(where: str, table: object, required: Iterable[str]) -> dict[str, Any]:
    """The table, if it holds all of the required keys and no others."""
    required = tuple(required)
    if not isinstance(table, dict):
        raise BatchflushError(f"{where} must be a table with {', '.join(required)}")
    for key in required:
        if key not in table:
            raise BatchflushError(f"{where} has no {key}")
    for key in table:
        if key not in required:
            raise BatchflushError(
                f"{where} has an unknown key {key}; known are {', '.join(required)}"
            )
    return table


# --- showing ----------------------------------------------------------------------------


def add_classes_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--classes", metavar="FILE", type=Path,
        help="classes of your own, in the form of block/batchflush/model/profiles.toml",
    )  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this class only")
    add_classes_argument(parser)
    parser.add_argument(
        "--curve", action="store_true",
        help="show flush time over dirty bytes and requests per second over depth, with a plot",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from batchflush.progress import console

    profiles = known(args.classes)
    if args.curve:
        if not args.name:
            raise UsageError("--curve needs the NAME of a class")
        return _show_curve(find(args.name, profiles))
    shown = [find(args.name, profiles)] if args.name else list(profiles.values())
    for profile in shown:
        console.print(table(profile))
    return 0


def table(profile: Profile) -> Any:
    """One class as a table for the terminal."""
    from rich.table import Table

    result = Table(
        "Setting", "Value", "Unit", "Grade", "Source",
        title=f"{profile.name}: {profile.title}", title_justify="left", title_style="bold",
        caption=_caption(profile), caption_justify="left",
    )  # fmt: skip
    for heading, settings in (("node", profile.node), ("device", profile.front_end)):
        result.add_row(f"[dim]{heading}[/]")
        for name, setting in settings.items():
            value = setting.value if isinstance(setting.value, str) else f"{setting.value:,}"
            result.add_row(name, value, setting.unit, setting.grade, setting.source)
        result.add_section()
    return result


def _show_curve(profile: Profile) -> int:
    from batchflush import curve
    from batchflush.progress import console

    found = curve.of({name: setting.value for name, setting in profile.node.items()})
    picture = curve.picture(profile.name)
    curve.draw(profile.name, profile.title, found, picture)
    console.print(curve.tables(profile.name, found))
    console.print(f"plot: {paths.shown(picture)}")
    return 0


def _caption(profile: Profile) -> str:
    options = ",".join(f"{name}={value}" for name, value in profile.node_options().items())
    return f"-drive driver=batchflush,{options},…"
