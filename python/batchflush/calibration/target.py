# SPDX-License-Identifier: GPL-2.0-or-later
"""What is probed: a file that exists only meanwhile, or a device, and what Linux says of it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batchflush.errors import BatchflushError, UsageError

SYSFS = Path("/sys/dev/block")
# The fewest bytes that a run in sequence makes sense on.
SMALLEST = 4 << 20


@dataclass(frozen=True)
class Facts:
    """What Linux says of the disk; None where it does not say."""

    file_system: str | None
    model: str | None
    write_cache: str | None  # "write back" or "write through"
    rotational: bool | None
    logical_block: int | None
    physical_block: int | None
    queues: int | None


@dataclass(frozen=True)
class Target:
    """Something to probe. path: what fio opens. writable: it may be written to."""

    path: str
    shown: str
    is_file: bool
    writable: bool
    bytes: int
    facts: Facts


@contextlib.contextmanager
def opened(path: Path, write_to: Path | None, size: int) -> Iterator[Target]:
    """The device, or a new file of that size, which is gone when the block ends.

    Nothing but a path that is not there is ever written to, unless it is write_to.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if write_to is not None:
            raise UsageError(f"--write-to={write_to} is not there") from None
        with _new_file(path, size) as target:
            yield target
        return
    except OSError as error:
        raise UsageError(f"{path} cannot be probed: {error.strerror}") from error
    if not stat.S_ISBLK(mode):
        raise UsageError(
            f"{path} exists and is no block device",
            "give a device, or the path of a file that is not there: it is made, used and removed",
        )
    with _device(path, write_to is not None, size) as target:
        yield target


@contextlib.contextmanager
def _new_file(path: Path, size: int) -> Iterator[Target]:
    """Its name is gone at once, so that whatever ends us leaves nothing behind."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}") from error
    try:
        path.unlink()
        _check_room(path, descriptor, size)
        _check_direct(path, descriptor)
        # A file that is too short fio would remove and make anew.
        os.posix_fallocate(descriptor, 0, size)
        yield Target(
            f"/proc/{os.getpid()}/fd/{descriptor}", str(path), True, True, size,
            _facts(os.fstat(descriptor).st_dev, _file_system(path.parent)),
        )  # fmt: skip
    finally:
        os.close(descriptor)


def _check_room(path: Path, descriptor: int, size: int) -> None:
    room = os.fstatvfs(descriptor)
    if room.f_bavail * room.f_frsize < size:
        raise UsageError(
            f"{path} would take {size:,} bytes, but its file system has only "
            f"{room.f_bavail * room.f_frsize:,} left",
            "a smaller --size does, too",
        )


def _check_direct(path: Path, descriptor: int) -> None:
    try:
        os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise BatchflushError(f"{path} cannot be opened again: {error.strerror}") from error
        raise UsageError(
            f"{path} is on {_file_system(path.parent) or 'a file system'}, which does no direct I/O"
        ) from error


@contextlib.contextmanager
def _device(path: Path, writable: bool, size: int) -> Iterator[Target]:
    # With O_EXCL a device that is mounted, or part of another one, is not to be had.
    flags = os.O_RDWR | os.O_EXCL if writable else os.O_RDONLY
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise UsageError(
                f"{path} is in use: it is mounted, or part of another device"
            ) from None
        raise UsageError(f"{path} cannot be opened: {error.strerror}") from error
    try:
        whole = os.lseek(descriptor, 0, os.SEEK_END)
        if whole < SMALLEST:
            raise UsageError(
                f"{path} has only {whole:,} bytes; a probe takes at least {SMALLEST:,}"
            )
        # Open meanwhile, so that nobody mounts what is written to.
        facts = _facts(os.fstat(descriptor).st_rdev, None)
        yield Target(str(path), str(path), False, writable, min(whole, size), facts)
    finally:
        os.close(descriptor)


def _facts(device: int, file_system: str | None) -> Facts:
    folder = SYSFS / f"{os.major(device)}:{os.minor(device)}"
    if (folder / "partition").exists():
        folder = folder.resolve().parent
    rotational, logical, physical = (
        _number(folder / "queue" / name)
        for name in ("rotational", "logical_block_size", "physical_block_size")
    )
    queues = len(list((folder / "mq").glob("*"))) if (folder / "mq").is_dir() else None
    return Facts(
        file_system, _text(folder / "device/model"), _text(folder / "queue/write_cache"),
        None if rotational is None else bool(rotational), logical, physical, queues,
    )  # fmt: skip


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def _number(file: Path) -> int | None:
    text = _text(file)
    return int(text) if text and text.isdigit() else None


def _file_system(folder: Path) -> str | None:
    """The type of what is mounted at the folder or nearest above it."""
    place = folder.resolve()
    best: tuple[int, str] | None = None
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split(" ")
        point = Path(mount.encode().decode("unicode_escape"))
        if place.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = len(point.parts), kind
    return best[1] if best else None
