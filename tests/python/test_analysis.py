# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files are looked at without running them, and with which flags."""

from batchflush import analysis


def test_clang_gets_the_flags_that_say_what_a_file_means() -> None:
    command = (
        "cc -m64 -Ia -I b -Wall -Wshadow=local -iquote . -isystem 'c d' -D_GNU_SOURCE "
        "-std=gnu11 -O2 -fPIE -MD -MF a.d -o a.o -c a.c"
    )
    assert analysis.meaning({"command": command}) == [
        "-m64", "-Ia", "-I", "b", "-iquote", ".", "-isystem", "c d", "-D_GNU_SOURCE", "-std=gnu11",
    ]  # fmt: skip


def test_every_c_file_in_qemu_s_form_is_looked_at() -> None:
    names = {str(file.relative_to(analysis.paths.ROOT)) for file in analysis.sources()}
    assert {"block/batchflush/io.c", "block/batchflush/model/queue.h"} <= names
    assert {"hw/batchflush/control.c", "tests/qtest/batchflush-test.c"} <= names
    assert not [name for name in names if name.startswith("lab/")]
