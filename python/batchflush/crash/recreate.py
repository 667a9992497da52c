# SPDX-License-Identifier: GPL-2.0-or-later
"""A crash state as an image file, for whatever wants to look at it."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from batchflush import paths
from batchflush.crash import states
from batchflush.crash.history import read
from batchflush.crash.image import Image
from batchflush.crash.log import Log
from batchflush.errors import BatchflushError, UsageError

PART = 1 << 16


def recreate(log: Log, name: str, output: Path, atomic: int, first: Path | None = None) -> None:
    """Write the state of that name into a file that does not exist yet."""
    if output.exists():
        raise UsageError(f"-o {output} exists; allowed is a file that does not")
    state = states.parse(name)
    history = read(log)
    states.check(state, history)
    image = Image(log, history, atomic, first)
    image.go_to(history.epoch_at(state.position))
    image.show(image.kept(state))
    try:
        if output.suffix == ".qcow2":
            with tempfile.TemporaryDirectory(dir=output.parent, prefix=".state-") as folder:
                raw = Path(folder) / "raw"
                _write_raw(image, raw)
                _convert(raw, output)
        else:
            _write_raw(image, output)
    except OSError as error:
        raise BatchflushError(f"{output} cannot be written: {error.strerror}") from error
    finally:
        image.close()


def _write_raw(image: Image, path: Path) -> None:
    """What is zero stays a hole."""
    with path.open("wb") as stream:
        stream.truncate(image.size)
        for offset in range(0, image.size, PART):
            data = image.read(offset, min(PART, image.size - offset))
            if data.count(0) != len(data):
                stream.seek(offset)
                stream.write(data)


def _convert(raw: Path, output: Path) -> None:
    command = [paths.QEMU_IMG, "convert", "-f", "raw", "-O", "qcow2", raw, output]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BatchflushError(f"qemu-img failed: {done.stderr.strip()}")
