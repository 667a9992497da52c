# SPDX-License-Identifier: GPL-2.0-or-later
"""What may be wrong around a batchflush disk: a function for each, which yields its findings.

Where something cannot be told it is not found: a finding is a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from batchflush import profiles
from batchflush.doctor.facts import Disk, Facts, FrontEnd

OTHER_DEVICES = "take virtio-blk-pci or scsi-hd instead"
VIRTUAL_TIME = "-accel tcg -icount shift=0,sleep=off"


@dataclass(frozen=True)
class Finding:
    """check: its name, for --ignore. where: disk or machine. change: what to do about it."""

    check: str
    where: str
    what: str
    change: str


Found = Iterator[Finding]
# Why KVM cannot be used on this host; empty if it can, None if that was not tried.
KvmTrouble = Callable[[], str | None]


def examine(facts: Facts, kvm_trouble: KvmTrouble) -> list[Finding]:
    found = [finding for disk in facts.disks for check in CHECKS for finding in check(disk, facts)]
    return [*found, *kvm(facts, kvm_trouble)]


# --- the front end ----------------------------------------------------------------------


def write_cache(disk: Disk, _: Facts) -> Found:
    """The guest is told of a cache that there is not, or not told of the one that there is."""
    kind = disk.node.info["write-cache"]
    for front in disk.front_ends:
        wanted = _wanted_write_cache(disk, kind)
        if wanted is None or front.write_cache in (None, wanted):
            continue
        says = "a write cache" if front.write_cache else "no write cache"
        what = f"{front.name} tells the guest of {says}, but the disk's is {kind}: "
        what += (
            "flushes arrive that the hardware would never get"
            if front.write_cache
            else "every write goes past it, and no flush arrives"
        )
        setting = f"write-cache={'on' if wanted else 'off'} for {front.name}"
        always = front.kind == "nvme" and front.write_cache
        change = f"nvme always tells of one: {OTHER_DEVICES}, {setting}" if always else setting
        yield Finding("write-cache", disk.name, what, change)


def _wanted_write_cache(disk: Disk, kind: str) -> bool | None:
    """As its class says, or else as the kind of cache demands."""
    known = profiles.load().get(disk.node.info.get("profile", ""))
    if known and cache_of(known) == kind:
        return bool(known.front_end["write-cache"].value == "on")
    return None if kind == "battery" else bool(kind == "volatile")


def cache_of(profile: profiles.Profile) -> str:
    setting = profile.node.get("write-cache")
    return str(setting.value) if setting else "none"


def queues(disk: Disk, facts: Facts) -> Found:
    """Linux sends about one flush per queue: a single queue leaves nothing to share."""
    if not _shares_flushes(disk) or _has_companions(disk, facts):
        return
    coalesce = disk.node.info["coalesce"]
    for front in disk.front_ends:
        if front.queues == 1:
            name = "max_ioqpairs" if front.kind == "nvme" else "num-queues"
            name = "num_queues" if front.kind == "scsi-hd" else name
            what = f"{front.name} has one queue, so coalesce={coalesce} has nothing to share"
            change = f"{name}=4 and -smp 4, or coalesce=off"
            yield Finding("queues", disk.name, what, change)
        elif front.queues is not None and facts.machine and facts.machine.vcpus == 1:
            what = (
                f"one virtual processor uses one queue, so coalesce={coalesce} has nothing to share"
            )
            yield Finding("queues", disk.name, what, "-smp 4, or coalesce=off")


def serialised(disk: Disk, _: Facts) -> Found:
    """QEMU lets one flush at a time through every node but ours."""
    if _shares_flushes(disk) and disk.above:
        above = ", ".join(disk.above)
        what = f"flushes come one at a time through the node {above} above it"
        what += f", so coalesce={disk.node.info['coalesce']} has nothing to share"
        yield Finding("serialised", disk.name, what, f"put {disk.name} above {above}")


def _shares_flushes(disk: Disk) -> bool:
    info = disk.node.info
    if info["coalesce"] == "auto":
        return bool(info["flush-concurrency"] != "concurrent")
    return bool(info["coalesce"] == "on")


def _has_companions(disk: Disk, facts: Facts) -> bool:
    """Disks of one controller share their flushes, one queue each is enough."""
    controller = disk.node.info.get("controller")
    behind = [other for other in facts.disks if other.node.info.get("controller") == controller]
    return controller is not None and len(behind) > 1


# --- data -------------------------------------------------------------------------------


def no_flush(disk: Disk, _: Facts) -> Found:
    if disk.name in disk.no_flush:
        what = "cache.no-flush=on (cache=unsafe): FUA is taken off its writes, and its power"
        what += " cannot be cut"
        change = "cache.no-flush=off; where the host's own flushes are in the way, set it on"
        yield Finding("no-flush", disk.name, what, f"{change} the child: file.cache.no-flush=on")


def no_flush_below(disk: Disk, _: Facts) -> Found:
    if disk.no_flush and disk.name not in disk.no_flush:
        names = " and ".join(disk.no_flush)
        what = f"cache.no-flush=on for {names}, where its data is: the image may not outlive a"
        what += " crash of the host"
        change = f"cache.no-flush=off for {names}, unless the image is thrown away anyway"
        yield Finding("no-flush-below", disk.name, what, change)


# --- time -------------------------------------------------------------------------------


def iothread(disk: Disk, _: Facts) -> Found:
    """The main loop is late by tens of µs, and may not spin."""
    threaded = any(front.iothread for front in disk.front_ends)
    if not disk.real_time or not disk.used or not disk.node.info["main-loop"] or threaded:
        return
    what = "time is real, and the main loop serves it: requests are late by tens of µs"
    for front in disk.front_ends:
        yield Finding("iothread", disk.name, what, _how_to_thread(front))
    if not disk.front_ends:
        change = "--object iothread,id=thread0, and iothread=thread0 for the --export"
        yield Finding("iothread", disk.name, what, change)


def _how_to_thread(front: FrontEnd) -> str:
    if front.kind == "nvme":
        return f"nvme has no iothread: {OTHER_DEVICES}"
    where = "the controller of " if front.kind == "scsi-hd" else ""
    return f"-object iothread,id=thread0, and iothread=thread0 for {where}{front.name}"


def spin(disk: Disk, _: Facts) -> Found:
    info = disk.node.info
    limit, lead = info["spin-max-ns"], disk.node.statistics["wakeup-lead-ns"]
    if not disk.real_time or info["main-loop"]:
        return
    if limit == 0:
        what = "spinning is off (spin-max-ns=0): requests are as late as the host wakes a thread"
        yield Finding("spin", disk.name, what, "leave spin-max-ns out")
    elif lead >= limit:
        what = f"the host wakes threads later than spin-max-ns={limit} makes up for"
        yield Finding("spin", disk.name, what, "a larger spin-max-ns, or a host with less to do")


def late(disk: Disk, _: Facts) -> Found:
    budget = disk.node.info["max-lateness-ns"]
    for entry in disk.node.statistics["lateness"] if budget else ():
        if entry["p99-ns"] > budget:
            what = f"{entry['operation']} is late: {entry['p99-ns']:,} ns at the 99th percentile,"
            what += f" max-lateness-ns={budget} allows less"
            change = f"a host with less to do, or virtual time: {VIRTUAL_TIME}"
            yield Finding("late", disk.name, what, change)


def kvm(facts: Facts, trouble: KvmTrouble) -> Found:
    if not facts.machine or not any(disk.real_time for disk in facts.disks):
        return
    reason = trouble()
    if reason is None:
        return
    # What a program said on top of it may be long.
    reason = reason.partition("\n")[0].rstrip(":")
    if facts.machine.kvm and reason:
        what = f"it runs on KVM, but {reason}"
        yield Finding("kvm", "machine", what, f"virtual time: {VIRTUAL_TIME}")
    if not facts.machine.kvm:
        what = "time is real, and the guest's processor is emulated, many times slower than KVM"
        if reason:
            yield Finding("kvm", "machine", f"{what}; {reason}", f"virtual time: {VIRTUAL_TIME}")
        else:
            yield Finding("kvm", "machine", what, "-accel kvm")


CHECKS = (write_cache, queues, serialised, no_flush, no_flush_below, iothread, spin, late)
NAMES = tuple(check.__name__.replace("_", "-") for check in (*CHECKS, kvm))
