# SPDX-License-Identifier: GPL-2.0-or-later
"""An experiment: what is compared, on which storage, under which load.

It is a TOML file (docs/lab.rst describes it) or the same said with flags. Its cells are
every combination of kernel, class, disk, file system, set-up, threads and repetition.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from batchflush import paths, profiles
from batchflush.errors import UsageError
from batchflush.guest.command_line import parse_options
from batchflush.lab import kernels, workloads

FORMAT = 1
# Shape of the guest → virtual processors. A disk has as many queues.
SHAPES = {"exact": 1, "mq": 4}
INSTRUCTION_NS = (1, 2, 4, 8)
FILE_SYSTEMS = ("ext4", "ext3", "btrfs")


@dataclass(frozen=True)
class DiskChoice:
    """Options of the node that differ from the class."""

    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileSystem:
    """type: one of FILE_SYSTEMS; ext3 is ext4's driver on a disk laid out as ext3's of 2009."""

    name: str = "ext4"
    type: str = "ext4"
    mkfs: str = ""
    mount: str = ""


@dataclass(frozen=True)
class Setup:
    """A shell script that runs before the file system is made; $DISK is the disk's name."""

    name: str = ""
    script: str = ""


@dataclass(frozen=True)
class Experiment:
    name: str
    kernels: tuple[kernels.Spec, ...]
    classes: tuple[str, ...]
    workload: workloads.Workload
    title: str = ""
    shape: str = "exact"
    repetitions: int = 1
    seed: int = 1
    limit_seconds: int = 3600
    disks: tuple[DiskChoice, ...] = (DiskChoice(),)
    file_systems: tuple[FileSystem, ...] = (FileSystem(),)
    setups: tuple[Setup, ...] = (Setup(),)
    disk_size_mib: int = 1024
    # Of the guest's processor: how long an instruction takes.
    instruction_ns: int = 1
    # Labels and their values: a cell that has all of one entry is left out.
    skips: tuple[Mapping[str, Any], ...] = ()
    # What follows `./batchflush lab` to say it again.
    source: str = ""

    def cells(self) -> Iterator[Cell]:
        return (cell for cell in self._combinations() if not self._skipped(cell.labels()))

    def _skipped(self, labels: Mapping[str, Any]) -> bool:
        return any(all(labels[name] == skip[name] for name in skip) for skip in self.skips)

    def _combinations(self) -> Iterator[Cell]:
        axes = (
            self.classes, self.disks, self.file_systems, self.setups,
            self.workload.threads, self.kernels, range(self.repetitions),
        )  # fmt: skip
        for profile, disk, file_system, setup, threads, kernel, repetition in itertools.product(
            *axes
        ):
            yield Cell(
                kernel, profile, disk, file_system, setup, self.workload, threads, repetition,
                self.seed + repetition, self.shape, self.limit_seconds, self.disk_size_mib,
                self.instruction_ns,
            )  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One guest: what it boots, on which disk, and what it does there."""

    kernel: kernels.Spec
    profile: str
    disk: DiskChoice
    file_system: FileSystem
    setup: Setup
    workload: workloads.Workload
    threads: int
    repetition: int
    seed: int
    shape: str
    limit_seconds: int
    disk_size_mib: int
    instruction_ns: int

    def labels(self) -> dict[str, Any]:
        """What names the cell in tables and plots; the same in every result file."""
        return {
            "class": self.profile,
            "disk": self.disk.name,
            "file-system": self.file_system.name,
            "setup": self.setup.name,
            "workload": self.workload.name,
            "threads": self.threads,
            "kernel": self.kernel.name,
            "repetition": self.repetition,
        }

    def described(self) -> str:
        said = {k: v for k, v in self.labels().items() if v != "" and k != "workload"}
        threads, repetition = said.pop("threads"), said.pop("repetition")
        again = f", repetition {repetition + 1}" if repetition else ""
        return f"{', '.join(map(str, said.values()))}, {threads} threads{again}"

    def key(self, kernel_identity: str, qemu_identity: str) -> str:
        """A result under the same key need not be measured again."""
        profile = profiles.find(self.profile)
        # The cell has its own number of threads; which others the experiment has is no matter.
        own = {str(self.threads): self.workload.files_per_thread(self.threads)}
        workload = replace(self.workload, threads=(), files=own)
        content = {
            **asdict(replace(self, workload=workload)),
            "kernel": [kernel_identity, *self.kernel.parameters],
            "class": {name: setting.value for name, setting in profile.node.items()},
            "front-end": {name: setting.value for name, setting in profile.front_end.items()},
            "qemu": qemu_identity,
            "job": workloads.digest(),
        }
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


# --- from a file --------------------------------------------------------------------------

_TOP = (
    "format", "title", "shape", "classes", "repetitions", "seed", "limit-seconds",
    "disk-size-mib", "instruction-ns", "kernel", "disk", "file-system", "setup", "workload",
    "skip",
)  # fmt: skip
_SKIP = ("class", "disk", "file-system", "setup", "threads", "kernel")
_KERNEL = ("name", "source", "graft", "hz", "package", "image", "parameters")


def load(file: Path) -> Experiment:
    try:
        content = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}") from error
    return _experiment(content, file)


def _experiment(content: Mapping[str, Any], file: Path) -> Experiment:
    where = str(file)
    _known(where, content, _TOP)
    if content.get("format", FORMAT) != FORMAT:
        raise UsageError(f"{where}: format={content['format']} is not known; allowed is {FORMAT}")
    for key in ("kernel", "classes", "workload"):
        if not content.get(key):
            raise UsageError(f"{where}: {key} is missing")
    load_table = content["workload"]
    made = Experiment(
        name=file.stem,
        title=content.get("title", file.stem),
        kernels=tuple(_kernel(where, entry, file.parent) for entry in content["kernel"]),
        classes=tuple(profiles.find(name).name for name in content["classes"]),
        workload=workloads.parse(where, load_table),
        shape=_one_of(where, "shape", content.get("shape", "exact"), tuple(SHAPES)),
        repetitions=_number(where, "repetitions", content.get("repetitions", 1), 1, 1000),
        seed=_number(where, "seed", content.get("seed", 1), 0, 1 << 31),
        limit_seconds=_number(
            where, "limit-seconds", content.get("limit-seconds", 3600), 1, 864000
        ),
        disk_size_mib=_number(
            where, "disk-size-mib", content.get("disk-size-mib", 1024), 64, 65536
        ),
        instruction_ns=_instruction_ns(where, content.get("instruction-ns", 1)),
        disks=_named(where, "disk", content, _disk) or (DiskChoice(),),
        file_systems=_named(where, "file-system", content, _file_system) or (FileSystem(),),
        setups=_named(where, "setup", content, _setup) or (Setup(),),
        skips=tuple(_skip(f"{where}: skip", entry) for entry in content.get("skip", ())),
        source=shlex.join(["run", paths.shown(file.resolve())]),
    )
    _check_skips(where, made)
    return made


def _check_skips(where: str, made: Experiment) -> None:
    labels = [cell.labels() for cell in replace(made, skips=()).cells()]
    for skip in made.skips:
        for name, value in skip.items():
            known = dict.fromkeys(str(label[name]) for label in labels)
            if str(value) not in known:
                raise UsageError(
                    f"{where}: skip: {name}={value} is not in the experiment; "
                    f"allowed are {', '.join(filter(None, known))}"
                )


def _instruction_ns(where: str, value: Any) -> int:
    if value not in INSTRUCTION_NS:
        allowed = ", ".join(map(str, INSTRUCTION_NS))
        raise UsageError(f"{where}: instruction-ns={value} is not possible; allowed are {allowed}")
    return int(value)


def _kernel(where: str, entry: Mapping[str, Any], folder: Path) -> kernels.Spec:
    _known(f"{where}: kernel", entry, _KERNEL)
    if "name" not in entry:
        raise UsageError(f"{where}: a kernel has no name")
    origins = [key for key in ("source", "package", "image") if key in entry]
    if len(origins) > 1:
        raise UsageError(f"{where}: kernel {entry['name']} has both {' and '.join(origins)}")
    source = entry.get("source", None if origins else kernels.DEFAULT_SOURCE)
    hz = entry.get("hz", kernels.DEFAULT_HZ)
    if hz not in kernels.HZ:
        allowed = ", ".join(map(str, kernels.HZ))
        raise UsageError(f"{where}: kernel {entry['name']}: hz={hz}; allowed are {allowed}")
    graft = entry.get("graft", str(kernels.GRAFT))
    return kernels.Spec(
        name=entry["name"],
        source=source,
        graft=(folder / graft) if graft else None,
        hz=hz,
        package=entry.get("package"),
        image=(folder / entry["image"]) if "image" in entry else None,
        parameters=tuple(map(str, entry.get("parameters", ()))),
    )


def _disk(where: str, entry: Mapping[str, Any]) -> DiskChoice:
    _known(where, entry, ("name", "options"))
    options = [f"{key}={value}" for key, value in entry.get("options", {}).items()]
    return DiskChoice(str(entry.get("name", "")), parse_options(options))


def _file_system(where: str, entry: Mapping[str, Any]) -> FileSystem:
    _known(where, entry, ("name", "type", "mkfs", "mount"))
    kind = _one_of(where, "type", entry.get("type", "ext4"), FILE_SYSTEMS)
    return FileSystem(
        str(entry.get("name", kind)), kind, entry.get("mkfs", ""), entry.get("mount", "")
    )


def _setup(where: str, entry: Mapping[str, Any]) -> Setup:
    _known(where, entry, ("name", "script"))
    return Setup(str(entry.get("name", "")), entry.get("script", ""))


def _skip(where: str, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    _known(where, entry, _SKIP)
    if not entry:
        raise UsageError(f"{where}: an entry without labels would leave out everything")
    return entry


def _named(where: str, key: str, content: Mapping[str, Any], parse: Any) -> tuple[Any, ...]:
    """The entries of a list of tables, whose names have to differ."""
    found = tuple(parse(f"{where}: {key}", entry) for entry in content.get(key, ()))
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise UsageError(f"{where}: two entries of {key} have the same name")
    return found


def _known(where: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(keys)}"
            raise UsageError(f"{where}: {key} is not known", hint)


def _one_of(where: str, key: str, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise UsageError(f"{where}: {key}={value} is not known; allowed are {', '.join(allowed)}")
    return str(value)


def _number(where: str, key: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{where}: {key}={value} is out of range; allowed are {low} to {high}")
    return value


# --- from flags ---------------------------------------------------------------------------


def kernel_of_flag(text: str) -> kernels.Spec:
    """`[NAME=]KERNEL[,PARAMETER…]`: a bzImage's path, a package, or linux-source-6.1[@HZ]."""
    named, *parameters = text.split(",")
    name, equals, origin = named.partition("=")
    if not equals:
        name = origin = named
    source, _, hz = origin.partition("@")
    spec = {"name": name, "parameters": parameters}
    if origin == "debian":
        spec["package"] = "linux-image-cloud-amd64"
    elif source in kernels.SOURCE_SUITES:
        if hz and not hz.isdigit():
            raise UsageError(f"--kernel={text}: HZ is not a number")
        spec |= {"source": source, "hz": int(hz or kernels.DEFAULT_HZ)}
    elif origin.startswith("linux-image-"):
        spec["package"] = origin
    elif Path(origin).is_file():
        spec["image"] = str(Path(origin).resolve())
    else:
        known = ", ".join(["debian", *kernels.SOURCE_SUITES])
        raise UsageError(
            f"--kernel={text}: {origin} is neither a file nor a kernel's name",
            f"give the path of a bzImage, a package linux-image-…, or one of {known}",
        )
    return _kernel("--kernel", spec, Path())


def of_flags(
    *,
    kernel: Sequence[str],
    classes: Sequence[str],
    workload: str,
    arguments: str,
    threads: Sequence[int],
    repetitions: int,
    shape: str,
    file_system: str,
    mkfs: str,
    mount: str,
    options: Sequence[str],
    name: str,
) -> Experiment:
    table: dict[str, Any] = {"name": workload, "threads": list(threads)}
    if arguments:
        table["script" if workload == "script" else "arguments"] = arguments
    file_system_choice = _file_system("--fs", {"type": file_system, "mkfs": mkfs, "mount": mount})
    return Experiment(
        name=name,
        title=name,
        kernels=tuple(map(kernel_of_flag, kernel)),
        classes=tuple(profiles.find(name).name for name in classes),
        workload=workloads.parse("--workload", table),
        shape=_one_of("lab run", "--shape", shape, tuple(SHAPES)),
        repetitions=_number("lab run", "--repetitions", repetitions, 1, 1000),
        disks=(DiskChoice("", parse_options(options)),),
        file_systems=(file_system_choice,),
    )
