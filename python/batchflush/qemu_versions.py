# SPDX-License-Identifier: GPL-2.0-or-later
"""The graft in every QEMU from 10.0 on of which Debian offers the source: built, and tested.

What Debian lists and its archive does not hold is skipped, and said.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from batchflush import apt, graft, paths, source, variants
from batchflush.errors import BatchflushError

# Stable, testing, unstable, and what is made from them for older ones.
SUITES = ("bookworm-backports", "trixie", "trixie-backports", "forky", "sid")
OLDEST = (10, 0)
SHORT = ("qtest", "driver")
FOLDER = paths.BUILD / "qemu-versions"


def run_all() -> Iterator[dict[str, str]]:
    """The results of the short suites with each version."""
    done: set[str] = set()
    for suite, version in offered():
        upstream = upstream_version(version)
        if upstream in done:
            continue
        try:
            description = apt.download_source(source.PACKAGE, suite, version)
        except BatchflushError as error:
            yield _result(f"{upstream} ({suite})", "skipped", _why(error.message))
            continue
        done.add(upstream)
        yield from _try(upstream, description)


def _why(message: str) -> str:
    """What apt-get says last, if it was apt-get."""
    said = re.findall(r"^\s*E: (.*)", message, re.M)
    return said[0] if said else message


def _try(upstream: str, description: Path) -> Iterator[dict[str, str]]:
    try:
        if source.is_usual(description):
            yield from variants.check("", SHORT)
            return
        tree = FOLDER / upstream
        source.extract(description, tree)
        graft.apply(tree)
        yield _result(f"{upstream}: the graft fits", "passed")
        yield from variants.check(upstream, SHORT, tree=tree)
    except BatchflushError as error:
        yield _result(upstream, "failed", error.message)


def offered() -> list[tuple[str, str]]:
    """Suite and Debian's version of each source package that may serve."""
    listed = [(suite, v) for suite in SUITES for v in apt.source_versions(source.PACKAGE, suite)]
    return [(suite, v) for suite, v in listed if _number(v) >= OLDEST]


def upstream_version(version: str) -> str:
    """QEMU's version in Debian's: 10.2.2 of 1:10.2.2+ds-1."""
    return re.sub(r"^\d+:|[+~-].*$", "", version)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", upstream_version(version))[:2])


def _result(name: str, outcome: str, detail: str = "") -> dict[str, str]:
    return {"name": name, "outcome": outcome, "detail": detail}
