# SPDX-License-Identifier: GPL-2.0-or-later
"""The explorer's two programs in C, compiled at their first use and kept in build/crash."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from batchflush import paths
from batchflush.errors import BatchflushError

FOLDER = paths.BUILD / "crash/compiled"


def compile_c(source: Path, name: str, flags: Sequence[str]) -> Path:
    """The program or library made from a source; its name tells from which."""
    digest = hashlib.sha256(source.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    target = FOLDER / f"{name}-{digest}"
    if not target.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        # Others may compile the same at this moment.
        unfinished = target.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            ["gcc", "-O2", "-Wall", *flags, "-o", unfinished, source],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise BatchflushError(f"compiling {source.name} failed:\n{done.stderr.strip()}")
        unfinished.rename(target)
    return target
