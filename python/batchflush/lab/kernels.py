# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory's kernels: an image, a Debian package, or Debian's source with a graft.

A kernel that is built from source has every driver in it. Its image is kept under the hash
of what it was made from: the source package, the graft with all that it links to, the
configuration, the compiler. The objects of each configuration stay too, so that a change of
the graft compiles what it touches.

One image serves many arms: the graft's changes are switches of the running kernel
(lab/kernel/batchflush.h), and only HZ needs an image of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from batchflush import apt, cluster, configure, graft, paths, processes, progress
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import packages

NAME = "kernels"
HELP = "build the experiments' kernels and list them"

FOLDER = paths.BUILD / "linux"
CONFIGURATION = paths.ROOT / "lab/kernel/config"
GRAFT = paths.ROOT / "graft/linux.toml"

# The release of Debian that has the source package.
SOURCE_SUITES = {"linux-source-6.1": "bookworm"}
DEFAULT_SOURCE = "linux-source-6.1"
HZ = (100, 250, 1000)
DEFAULT_HZ = 250
# Lines of a whole build of this configuration, for its estimate.
USUAL_STEPS = 1350

# In a source tree that is complete.
_STAMP = ".batchflush-source"


@dataclass(frozen=True)
class Spec:
    """A kernel as an experiment names it: where it comes from, and its parameters."""

    name: str
    source: str | None = None
    graft: Path | None = GRAFT
    hz: int = DEFAULT_HZ
    package: str | None = None
    image: Path | None = None
    parameters: tuple[str, ...] = ()

    def described(self) -> str:
        if self.image:
            what = paths.shown(self.image)
        elif self.package:
            what = f"Debian's {self.package}"
        else:
            what = f"{self.source}, HZ={self.hz}"
        return " ".join([what, *self.parameters])


@dataclass(frozen=True)
class Built:
    """A kernel that can be booted; identity tells whether two are the same."""

    kernel: packages.Kernel
    identity: str


@dataclass
class Builder:
    """Makes each kernel once, however many arms share it."""

    made: dict[object, packages.Kernel] = field(default_factory=dict)

    def build(self, spec: Spec) -> Built:
        key = (spec.source, spec.graft, spec.hz, spec.package, spec.image)
        if key not in self.made:
            self.made[key] = _kernel(spec)
        kernel = self.made[key]
        digest = hashlib.sha256(kernel.image.read_bytes()).hexdigest()[:16]
        return Built(kernel, digest)


def _kernel(spec: Spec) -> packages.Kernel:
    if spec.image:
        return packages.prepare(str(spec.image))
    if spec.package:
        return packages.prepare_package(spec.package)
    assert spec.source is not None
    return packages.prepare(str(image(spec.source, spec.hz, spec.graft)))


# --- building -----------------------------------------------------------------------------


def image(source: str, hz: int, table: Path | None = GRAFT) -> Path:
    """The bzImage of a source package with a graft; built if that was never done."""
    if hz not in HZ:
        raise UsageError(f"hz={hz} is not possible; allowed are {', '.join(map(str, HZ))}")
    if table is not None and not table.is_file():
        raise UsageError(f"graft={table} is not a file")
    [deb] = apt.download([source], with_dependencies=False, suite=_suite(source))
    made_from = _made_from(deb, hz, table)
    digest = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
    kept = FOLDER / "images" / f"{source}-hz{hz}-{digest}"
    finished = kept / "bzImage"
    if finished.exists():
        return finished
    with configure.locked(FOLDER / source):
        tree = _extracted(source, deb)
        if table is None:
            graft.undo(tree)
        else:
            graft.apply(tree, table)
        built = _make(tree, source, hz)
    kept.mkdir(parents=True, exist_ok=True)
    (kept / "made-from.json").write_text(json.dumps(made_from, indent=1) + "\n")
    unfinished = kept / "bzImage.new"
    shutil.copyfile(built, unfinished)
    unfinished.rename(finished)
    return finished


def _suite(source: str) -> str:
    if source not in SOURCE_SUITES:
        raise UsageError(
            f"source={source} is not known; allowed are {', '.join(SOURCE_SUITES)}",
            "a kernel of your own is given as image=PATH, its drivers built in",
        )
    return SOURCE_SUITES[source]


def _made_from(deb: Path, hz: int, table: Path | None) -> dict[str, str]:
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    return {
        "source": deb.name,
        "configuration": _configuration(hz),
        "graft": _graft_digest(table) if table else "",
        "compiler": compiler.stdout.splitlines()[0],
    }


def _graft_digest(table: Path) -> str:
    """Of the table and of every file that it links to."""
    text = table.read_text()
    digest = hashlib.sha256(text.encode())
    for target in re.findall(r'^to = "(.*)"$', text, re.MULTILINE):
        path = paths.ROOT / target
        for file in sorted(path.glob("*.[ch]")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _configuration(hz: int) -> str:
    return CONFIGURATION.read_text() + f"CONFIG_HZ_{hz}=y\n"


def _extracted(source: str, deb: Path) -> Path:
    tree = FOLDER / source
    stamp = tree / _STAMP
    if stamp.exists() and stamp.read_text() == deb.name:
        return tree
    with progress.step(f"Extracting {deb.stem}"):
        shutil.rmtree(tree, ignore_errors=True)
        unpacked = FOLDER / f"{source}.deb"
        apt.unpack([deb], unpacked)
        processes.run_logged(
            ["tar", "-xf", unpacked / f"usr/src/{source}.tar.xz", "-C", FOLDER],
            FOLDER / "extract.log",
            f"extracting {deb}",
            hint=f"remove {deb} and try again",
        )
        shutil.rmtree(unpacked)
        stamp.write_text(deb.name)
    return tree


def _make(tree: Path, source: str, hz: int) -> Path:
    objects = FOLDER / f"{source}-hz{hz}"
    objects.mkdir(parents=True, exist_ok=True)
    wanted = objects / "wanted.config"
    configuration = _configuration(hz)
    make = ["nice", "make", "-C", tree, f"O={objects}", "LC_ALL=C.UTF-8"]
    # What would make two builds of one source differ.
    make += ["KBUILD_BUILD_TIMESTAMP=2026-01-01", "KBUILD_BUILD_USER=batchflush",
             "KBUILD_BUILD_HOST=batchflush", "KBUILD_BUILD_VERSION=1"]  # fmt: skip
    made = objects / ".config"
    if not made.exists() or not wanted.exists() or wanted.read_text() != configuration:
        made.unlink(missing_ok=True)
        wanted.write_text(configuration)
        processes.run_logged(
            [*make, f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"],
            objects / "configure.log",
            f"configuring {source}",
        )
        _check_configuration(made, configuration)
    bzimage = objects / "arch/x86/boot/bzImage"
    # How much is left of one that was begun before, make does not say.
    first = not (objects / "kernel/fork.o").exists()
    steps = 0
    with progress.step(f"Building {source}, HZ={hz}") as step:

        def show(line: str) -> None:
            nonlocal steps
            match = re.match(r"  (?:CC|AS|AR|LD|HOSTCC) +(.*)", line)
            if match and first:
                steps += 1
                step.update(min(steps, USUAL_STEPS), USUAL_STEPS, match[1])
            elif match:
                step.say(match[1])

        processes.run_logged(
            [*make, f"-j{cluster.cores()}", "bzImage"],
            objects / "build.log",
            f"building {source}",
            on_line=show,
        )
    return bzimage


def _check_configuration(made: Path, wanted: str) -> None:
    """An option that the source does not know, or that misses another, is left out in silence."""
    lines = set(made.read_text().splitlines())
    missing = [
        line for line in wanted.splitlines() if line.startswith("CONFIG") and line not in lines
    ]
    if missing:
        made.unlink()
        raise BatchflushError(
            f"the kernel's configuration would lack {', '.join(missing)}",
            f"see in {paths.shown(CONFIGURATION)} what they depend on",
        )


# --- the command --------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hz", metavar="N", type=int, action="append",
        help=f"of {', '.join(map(str, HZ))}; may be given again (default: all)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="build nothing")


def run(args: argparse.Namespace) -> int:
    if not args.list:
        for hz in args.hz or HZ:
            image(DEFAULT_SOURCE, hz)
    for folder in sorted((FOLDER / "images").glob("*/")):
        if (folder / "bzImage").exists():
            made_from = json.loads((folder / "made-from.json").read_text())
            print(f"{paths.shown(folder / 'bzImage')}: {made_from['source']}")
    return 0
