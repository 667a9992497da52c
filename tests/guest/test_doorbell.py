# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest cuts its own power at a line of its script: what was synced is there, the rest is not."""

import asyncio
from typing import Any

from batchflush import profiles
from batchflush.guest import helpers, kvm, machine, packages
from batchflush.guest.command_line import Boot, Disk

LIMIT_SECONDS = 300

# It runs once more after the reset, and then the marker in block 2 is there.
JOB = r"""
value() { dd if=/dev/vda bs=4096 skip=$1 count=1 2>/dev/null | head -c 1 | tr '\0' -; }
put() {
    dd if=/dev/zero bs=4096 count=1 2>/dev/null | tr '\0' $2 |
        dd of=/dev/vda bs=4096 seek=$1 conv=notrunc$3 2>/dev/null
}
look() { report "{\"type\": \"$1\", \"holds\": \"$(value 0)$(value 1)$(value 2)$(value 3)\"}"; }

if [ "$(value 2)" = C ]; then
    look after-reset
    exit 0
fi
put 0 A ,fsync
put 1 B
look before
cut-power --disk disk --guest run --policy drop-all --seed 1 || exit 1
look dead
cut-power --disk disk --guest run 2>/tmp/twice && exit 2
cut-power --disk disk --restore || exit 3
look restored
put 2 C ,fsync
put 3 D
cut-power --policy drop-all
exit 4
"""


async def run(
    kernel: packages.Kernel, accelerator: kvm.Accelerator
) -> tuple[list[machine.Message], list[dict[str, Any]]]:
    """What the guest says, and the events of its cuts."""
    boot = Boot(
        kernel.image,
        kernel.base,
        Disk(profiles.find("sata-7200")),
        accelerator.name,
        ioeventfd=accelerator.name == "kvm",
        modules=(),
        devices=helpers.CONTROL_DEVICE,
    )
    output = bytearray()
    async with machine.running(
        boot, kernel, JOB, output.extend, limit_seconds=LIMIT_SECONDS
    ) as guest:
        await guest.monitor.execute("set-action", {"reboot": "reset"})
        with guest.monitor.listener("BATCHFLUSH_POWER_CUT") as events:
            messages = [message async for message in guest.messages(resets=True)]
            cuts = [event["data"] for event in events.clear()]
    return messages, cuts


def test_a_guest_cuts_its_own_power() -> None:
    kernel = helpers.with_cut_power(packages.prepare())
    messages, cuts = asyncio.run(run(kernel, kvm.choose(kernel)))
    assert messages[-1] == {"type": "exit", "code": 0}
    holds = {message["type"]: message.get("holds") for message in messages}
    assert holds["before"] == "AB--"
    assert holds["dead"] == ""
    assert holds["restored"] == "A---"
    assert holds["after-reset"] == "A-C-"
    assert [(cut["guest"], cut["policy"]) for cut in cuts] == [
        ("run", "drop-all"),
        ("reset", "drop-all"),
    ]
    assert cuts[0]["seed"] == 1
    assert all(cut["nodes"][0]["lost-bytes"] >= 4096 for cut in cuts)
