# SPDX-License-Identifier: GPL-2.0-or-later
"""Running a program on a crash state; overlay.c is what it sees the state through."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from batchflush.crash.compiled import compile_c
from batchflush.crash.image import Image
from batchflush.errors import BatchflushError

SOURCE = Path(__file__).with_name("overlay.c")
# Where Debian has programs for the administrator, also if the user's PATH has not.
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
LIMIT_SECONDS = 60
TIMED_OUT = -1000


@functools.cache
def library() -> Path:
    """overlay.c, compiled at its first use."""
    return compile_c(SOURCE, "overlay", ("-shared", "-fPIC"))


@functools.cache
def program(name: str, package: str) -> str:
    """The path of a program of Debian's."""
    path = shutil.which(name, path=PLACES)
    if path is None:
        raise BatchflushError(
            f"{name} is not installed",
            f"as root: apt-get install --no-install-recommends {package}",
        )
    return path


def run(
    image: Image, command: Sequence[str | Path], variables: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a program that sees the state at image.path; its exit code and all it printed.

    The code is TIMED_OUT if it did not end within LIMIT_SECONDS.
    """
    environment = {**os.environ, "LC_ALL": "C", **(variables or {})}
    environment |= image.environment(library())
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        return TIMED_OUT, (error.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout.decode(errors="replace")
