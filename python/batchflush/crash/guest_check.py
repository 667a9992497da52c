# SPDX-License-Identifier: GPL-2.0-or-later
"""A checker that lets a kernel have the state: mounted, which replays the journal, and read.

A guest boots for the first state and takes all others, one after the other. Between them it
has nothing mounted, and the medium under its disk is filled anew. It knows every file
system that the explorer's guests can make.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

import numpy as np

from batchflush import profiles
from batchflush.crash import loads, witness
from batchflush.crash.campaign import SILENCE_SECONDS, Medium
from batchflush.crash.history import Mark
from batchflush.crash.image import PAGE, Image, copy_data, runs
from batchflush.crash.loads import Message
from batchflush.errors import BatchflushError
from batchflush.guest import kvm, machine
from batchflush.guest.command_line import Boot, Disk

# It ends with its worker.
FOR_EVER_SECONDS = 1e8
DIRECTORY = f"/mnt/{witness.DIRECTORY}"
LOAD = replace(
    loads.FILES,
    tell=f"if test -d {DIRECTORY}; then /bin/witness tell {DIRECTORY}; fi",
)


def prepare(file_system: str) -> None:
    """What several workers had better not do at once."""
    kvm.choose(loads.guest_kernel(LOAD, file_system))


class GuestCheck:
    """The checker, and its guest once it has been asked."""

    def __init__(self, file_system: str) -> None:
        self.file_system = file_system
        self.guest: _Guest | None = None

    def __call__(self, image: Image, state: str, marks: Sequence[Mark]) -> list[str]:
        del state
        if self.guest is None:
            self.guest = _Guest(self.file_system, image.size)
        try:
            told = self.guest.check(image)
        except BatchflushError as error:
            if not self.guest.booted:
                raise
            self.guest = None
            return [f"the guest did not get over it: {error.message.splitlines()[0]}"]
        findings = [line["text"] for line in told if line["type"] == "finding"]
        if any(finding.startswith("mount") for finding in findings):
            return findings
        files = [line for line in told if line["type"] == "file"]
        return findings + LOAD.judge(marks, files)


class _Guest:
    """A guest in a thread of its own, because its conversation is asynchronous."""

    def __init__(self, file_system: str, size: int) -> None:
        self.file_system, self.size = file_system, size
        self.booted = False
        self._loop = asyncio.new_event_loop()
        self._wanted: asyncio.Queue[tuple[Image, Future[list[Message]]]] = asyncio.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BatchflushError | None = None
        self._thread.start()

    def check(self, image: Image) -> list[Message]:
        """What the guest says of the state."""
        answer: Future[list[Message]] = Future()
        self._loop.call_soon_threadsafe(self._wanted.put_nowait, (image, answer))
        return answer.result()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        """Until one state is too much; it gets the error."""
        image, answer = await self._wanted.get()
        try:
            with Medium(self.size) as medium:
                async with self._running(medium) as guest:
                    messages = guest.messages()
                    await _until_ready(guest, messages)
                    self.booted = True
                    while True:
                        _fill(medium, image)
                        told = await _ask(guest, messages, "check")
                        await _ask(guest, messages, "rest")
                        answer.set_result(told)
                        image, answer = await self._wanted.get()
        except BaseException as error:
            answer.set_exception(error)

    def _running(self, medium: Medium):
        kernel = loads.guest_kernel(LOAD, self.file_system)
        accelerator = kvm.choose(kernel)
        disk = Disk(profiles.find("ramdisk"), {}, self.size, medium=medium.path)
        boot = Boot(
            kernel.image, kernel.base, disk, accelerator.name,
            ioeventfd=accelerator.name == "kvm", modules=(self.file_system,),
            parameters=("loglevel=2",),
        )  # fmt: skip
        script = loads.script(LOAD, self.file_system, disk.guest_file)
        return machine.running(
            boot, kernel, script, lambda _: None, limit_seconds=FOR_EVER_SECONDS, keep_logs=False
        )


async def _ask(
    guest: machine.Machine, messages: AsyncIterator[Message], order: str
) -> list[Message]:
    await guest.say({"type": order})
    return await _until_ready(guest, messages)


async def _until_ready(guest: machine.Machine, messages: AsyncIterator[Message]) -> list[Message]:
    """What the guest says until it waits for an order."""
    told = []
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            async for message in messages:
                if message["type"] == "ready":
                    return told
                told.append(message)
    except TimeoutError as error:
        raise guest.failure(f"it was not done after {SILENCE_SECONDS} s") from error
    raise guest.failure("its script ended")


def _fill(medium: Medium, image: Image) -> None:
    """Let the medium hold the state, as no program has changed it."""
    medium.clear()
    copy_data(image.base, medium.file, image.size)
    overlaid = np.frombuffer(image.pages, np.uint8) == 1
    for first, count in runs(overlaid):
        for page in range(first, first + count):
            os.pwrite(medium.file, os.pread(image.overlay, PAGE, page * PAGE), page * PAGE)
