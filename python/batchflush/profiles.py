# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage classes: read and check profiles.toml, and show it.

The file says what it holds and in which units. QEMU's build reads it through this module
too (profile-gen.py), with nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchflush import paths, spread
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
    is_spread: bool = False

    def complaint(self, value: object) -> str:
        """What is wrong with a value, to follow its name; empty if nothing is."""
        if self.is_spread:
            wrong = spread.complaint(value)
            return f"= {value!r} {wrong}" if wrong else ""
        whole = type(value) is int and value >= self.smallest
        good = value in self.words if self.words else whole
        return "" if good else f"is {value!r}; allowed is {self}"

    def __str__(self) -> str:
        if self.words:
            return f"one of {', '.join(self.words)}"
        unit = f" of {self.unit}" if self.unit else ""
        return f"a whole number{unit}, at least {self.smallest}"


_TIME = Kind("ns")
_SIZE = Kind("bytes", smallest=512)
_SPREAD = Kind(is_spread=True)
_ON_OFF = Kind(words=("on", "off"))

# Ranges are the driver's business: the model refuses what is out of range.
NODE_KINDS = {
    "write-cache": Kind(words=("none", "volatile", "battery")),
    "cache-size": _SIZE,
    "destage-high-percent": Kind("percent"),
    "destage-low-percent": Kind("percent"),
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
    "bandwidth": Kind("bytes/s"),
    "interface-bandwidth": Kind("bytes/s"),
    "queue-depth": Kind("requests", smallest=1),
    "rpm": Kind("turns/min"),
    "seek-settle-ns": _TIME,
    "seek-average-ns": _TIME,
    "seek-full-ns": _TIME,
    "stroke-size": Kind("bytes"),
    "tracks-per-cylinder": Kind("tracks", smallest=1),
    "track-switch-ns": _TIME,
    "queue-order": Kind(words=("fifo", "nearest", "deadline")),
    "queue-deadline-ns": _TIME,
    "idle-window-ns": _TIME,
    "flush-concurrency": Kind(words=("exclusive", "serial", "concurrent")),
    "coalesce": Kind(words=("off", "on", "auto")),
    "coalesce-wait": Kind(words=("delta", "average")),
    "coalesce-max-wait-ns": _TIME,
    "coalesce-min-flush-ns": _TIME,
}
FRONT_END_KINDS = {
    "device": Kind(words=("virtio-blk-pci", "scsi-hd", "nvme")),
    "write-cache": _ON_OFF,
    "num-queues": Kind("queues", smallest=1),
    "logical-block-size": _SIZE,
    "physical-block-size": _SIZE,
    "rotation-rate": Kind("rpm", smallest=1),
}
REQUIRED_FRONT_END = ("device", "write-cache")


@dataclass(frozen=True)
class Setting:
    """A value beside what makes us believe it."""

    value: int | str
    unit: str
    grade: str
    source: str


@dataclass(frozen=True)
class Profile:
    """A storage class: options of the node, and properties of the device in front of it."""

    name: str
    title: str
    node: Mapping[str, Setting]
    front_end: Mapping[str, Setting]


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


def find(name: str, profiles: Mapping[str, Profile] | None = None) -> Profile:
    """The class of that name; if there is none, the error names the nearest ones."""
    profiles = load() if profiles is None else profiles
    if name in profiles:
        return profiles[name]
    near = difflib.get_close_matches(name, profiles, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(profiles)}."
    raise UsageError(f"there is no storage class '{name}'", hint=hint)


def _profile(path: Path, name: str, table: object) -> Profile:
    table = _table(f"{path}: [{name}]", table, required=("title", "node", "front-end"))
    if not isinstance(table["title"], str) or not table["title"]:
        raise BatchflushError(f"{path}: [{name}] title must be a text")
    node = _settings(f"{path}: [{name}.node]", table["node"], NODE_KINDS)
    front_end = _settings(f"{path}: [{name}.front-end]", table["front-end"], FRONT_END_KINDS)
    for key in REQUIRED_FRONT_END:
        if key not in front_end:
            raise BatchflushError(f"{path}: [{name}.front-end] {key} is missing")
    if "rotation-rate" in front_end and front_end["device"].value != "scsi-hd":
        raise BatchflushError(
            f"{path}: [{name}.front-end] rotation-rate is given, but of QEMU's disks only "
            f"scsi-hd has one, not {front_end['device'].value}"
        )
    return Profile(name, table["title"], node, front_end)


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this class only")


def run(args: argparse.Namespace) -> int:
    from batchflush.progress import console

    profiles = load()
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
        caption=f"-drive driver=batchflush,profile={profile.name},…", caption_justify="left",
    )  # fmt: skip
    for heading, settings in (("node", profile.node), ("device", profile.front_end)):
        result.add_row(f"[dim]{heading}[/]")
        for name, setting in settings.items():
            value = setting.value if isinstance(setting.value, str) else f"{setting.value:,}"
            result.add_row(name, value, setting.unit, setting.grade, setting.source)
        result.add_section()
    return result
