# SPDX-License-Identifier: GPL-2.0-or-later
"""What `calibrate` says of storage whose times are known, and what it never does to any."""

import hashlib
import os
import random
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchflush import calibrate, cli, curve, paths, profiles
from batchflush.calibration import class_file, fit, host, probe, quantiles, target
from batchflush.calibration.probe import BLOCK, SEQUENTIAL_BLOCK, Limits, Measured, Probe
from batchflush.errors import UsageError

PATIENCE_SECONDS = 30
MIB = 1 << 20

CACHE = {
    "write-cache": "volatile",
    "read-latency-ns": 90_000,
    "write-latency-ns": 25_000,
    "destage-latency-ns": 400_000,
    "flush-latency-ns": 2_000_000,
    "bandwidth": 500_000_000,
    "interface-bandwidth": 600_000_000,
    "queue-depth": 8,
}
NO_CACHE = {
    "write-cache": "none",
    "read-latency-ns": 600_000,
    "write-latency-ns": 900_000,
    "flush-latency-ns": 50_000,
    "bandwidth": 200_000_000,
    "queue-depth": 12,
}
SLOW_CARD = {**NO_CACHE, "write-latency-ns": 1_600_000, "bandwidth": 30_000_000, "queue-depth": 1}


def level(per_second: float, ns: float) -> Measured:
    """A run whose requests all take the same."""
    return Measured(per_second, ns, dict.fromkeys(probe.PERCENTILES, ns))


def probe_of(node: dict[str, int | str]) -> Probe:
    """What a perfect probe of that node would measure: the model says so."""
    found = curve.of(node)
    runs: dict[str, Measured] = {}
    for rate in found.iops:
        for kind, per_second in (("read", rate.read), ("write", rate.write)):
            if per_second and rate.depth in probe.DEPTHS:
                runs[f"{kind} at depth {rate.depth}"] = level(
                    per_second, rate.depth * 1e9 / per_second
                )
    cached = node["write-cache"] == "volatile"
    for kind, option in (
        ("read", "bandwidth"),
        ("write", "interface-bandwidth" if cached else "bandwidth"),
    ):
        runs[f"{kind} in sequence"] = level(int(node[option]) / SEQUENTIAL_BLOCK, 1.0)
    for dirty in probe.DIRTY:
        ns = found.flush_ns(dirty * BLOCK)
        runs[f"flush after {dirty} writes"] = level(1e9 / ns, ns)
    return Probe(runs)


@pytest.mark.parametrize("node", [CACHE, NO_CACHE, SLOW_CARD])
def test_the_fit_finds_the_numbers_of_a_known_node(node: dict[str, int | str]) -> None:
    measured = probe_of(node)
    found = fit.options(fit.fit(measured))
    for name, value in node.items():
        expected = value if isinstance(value, str) else pytest.approx(value, rel=0.1)
        assert found[name] == expected, name
    assert fit.miss(fit.residuals(measured, curve.of(found))) < 1.05


def bent(one: float, most: float) -> dict[int, float]:
    """Rates that grow ever less with the depth, as a real disk's do."""
    return {depth: one + (most - one) * (1 - 1 / depth) for depth in probe.DEPTHS}


def test_a_durable_write_is_kept_where_more_of_them_bend() -> None:
    """Reads that gain a lot from depth and writes that gain little share the lanes."""
    runs = dict(probe_of(NO_CACHE).runs)
    for kind, rates in (("read", bent(16_000, 70_000)), ("write", bent(9_000, 23_000))):
        for depth, rate in rates.items():
            runs[f"{kind} at depth {depth}"] = level(rate, depth * 1e9 / rate)
    for dirty, ns in zip(probe.DIRTY, (33_000, 34_000, 52_000, 130_000), strict=True):
        runs[f"flush after {dirty} writes"] = level(1e9 / ns, ns)
    measured = Probe(runs)
    residuals = fit.residuals(measured, curve.of(fit.options(fit.fit(measured))))
    percent = {r.name: r.percent for r in residuals}
    for name in ("read at depth 1", "write at depth 1", "flush after 1 writes"):
        assert abs(percent[name]) < 2, name
    assert abs(percent["flush after 64 writes"]) > 20, "as good as it can be, and no better"


def test_a_spread_is_found_and_keeps_the_mean() -> None:
    factors = {p: 0.8 + 0.004 * p for p in probe.PERCENTILES}
    mean_ns = 1e6 * quantiles.mean(factors)
    run = Measured(1e9 / mean_ns, mean_ns, {p: 1e6 * f for p, f in factors.items()})
    runs = {f"read at depth {depth}": run for depth in probe.DEPTHS}
    measured = Probe({**runs, "read in sequence": level(100.0, 1.0)})
    found = fit.options(fit.fit(measured))
    drawn = dict(part.split("=") for part in str(found["latency-spread"])[6:].split("/"))
    assert float(drawn["90"]) == pytest.approx(factors[90], rel=0.02)
    promised = curve.of(found).iops[0].read
    assert promised == pytest.approx(1e9 / mean_ns, rel=0.02)


def test_what_only_reads_says_nothing_of_writes() -> None:
    reads = {name: run for name, run in probe_of(NO_CACHE).runs.items() if "read" in name}
    found = fit.options(fit.fit(Probe(reads)))
    assert set(found) == {"read-latency-ns", "bandwidth", "queue-depth"}


# --- what is written to -------------------------------------------------------------------


def test_a_probe_that_may_not_write_does_not() -> None:
    limits = Limits(1, 100, MIB)
    for each in probe.runs(writes=False):
        command = probe.command(each, "/dev/disk", limits)
        assert "--readonly" in command
        assert each.operation in ("read", "randread")


def test_fio_itself_refuses_to_write_with_readonly(tmp_path: Path) -> None:
    """What the test above relies on."""
    file = tmp_path / "disk"
    file.write_bytes(bytes(MIB))
    command = ["fio", "--name=x", f"--filename={file}", "--readonly", "--rw=write", "--size=1m"]
    assert subprocess.run(command, capture_output=True).returncode != 0


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is taken for a device."""
    file = tmp_path / "device"
    file.write_bytes(random.Random(1).randbytes(8 * MIB))
    is_block_device = stat.S_ISBLK
    monkeypatch.setattr(stat, "S_ISBLK", lambda mode: stat.S_ISREG(mode) or is_block_device(mode))
    monkeypatch.setattr(paths, "CALIBRATE", tmp_path / "results")
    monkeypatch.setattr(host, "ROUNDS", 1)
    return file


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


SHORT = ["--seconds=0.05", "--size=8"]


def test_a_device_is_only_read(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digest(device)
    assert cli.main(["calibrate", str(device), *SHORT]) == 0
    assert digest(device) == before
    told = capsys.readouterr().out
    assert "only reads" in told
    assert f"--write-to {device}" in told.replace("\n# ", " ")


def test_a_device_is_written_to_if_it_is_spelled_out(device: Path, tmp_path: Path) -> None:
    before = digest(device)
    output = tmp_path / "class.toml"
    assert cli.main(["calibrate", f"--write-to={device}", "-o", str(output), *SHORT]) == 0
    assert digest(device) != before
    made = profiles.load(output)["calibrated"]
    assert made.node["write-latency-ns"].grade == "measured"
    assert str(device) in made.node["write-latency-ns"].source


def test_two_devices_are_refused(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["calibrate", str(device), f"--write-to={device}2", *SHORT]) == 2
    assert "are two; give one of them" in capsys.readouterr().err


def test_a_file_that_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "precious"
    file.write_text("data")
    assert cli.main(["calibrate", str(file), *SHORT]) == 2
    assert f"{file} exists and is no block device" in " ".join(capsys.readouterr().err.split())
    assert file.read_text() == "data"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["{there}"], "exists and is no block device"),
        (["{none}/file"], "cannot be made: No such file or directory"),
        (["--write-to={none}"], "is not there"),
        ([], "what is to be probed?"),
        (["{new}", "--seconds=0"], "--seconds=0 is out of range; allowed are 0.05 to 60"),
        (["{new}", "--size=1"], "--size=1 is out of range; allowed are 4 to 65536"),
        (["{new}", "--name=My Disk"], "--name=My Disk is no name of a class"),
        (["{new}", "--name=sata-7200"], "--name=sata-7200 is the name of a built-in class"),
        (["{new}", "-o", "{none}/x"], "there is no folder"),
    ],
)
def test_bad_input(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    there.touch()
    names = {"there": there, "none": tmp_path / "none", "new": tmp_path / "new"}
    assert cli.main(["calibrate", *(each.format(**names) for each in arguments)]) == 2
    assert complaint in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == [there]


def test_a_full_file_system_is_told(tmp_path: Path) -> None:
    room = os.statvfs(tmp_path)
    more = room.f_bavail * room.f_frsize + (1 << 30)
    with (
        pytest.raises(UsageError, match="its file system has only"),
        target.opened(tmp_path / "new", None, more),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


# --- what is left behind ------------------------------------------------------------------


def fio_of(parent: int) -> list[int]:
    """Processes named fio below a process."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = [int(c) for c in children if Path(f"/proc/{c}/comm").read_text().strip() == "fio"]
    return found + [each for child in children for each in fio_of(int(child))]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "batchflush", "calibrate", tmp_path / "probe",
               "--seconds=30", "--size=8"]  # fmt: skip
    us = subprocess.Popen(
        command, cwd=paths.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(paths.ROOT / "python")}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        limit = time.monotonic() + PATIENCE_SECONDS
        while not (running := _fio_or_nothing(us.pid)):
            assert us.poll() is None, us.stderr.read() if us.stderr else ""
            assert time.monotonic() < limit, "fio was never started"
            time.sleep(0.05)
        # Its name is gone as soon as it is open, so not even SIGKILL would leave it.
        assert list(tmp_path.iterdir()) == []
        us.send_signal(number)
        assert us.wait(PATIENCE_SECONDS) != 0
    finally:
        us.kill()
        us.communicate()
    assert [pid for pid in running if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def _fio_or_nothing(pid: int) -> list[int]:
    """A process may end while we look."""
    try:
        return fio_of(pid)
    except FileNotFoundError:
        return []


# --- what is printed ----------------------------------------------------------------------


def test_a_class_can_be_read_again(tmp_path: Path) -> None:
    facts = target.Facts(None, 'disk "A"\\1', "write back", False, 512, 4096, 3)
    made_of = target.Target("/dev/x", "/dev/x", False, True, MIB, facts)
    choices = fit.fit(probe_of(CACHE))
    made = class_file.profile("mine", made_of, choices)
    file = tmp_path / "mine.toml"
    file.write_text(class_file.text(made, ["a remark"]))
    read = profiles.load(file)["mine"]
    assert read.title == made.title
    assert {name: s.value for name, s in read.node.items()} == {
        name: s.value for name, s in made.node.items()
    }
    assert read.front_end["write-cache"].value == "on"
    assert all("/dev/x" in read.node[c.option].source for c in choices)


def test_the_goodness_of_fit_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    measured = probe_of(CACHE)
    residuals = fit.residuals(measured, curve.of({**CACHE, "read-latency-ns": 180_000}))
    Console(width=100).print(calibrate.table("fit", residuals))
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    off = next(r for r in residuals if r.name == "read at depth 1")
    assert off.percent == pytest.approx(-46, abs=2)
    assert f"read at depth 1 {off.real:,.1f} {off.fitted:,.1f} {off.percent:+.1f} %" in shown
