# SPDX-License-Identifier: GPL-2.0-or-later
"""The initramfs: an archive the kernel can unpack, with everything its programs need."""

import lzma
import shutil
import stat
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from batchflush.errors import BatchflushError
from batchflush.guest import initramfs
from batchflush.guest.initramfs import Entry


def unpack(archive: bytes) -> dict[str, tuple[int, bytes]]:
    """Name → mode and data, read as cpio(5) describes the "newc" format."""
    members: dict[str, tuple[int, bytes]] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size]
        assert name.endswith(b"\0")
        at = (at + 110 + name_size + 3) & ~3
        if name == b"TRAILER!!!\0":
            return members
        members[name[:-1].decode()] = (mode, archive[at : at + size])
        at = (at + size + 3) & ~3


@pytest.mark.parametrize("size", range(5))
def test_members_of_any_length_come_out_whole(size: int) -> None:
    entries = [Entry.file("a" * (size + 1), b"x" * size), Entry.file("end", b"end")]
    members = unpack(initramfs.cpio(entries))
    assert members["a" * (size + 1)] == (stat.S_IFREG | 0o644, b"x" * size)
    assert members["end"][1] == b"end"


def test_an_archive_may_follow_another() -> None:
    assert len(initramfs.cpio([Entry.file("a", b"1")])) % 4 == 0


def test_directories_come_before_what_is_in_them() -> None:
    entries = initramfs.with_parents(
        [Entry.file("lib/modules/x.ko", b""), Entry.file("lib/y", b"")]
    )
    assert [entry.name for entry in entries] == ["lib", "lib/modules", "lib/modules/x.ko", "lib/y"]


def test_a_program_comes_with_its_loader_and_all_its_libraries(tmp_path: Path) -> None:
    """The host's own sh, in a tree that is laid out like an unpacked package."""
    tree = tmp_path / "tree"
    program = Path(shutil.which("sh") or "/bin/sh").resolve()
    loader, libraries = initramfs.needed_libraries(program)
    assert loader is not None
    for directory in ("usr/bin", "usr/lib/x86_64-linux-gnu"):
        (tree / directory).mkdir(parents=True)
    shutil.copy(program, tree / "usr/bin/sh")
    for name in [PurePosixPath(loader).name, *libraries]:
        found = [p for d in initramfs.LIBRARY_DIRECTORIES if (p := Path("/", d, name)).exists()]
        # As in Debian: the soname is an absolute link inside the tree.
        real = tree / "usr/lib/x86_64-linux-gnu" / f"real-{name}"
        shutil.copy(found[0].resolve(), real)
        real.with_name(name).symlink_to(Path("/usr/lib/x86_64-linux-gnu") / real.name)

    entries = {entry.name: entry for entry in initramfs.program_entries(tree, ["sh"])}
    assert set(entries) >= {"bin/sh", loader.lstrip("/"), *(f"lib/{name}" for name in libraries)}
    assert entries[loader.lstrip("/")].data.startswith(b"\x7fELF")
    assert stat.S_IMODE(entries["bin/sh"].mode) == 0o755


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(BatchflushError, match="fs_mark is not in the unpacked guest packages"):
        initramfs.program_entries(tmp_path, ["fs_mark"])


def make_module(folder: Path, name: str, depends: str, pack: bool = False) -> None:
    """An ELF file whose .modinfo section says what it depends on."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = folder / "modinfo"
    fields.write_bytes(b"license=GPL\0depends=" + depends.encode() + b"\0name=" + name.encode())
    file = folder / f"{name}.ko"
    program = Path(shutil.which("sh") or "/bin/sh").resolve()
    subprocess.run(["objcopy", f"--add-section=.modinfo={fields}", program, file], check=True)
    if pack:
        file.with_name(f"{name}.ko.xz").write_bytes(lzma.compress(file.read_bytes()))
        file.unlink()
    fields.unlink()


def test_modules_are_loaded_after_what_they_depend_on(tmp_path: Path) -> None:
    make_module(tmp_path / "drivers/block", "virtio_blk", "virtio,virtio-ring")
    make_module(tmp_path / "drivers/virtio", "virtio-ring", "virtio", pack=True)
    make_module(tmp_path / "drivers/virtio", "virtio", "")
    modules = initramfs.Modules(tmp_path)
    assert modules.load_order(["virtio_blk"]) == ["virtio", "virtio_ring", "virtio_blk"]


def test_a_module_is_loaded_once(tmp_path: Path) -> None:
    make_module(tmp_path, "virtio", "")
    make_module(tmp_path, "a", "virtio")
    make_module(tmp_path, "b", "virtio")
    assert initramfs.Modules(tmp_path).load_order(["a", "b", "a"]) == ["virtio", "a", "b"]


def test_what_is_built_into_the_kernel_is_not_loaded(tmp_path: Path) -> None:
    make_module(tmp_path, "nvme", "nvme-core")
    assert initramfs.Modules(tmp_path).load_order(["ext4", "nvme"]) == ["nvme"]
    assert initramfs.Modules(None).load_order(["ext4"]) == []


def test_modules_in_a_circle_are_refused(tmp_path: Path) -> None:
    make_module(tmp_path, "a", "b")
    make_module(tmp_path, "b", "a")
    with pytest.raises(BatchflushError, match="depend on each other"):
        initramfs.Modules(tmp_path).load_order(["a"])


def test_the_job_archive_names_the_modules_in_order() -> None:
    members = unpack(initramfs.job_archive("echo hello\n", ["virtio", "virtio_blk"]))
    assert members["job/run"][1] == b"echo hello\n"
    assert members["job/modules"][1] == b"/lib/modules/virtio.ko\n/lib/modules/virtio_blk.ko\n"
