# SPDX-License-Identifier: GPL-2.0-or-later
"""What a running QEMU tells of its batchflush disks, and of what stands around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qemu.qmp import ExecuteError

from batchflush.attach import Entry, Node, Qemu

# How nvme, virtio-blk and virtio-scsi call their number of queues; nvme still knows the last
# one, too.
QUEUES = ("max_ioqpairs", "num-queues", "num_queues")
IOTHREADS = ("iothread", "iothread-vq-mapping")


@dataclass(frozen=True)
class FrontEnd:
    """A device through which the guest sees a disk.

    node: the block node right behind it. write_cache: whether the guest is told of one.
    queues: of scsi-hd those of its controller. None: it cannot be told.
    """

    name: str
    kind: str
    node: str
    write_cache: bool | None
    queues: int | None
    iothread: bool


@dataclass(frozen=True)
class Disk:
    """A batchflush node.

    above, below: names of the nodes between its users and it, and of those that carry its
    data. no_flush: which of itself and those below have cache.no-flush=on. used: by anything.
    """

    node: Node
    front_ends: Sequence[FrontEnd] = ()
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    no_flush: Sequence[str] = ()
    used: bool = True

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def real_time(self) -> bool:
        return bool(self.node.info["clock"] == "realtime")


@dataclass(frozen=True)
class Machine:
    kvm: bool
    vcpus: int


@dataclass(frozen=True)
class Facts:
    """machine: None of a storage daemon."""

    disks: Sequence[Disk]
    machine: Machine | None = None


async def collect(qemu: Qemu) -> Facts:
    nodes = await qemu.nodes()
    graph = _Graph(await qemu.ask("x-debug-query-block-graph"))
    named = await qemu.ask("query-named-block-nodes", {"flat": True})
    no_flush = {node["node-name"] for node in named if node["cache"]["no-flush"]}
    devices = [
        await _front_end(qemu, entry)
        for entry in await qemu.ask_machine("query-block") or ()
        if entry.get("qdev") and "inserted" in entry
    ]
    return Facts([_disk(node, graph, no_flush, devices) for node in nodes], await _machine(qemu))


async def _machine(qemu: Qemu) -> Machine | None:
    kvm = await qemu.ask_machine("query-kvm")
    if kvm is None:
        return None
    return Machine(kvm["enabled"], len(await qemu.ask("query-cpus-fast")))


def _disk(node: Node, graph: _Graph, no_flush: set[str], devices: Sequence[FrontEnd]) -> Disk:
    above, below = graph.above(node.name), graph.below(node.name)
    return Disk(
        node,
        [device for device in devices if device.node in (node.name, *above)],
        above,
        below,
        [name for name in (node.name, *below) if name in no_flush],
        graph.is_used(node.name),
    )


async def _front_end(qemu: Qemu, entry: Entry) -> FrontEnd:
    """entry: what query-block tells of a device."""
    # An id, or a path if there is none.
    name, inserted = entry["qdev"], entry["inserted"]
    path = name if name.startswith("/") else f"/machine/peripheral/{name}"
    # A disk of scsi-hd has queues and thread of the controller that its bus belongs to.
    bus = await _property(qemu, path, "parent_bus") or ""
    places = [place for place in (path, bus.rpartition("/")[0]) if place]
    queues = [await _property(qemu, place, name) for place in places for name in QUEUES]
    threads = [await _property(qemu, place, name) for place in places for name in IOTHREADS]
    kind = str(await _property(qemu, path, "type")).removesuffix("-device")
    name = path.removesuffix("/virtio-backend").rpartition("/")[2]
    return FrontEnd(
        kind if "peripheral-anon" in path else name,
        kind,
        inserted["node-name"],
        await _write_cache(qemu, path, inserted),
        next((count for count in queues if count is not None), None),
        any(threads),
    )


async def _write_cache(qemu: Qemu, path: str, inserted: Entry) -> bool | None:
    """What the device is set to; "auto" is what it is at present.

    On virtio-blk a driver that does not know of flushes, such as a firmware's, has the cache
    switched off for as long as it is there.
    """
    setting = await _property(qemu, path, "write-cache")
    if setting in ("on", "off"):
        return bool(setting == "on")
    try:
        virtio = await qemu.ask("x-query-virtio-status", {"path": path})
        features = " ".join(virtio["guest-features"]["dev-features"])
        if "VIRTIO_BLK_F_FLUSH" not in features:
            return None
    except ExecuteError:
        pass
    return bool(inserted["cache"]["writeback"])


async def _property(qemu: Qemu, path: str, name: str) -> Any:
    """None if the object has no such property."""
    try:
        return await qemu.ask("qom-get", {"path": path, "property": name})
    except ExecuteError:
        return None


class _Graph:
    """The block nodes by name; whatever else uses one, a device for instance, has no name."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        names = {
            vertex["id"]: vertex["name"]
            for vertex in told["nodes"]
            if vertex["type"] == "block-driver"
        }
        self._edges = [
            (names.get(edge["parent"]), names.get(edge["child"])) for edge in told["edges"]
        ]

    def above(self, name: str) -> list[str]:
        return _reached(name, [(child, parent) for parent, child in self._edges])

    def below(self, name: str) -> list[str]:
        return _reached(name, self._edges)

    def is_used(self, name: str) -> bool:
        return any(child == name for _, child in self._edges)


def _reached(start: str, edges: Sequence[tuple[str | None, str | None]]) -> list[str]:
    """The names that can be reached from one, itself left out."""
    found = [start]
    for name in found:
        found += [b for a, b in edges if a == name and b is not None and b not in found]
    return found[1:]
