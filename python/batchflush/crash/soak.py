# SPDX-License-Identifier: GPL-2.0-or-later
"""Several campaigns of power cuts at once, their results and their table.

What has been cut is kept in build/crash/cuts, so that a campaign that was ended early goes
on where it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.table import Table

from batchflush import build, paths
from batchflush.crash import campaign as live
from batchflush.crash import loads
from batchflush.crash.campaign import Campaign, Cut, Outcome, Result
from batchflush.errors import BatchflushError
from batchflush.guest import kvm
from batchflush.progress import Step, console, step

FOLDER = paths.BUILD / "crash/cuts"
IMAGES_KEPT = 3
FINDINGS_SHOWN = 10
# How often a campaign with a lying disk has to be found out.
LIES_FOUND = 5
# A reset costs a boot.
RESETS_ONE_IN = 30
REPORTED_ONE_IN = 6
PLAIN = Campaign()


def everything(cuts: int, seed: int) -> list[Campaign]:
    """What `crash --soak` runs: sound disks, those that lie, small sectors, resets."""
    files = [Campaign("files", name, cuts, seed) for name in loads.FILE_SYSTEMS]
    databases = [Campaign(name, "ext4", cuts, seed) for name in loads.LOADS if name != "files"]
    sound = [*files, *databases]
    return [
        *sound,
        *(replace(c, lie="flush", stop_after=LIES_FOUND) for c in sound),
        *(replace(c, atomic=512, cuts=max(1, cuts // REPORTED_ONE_IN)) for c in files),
        *(replace(c, guest=live.RESET, cuts=max(1, cuts // RESETS_ONE_IN)) for c in files),
    ]


def good(result: Result, error: str | None) -> bool:
    """A disk that lies is to be found out; with 512 bytes some formats promise nothing."""
    campaign, failing = result.campaign, len(result.failing())
    if error or not result.outcomes:
        return False
    if campaign.lie != PLAIN.lie:
        return failing > 0
    return failing == 0 or campaign.atomic != PLAIN.atomic


def run(campaigns: Sequence[Campaign], minutes: float | None, fresh: bool) -> int:
    """Run them, as many at once as there are cores; the exit code."""
    build.qemu()
    kernels = [loads.guest_kernel(loads.LOADS[c.load], c.file_system) for c in campaigns]
    accelerator = kvm.choose(kernels[0])
    results = [_begun(campaign, fresh) for campaign in campaigns]
    errors: dict[int, str] = {}
    deadline = time.monotonic() + 60 * minutes if minutes else None

    def over() -> bool:
        return deadline is not None and time.monotonic() >= deadline

    with step("Cutting the power of running guests") as shown:

        async def one(index: int, free: asyncio.Semaphore) -> None:
            async with free:
                if over():
                    return
                try:
                    await _one(results[index], kernels[index], accelerator, over)
                except BatchflushError as error:
                    errors[index] = str(error)
                finally:
                    _save(results[index])

        async def all_of_them() -> None:
            free = asyncio.Semaphore(os.cpu_count() or 1)
            ticker = asyncio.create_task(_show(shown, results))
            try:
                await asyncio.gather(*(one(index, free) for index in range(len(results))))
            finally:
                ticker.cancel()

        asyncio.run(all_of_them())
    return _tell(results, errors)


async def _one(result: Result, kernel, accelerator: kvm.Accelerator, over) -> None:
    campaign = result.campaign
    done = len(result.outcomes)
    if done >= campaign.cuts or 0 < campaign.stop_after <= len(result.failing()):
        return
    rest = replace(campaign, first=campaign.first + done, cuts=campaign.cuts - done)

    def keep(number: int) -> Path | None:
        lies = campaign.lie != PLAIN.lie
        kept = sum(bool(outcome.image) for outcome in result.outcomes)
        return None if lies or kept >= IMAGES_KEPT else FOLDER / f"{campaign.name}-{number}.img"

    await live.run(rest, kernel, accelerator, result, keep, over)


def _to_come(result: Result) -> int:
    """How many cuts it will have in all; a lie is found at almost every cut."""
    done, campaign = len(result.outcomes), result.campaign
    return max(campaign.stop_after or campaign.cuts, done + 1) if _early(result) else done


async def _show(shown: Step, results: Sequence[Result]) -> None:
    while True:
        done = sum(len(result.outcomes) for result in results)
        total = sum(_to_come(result) for result in results)
        failing = sum(len(result.failing()) for result in results)
        shown.update(done, total, f"{done} cuts, {failing} with findings")
        await asyncio.sleep(1)


# --- what is kept -----------------------------------------------------------------------


def _file(campaign: Campaign) -> Path:
    return FOLDER / f"{campaign.name}.json"


def _begun(campaign: Campaign, fresh: bool) -> Result:
    """The result of an earlier run of the same campaign, to go on with; else an empty one."""
    result = Result(campaign)
    try:
        told = json.loads(_file(campaign).read_text())
        outcomes = [_outcome(line) for line in told["outcomes"]]
    except (OSError, ValueError, KeyError, TypeError):
        return result
    same = {**asdict(campaign), "options": list(map(list, campaign.options))}
    for limit in ("cuts", "stop_after"):
        del same[limit]
    if not fresh and all(told.get(name) == value for name, value in same.items()):
        result.outcomes = outcomes[: campaign.cuts]
        result.seconds_before = told["seconds"]
    return result


def _outcome(told: dict) -> Outcome:
    return Outcome(**{**told, "cut": Cut(**told["cut"]), "findings": tuple(told["findings"])})


def _save(result: Result) -> None:
    if result.outcomes:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _file(result.campaign).write_text(json.dumps(result.document(), indent=1) + "\n")


# --- what is told -----------------------------------------------------------------------


def _tell(results: Sequence[Result], errors: dict[int, str]) -> int:
    console.print(_table(results, errors))
    for result in results:
        for outcome in result.failing()[:FINDINGS_SHOWN] if _to_be_told(result) else ():
            _tell_outcome(result.campaign, outcome)
    for error in errors.values():
        console.print(f"[bold red]{error}[/]")
    console.print(f"all of it is in {paths.shown(FOLDER)}")
    return 0 if all(good(r, errors.get(i)) for i, r in enumerate(results)) else 1


def _to_be_told(result: Result) -> bool:
    return result.campaign.lie == PLAIN.lie


def _tell_outcome(campaign: Campaign, outcome: Outcome) -> None:
    console.print(f"{campaign.name}, cut {outcome.cut.number}: {'; '.join(outcome.findings)}")
    if outcome.image:
        console.print(f"    the disk after it: {paths.shown(Path(outcome.image))}")
    console.print(f"    once more: {repeat_command(campaign, outcome.cut.number)}", soft_wrap=True)


def repeat_command(campaign: Campaign, number: int) -> str:
    """The same cut, on a fresh file system."""
    settings = {
        "--fs": (campaign.file_system, PLAIN.file_system),
        "--load": (campaign.load, PLAIN.load),
        "--guest": (campaign.guest, PLAIN.guest),
        "--atomic-write-size": (campaign.atomic, PLAIN.atomic),
        "--class": (campaign.profile, PLAIN.profile),
    }
    words = ["./batchflush crash cut"]
    words += [f"{name} {value}" for name, (value, plain) in settings.items() if value != plain]
    words += [f"--option lie={campaign.lie}"] if campaign.lie != PLAIN.lie else []
    words += [f"--option {key}={value}" for key, value in campaign.options]
    return " ".join([*words, f"--seed {campaign.seed} --cut {number}"])


def _table(results: Sequence[Result], errors: dict[int, str]) -> Table:
    table = Table(title="power cuts (lost: KiB)", title_justify="left")
    table.add_column("Campaign", no_wrap=True)
    # All fits into 80 columns.
    for name in ("Cuts", "Differ", "Synced", "Lost", "Fail", "Is"):
        table.add_column(name, justify="right")
    for index, result in enumerate(results):
        told = result.document()
        table.add_row(
            result.campaign.name,
            f"{told['cuts']}/{result.campaign.cuts}" if _early(result) else str(told["cuts"]),
            str(told["different-survivors"]), f"{told['acknowledged']:,}",
            f"{told['lost-bytes'] >> 10:,}", str(told["failing"]),
            "ok" if good(result, errors.get(index)) else "[bold red]bad[/]",
        )  # fmt: skip
    return table


def _early(result: Result) -> bool:
    limit = result.campaign.stop_after
    enough = limit and len(result.failing()) >= limit
    return len(result.outcomes) < result.campaign.cuts and not enough
