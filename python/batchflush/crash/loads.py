# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest does while its power is cut, and what it owes after that.

A load is a shell script that does what the host tells it, again and again:

    make    an empty file system, mounted
    load    write and sync until nothing works any more, then unmount
    check   mount, which replays the journal; unmount; have the file system's own tool
            look at it; mount again and tell what is there
    rest    unmount

Before each it says "ready", and before the writing begins "loaded"; so the host knows when
to cut and when to restore the power. What was acknowledged it says in "mark" messages, all
of them before the next "ready", and none for what a system call says when the disk is dead
already. The words of init.sh's channel are used.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchflush.crash import record, witness
from batchflush.crash.compiled import compile_c
from batchflush.crash.history import Mark
from batchflush.guest import packages

Message = Mapping[str, Any]
MOST_THREADS = 6
STRESS = Path(__file__).with_name("stress.c")


@dataclass(frozen=True)
class FileSystem:
    """size_mib: the smallest that its tools take, or a little more. check: of {disk}, 0 if good."""

    size_mib: int
    package: str
    programs: tuple[str, ...]
    check: str


FILE_SYSTEMS = {
    "ext4": FileSystem(128, "e2fsprogs", ("e2fsck",), "/bin/e2fsck -f -n {disk}"),
    "xfs": FileSystem(320, "xfsprogs", ("mkfs.xfs", "xfs_repair"), "/bin/xfs_repair -n {disk}"),
    "btrfs": FileSystem(
        256, "btrfs-progs", ("mkfs.btrfs", "btrfs"), "/bin/btrfs check --readonly {disk}"
    ),
}


@dataclass(frozen=True)
class Load:
    """prepare, work, tell: the parts of the script; judge: what is wrong with what was told.

    words: drawn for each cut, they are $1, $2 and so on in `work`.
    """

    packages: tuple[tuple[str, tuple[str, ...]], ...]
    prepare: str
    work: str
    tell: str
    judge: Callable[[Sequence[Mark], Sequence[Message]], list[str]]
    words: Callable[[random.Random], str] = lambda chance: ""


def script(load: Load, file_system: str, disk: str) -> str:
    """The job of the guest."""
    known = FILE_SYSTEMS[file_system]
    size = known.size_mib << 20
    make = record.MAKE[file_system].format(disk=disk, size=size, kib=size >> 10)
    mount = f"mount -t {file_system} {disk} /mnt"
    check = known.check.format(disk=disk)
    return f"""\
disk={disk}
finding() {{
    said=$(tail -n 4 /tmp/said | tr -cd ' -~\\n' | tr -d '"\\\\' | tr '\\n' ' ')
    report "{{\\"type\\": \\"finding\\", \\"text\\": \\"$1: $said\\"}}"
}}
make() {{
    umount /mnt 2>/dev/null
    {make} && {mount}
}}
check() {{
    {mount} >/tmp/said 2>&1 || {{ finding mount; return 0; }}
    umount /mnt
    {check} >/tmp/said 2>&1 || finding {check.split()[0].split("/")[-1]}
    {mount} >/tmp/said 2>&1 || {{ finding mount; return 0; }}
    {{ {load.tell}
    }} >&3 2>/tmp/said || finding tell
}}
load() {{
    rm -rf /mnt/load /mnt/beside
    mkdir /mnt/load /mnt/beside && {load.prepare} && sync || return 1
    ask '{{"type": "loaded"}}'
    {load.work}
    killall -9 fs_mark stress 2>/dev/null
    wait
    cat /tmp/said
    await umount /mnt
}}
await test -b {disk} || exit 125
while true; do
    ask '{{"type": "ready"}}'
    # What was said to a guest that has been reset before it could read it.
    while [ "$answer" = '{{"type": "go"}}' ]; do read -r answer <&3; done
    case "$answer" in
    *make*) make ;;
    *check*) check ;;
    *rest*) umount /mnt 2>/dev/null || true ;;
    *load*) load $(echo "$answer" | sed 's/.*"words": "//; s/".*//') ;;
    *) exit 0 ;;
    esac || exit 1
done
"""


def guest_kernel(load: Load, file_system: str) -> packages.Kernel:
    """Debian's kernel with all that the load needs in its initramfs."""
    kernel = packages.prepare()
    known = FILE_SYSTEMS[file_system]
    for package, programs in ((known.package, known.programs), *load.packages):
        kernel = packages.with_programs(kernel, package, programs)
    stress = compile_c(STRESS, "stress", ("-static",))
    return record.with_program(record.with_program(kernel, record.witness()), stress)


# --- files ------------------------------------------------------------------------------


def _judge_files(marks: Sequence[Mark], told: Sequence[Message]) -> list[str]:
    files = {
        line["name"]: witness.Held(
            line["records"], None if line["version"] < 0 else line["version"]
        )
        for line in told
    }
    return witness.broken(witness.promises(marks), files)


FILES = Load(
    packages=(),
    prepare="true",
    work="""\
case $2 in
    fs_mark) fs_mark -d /mnt/beside -s 4096 -n 100000 -D 16 -l /tmp/log >/dev/null 2>&1 & ;;
    stress) /bin/stress /mnt/beside $3 & ;;
    esac
    { /bin/witness run /mnt/load - 0 $1 1000000 2>/tmp/said; } | /bin/witness relay $disk >&3""",
    tell="/bin/witness tell /mnt/load",
    judge=_judge_files,
    words=lambda chance: " ".join(
        (
            str(chance.randint(1, MOST_THREADS)),
            chance.choice(("fs_mark", f"stress {chance.randrange(1 << 32)}")),
        )
    ),
)

# --- SQLite -----------------------------------------------------------------------------

ROW = "printf('%0900d', n)"
# A row is a transaction of two tables, so half of one shows; after it has been committed,
# sqlite3 prints the mark.
TRANSACTIONS = """\
BEGIN { for (n = 1; ; n++) {
    printf "BEGIN; INSERT INTO log SELECT n, %s FROM (SELECT %d AS n);", row, n
    printf "UPDATE counter SET n = %d; COMMIT;\\n", n
    printf "SELECT json_object(\\047type\\047, \\047mark\\047, \\047text\\047, \\047%d\\047);\\n", n
} }"""
TELL = f"""\
SELECT json_object('type', 'rows', 'rows', count(*), 'last', ifnull(max(n), 0),
    'whole', ifnull(sum(data = {ROW}), 0), 'counter', (SELECT n FROM counter)) FROM log;
SELECT json_object('type', 'integrity', 'text', integrity_check) FROM pragma_integrity_check;
"""


def _judge_sqlite(marks: Sequence[Mark], told: Sequence[Message]) -> list[str]:
    findings = [
        f"PRAGMA integrity_check: {line['text']}"
        for line in told
        if line["type"] == "integrity" and line["text"] != "ok"
    ]
    committed = max((int(mark.text) for mark in marks), default=0)
    for line in (line for line in told if line["type"] == "rows"):
        last = line["last"]
        if last < committed:
            findings.append(f"the last row is {last}, row {committed} was committed")
        if not line["rows"] == line["whole"] == line["counter"] == last:
            findings.append(f"the tables do not agree: {json.dumps(dict(line))}")
    return findings


def _sqlite(journal_mode: str, synchronous: str) -> Load:
    first = (
        f"PRAGMA journal_mode={journal_mode};"
        "CREATE TABLE log (n INTEGER PRIMARY KEY, data TEXT);"
        "CREATE TABLE counter (n INTEGER); INSERT INTO counter VALUES (0);"
    )
    setting = f"PRAGMA synchronous={synchronous}; PRAGMA wal_autocheckpoint=30;"
    statements = f".output /dev/null\\n{setting}\\n.output stdout\\n"
    return Load(
        packages=(("sqlite3", ("sqlite3",)),),
        prepare=f'sqlite3 /mnt/load/db "{first}" >/dev/null',
        work=f"""\
{{ printf '{statements}'; awk -v row="{ROW}" '{TRANSACTIONS}'; }} 2>/dev/null |
        sqlite3 -bail /mnt/load/db 2>/tmp/said | /bin/witness relay $disk >&3""",
        tell=f'sqlite3 -bail /mnt/load/db "{TELL}"',
        judge=_judge_sqlite,
    )


LOADS = {
    "files": FILES,
    # With synchronous=full the deletion of the journal, which commits, is not synced.
    "sqlite-rollback": _sqlite("delete", "extra"),
    "sqlite-wal": _sqlite("wal", "full"),
}
