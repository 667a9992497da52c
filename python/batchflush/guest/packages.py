# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's kernel and tools for the guest, unpacked under build/guest, never installed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from batchflush import apt, configure, paths
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import initramfs
from batchflush.progress import step

KERNEL_PACKAGE = "linux-image-cloud-amd64"
TOOL_PACKAGES = ("busybox-static", "e2fsprogs", "fsmark")
PROGRAMS = ("fs_mark", "mke2fs")
# File system → the Debian package and the program that make one, beside those above.
FILE_SYSTEM_PROGRAMS = {
    "xfs": ("xfsprogs", "mkfs.xfs"),
    "btrfs": ("btrfs-progs", "mkfs.btrfs"),
}

ROOT = paths.GUEST / "debian"
STAMP = paths.GUEST / "debian.json"

# Drivers of the channels to the host, of the disk, of the file system.
CHANNEL_MODULES = ("virtio_pci", "virtio_console")
DEVICE_MODULES = {
    "virtio-blk-pci": ("virtio_blk",),
    "scsi-hd": ("virtio_scsi", "sd_mod"),
    "nvme": ("nvme",),
}
# What the base of an initramfs holds; other modules come with the boot that wants them.
BASE_MODULES = (
    *CHANNEL_MODULES,
    *(name for names in DEVICE_MODULES.values() for name in names),
    "ext4",
)


@dataclass(frozen=True)
class Kernel:
    """A kernel image, its modules and the base of its initramfs."""

    image: Path
    modules: initramfs.Modules
    base: Path

    def load_order(self, device: str, more: Sequence[str]) -> list[str]:
        """The modules to load for a disk behind this device, and then some more."""
        return self.modules.load_order((*CHANNEL_MODULES, *DEVICE_MODULES[device], *more))

    def not_in_base(self, load_order: Sequence[str]) -> list[initramfs.Entry]:
        held = self.modules.load_order(BASE_MODULES)
        return self.modules.entries(name for name in load_order if name not in held)


def prepare(kernel: str = "debian") -> Kernel:
    """A kernel ready to boot: Debian's, or the image of that path with its drivers built in."""
    debs = [
        *apt.download([KERNEL_PACKAGE], with_dependencies=False),
        *apt.download(TOOL_PACKAGES, with_dependencies=True),
    ]
    _unpack(debs, ROOT, STAMP)
    if kernel == "debian":
        image, modules = _debian_kernel(ROOT)
    else:
        image, modules = _own_kernel(Path(kernel)), initramfs.Modules(None)
    return Kernel(image, modules, _base(modules))


def prepare_package(package: str) -> Kernel:
    """The kernel of another Debian package, such as linux-image-amd64, ready to boot."""
    prepare()
    root = paths.GUEST / package
    debs = apt.download([package], with_dependencies=False)
    _unpack(debs, root, paths.GUEST / f"{package}.json")
    image, modules = _debian_kernel(root)
    return Kernel(image, modules, _base(modules))


def with_programs(
    kernel: Kernel, package: str, programs: Sequence[str], data: Sequence[str] = ()
) -> Kernel:
    """The same kernel, its initramfs with programs of one more Debian package.

    data: files of the package that the guest finds in /share.
    """
    root, stamp = paths.GUEST / package, paths.GUEST / f"{package}.json"
    _unpack(apt.download([package], with_dependencies=True), root, stamp)
    made_from = hashlib.sha256(stamp.read_bytes() + " ".join([*programs, *data]).encode())
    made_from.update(Path(initramfs.__file__).read_bytes())
    base = paths.GUEST / f"{kernel.base.stem}-{package}-{made_from.hexdigest()[:16]}.cpio"
    if not base.exists():
        entries = initramfs.program_entries(root, programs)
        for name in data:
            content = (root / name).read_bytes()
            entries.append(initramfs.Entry.file(f"share/{Path(name).name}", content))
        archive = initramfs.cpio(initramfs.with_parents(entries))
        _write(base, kernel.base.read_bytes() + archive)
    return replace(kernel, base=base)


def with_file_system(kernel: Kernel, name: str) -> Kernel:
    """The same kernel, its initramfs with what makes this file system."""
    if name not in FILE_SYSTEM_PROGRAMS:
        return kernel
    package, program = FILE_SYSTEM_PROGRAMS[name]
    return with_programs(kernel, package, [program])


def _unpack(debs: Sequence[Path], root: Path, stamp: Path) -> None:
    wanted = json.dumps(sorted(deb.name for deb in debs))

    def done() -> bool:
        return stamp.exists() and stamp.read_text() == wanted

    if done():
        return
    root.parent.mkdir(parents=True, exist_ok=True)
    with configure.locked(root):
        # Unless another command has, meanwhile.
        if done():
            return
        with step("Unpacking the guest's kernel and tools"):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(root, ignore_errors=True)
            apt.unpack(debs, root)
            stamp.write_text(wanted)


def _debian_kernel(root: Path) -> tuple[Path, initramfs.Modules]:
    images = sorted(root.glob("boot/vmlinuz-*"))
    if len(images) != 1:
        raise BatchflushError(
            f"{paths.shown(root)} holds {len(images)} kernels in place of one",
            f"remove {paths.shown(paths.GUEST / f'{root.name}.json')} and try again",
        )
    release = images[0].name.removeprefix("vmlinuz-")
    folders = [root / base / "modules" / release for base in ("lib", "usr/lib")]
    return images[0], initramfs.Modules(next(f for f in folders if f.is_dir()))


def _own_kernel(image: Path) -> Path:
    if not image.is_file():
        raise UsageError(
            f"--kernel={image} is not a file",
            "give the path of a bzImage, or 'debian' for Debian's kernel",
        )
    return image


def _base(modules: initramfs.Modules) -> Path:
    """The base archive; its name tells what it was made from, so that it is made once."""
    made_from = hashlib.sha256(STAMP.read_bytes())
    for source in (Path(initramfs.__file__), initramfs.INIT, Path(__file__)):
        made_from.update(source.read_bytes())
    made_from.update(str(modules.directory).encode())
    base = paths.GUEST / f"initramfs-{made_from.hexdigest()[:16]}.cpio"
    if not base.exists():
        with step("Making the guest's initramfs"):
            content = initramfs.base_archive(ROOT, PROGRAMS, modules, BASE_MODULES)
            _write(base, content)
    return base


def _write(archive: Path, content: bytes) -> None:
    """An archive that is there is whole."""
    unfinished = archive.with_suffix(".new")
    unfinished.write_bytes(content)
    unfinished.rename(archive)
