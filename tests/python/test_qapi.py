# SPDX-License-Identifier: GPL-2.0-or-later
"""The form that QEMU's generator wants of qapi/batchflush.json; from 10.1 on it refuses others."""

import re

from batchflush import paths

COLUMNS = 70
LINES = (paths.ROOT / "qapi/batchflush.json").read_text().splitlines()


def test_documentation_is_narrow_enough() -> None:
    wide = [line for line in LINES if line.startswith("#") and len(line) > COLUMNS]
    assert not wide, f"longer than {COLUMNS} columns"


def test_sentences_stand_two_spaces_apart() -> None:
    close = [line for line in LINES if re.search(r"^#.*[.!?] [A-Z(]", line)]
    assert not close
