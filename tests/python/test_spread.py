# SPDX-License-Identifier: GPL-2.0-or-later
"""The build refuses the spreads that the model refuses, in the same words."""

import subprocess
from pathlib import Path

import pytest

from batchflush import paths, spread

MODEL = paths.ROOT / "block/batchflush/model"

# Prints what is wrong with each line, or an empty line.
PROGRAM = r"""
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include "spread.h"

int main(void)
{
    char line[1000];

    while (fgets(line, sizeof(line), stdin)) {
        char *why = NULL;
        BfSpread spread;

        line[strcspn(line, "\n")] = '\0';
        puts(bf_spread_parse(&spread, line, &why) ? "" : why);
        g_free(why);
    }
    return 0;
}
"""

GOOD = (
    "fixed", "uniform:0", "uniform:100", "uniform:12.5", "normal:33", "log-normal:1000",
    "pareto:1.1", "pareto:100", "table:50=1", "table:0=0/100=1000000",
    "table:50=0.9/90=1.4/99=6", "table:1=1/2=1", "table:" + "/".join(f"{i}=1" for i in range(16)),
)  # fmt: skip
BAD = (
    "", "Fixed", "fixed:", "fixed:1", "uniform", "uniform:", "uniform:-1", "uniform:101",
    "uniform:1e1", "uniform: 1", "uniform:.5", "uniform:5.", "uniform:1.2.3", "uniform:nan",
    "normal:34", "normal:33.01", "log-normal:1001", "lognormal:5", "pareto:1", "pareto:0",
    "pareto:101", "pareto:x", "gauss:5", "table", "table:", "table:50", "table:50=", "table:=1",
    "table:50=1/", "table:/50=1", "table:101=1", "table:50=1000001", "table:50=-1",
    "table:50=1/50=2", "table:90=1/50=2", "table:50=2/90=1", "table:a=b", "table:50=1=2",
    "table:" + "/".join(f"{i}=1" for i in range(17)),
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the model says to each of them."""
    program = tmp_path_factory.mktemp("spread") / "spread"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "glib-2.0"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    sources: list[Path] = [MODEL / "random.c", MODEL / "spread.c"]
    subprocess.run(
        ["cc", "-D_GNU_SOURCE", "-I", MODEL, "-o", program, "-x", "c", "-",
         *sources, *flags, "-lm"],
        input=PROGRAM, text=True, check=True,
    )  # fmt: skip
    texts = (*GOOD, *BAD)
    said = subprocess.run(
        [program], input="".join(f"{text}\n" for text in texts),
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    return dict(zip(texts, said, strict=True))


@pytest.mark.parametrize("text", GOOD)
def test_good(text: str, model: dict[str, str]) -> None:
    assert spread.complaint(text) == model[text] == ""


@pytest.mark.parametrize("text", BAD)
def test_bad(text: str, model: dict[str, str]) -> None:
    assert model[text]
    assert spread.complaint(text) == model[text]


@pytest.mark.parametrize("value", [5, 1.5, None, True])
def test_what_is_no_text(value: object) -> None:
    assert "is not known" in spread.complaint(value)
