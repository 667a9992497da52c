# SPDX-License-Identifier: GPL-2.0-or-later
"""What the outcomes of QEMU's iotests count for, and the wrapper that puts a node under them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from batchflush import iotests
from batchflush.iotests import FAIL, NOT_RUN, PASS, Listed, Outcome, verdict

NOBODY = Listed({}, {}, {}, {})
LISTED = Listed({"1": "no program"}, {"2": "no image"}, {"3": "QEMU's"}, {"4": "sectors"})
PASSES, FAILS, NOT = Outcome(PASS, with_node=True), Outcome(FAIL), Outcome(NOT_RUN, "no ssh")


def test_a_line_of_the_runner_is_understood() -> None:
    line = "001   pass       [15:13:59] [15:14:02]   2.6s   (last: 2.5s)              "
    assert iotests.outcome(line) == ("001", Outcome(PASS))
    line = "113   not run    [15:14:39] [15:14:39]   ...                  bochs not available"
    assert iotests.outcome(line) == ("113", Outcome(NOT_RUN, "bochs not available"))
    assert iotests.outcome("Failures: 094 119") is None


@pytest.mark.parametrize(
    ("test", "outcome", "plain", "listed", "kind"),
    [
        ("9", PASSES, PASSES, NOBODY, "passed"),
        ("9", FAILS, PASSES, LISTED, "failed"),
        ("9", Outcome(PASS), PASSES, LISTED, "failed"),
        ("9", NOT, NOT, LISTED, "failed"),
        ("9", FAILS, FAILS, LISTED, "failed"),
        ("1", NOT, NOT, LISTED, "skipped"),
        ("1", PASSES, PASSES, LISTED, "failed"),
        ("2", Outcome(PASS), PASSES, LISTED, "skipped"),
        ("2", PASSES, PASSES, LISTED, "failed"),
        ("3", FAILS, FAILS, LISTED, "skipped"),
        ("3", FAILS, PASSES, LISTED, "failed"),
        ("3", PASSES, PASSES, LISTED, "failed"),
        ("4", FAILS, PASSES, LISTED, "skipped"),
        ("4", PASSES, PASSES, LISTED, "failed"),
    ],
)
def test_what_is_skipped_is_listed_and_what_is_listed_is_skipped(
    test: str, outcome: Outcome, plain: Outcome, listed: Listed, kind: str
) -> None:
    assert verdict(test, outcome, plain, listed).kind == kind


def test_a_test_that_is_listed_but_gone_is_told() -> None:
    assert iotests.missing(["1", "2", "4", "9"], LISTED) == ["3"]


def wrapped(arguments: list[str], tmp_path: Path) -> list[str]:
    """What the wrapper hands to the real program."""
    program = tmp_path / "program"
    program.write_text(
        "#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
    )
    program.chmod(0o755)
    environment = {
        "BATCHFLUSH_QEMU_NBD": str(program),
        "BATCHFLUSH_NODE": "driver=batchflush",
        "BATCHFLUSH_SERVED": str(tmp_path / "served"),
    }
    done = subprocess.run(
        [iotests.WRAPPER, *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_the_wrapper_puts_a_node_over_a_raw_image(tmp_path: Path) -> None:
    image = tmp_path / "a,b"
    image.touch()
    options = ["-t", "-k", "socket", "-e", "42", "-x", ""]
    escaped = str(image).replace(",", ",,")
    assert wrapped([*options, "-f", "raw", str(image)], tmp_path) == [
        *options, "--image-opts",
        f"driver=batchflush,file.driver=file,file.filename={escaped}",
    ]  # fmt: skip
    assert (tmp_path / "served").read_text() == f"{image}\n"


@pytest.mark.parametrize("options", [["-f", "qcow2"], ["-t"], ["-f", "raw", "--image-opts"]])
def test_the_wrapper_leaves_all_else_alone(options: list[str], tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    assert wrapped([*options, str(image)], tmp_path) == [*options, str(image)]
