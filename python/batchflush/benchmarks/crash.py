# SPDX-License-Identifier: GPL-2.0-or-later
"""How many crash states of an ext4 are checked in a minute.

A log of at least 50,000 writes on a file system of 256 MiB, half full. Each state is
different from all others, and e2fsck replays its journal and checks it.
"""

import resource

from batchflush import build, paths
from batchflush.bench import Number
from batchflush.crash import checkers, explore, record
from batchflush.crash.history import read
from batchflush.crash.log import Log
from batchflush.crash.trial import Setting
from batchflush.errors import BatchflushError

NAME = "crash"
HELP = "crash states of an ext4 that are checked in a minute"

# A quick disk: what a crash may leave does not depend on times.
WORKLOAD = record.Workload(profile="nvme-consumer", fill_mib=118, threads=4, rounds=1500)
LOG = paths.BENCH / "crash.log"
WRITES = 50_000
CORES = 2
RATE = 3000
MINUTES = 1.0


def measure() -> list[Number]:
    """The log is recorded once; it stays for the next time."""
    if record.recorded(LOG) != WORKLOAD or not LOG.exists():
        build.qemu()
        record.record(WORKLOAD, LOG, limit_seconds=1800)
    log = Log(LOG)
    writes = len(read(log).writes)
    setting = Setting(str(LOG.resolve()), log.size, 4096, (checkers.FSCK,), "ext4")
    before = _processor_seconds()
    found = explore.explore(
        setting, explore.Limits(minutes=MINUTES), seed=1, workers=CORES, fresh=True
    )
    seconds = _processor_seconds() - before
    if found.results.failing():
        raise BatchflushError(f"a state fails: {found.results.failing()[0]}")
    different = found.results.distinct()
    return [
        Number("crash_log_writes", writes, at_least=WRITES),
        Number("crash_images_per_minute", different / found.seconds * 60, at_least=RATE),
        # What the processors had to do for it, however busy they were with other work.
        Number("crash_processor_ms_per_image", seconds / different * 1000, at_most=40),
    ]


def _processor_seconds() -> float:
    """Of this process and of all that have ended: the workers and their checkers."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
