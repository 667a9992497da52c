# SPDX-License-Identifier: GPL-2.0-or-later
"""Each fuzz target begins with inputs of its own, and they are few and small."""

import pytest

from batchflush import fuzz

COMMITTED = fuzz.SOURCES / "corpus"
BYTES_MAX = 32 << 10


@pytest.mark.parametrize("target", fuzz.targets())
def test_a_target_has_a_small_corpus(target: str) -> None:
    files = list((COMMITTED / target).iterdir())
    assert files
    assert sum(file.stat().st_size for file in files) <= BYTES_MAX


def test_no_corpus_is_without_its_target() -> None:
    assert {folder.name for folder in COMMITTED.iterdir()} == set(fuzz.targets())


def test_what_libfuzzer_says_is_counted() -> None:
    text = (
        "#2\tINITED cov: 12 ft: 13\n#4096\tpulse  cov: 85 ft: 90 corp: 3/9b\n"
        "stat::number_of_executed_units: 12810\n"
    )
    assert fuzz.told(text, 3, ()) == fuzz.Run(12810, 85, 3, ())
