# SPDX-License-Identifier: GPL-2.0-or-later
"""Our tests with QEMU, model and store built under the compiler's sanitizers.

A report of AddressSanitizer or UBSan ends the program, so that its test fails. ThreadSanitizer
finds races in QEMU's own code too; a report counts where one of the two accesses is ours.
"""

import re
import shutil
from collections.abc import Iterator

from batchflush import paths, variants

ADDRESS_SUITES = ("unit", "qtest", "driver", "guest")
# The model and the store have no threads.
THREAD_SUITES = ("qtest", "driver")

ADDRESS_OPTIONS = {
    # QEMU leaves to the end of the process what it does not need to free.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}
REPORTS = paths.BUILD / "check-threads-reports"

_OURS = re.compile(r"\b(?:block|hw)/batchflush/")
# Who accesses is who calls these: what is inline in a header, locks, and the sanitizer itself.
_ASIDE = re.compile(r"include/|qemu-thread|libsanitizer|libtsan|/usr/|<null>")
# It says that it is done by a barrier, which ThreadSanitizer does not understand: all that is done
# to a buffer after its I/O looks like a race.
_POOL = re.compile(r"^ *#\d+ worker_thread \S*util/thread-pool\.c", re.M)


def addresses() -> Iterator[dict[str, str]]:
    """The results of all suites under AddressSanitizer and UBSan."""
    yield from variants.check(variants.ADDRESSES, ADDRESS_SUITES, env=ADDRESS_OPTIONS)


def threads() -> Iterator[dict[str, str]]:
    """The results of the suites under ThreadSanitizer, and a failure for each race of ours."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir(parents=True)
    options = f"log_path={REPORTS}/report:exitcode=0:halt_on_error=0:history_size=4"
    yield from variants.check(variants.THREADS, THREAD_SUITES, env={"TSAN_OPTIONS": options})
    found = [one for file in sorted(REPORTS.iterdir()) for one in reports(file.read_text())]
    races = dict.fromkeys(one for one in found if ours(one))
    yield {
        "name": f"threads: races in our files, among {len(found)} reports in all",
        "outcome": "failed" if races else "passed",
        "detail": "\n\n".join(races),
    }


def reports(text: str) -> list[str]:
    """ThreadSanitizer's reports in what a process wrote."""
    return re.findall(r"^WARNING: ThreadSanitizer: .*?(?=^==================$)", text, re.M | re.S)


def ours(report: str) -> bool:
    """Whether one of the accesses, or of the locks, of a report is made by our code."""
    accesses = re.split(r"\n\n", report)[:2]
    if any(_POOL.search(stack) for stack in accesses):
        return False
    return any(_OURS.search(_maker(stack)) for stack in accesses)


def _maker(stack: str) -> str:
    frames = re.findall(r"^ *#\d+ (.*)$", stack, re.M)
    return next((frame for frame in frames if not _ASIDE.search(frame)), "")
