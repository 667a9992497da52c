# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's source: Debian's by default, extracted into build/, or a tree of the user's own."""

import shutil
from pathlib import Path

from batchflush import apt, graft, paths, processes, progress

PACKAGE = "qemu"
# Debian 13 ships a stable branch of QEMU 10.0.
SUITE = "trixie"
OWN_TREE_HINT = "./configure --qemu-source=DIR takes any other QEMU tree from 10.0 on"

# In the extracted tree: the name of the source package that it came from.
_STAMP = ".batchflush-source"


def prepare(own_tree: Path | None) -> Path:
    """QEMU's source tree, with batchflush grafted into it."""
    tree = own_tree or _extracted()
    graft.apply(tree)
    return tree


def _extracted() -> Path:
    stamp = paths.QEMU_SOURCE / _STAMP
    # What has been extracted stays: a newer point release is no reason to rebuild.
    if stamp.exists():
        return paths.QEMU_SOURCE
    description = apt.download_source(PACKAGE, SUITE)
    with progress.step(f"Extracting {description.stem}"):
        partial = paths.BUILD / "qemu-source.partial"
        for leftover in (partial, paths.QEMU_SOURCE):
            shutil.rmtree(leftover, ignore_errors=True)
        processes.run_logged(
            # apt has checked the files against the archive's signature.
            ["dpkg-source", "--no-check", "--no-copy", "-x", description, partial],
            paths.BUILD / "qemu-source.log",
            f"extracting {description}",
            hint=f"remove {description.parent} and try again; {OWN_TREE_HINT}",
        )
        (partial / _STAMP).write_text(description.name + "\n")
        partial.rename(paths.QEMU_SOURCE)
    return paths.QEMU_SOURCE
