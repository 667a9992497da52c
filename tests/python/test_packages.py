# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's packages are unpacked once, also where two commands want them."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from batchflush import apt, configure
from batchflush.guest import packages

LIMIT_SECONDS = 10


def test_two_commands_unpack_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_waits = threading.Event()
    unpacked: list[Path] = []

    @contextlib.contextmanager
    def told(text: str) -> Iterator[None]:
        if text.startswith("Waiting for another command"):
            other_waits.set()
        yield

    def unpack(debs: Sequence[Path], into: Path) -> None:
        del debs
        assert other_waits.wait(LIMIT_SECONDS)
        unpacked.append(into)

    monkeypatch.setattr(configure.progress, "step", told)
    monkeypatch.setattr(packages, "step", told)
    monkeypatch.setattr(apt, "unpack", unpack)
    root, stamp = tmp_path / "guest/tools", tmp_path / "guest/tools.json"
    arguments = ([Path("tool.deb")], root, stamp)
    commands = [threading.Thread(target=packages._unpack, args=arguments) for _ in range(2)]
    for command in commands:
        command.start()
    for command in commands:
        command.join(LIMIT_SECONDS)
    assert unpacked == [root]
    assert stamp.read_text() == '["tool.deb"]'
