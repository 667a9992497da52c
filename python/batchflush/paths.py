# SPDX-License-Identifier: GPL-2.0-or-later
"""Where things are: the project, what is built from it, and the cache of downloads."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PROFILES = ROOT / "block/batchflush/model/profiles.toml"
GRAFT_QEMU = ROOT / "graft/qemu.toml"

BUILD = ROOT / "build"
VENV_PYTHON = BUILD / "venv/bin/python"
CONFIGURATION = BUILD / "configuration.json"
QEMU_SOURCE = BUILD / "qemu-source"
# Set by variants.py: everything runs from builds of its own.
VARIANT = os.environ.get("BATCHFLUSH_VARIANT", "")
_SUFFIX = f"-{VARIANT}" if VARIANT else ""
QEMU_BUILD = BUILD / f"qemu{_SUFFIX}"
QEMU_DEBUG_BUILD = BUILD / "qemu-debug"
FIRMWARE = BUILD / "firmware"
MODEL_BUILD = BUILD / f"model{_SUFFIX}"
GUEST = BUILD / "guest"
DEMO = BUILD / "demo"
BENCH = BUILD / "bench"
CHECK = BUILD / f"check{_SUFFIX}"
CALIBRATE = BUILD / "calibrate"
CURVES = BUILD / "profiles"
DOCS = BUILD / "docs"

QEMU_SYSTEM = QEMU_BUILD / "qemu-system-x86_64"
QEMU_IMG = QEMU_BUILD / "qemu-img"
QEMU_IO = QEMU_BUILD / "qemu-io"
QEMU_NBD = QEMU_BUILD / "qemu-nbd"
STORAGE_DAEMON = QEMU_BUILD / "storage-daemon/qemu-storage-daemon"


def cache() -> Path:
    """The folder of downloads; it outlives a checkout."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "batchflush"


def shown(path: Path) -> str:
    """A path as short as it can be told to the user."""
    for base, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base):
            return prefix + str(path.relative_to(base))
    return str(path)
