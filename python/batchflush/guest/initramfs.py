# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's initramfs: busybox, the tools, kernel modules and a job.

It is made of two cpio archives, which the kernel unpacks one after the other. The base
archive belongs to a kernel and is made once; the job archive belongs to one boot and is
appended to it. The base holds `/init` (init.sh beside this file), the static busybox, the
tools with the libraries they need, and the kernel modules; the job holds `/job/run`, a
shell script, and `/job/modules`, the files to load in order.
"""

from __future__ import annotations

import lzma
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from elftools.elf.elffile import ELFFile

from ..errors import BatchflushError

INIT = Path(__file__).with_name("init.sh")
# Directories of an unpacked Debian tree, merged /usr or not.
PROGRAM_DIRECTORIES = ("usr/bin", "usr/sbin", "bin", "sbin")
LIBRARY_DIRECTORIES = (
    "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64",
    # fio is linked to Ceph's libraries.
    "usr/lib/x86_64-linux-gnu/ceph",
)  # fmt: skip
MODULE_SUFFIXES = (".ko", ".ko.xz")


# --- cpio -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One member of a cpio archive; `name` has no leading slash."""

    name: str
    mode: int
    data: bytes = b""

    @staticmethod
    def directory(name: str) -> Entry:
        return Entry(name, stat.S_IFDIR | 0o755)

    @staticmethod
    def file(name: str, data: bytes, executable: bool = False) -> Entry:
        return Entry(name, stat.S_IFREG | (0o755 if executable else 0o644), data)


def cpio(entries: Iterable[Entry]) -> bytes:
    """The entries as an archive in the "newc" form the kernel unpacks.

    Times and owners are zero, so the same entries give the same bytes.
    """
    archive = bytearray()
    for inode, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(entry.mode) else 1
        fields = [inode, entry.mode, 0, 0, links, 0, len(entry.data), 0, 0, 0, 0, len(name), 0]
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        archive += bytes(-len(archive) % 4) + entry.data
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def with_parents(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries, each after the directories it stands in."""
    known = {"."}
    for entry in entries:
        for parent in reversed(PurePosixPath(entry.name).parents):
            if str(parent) not in known:
                known.add(str(parent))
                yield Entry.directory(str(parent))
        known.add(entry.name)
        yield entry


# --- programs and their libraries -------------------------------------------------------


def find_in(root: Path, directories: Iterable[str], name: str) -> Path:
    """The file `name` in one of the directories of an unpacked tree.

    Absolute links in the tree mean places in the tree, so they are followed by hand.
    """
    for directory in directories:
        path = root / directory / name
        while path.is_symlink():
            target = path.readlink()
            path = root / target.relative_to("/") if target.is_absolute() else path.parent / target
        if path.is_file():
            return path
    raise BatchflushError(
        f"{name} is not in the unpacked guest packages in {root}",
        hint=f"Remove {root} and try again.",
    )


def needed_libraries(program: Path) -> tuple[str | None, list[str]]:
    """The dynamic loader of an ELF file (None if it asks for none) and the libraries it names."""
    loader = None
    needed: list[str] = []
    with program.open("rb") as stream:
        for segment in ELFFile(stream).iter_segments():
            if segment["p_type"] == "PT_INTERP":
                loader = segment.get_interp_name()
            elif segment["p_type"] == "PT_DYNAMIC":
                needed += [tag.needed for tag in segment.iter_tags("DT_NEEDED")]
    return loader, needed


def program_entries(root: Path, programs: Iterable[str]) -> list[Entry]:
    """The programs in /bin and all libraries they need in /lib, where the loader looks."""
    entries: dict[str, Entry] = {}

    def add(name: str, path: Path) -> None:
        if name in entries:
            return
        entries[name] = Entry.file(name, path.read_bytes(), executable=True)
        loader, needed = needed_libraries(path)
        if loader is not None:
            loader_path = find_in(root, LIBRARY_DIRECTORIES, PurePosixPath(loader).name)
            add(loader.lstrip("/"), loader_path)
        for library in needed:
            add(f"lib/{library}", find_in(root, LIBRARY_DIRECTORIES, library))

    for program in programs:
        add(f"bin/{program}", find_in(root, PROGRAM_DIRECTORIES, program))
    return list(entries.values())


# --- kernel modules ---------------------------------------------------------------------


def module_name(path: PurePosixPath) -> str:
    """The module's name: "-" and "_" are the same to the kernel."""
    return path.name.split(".ko")[0].replace("-", "_")


def read_module(path: Path) -> bytes:
    """The module's ELF file, unpacked."""
    data = path.read_bytes()
    return lzma.decompress(data) if path.name.endswith(".xz") else data


def module_dependencies(module: bytes) -> list[str]:
    """The names in the `depends=` field of a module's .modinfo section."""
    from io import BytesIO

    section = ELFFile(BytesIO(module)).get_section_by_name(".modinfo")
    fields = section.data().split(b"\0") if section is not None else []
    for field in fields:
        if field.startswith(b"depends="):
            names = field.removeprefix(b"depends=").decode().replace("-", "_")
            return [name for name in names.split(",") if name]
    return []


class Modules:
    """The modules of one kernel: /lib/modules/RELEASE, or none at all."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory
        files = [] if directory is None else directory.rglob("*.ko*")
        self.files = {
            module_name(path): path for path in files if path.name.endswith(MODULE_SUFFIXES)
        }

    def load_order(self, wanted: Iterable[str]) -> list[str]:
        """The modules wanted and all they depend on, dependencies first.

        A name without a file is taken to be built into the kernel; if it is not, the
        guest's /init says which device is missing.
        """
        order: list[str] = []

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in order or name not in self.files:
                return
            if name in path:
                raise BatchflushError(f"kernel modules depend on each other: {' → '.join(path)}")
            for dependency in module_dependencies(read_module(self.files[name])):
                visit(dependency, (*path, name))
            order.append(name)

        for name in wanted:
            visit(name.replace("-", "_"), ())
        return order

    def entries(self, names: Iterable[str]) -> list[Entry]:
        return [
            Entry.file(guest_module_path(name), read_module(self.files[name])) for name in names
        ]


def guest_module_path(name: str) -> str:
    return f"lib/modules/{name}.ko"


# --- the two archives -------------------------------------------------------------------


def base_archive(
    root: Path, programs: Iterable[str], modules: Modules, wanted: Iterable[str]
) -> bytes:
    """What every boot of a kernel needs; `root` is the tree of unpacked packages."""
    entries = [
        Entry.file("init", INIT.read_bytes(), executable=True),
        Entry.file("bin/busybox", find_in(root, PROGRAM_DIRECTORIES, "busybox").read_bytes(), True),
        *program_entries(root, programs),
        *modules.entries(modules.load_order(wanted)),
    ]
    return cpio(with_parents(entries))


def job_archive(script: str, load_order: Iterable[str], more: Iterable[Entry] = ()) -> bytes:
    """What one boot does: a shell script that /init sources, and the modules to load first.

    more: what the script and the modules need and the base archive does not hold.
    """
    modules = "".join(f"/{guest_module_path(name)}\n" for name in load_order)
    entries = [
        Entry.file("job/run", script.encode()),
        Entry.file("job/modules", modules.encode()),
        *more,
    ]
    return cpio(with_parents(entries))
