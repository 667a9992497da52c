# SPDX-License-Identifier: GPL-2.0-or-later
"""Reports of ThreadSanitizer that are ours, and QEMU versions that Debian offers."""

import pytest

from batchflush import apt, qemu_versions, sanitizers

RACE = """==================
WARNING: ThreadSanitizer: data race (pid=7)
  Write of size 8 at 0x7b by thread T2 (mutexes: write M1):
    #0 memcpy ../../../libsanitizer/tsan/tsan_interceptors.cpp:1 (libtsan.so.2+0x5)
    #1 {} (qemu+0x1)
    #2 qemu_coroutine_run ../util/coroutine.c:3 (qemu+0x2)

  Previous read of size 8 at 0x7b by thread T1:
    #0 stat64_get /b/include/qemu/stats64.h:4 (qemu+0x3)
    #1 {} (qemu+0x4)

  Location is heap block of size 9 at 0x7a allocated by main thread:
    #0 make ../block/batchflush/batchflush.c:9 (qemu+0x6)

SUMMARY: ThreadSanitizer: data race x
==================
"""
THEIRS = "aio_poll ../util/aio-posix.c:5"
OURS = "next_run ../block/batchflush/destage.c:50"


@pytest.mark.parametrize(
    ("write", "read", "ours"),
    [(THEIRS, THEIRS, False), (OURS, THEIRS, True), (THEIRS, OURS, True)],
)
def test_a_race_is_ours_if_one_of_its_accesses_is(write: str, read: str, ours: bool) -> None:
    (report,) = sanitizers.reports("noise\n" + RACE.format(write, read))
    assert sanitizers.ours(report) is ours


def test_what_the_thread_pool_has_done_is_no_race_of_ours() -> None:
    worker = "handle_aiocb_rw ../block/file-posix.c:7\n    #2 worker_thread ../util/thread-pool.c:1"
    (report,) = sanitizers.reports(RACE.format(OURS, worker))
    assert not sanitizers.ours(report)


def test_reports_are_told_apart() -> None:
    assert len(sanitizers.reports(RACE.format(OURS, OURS) + RACE.format(THEIRS, OURS))) == 2


def test_versions_that_are_old_enough_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {"trixie": ["1:10.0.13+ds-0+deb13u1"], "sid": ["1:10.2.2+ds-1", "1:9.2.1+ds-1"]}
    monkeypatch.setattr(apt, "source_versions", lambda _, suite: offers.get(suite, []))
    assert qemu_versions.offered() == [
        ("trixie", "1:10.0.13+ds-0+deb13u1"),
        ("sid", "1:10.2.2+ds-1"),
    ]


@pytest.mark.parametrize(
    ("debian", "upstream"),
    [("1:10.2.2+ds-1", "10.2.2"), ("1:11.1.3+ds-1~bpo13+1", "11.1.3"), ("11.0.0~rc1-2", "11.0.0")],
)
def test_the_version_of_qemu_is_found_in_debian_s(debian: str, upstream: str) -> None:
    assert qemu_versions.upstream_version(debian) == upstream
