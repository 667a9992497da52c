# SPDX-License-Identifier: GPL-2.0-or-later
"""Pieces of the shell scripts that guests run; init.sh beside this file offers their verbs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

# The command that makes an empty one. Everything is initialised at once: ext4 would else do it
# in the background, beside what is measured. Discards gain nothing on a disk that is memory.
# By their paths, because busybox's shell takes its own mke2fs otherwise.
FILE_SYSTEMS = {
    "ext4": "/bin/mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0",
    "xfs": "/bin/mkfs.xfs -q -f -K",
    "btrfs": "/bin/mkfs.btrfs -q -f -K",
}


def fresh_file_system(disk: str, name: str = "ext4") -> str:
    """Make an empty file system on the disk and mount it at /mnt."""
    return f"""\
await test -b {disk} || exit 125
{FILE_SYSTEMS[name]} {disk} >/dev/null || exit 125
mount -t {name} {disk} /mnt || exit 125
sync
"""


def fresh_file_system_of_2009(disk: str, barrier: bool) -> str:
    """Make an ext3 and mount it at /mnt with small files as far apart as in 2009.

    The driver is today's ext4. Without nodelalloc and mb_stream_req=0 it would put the
    files of all threads side by side, so that a disk could write them in one go; ext3
    chose the place of each when it was written, by inode and process.
    """
    options = f"nodelalloc,{'barrier' if barrier else 'nobarrier'}"
    return f"""\
await test -b {disk} || exit 125
/bin/mke2fs -q -F -t ext3 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 {disk} || exit 125
mount -t ext4 -o {options} {disk} /mnt || exit 125
echo 0 >/sys/fs/ext4/{PurePosixPath(disk).name}/mb_stream_req || exit 125
sync
"""


def measured_command(command: Sequence[str]) -> str:
    """Run one command in /mnt, between a "begin" and an "end"; the job ends as it does."""
    return f"""\
cd /mnt
ask '{{"type": "begin"}}'
{shlex.join(command)}
code=$?
ask '{{"type": "end"}}'
exit $code
"""


def fs_mark_cell(disk: str, threads: int, files: int) -> str:
    """One cell of the demo on a mounted file system: `files` files by each of the threads.

    It ends with a "cell" that carries the last line that `fs_mark -v` printed, and the
    guest's clock and the kernel's count of flushes sent to the disk, both before and
    after. The host is not asked for anything meanwhile: while a guest waits, its virtual
    time runs on, and how far would depend on the host.
    """
    command = [
        "fs_mark", "-d", "/mnt/fs_mark", "-s", "4096", "-n", str(files), "-D", "64",
        "-t", str(threads), "-v", "-l", "/tmp/fs_log.txt",
    ]  # fmt: skip
    cell = (
        f'{{"type": "cell", "threads": {threads}, "files": {files}, "fs_mark": "%s", '
        '"uptime": [%s, %s], "flushes": [%s, %s]}'
    )
    return f"""\
{_count_flushes(disk)}; flushes=$1
read -r started rest </proc/uptime
{shlex.join(command)} >/tmp/fs_mark.out 2>&1 || {{ cat /tmp/fs_mark.out; exit 1; }}
read -r ended rest </proc/uptime
{_count_flushes(disk)}
line=$(tail -n 1 /tmp/fs_mark.out)
report "$(printf '{cell}' "$line" $started $ended $flushes $1)"
umount /mnt
"""


def tell_flushes(disk: str) -> str:
    """End with the number of flushes that the kernel ever sent to the disk."""
    return f"""\
{_count_flushes(disk)}
ask "{{\\"type\\": \\"end\\", \\"flushes\\": $1}}"
"""


def _count_flushes(disk: str) -> str:
    """Put the number into $1: the sixteenth of the disk's statistics in sysfs."""
    return f"set -- $(cat /sys/block/{PurePosixPath(disk).name}/stat); shift 15"
