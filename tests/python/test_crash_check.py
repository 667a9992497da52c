# SPDX-License-Identifier: GPL-2.0-or-later
"""Holding a crash state against something: the view of it, its checkers, its smallest form."""

import json
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from crash_logs import Maker

from batchflush.crash import checkers, minimise, overlay, states, witness
from batchflush.crash.history import Mark, read
from batchflush.crash.image import Image
from batchflush.crash.log import Log
from batchflush.crash.record import witness as witness_program
from batchflush.crash.results import kind, open_results
from batchflush.crash.states import State
from batchflush.crash.trial import Outcome, Setting
from batchflush.errors import UsageError

MIB = 1 << 20


def whole_image(path: Path, data: bytes) -> Image:
    """An image whose last state is this data, half of it in the base, half in the overlay."""
    maker, half = Maker(sectors=len(data) // 512), len(data) // 2
    maker.done(maker.write(0, data[:half]))
    maker.done(maker.flush())
    maker.done(maker.write(half // 512, data[half:]))
    log = Log(maker.save(path))
    history = read(log)
    image = Image(log, history, 4096)
    image.go_to(history.epoch_at(history.end))
    image.show(image.kept(State(history.end, "all")))
    return image


@pytest.fixture
def random_image(tmp_path: Path) -> Iterator[tuple[Image, bytes]]:
    data = random.Random(1).randbytes(64 * 1024)
    image = whole_image(tmp_path / "log", data)
    yield image, data
    image.close()


@pytest.mark.parametrize("tool", [["cat"], ["dd", "status=none", "bs=3000"], ["cp"], ["python3"]])
def test_programs_read_the_state(
    random_image: tuple[Image, bytes], tmp_path: Path, tool: list[str]
) -> None:
    """By read(), pread() and streams; a copy would be made with copy_file_range()."""
    image, data = random_image
    copy = tmp_path / "copy"
    script = f"import sys; open('{copy}', 'wb').write(open('{image.path}', 'rb', 0).read())"
    commands = {
        "cat": ["sh", "-c", f"cat {image.path} > {copy}"],
        "dd": [*tool, f"if={image.path}", f"of={copy}"],
        "cp": ["cp", "--reflink=never", str(image.path), str(copy)],
        "python3": ["/usr/bin/python3", "-c", script],
    }
    code, said = overlay.run(image, commands[tool[0]])
    assert code == 0, said
    assert copy.read_bytes() == data


def test_what_a_program_writes_is_in_the_overlay_only(random_image: tuple[Image, bytes]) -> None:
    image, data = random_image
    script = f"""
import os
file = os.open("{image.path}", os.O_RDWR)
os.pwrite(file, b"x" * 100, 5000)
os.lseek(file, 40000, os.SEEK_SET)
os.write(file, b"y" * 9000)
assert os.pread(file, 100, 5000) == b"x" * 100
try:
    os.pwrite(file, b"z", {len(data)})
except OSError:
    print("refused beyond the end")
"""
    code, said = overlay.run(image, ["/usr/bin/python3", "-c", script])
    assert (code, said.strip()) == (0, "refused beyond the end")
    changed = bytearray(data)
    changed[5000:5100], changed[40000:49000] = b"x" * 100, b"y" * 9000
    assert image.read(0, image.size) == changed
    # Without the view, and in the base, there is nothing of it.
    assert image.path.read_bytes() == bytes(len(data))
    image.show([])
    half = len(data) // 2
    assert image.read(0, image.size) == data[:half] + bytes(half)


def made_ext4(folder: Path) -> bytes:
    image = folder / "ext4"
    image.write_bytes(bytes(8 * MIB))
    mke2fs = overlay.program("mke2fs", "e2fsprogs")
    subprocess.run([mke2fs, "-q", "-F", "-t", "ext4", image], check=True)
    return image.read_bytes()


def test_fsck_finds_what_needs_repair(tmp_path: Path) -> None:
    good = made_ext4(tmp_path)
    image = whole_image(tmp_path / "log1", good)
    assert checkers.e2fsck(image, "state", []) == []
    image.close()
    # A block that is in use is free in the bitmap.
    changed = tmp_path / "changed"
    changed.write_bytes(good)
    debugfs = overlay.program("debugfs", "e2fsprogs")
    subprocess.run([debugfs, "-w", "-R", "freeb 100 5", changed], check=True, capture_output=True)
    image = whole_image(tmp_path / "log2", changed.read_bytes())
    findings = checkers.e2fsck(image, "state", [])
    assert any("bitmap differences" in finding for finding in findings), findings
    image.close()
    image = whole_image(tmp_path / "log3", bytes(8 * MIB))
    assert any("exit code 8" in finding for finding in checkers.e2fsck(image, "state", []))
    image.close()


def test_a_command_checks_the_state(random_image: tuple[Image, bytes], tmp_path: Path) -> None:
    image, data = random_image
    script = tmp_path / "check"
    script.write_text(
        f"#!/bin/sh\ncmp $1 {tmp_path / 'expected'} || exit 3\n"
        "echo $BATCHFLUSH_STATE; cat $BATCHFLUSH_MARKS; exit 4\n"
    )
    script.chmod(0o755)
    (tmp_path / "expected").write_bytes(data)
    (check,) = checkers.find([str(script)], None)
    marks = [Mark(1, "first"), Mark(2, "second")]
    assert check(image, "2/all", marks) == [f"{script} ended with exit code 4: second"]
    (tmp_path / "expected").write_bytes(bytes(len(data)))
    assert "exit code 3" in check(image, "2/all", marks)[0]
    (fine,) = checkers.find(["true"], None)
    assert fine(image, "2/all", marks) == []


def test_a_checker_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="--check=fsck needs a log recorded on ext4"):
        checkers.find(["fsck"], "xfs")
    with pytest.raises(UsageError, match="--check=guest needs a log that crash run has recorded"):
        checkers.find(["guest"], None)
    with pytest.raises(UsageError, match="neither a command nor one of guest, fsck, witness"):
        checkers.find(["no-such-program -x"], "ext4")


# --- the witness ------------------------------------------------------------------------


def witnessed(tmp_path: Path) -> tuple[list[Mark], dict[str, bytes]]:
    """What the guest's program promises, and the files that it leaves, here on the host."""
    folder = tmp_path / "files"
    folder.mkdir()
    marks = told("run", folder, "-", "0", "2", "20")
    return [Mark(i, mark["text"]) for i, mark in enumerate(marks)], witness.read_directory(folder)


def told(*arguments: str | Path) -> list[dict[str, Any]]:
    """What the guest's program says, line by line."""
    done = subprocess.run(
        [witness_program(), *arguments], check=True, capture_output=True, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def broken(owed: dict[str, witness.Promise], files: dict[str, bytes]) -> list[str]:
    return witness.broken(owed, {name: witness.held(name, data) for name, data in files.items()})


def test_the_witness_keeps_its_own_promises(tmp_path: Path) -> None:
    marks, files = witnessed(tmp_path)
    owed = witness.promises(marks)
    assert {p.verb for p in owed.values()} == {"append", "replace", "gone"}
    assert broken(owed, files) == []
    for name, promise in owed.items():
        if promise.verb == "gone":
            assert broken(owed, {**files, name: b""}) == [
                f"{name} is there again, deleted and synced before"
            ]
            continue
        without = {n: d for n, d in files.items() if n != name}
        assert broken(owed, without) == [f"{name} is not there, synced before"]
        damaged = bytearray(files[name])
        damaged[300] ^= 1
        assert len(broken(owed, {**files, name: bytes(damaged)})) == 1
        assert len(broken(owed, {**files, name: files[name][:500]})) == 1


def test_nothing_is_acknowledged_by_a_dead_disk(tmp_path: Path) -> None:
    """A short file stands for a disk that does not answer."""
    disk, lines = tmp_path / "disk", "one\ntwo\n"
    for size, passed_on in ((4096, lines), (100, "")):
        disk.write_bytes(bytes(size))
        done = subprocess.run(
            [witness_program(), "relay", disk], input=lines, capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, passed_on)


def test_the_guest_sees_the_files_as_we_do(tmp_path: Path) -> None:
    _, files = witnessed(tmp_path)
    for name in list(files)[::2]:
        changed = bytearray(files[name])
        changed[len(changed) // 2] ^= 1
        (tmp_path / "files" / name).write_bytes(changed)
        files[name] = bytes(changed)
    seen = {
        line["name"]: witness.Held(
            line["records"], None if line["version"] < 0 else line["version"]
        )
        for line in told("tell", tmp_path / "files")
    }
    assert seen == {name: witness.held(name, data) for name, data in files.items()}


def test_an_older_version_is_a_broken_promise() -> None:
    old = witness.content(6000, "replace.0.1", 5)
    owed = {"replace.0.1": witness.Promise("replace", 9)}
    assert broken(owed, {"replace.0.1": old}) == ["replace.0.1 has version 5, version 9 was synced"]
    assert broken({"replace.0.1": witness.Promise("replace", 5)}, {"replace.0.1": old}) == []


def test_what_is_being_deleted_is_owed_to_nobody() -> None:
    marks = [Mark(1, "replace a 1"), Mark(2, "append b 3"), Mark(3, "drop a")]
    assert list(witness.promises(marks)) == ["b"]
    assert witness.promises([*marks, Mark(4, "gone a")])["a"].verb == "gone"


# --- small failing states, results --------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_the_smallest_part_that_fails_is_found(seed: int) -> None:
    draw = random.Random(seed)
    items = list(range(draw.randint(1, 60)))
    culprits = set(draw.sample(items, draw.randint(1, min(4, len(items)))))
    asked = []

    def fails(part: Sequence[int]) -> bool:
        asked.append(part)
        return culprits <= set(part)

    assert set(minimise.smallest(items, fails)) == culprits
    assert len(asked) <= 2 * len(items) * len(culprits) + 10


def test_what_fails_without_any_loss_is_told_as_such() -> None:
    assert minimise.smallest([1, 2, 3], lambda part: True) == []


def test_a_finding_is_of_the_same_kind_as_another() -> None:
    assert kind("append.0.2 has 3 good records of 9 that were synced") == kind(
        "append.1.7 has 0 good records of 12 that were synced"
    )
    assert kind("a.1 is not there, synced before") != kind("a.1 is not whole")


def test_a_search_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    log = Maker().save(tmp_path / "log")
    setting = Setting(str(log), log.stat().st_size, 4096, ("fsck",), "ext4")
    results = open_results(setting, 7, fresh=False)
    outcomes = [Outcome(f"{i}/all", i, 2 * i, (), 0.1) for i in range(3)]
    results.add(outcomes)
    results.close()
    with results.path.open("a") as stream:
        stream.write('{"state": "3/a')
    again = open_results(setting, 7, fresh=False)
    assert (again.outcomes, again.resumed) == (outcomes, 3)
    assert again.known() == {0: 0, 1: 2, 2: 4}
    again.close()
    for other, fresh in ((8, False), (7, True)):
        results = open_results(setting, other, fresh)
        assert results.outcomes == []
        results.add(outcomes)
        results.close()


def test_states_names_are_taken_by_the_command_line() -> None:
    assert states.parse("12/lost/3.1").lost == (states.Unit(3, 1),)
