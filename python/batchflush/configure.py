# SPDX-License-Identifier: GPL-2.0-or-later
"""Configure QEMU: which source tree, which parts of QEMU, with which firmware."""

import argparse
import contextlib
import dataclasses
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path

from batchflush import apt, paths, processes, progress, source, variants
from batchflush.errors import UsageError

NAME = "configure"
HELP = "get QEMU's source, graft batchflush into it and configure it"

# Only what the laboratory uses: an x86-64 machine, its block layer and the block tools.
QEMU_ARGUMENTS = (
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--enable-kvm",
    "--enable-tcg",
    "--enable-tools",
    "--enable-linux-aio",
    "--enable-linux-io-uring",
    "--enable-vhost-user",
    "--enable-vhost-user-blk-server",
    "--enable-fdt=system",
    "--enable-trace-backends=log",
    "--disable-docs",
    "--disable-download",
    "--disable-install-blobs",
)
DEBUG_ARGUMENTS = ("--enable-debug",)

# Packages that hold firmware, and the folders in which they hold it.
FIRMWARE_PACKAGES = ("seabios", "qemu-system-data", "ipxe-qemu")
FIRMWARE_FOLDERS = ("usr/share/seabios", "usr/share/qemu", "usr/lib/ipxe/qemu")


@dataclasses.dataclass(frozen=True)
class Choice:
    """What the user chose with ./configure; kept in build/ until chosen anew."""

    qemu_source: str | None = None
    arguments: tuple[str, ...] = ()

    @classmethod
    def load(cls) -> "Choice":
        if not paths.CONFIGURATION.exists():
            return cls()
        kept = json.loads(paths.CONFIGURATION.read_text())
        return cls(kept["qemu_source"], tuple(kept["arguments"]))

    def save(self) -> None:
        paths.BUILD.mkdir(exist_ok=True)
        paths.CONFIGURATION.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def own_tree() -> Path | None:
    """The source tree that the user chose, if any."""
    chosen = variants.QEMU_SOURCE or Choice.load().qemu_source
    return Path(chosen) if chosen else None


def configure(debug: bool = False) -> Path:
    """Bring QEMU's build folder up to date with the user's choice; returns the folder."""
    choice = Choice.load()
    tree = source.prepare(own_tree())
    folder = paths.QEMU_DEBUG_BUILD if debug else paths.QEMU_BUILD
    command = [
        str(tree / "configure"),
        f"--python={paths.VENV_PYTHON}",
        f"--firmwarepath={firmware()}",
        *QEMU_ARGUMENTS,
        *(DEBUG_ARGUMENTS if debug else ()),
        *variants.QEMU_ARGUMENTS.get(paths.VARIANT, ()),
        *choice.arguments,
    ]
    inputs = json.dumps([(tree / "VERSION").read_text().strip(), *command], indent=1)
    stamp = folder / "batchflush-configured.json"
    if stamp.exists() and stamp.read_text() == inputs:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    log = paths.BUILD / f"{folder.name}-configure.log"
    with locked(folder), progress.step(f"Configuring QEMU {tree_version(tree)}") as step:
        processes.run_logged(
            command,
            log,
            "configuring QEMU",
            hint="the log says what is missing; ./configure -- ARGUMENTS passes arguments to it",
            on_line=step.say,
            cwd=folder,
        )
        _show_firmware(folder)
        stamp.write_text(inputs)
    return folder


def tree_version(tree: Path) -> str:
    return (tree / "VERSION").read_text().strip()


def firmware() -> str:
    """The search path of firmware, unpacked from Debian's packages under build/."""
    stamp = paths.FIRMWARE / "packages"
    packages = "\n".join(FIRMWARE_PACKAGES)
    if not stamp.exists() or stamp.read_text() != packages:
        apt.unpack(apt.download(FIRMWARE_PACKAGES, with_dependencies=False), paths.FIRMWARE)
        stamp.write_text(packages)
    return ":".join(str(paths.FIRMWARE / folder) for folder in FIRMWARE_FOLDERS)


def _show_firmware(folder: Path) -> None:
    """QEMU, run from its build folder, looks for absolute paths below qemu-bundle."""
    bundled = folder / "qemu-bundle" / paths.FIRMWARE.relative_to("/")
    bundled.parent.mkdir(parents=True, exist_ok=True)
    bundled.unlink(missing_ok=True)
    bundled.symlink_to(paths.FIRMWARE)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder of what is built for oneself; the same lock as `flock FOLDER.lock` takes."""
    with folder.with_name(folder.name + ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"Waiting for another command in {paths.shown(folder)}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--qemu-source", metavar="DIR", type=Path,
        help="a QEMU source tree from 10.0 on, grafted in place ('graft --undo DIR' restores it); "
        f"default: Debian's source package, {source.SUITE}",
    )  # fmt: skip
    parser.add_argument(
        "arguments", metavar="-- ARGUMENT", nargs="*", help="arguments for QEMU's own configure"
    )


def run(args: argparse.Namespace) -> int:
    tree = args.qemu_source
    if tree is not None:
        tree = tree.resolve()
        if not (tree / "configure").is_file():
            raise UsageError(f"--qemu-source={args.qemu_source} is no QEMU source tree")
    before = Choice.load()
    Choice(str(tree) if tree else None, tuple(args.arguments)).save()
    try:
        folder = configure()
    except BaseException:
        before.save()
        raise
    print(f"configured in {paths.shown(folder)}; ./batchflush build builds it")
    return 0
