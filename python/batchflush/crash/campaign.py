# SPDX-License-Identifier: GPL-2.0-or-later
"""Cut the power of a running guest, again and again, and hold what survives against its word.

One guest goes through all cuts of a campaign. It syncs what it writes and says what was
acknowledged, over a channel that no cut reaches. A cut comes at a moment that a seed has
chosen, and takes what the seed chooses of the writes that were not durable. Then the disk
has power again, and the guest replays the journal, checks and tells what is there.

The guest runs on with a dead disk and unmounts it before the power is back, so nothing of
it is left in its memory; that is several times as quick as a boot. Or it is reset.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qemu.qmp import EventListener

from batchflush import profiles
from batchflush.crash import loads
from batchflush.crash.history import Mark
from batchflush.crash.image import copy_data
from batchflush.crash.loads import FILE_SYSTEMS, LOADS, Message
from batchflush.errors import BatchflushError
from batchflush.guest import kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk

RUN, RESET = "run", "reset"
POLICIES = ("subset", "torn")
# Longest that a cut and its check, or the boot before the first one, may take.
SILENCE_SECONDS = 600
EVENT_SECONDS = 10
# So that what a later write took away can come back.
HISTORY_BYTES = 64 << 20


@dataclass(frozen=True)
class Campaign:
    """What is cut how often. first: number of the first cut; the seed and it choose the cut.

    stop_after: findings after which it is over; 0: never.
    """

    load: str = "files"
    file_system: str = "ext4"
    cuts: int = 300
    seed: int = 1
    first: int = 0
    atomic: int = 4096
    lie: str = "none"
    guest: str = RUN
    profile: str = "nvme-consumer"
    options: tuple[tuple[str, str], ...] = ()
    stop_after: int = 0

    @property
    def name(self) -> str:
        """Of its files; and whatever differs from the default, to tell it from others."""
        plain = Campaign()
        parts = [self.file_system, self.load]
        parts += [f"lie-{self.lie}"] if self.lie != plain.lie else []
        parts += [str(self.atomic)] if self.atomic != plain.atomic else []
        parts += [self.guest] if self.guest != plain.guest else []
        parts += [f"only-{self.first}"] if self.cuts == 1 else []
        return "-".join(parts)

    def only(self, number: int) -> Campaign:
        """The campaign of that one cut."""
        return replace(self, first=number, cuts=1)

    @property
    def size(self) -> int:
        return FILE_SYSTEMS[self.file_system].size_mib << 20


@dataclass(frozen=True)
class Cut:
    """When the power goes and what survives: arguments of batchflush-power-cut; words: what
    the load is told."""

    number: int
    arguments: dict[str, Any]
    words: str


def draw(campaign: Campaign, number: int) -> Cut:
    """The cut of that number. The ranges reach over a few hundred milliseconds of the load."""
    chance = random.Random(f"{campaign.load} {campaign.seed} {number}")
    when = chance.choice(("flush", "in-flush", "write", "time"))
    moment: dict[str, Any] = {
        "flush": lambda: {"count": chance.randint(1, 60)},
        "in-flush": lambda: {
            "count": chance.randint(1, 60),
            **({"ns": chance.randint(0, 2_000_000)} if chance.random() < 0.5 else {}),
        },
        "write": lambda: {"count": chance.randint(1, 400)},
        "time": lambda: {"ns": chance.randint(1_000_000, 200_000_000)},
    }[when]()
    words = LOADS[campaign.load].words(chance)
    policy = chance.choice(POLICIES)
    seed = chance.randrange(1 << 32)
    arguments = {"when": when, **moment, "policy": policy, "seed": seed, "guest": campaign.guest}
    return Cut(number, arguments, words)


@dataclass(frozen=True)
class Outcome:
    """What a cut left. acknowledged: number of marks; image: where a copy of the disk is."""

    cut: Cut
    findings: tuple[str, ...]
    acknowledged: int
    kept_bytes: int
    lost_bytes: int
    hash: str
    seconds: float
    image: str = ""


@dataclass
class Result:
    """Of a campaign, as far as it went."""

    campaign: Campaign
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0
    seconds_before: float = 0

    def failing(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.findings]

    def document(self) -> dict[str, Any]:
        return {
            **asdict(self.campaign),
            "cuts": len(self.outcomes),
            "failing": len(self.failing()),
            "acknowledged": sum(outcome.acknowledged for outcome in self.outcomes),
            "lost-bytes": sum(outcome.lost_bytes for outcome in self.outcomes),
            "kept-bytes": sum(outcome.kept_bytes for outcome in self.outcomes),
            "different-survivors": len({outcome.hash for outcome in self.outcomes}),
            "seconds": round(self.seconds_before + self.seconds, 1),
            "outcomes": [asdict(outcome) for outcome in self.outcomes],
        }


async def run(
    campaign: Campaign,
    kernel: packages.Kernel,
    accelerator: kvm.Accelerator,
    result: Result,
    keep: Callable[[int], Path | None],
    over: Callable[[], bool],
) -> None:
    """Boot the guest and cut its power; outcomes go into the result as they come.

    keep: where a copy of the disk goes after the cut of that number, if its check fails.
    over: whether to end before the number of cuts is reached.
    """
    started = time.monotonic()
    with Medium(campaign.size) as medium:
        boot = _boot(campaign, kernel, accelerator, medium)
        load = LOADS[campaign.load]
        script = loads.script(load, campaign.file_system, boot.disk.guest_file)
        said = bytearray()
        try:
            async with machine.running(
                boot, kernel, script, said.extend, limit_seconds=campaign.cuts * SILENCE_SECONDS
            ) as guest:
                await _Guest(campaign, guest, medium, result, keep, over, said).serve()
        finally:
            result.seconds = time.monotonic() - started


def _boot(
    campaign: Campaign, kernel: packages.Kernel, accelerator: kvm.Accelerator, medium: Medium
) -> Boot:
    options = {
        "atomic-write-size": str(campaign.atomic),
        "lie": campaign.lie,
        "power-cut-history-size": str(HISTORY_BYTES),
        **dict(campaign.options),
    }
    disk = Disk(profiles.find(campaign.profile), options, campaign.size, medium=medium.path)
    return Boot(
        kernel.image, kernel.base, disk, accelerator.name,
        ioeventfd=accelerator.name == "kvm", modules=(campaign.file_system,),
        parameters=("loglevel=2",),
    )  # fmt: skip


class _Guest:
    """The host's part of the conversation that loads.py describes."""

    def __init__(
        self,
        campaign: Campaign,
        guest: machine.Machine,
        medium: Medium,
        result: Result,
        keep: Callable[[int], Path | None],
        over: Callable[[], bool],
        said: bytearray,
    ) -> None:
        self.campaign, self.guest, self.medium, self.result = campaign, guest, medium, result
        self.keep, self.over, self.said = keep, over, said
        self.load = LOADS[campaign.load]
        self.number = campaign.first
        self.last = "none"
        self.marks: list[Mark] = []
        self.told: list[Message] = []
        self.events = EventListener("BATCHFLUSH_POWER_CUT")
        self.survivors: Message = {}
        self.cut: Cut | None = None
        self.began = 0.0

    async def serve(self) -> None:
        self.guest.monitor.register_listener(self.events)
        if self.campaign.guest == RESET:
            # Else QEMU ends at a reset.
            await self.guest.monitor.execute("set-action", {"reboot": "reset"})
        messages = self.guest.messages(resets=self.campaign.guest == RESET)
        while True:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = await anext(messages, None)
            except TimeoutError as error:
                what = f"the guest was silent for {SILENCE_SECONDS} s after '{self.last}'"
                raise self.failure(what) from error
            if message is None:
                return
            await self._take(message)

    async def _take(self, message: Message) -> None:
        match message["type"]:
            case "ready":
                await self._order()
            case "loaded":
                await self._arm()
            case "mark":
                self.marks.append(Mark(len(self.marks), message["text"]))
            case "exit" if self.last != "end" or message["code"] != 0:
                raise self.failure(f"the guest failed at '{self.last}'")
            case _:
                self.told.append(message)

    async def _order(self) -> None:
        if self.last == "load":
            await self._power_back()
            await self._say("check")
            return
        good = True
        if self.last == "check":
            good = self._judge()
        enough = self.number >= self.campaign.first + self.campaign.cuts
        limit = self.campaign.stop_after
        if enough or self.over() or (limit and len(self.result.failing()) >= limit):
            await self._say("end")
        elif self.last == "none" or not good:
            await self._say("make")
        else:
            self.cut = draw(self.campaign, self.number)
            self.said.clear()
            await self._say("load", words=self.cut.words)

    async def _say(self, order: str, **more: str) -> None:
        self.last = order
        await self.guest.say({"type": order, **more})

    async def _arm(self) -> None:
        """Stopped, because the time up to the cut is the load's alone."""
        assert self.cut is not None
        self.marks, self.told = [], []
        self.began = time.monotonic()
        monitor = self.guest.monitor
        await monitor.execute("stop")
        await monitor.execute("batchflush-power-cut", {"node-name": "disk", **self.cut.arguments})
        await self.guest.say({"type": "go"})
        await monitor.execute("cont")

    async def _power_back(self) -> None:
        """The guest has lost its disk, and has nothing of it in memory any more."""
        try:
            async with asyncio.timeout(EVENT_SECONDS):
                event = await self.events.get()
        except TimeoutError as error:
            raise self.failure("the load ended before the power was cut") from error
        (self.survivors,) = event["data"]["nodes"]
        if self.campaign.guest == RUN:
            await self.guest.monitor.execute("batchflush-power-restore", {"node-name": "disk"})
        self.medium.remember()

    def _judge(self) -> bool:
        """Whether the file system may be used further."""
        assert self.cut is not None
        findings = [line["text"] for line in self.told if line["type"] == "finding"]
        if not any(finding.startswith("mount") for finding in findings):
            held = [line for line in self.told if line["type"] != "finding"]
            findings += self.load.judge(self.marks, held)
        image = self.keep(self.number) if findings else None
        if image:
            self.medium.save(image)
        outcome = Outcome(
            self.cut, tuple(findings), len(self.marks),
            self.survivors["kept-bytes"], self.survivors["lost-bytes"], self.survivors["hash"],
            round(time.monotonic() - self.began, 3), str(image) if image else "",
        )  # fmt: skip
        self.result.outcomes.append(outcome)
        self.number += 1
        return not findings

    def failure(self, what: str) -> BatchflushError:
        said = self.said.decode(errors="replace").strip()
        said = f"; it printed: {said}" if said else ""
        return self.guest.failure(f"{self.campaign.name}, cut {self.number}: {what}{said}")


class Medium:
    """What is under the disk: memory of this process, so nothing of it is left behind."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.file, self._copy = (os.memfd_create(f"batchflush {n}") for n in ("medium", "copy"))
        os.truncate(self.file, size)
        self.path = Path(f"/proc/{os.getpid()}/fd/{self.file}")

    def __enter__(self) -> Medium:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.file)
        os.close(self._copy)

    def clear(self) -> None:
        """Zeroes from here on."""
        os.truncate(self.file, 0)
        os.truncate(self.file, self.size)

    def remember(self) -> None:
        """Copy what is there, before a check changes it."""
        os.truncate(self._copy, 0)
        os.truncate(self._copy, self.size)
        copy_data(self.file, self._copy, self.size)

    def save(self, path: Path) -> None:
        """Write the copy to a file; what is zero stays a hole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(self.size)
            copy_data(self._copy, stream.fileno(), self.size)
