# SPDX-License-Identifier: GPL-2.0-or-later
"""Pieces of the shell scripts that guests run; init.sh beside this file offers their verbs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

FILE_SYSTEMS = ("ext4",)


def fresh_file_system(disk: str) -> str:
    """Make an empty ext4 on the disk and mount it at /mnt.

    Everything is initialised at once: ext4 would else do it in the background, beside
    what is measured. Discards gain nothing on a disk that is memory. By its path, because
    busybox's shell takes its own mke2fs otherwise.
    """
    return f"""\
await test -b {disk} || exit 125
/bin/mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 {disk} || exit 125
mount -t ext4 {disk} /mnt || exit 125
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


def fs_mark_cell(threads: int, files: int) -> str:
    """One cell of the demo on a mounted file system: `files` files by each of the threads.

    The "end" carries the last line that `fs_mark -v` printed and the seconds that passed
    on the guest's clock from before fs_mark's start until after its end.
    """
    command = [
        "fs_mark", "-d", "/mnt/fs_mark", "-s", "4096", "-n", str(files), "-D", "64",
        "-t", str(threads), "-v", "-l", "/tmp/fs_log.txt",
    ]  # fmt: skip
    begin = json.dumps({"type": "begin", "threads": threads, "files": files})
    end = f'{{"type": "end", "threads": {threads}, "files": {files}'
    return f"""\
ask '{begin}'
read -r before rest </proc/uptime
{shlex.join(command)} >/tmp/fs_mark.out 2>&1 || {{ cat /tmp/fs_mark.out; exit 1; }}
read -r after rest </proc/uptime
ask '{end}, "fs_mark": "'"$(tail -n 1 /tmp/fs_mark.out)"'", "uptime": ['$before', '$after']}}'
umount /mnt
"""
