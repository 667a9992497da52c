# SPDX-License-Identifier: GPL-2.0-or-later
"""What `profiles --curve` shows is what the model says, in numbers and as a picture."""

from pathlib import Path

import pytest
from rich.console import Console

from batchflush import cli, curve, paths, profiles

NODE = {
    "write-cache": "volatile",
    "cache-size": 1 << 16,
    "read-latency-ns": 1_000_000,
    "destage-latency-ns": 4_000_000,
    "flush-latency-ns": 3_000_000,
    "flush-clean-latency-ns": 500_000,
    "queue-depth": 2,
}


@pytest.fixture(scope="module")
def found() -> curve.Curve:
    return curve.of(NODE)


def test_a_flush_costs_its_fixed_part_and_its_runs(found: curve.Curve) -> None:
    assert found.flush_ns(0) == 500_000
    # Sixteen single blocks on two lanes, or one run on one of them.
    assert found.flush_ns(1 << 16) == 3_000_000 + 8 * 4_000_000
    assert found.flush[-1] == curve.Flush(1 << 16, 35_000_000, 7_000_000)


def test_lanes_limit_reads_and_nothing_limits_writes_that_take_no_time(found: curve.Curve) -> None:
    reads = {rate.depth: rate.read for rate in found.iops}
    assert reads[1] == pytest.approx(1000, rel=1e-3)
    assert reads[2] == reads[32] == pytest.approx(2000, rel=1e-3)
    assert {rate.write for rate in found.iops} == {None}


def test_a_spread_does_not_move_the_flush_that_is_shown(found: curve.Curve) -> None:
    spread = curve.of({**NODE, "flush-spread": "table:50=1/99=9"})
    assert spread.flush == found.flush


def test_the_table_shows_it(found: curve.Curve, capsys: pytest.CaptureFixture[str]) -> None:
    Console(width=80).print(curve.tables("disk", found))
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in ("64 KiB 35 ms 7 ms", "nothing 500 µs", "2 2,000 no limit"):
        assert text in shown


@pytest.mark.parametrize("name", ["ramdisk", "sata-7200"])
def test_the_command_draws_a_picture(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths, "CURVES", tmp_path)
    assert cli.main(["profiles", "--curve", name]) == 0
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "random 4 KiB requests" in capsys.readouterr().out


def test_every_class_is_one_that_the_model_takes() -> None:
    for profile in profiles.load().values():
        curve.of({name: setting.value for name, setting in profile.node.items()})


def test_a_curve_is_of_one_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profiles", "--curve"]) == 2
    assert "--curve needs the NAME of a class" in capsys.readouterr().err
