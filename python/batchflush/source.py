# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's source: Debian's by default, extracted into build/, or a tree of the user's own."""

import shutil
from pathlib import Path

from batchflush import apt, graft, paths, processes, progress

PACKAGE = "qemu"
# Debian 13 ships a stable branch of QEMU 10.0.
SUITE = "trixie"
OWN_TREE_HINT = "./configure --qemu-source=DIR takes any other QEMU tree from 10.0 on"

# In a tree that is complete: the name of the source package that it came from.
_STAMP = ".batchflush-source"


def prepare(own_tree: Path | None) -> Path:
    """QEMU's source tree, with batchflush grafted into it."""
    tree = own_tree or _extracted()
    graft.apply(tree)
    return tree


def _extracted() -> Path:
    tree = paths.QEMU_SOURCE
    # What has been extracted stays: a newer point release is no reason to rebuild.
    if (tree / _STAMP).exists():
        return tree
    extract(apt.download_source(PACKAGE, SUITE), tree)
    return tree


def is_usual(description: Path) -> bool:
    """Whether a source package is what build/qemu-source holds."""
    stamp = paths.QEMU_SOURCE / _STAMP
    return stamp.exists() and stamp.read_text().strip() == description.name


def extract(description: Path, tree: Path) -> None:
    """Unpack a source package, with Debian's patches applied; nothing if it is there."""
    stamp = tree / _STAMP
    if stamp.exists():
        return
    tree.parent.mkdir(parents=True, exist_ok=True)
    with progress.step(f"Extracting {description.stem}"):
        shutil.rmtree(tree, ignore_errors=True)
        processes.run_logged(
            # apt has checked the files against the archive's signature.
            ["dpkg-source", "--no-check", "--no-copy", "-x", description, tree],
            paths.BUILD / "qemu-source.log",
            f"extracting {description}",
            hint=f"remove {description.parent} and try again; {OWN_TREE_HINT}",
        )
        # The last: a tree without it was interrupted.
        stamp.write_text(description.name + "\n")
