# SPDX-License-Identifier: GPL-2.0-or-later
"""Campaigns of power cuts, without a guest: which cuts, what is judged, what is kept."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from batchflush.crash import campaign, loads, soak
from batchflush.crash.campaign import Campaign, Outcome, Result, draw
from batchflush.crash.history import Mark

CUTS = 400


def outcome(number: int, *findings: str) -> Outcome:
    cut = draw(Campaign(), number)
    return Outcome(cut, findings, 10, 4096, 8192, f"{number % 2}", 0.5)


def test_a_seed_and_a_number_choose_the_cut() -> None:
    plain = Campaign()
    cuts = [draw(plain, number) for number in range(CUTS)]
    assert cuts == [draw(plain, number) for number in range(CUTS)]
    assert cuts[0] != draw(replace(plain, seed=2), 0)
    # Every moment meets every policy, and every program that runs beside the files.
    seen = {(c.arguments["when"], c.arguments["policy"], c.words.split()[1]) for c in cuts}
    assert len(seen) == 4 * 2 * 2
    for cut in cuts:
        counted = cut.arguments["when"] in ("flush", "in-flush", "write")
        assert ("count" in cut.arguments) == counted
        assert cut.arguments.get("count", 1) >= 1


def test_files_are_held_to_their_marks() -> None:
    marks = [Mark(0, "append append.0.0 2"), Mark(1, "replace small.0.1 7"), Mark(2, "gone x")]
    told = [
        {"type": "file", "name": "append.0.0", "records": 2, "version": -1},
        {"type": "file", "name": "small.0.1", "records": 0, "version": 7},
    ]
    judge = loads.FILES.judge
    assert judge(marks, told) == []
    assert judge(marks, told[1:]) == ["append.0.0 is not there, synced before"]
    short = {**told[0], "records": 1}
    assert judge(marks, [short, told[1]]) == ["append.0.0 has 1 good records of 2 that were synced"]
    assert judge(marks, [told[0], {**told[1], "version": 6}]) == [
        "small.0.1 has version 6, version 7 was synced"
    ]
    assert judge(marks, [told[0], {**told[1], "version": -1}]) == [
        "small.0.1 is not whole, version 7 having been synced"
    ]
    back = {"type": "file", "name": "x", "records": 0, "version": -1}
    assert judge(marks, [*told, back]) == ["x is there again, deleted and synced before"]


def test_a_database_is_held_to_its_commits() -> None:
    marks = [Mark(0, "1"), Mark(1, "2")]
    rows = {"type": "rows", "rows": 2, "last": 2, "whole": 2, "counter": 2}
    fine = {"type": "integrity", "text": "ok"}
    judge = loads.LOADS["sqlite-wal"].judge
    assert judge(marks, [rows, fine]) == []
    # The one that was being committed may be there.
    more = {"type": "rows", "rows": 3, "last": 3, "whole": 3, "counter": 3}
    assert judge(marks, [more, fine]) == []
    less = {"type": "rows", "rows": 1, "last": 1, "whole": 1, "counter": 1}
    assert judge(marks, [less, fine]) == ["the last row is 1, row 2 was committed"]
    for name in ("rows", "whole", "counter"):
        assert "do not agree" in judge(marks, [{**rows, name: 1}, fine])[0]
    broken = {"type": "integrity", "text": "row 1 missing from index"}
    assert judge(marks, [rows, broken]) == ["PRAGMA integrity_check: row 1 missing from index"]


@pytest.mark.parametrize("file_system", loads.FILE_SYSTEMS)
@pytest.mark.parametrize("load", loads.LOADS)
def test_the_guests_script_is_one(load: str, file_system: str) -> None:
    script = loads.script(loads.LOADS[load], file_system, "/dev/vda")
    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_what_is_good() -> None:
    sound, lying = Campaign(), Campaign(lie="flush")
    fine, bad = [outcome(0)], [outcome(0), outcome(1, "lost")]
    assert soak.good(Result(sound, fine), None)
    assert not soak.good(Result(sound, bad), None)
    assert not soak.good(Result(sound, fine), "the guest was silent")
    assert not soak.good(Result(sound, []), None)
    # A liar has to be found out.
    assert soak.good(Result(lying, bad), None)
    assert not soak.good(Result(lying, fine), None)
    # Findings at 512 bytes are told and do not count.
    assert soak.good(Result(Campaign(atomic=512), bad), None)


def test_a_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "FOLDER", tmp_path)
    options = (("flush-latency-ns", "1000"),)
    plain = Campaign(cuts=5, options=options)
    result = Result(plain, [outcome(0), outcome(1, "lost"), outcome(2)], seconds=7)
    soak._save(result)
    again = soak._begun(plain, fresh=False)
    assert again.outcomes == result.outcomes and again.seconds_before == 7
    assert soak._begun(replace(plain, cuts=2), fresh=False).outcomes == result.outcomes[:2]
    assert soak._begun(plain, fresh=True).outcomes == []
    assert soak._begun(replace(plain, seed=2), fresh=False).outcomes == []
    assert soak._begun(replace(plain, options=()), fresh=False).outcomes == []
    told = json.loads(next(tmp_path.iterdir()).read_text())
    assert (told["cuts"], told["failing"], told["different-survivors"]) == (3, 1, 2)


def test_the_command_that_repeats_a_cut() -> None:
    assert soak.repeat_command(Campaign(seed=3), 17) == "./batchflush crash cut --seed 3 --cut 17"
    other = Campaign("sqlite-wal", "xfs", lie="flush", guest="reset", atomic=512)
    assert soak.repeat_command(other, 0) == (
        "./batchflush crash cut --fs xfs --load sqlite-wal --guest reset --atomic-write-size 512 "
        "--option lie=flush --seed 1 --cut 0"
    )
    # And it does not touch what the whole campaign has found.
    assert Campaign().only(0).name != Campaign().name


def test_a_copy_of_the_disk_has_its_holes(tmp_path: Path) -> None:
    size, data = 1 << 22, b"x" * 5000
    with campaign.Medium(size) as medium:
        with medium.path.open("r+b") as stream:
            stream.seek(1 << 21)
            stream.write(data)
        medium.remember()
        with medium.path.open("r+b") as stream:
            stream.write(b"a check changes it")
        medium.save(tmp_path / "image")
    content = (tmp_path / "image").read_bytes()
    assert content == bytes(1 << 21) + data + bytes(size - (1 << 21) - len(data))
    assert (tmp_path / "image").stat().st_blocks * 512 < size // 4
