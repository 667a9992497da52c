# SPDX-License-Identifier: GPL-2.0-or-later
"""Which options of a node go together: bf_params_finish() in block/batchflush/model/params.c.

A class is checked by these rules when it is read, for QEMU's build as at run time, so that
what is wrong is told with file, class and key. A test compares them with the model's.
"""

from __future__ import annotations

from collections.abc import Mapping

KIB, TIB = 1 << 10, 1 << 40
SMALLEST_RPM, LARGEST_RPM = 60, 60_000
SMALLEST_TRACK = 4 * KIB

Node = Mapping[str, int | str]

# What only a head can do, each with the value that says that it does not.
_OF_A_HEAD: Node = {
    "seek-settle-ns": 0,
    "seek-average-ns": 0,
    "seek-full-ns": 0,
    "stroke-size": 0,
    "track-switch-ns": 0,
    "queue-order": "fifo",
    "idle-window-ns": 0,
}


def complaint(node: Node) -> str:
    """What is wrong with options that are good one by one; empty if nothing is."""
    return (
        _rate("bandwidth", node)
        or _rate("interface-bandwidth", node)
        or (_head(node) if node.get("rpm") else _no_head(node))
        or _watermarks(node)
    )


def _number(node: Node, name: str) -> int:
    return int(node.get(name, 0))


def _rate(name: str, node: Node) -> str:
    rate = _number(node, name)
    if not rate or rate >= KIB:
        return ""
    return f"{name}={rate} is out of range; allowed are 0 and {KIB} to {TIB} bytes"


def _no_head(node: Node) -> str:
    for name, without in _OF_A_HEAD.items():
        value = node.get(name, without)
        if value != without:
            return f"{name}={value} needs a disk with a head; allowed is {without}, or set rpm"
    return ""


def _head(node: Node) -> str:
    rpm, bandwidth = _number(node, "rpm"), _number(node, "bandwidth")
    if rpm < SMALLEST_RPM:
        return f"rpm={rpm} is out of range; allowed are 0 and {SMALLEST_RPM} to {LARGEST_RPM}"
    if not bandwidth:
        return f"rpm={rpm} needs bandwidth, the rate at which data passes under the head"
    track = bandwidth * 60 // rpm
    if track < SMALLEST_TRACK:
        return (
            f"bandwidth={bandwidth} with rpm={rpm} makes tracks of {track} bytes; "
            f"allowed are at least {SMALLEST_TRACK}"
        )
    return _falls(node, "seek-settle-ns", "seek-average-ns") or _falls(
        node, "seek-average-ns", "seek-full-ns"
    )


def _falls(node: Node, shorter: str, longer: str) -> str:
    low, high = _number(node, shorter), _number(node, longer)
    return f"{longer}={high} is below {shorter}={low}; it must not be" if high < low else ""


def _watermarks(node: Node) -> str:
    high, low = (_number(node, f"destage-{name}-percent") for name in ("high", "low"))
    if low < high or (high == 0 and low == 0):
        return ""
    return (
        f"destage-low-percent={low} is not below destage-high-percent={high}; "
        "it has to be, or both 0"
    )
