# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage classes: every number has a source, and a wrong file is refused in one sentence."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from batchflush import curve, paths, profiles
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest.command_line import Disk, disk_arguments, user_line

GOOD = """
[disk]
title = "a disk"
[disk.node]
write-cache = { value = "volatile", grade = "folk", source = "somebody" }
flush-latency-ns = { value = 9000000, grade = "data sheet", source = "page 3" }
[disk.front-end]
device = { value = "virtio-blk-pci", grade = "folk", source = "us" }
write-cache = { value = "on", grade = "folk", source = "us" }
"""
FLUSH = "flush-latency-ns = { value = 9000000"


def load_text(folder: Path, text: str) -> dict[str, profiles.Profile]:
    file = folder / "profiles.toml"
    file.write_text(text)
    return profiles.load(file)


def durable_ns(profile: profiles.Profile) -> float:
    """A 4 KiB write and its flush, if the front end lets one through, on an idle disk."""
    found = curve.of({key: setting.value for key, setting in profile.node.items()})
    written = next(rate.write for rate in found.iops if rate.depth == 1)
    assert written is not None
    flushed = profile.front_end["write-cache"].value == "on"
    return 1e9 / written + flushed * found.flush_ns(4096)


def test_every_kind_of_storage_has_its_class() -> None:
    assert list(profiles.load()) == [
        "ramdisk", "sata-2009", "xserve-2009", "disk-2010", "array-battery", "array-battery-failed",
        "sata-7200", "sata-7200-nocache", "sata-5400", "sata-5400-nocache", "sas-15k",
        "flash-array", "ssd-sata-consumer", "ssd-sata-plp",
        "nvme-consumer", "nvme-plp", "optane", "emmc", "sd-card",
        "cloud-gcp-pd-ssd", "cloud-ebs-gp3",
    ]  # fmt: skip


def test_a_class_that_can_lose_a_write_reports_its_cache() -> None:
    for profile in profiles.load().values():
        if profile.node["write-cache"].value == "volatile":
            assert profile.front_end["write-cache"].value == "on", profile.name


def test_a_flush_has_a_time_where_one_arrives_and_only_there() -> None:
    for profile in profiles.load().values():
        arrives = profile.front_end["write-cache"].value == "on"
        assert ("flush-latency-ns" in profile.node) == arrives, profile.name


def test_a_battery_that_fails_leaves_the_rest_of_the_array_as_it_is() -> None:
    whole, failed = profiles.find("array-battery"), profiles.find("array-battery-failed")
    for key in ("read-latency-ns", "queue-depth", "flush-concurrency"):
        assert failed.node[key].value == whole.node[key].value
    onto_disk = (whole.node[key].value for key in ("write-latency-ns", "destage-latency-ns"))
    assert failed.node["write-latency-ns"].value == sum(map(int, onto_disk))


def test_no_class_coalesces() -> None:
    assert {p.node["coalesce"].value for p in profiles.load().values()} == {"off"}


@pytest.mark.parametrize(
    ("name", "published_ms"),
    [
        ("array-battery", 0.043), ("sata-7200", 10.3), ("flash-array", 1.93),
        ("ssd-sata-consumer", 3.0), ("ssd-sata-plp", 0.158), ("nvme-consumer", 1.742),
        ("emmc", 2.0), ("sd-card", 1.728), ("cloud-gcp-pd-ssd", 0.8), ("cloud-ebs-gp3", 0.7),
    ],
)  # fmt: skip
def test_a_durable_write_takes_what_its_source_says(name: str, published_ms: float) -> None:
    assert durable_ns(profiles.find(name)) / 1e6 == pytest.approx(published_ms, rel=0.003)


UNITS_NS = {"µs": 1e3, "ms": 1e6}


@pytest.mark.parametrize("name", profiles.load())
def test_a_durable_write_takes_what_the_docs_say(name: str) -> None:
    page = (paths.ROOT / "docs/classes.rst").read_text(encoding="utf-8")
    row = re.search(rf"^``{name}`` +([\d.]+) (µs|ms) ", page, re.MULTILINE)
    assert row, f"docs/classes.rst has no row of {name}"
    told = float(row[1]) * UNITS_NS[row[2]]
    assert durable_ns(profiles.find(name)) == pytest.approx(told, rel=0.01)


def test_a_setting_keeps_value_unit_grade_and_source(tmp_path: Path) -> None:
    setting = load_text(tmp_path, GOOD)["disk"].node["flush-latency-ns"]
    assert setting == profiles.Setting(9_000_000, "ns", "data sheet", "page 3")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (', source = "page 3"', "", "[disk.node] flush-latency-ns has no source"),
        ('source = "page 3"', 'source = " "', "[disk.node] flush-latency-ns has no source"),
        ('"data sheet"', '"rumour"', "flush-latency-ns has the grade 'rumour'; allowed is one of"),
        ("flush-latency-ns", "flush-latency-ms", "[disk.node] flush-latency-ms is not known"),
        ("9000000", '"9 ms"', "flush-latency-ns is '9 ms'; allowed is a whole number of ns"),
        ("9000000", "-1", "flush-latency-ns is -1; allowed is a whole number of ns, 0 to"),
        ("9000000", "60000000001", "allowed is a whole number of ns, 0 to 60000000000"),
        ("9000000", "9.5", "flush-latency-ns is 9.5; allowed is a whole number of ns"),
        ("flush-latency-ns", "flush-latency", "[disk.node] flush-latency is not known"),
        (FLUSH, "cache-size = { value = '64M'", "cache-size is '64M'; allowed is a whole number"),
        (FLUSH, "flush-spread = { value = 'normal:90'", "[disk.node] flush-spread is 'normal:90', "
         "which is out of range; allowed are normal:0 to normal:33"),
        (FLUSH, "flush-spread = { value = 'table:50=1/99=0.5'",
         "[disk.node] flush-spread is 'table:50=1/99=0.5', which is out of order at 99=0.5"),
        (FLUSH, "rpm = { value = 7200", "[disk.node] rpm=7200 needs bandwidth"),
        ("[disk.node]", "[disk.nodes]", "[disk] has no node"),
        ("[disk]", "[other]\n[disk]", "[other] has no title"),
        ("[disk]\n", "['my disk']\n", "[my disk] is no name of a class"),
        ("9000000", "true", "flush-latency-ns is True; allowed is a whole number"),
        ('"volatile"', '"lazy"', "write-cache is 'lazy'; allowed is one of none, volatile"),
        ('source = "page 3"', 'source = "p", unit = "ms"', "has an unknown key unit"),
        ('title = "a disk"', "", "[disk] has no title"),
        ('device = { value = "virtio-blk-pci", grade = "folk", source = "us" }', "", "device is"),
        ("[disk.front-end]", "[disk.front-end]\nrotation-rate = { value = 7200, grade = 'folk', "
         "source = 'us' }", "rotation-rate is given, but of QEMU's disks only scsi-hd has one"),
        ("[disk]", "[disk", "is not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(BatchflushError) as caught:
        load_text(tmp_path, GOOD.replace(old, new, 1))
    assert complaint in caught.value.message
    assert "profiles.toml" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_misspelt_option_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(BatchflushError) as caught:
        load_text(tmp_path, GOOD.replace("flush-latency-ns", "flush-latency-ms"))
    assert caught.value.hint == "Did you mean flush-latency-ns?"


def test_an_unknown_class_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(UsageError) as caught:
        profiles.find("sata-720")
    assert "sata-720" in caught.value.message
    assert "sata-7200" in (caught.value.hint or "")


def test_a_name_near_nothing_is_answered_with_all_names() -> None:
    with pytest.raises(UsageError) as caught:
        profiles.find("zzz")
    assert "ramdisk" in (caught.value.hint or "")


def test_every_source_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    profile = profiles.find("sata-7200")
    console = Console(width=200)
    console.print(profiles.table(profile))
    shown = " ".join(capsys.readouterr().out.split())
    for name, setting in {**profile.node, **profile.front_end}.items():
        assert name in shown
        assert setting.grade in shown
    assert "serverfault 857271" in shown


def test_a_class_of_ones_own_is_spelled_out_to_qemu(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    known = profiles.known(file)
    own, built_in = known["disk"], known["sata-7200"]
    node = "batchflush,node-name=disk,write-cache=volatile,flush-latency-ns=9000000,file=medium"
    assert node in disk_arguments(Disk(own), ioeventfd=True)
    changed = Disk(own, {"flush-latency-ns": "1"})
    assert node.replace("9000000", "1") in disk_arguments(changed, ioeventfd=True)
    assert "profile" not in user_line(own)
    assert "profile=sata-7200" in user_line(built_in)


def test_a_class_of_ones_own_has_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD.replace("[disk", "[sata-7200"))
    with pytest.raises(BatchflushError) as caught:
        profiles.known(file)
    assert f"{file}: [sata-7200] is the name of a built-in class" in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BatchflushError, match=r"cannot read .*none\.toml: No such file"):
        profiles.known(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (', source = "page 3"', "", "[disk.node] flush-latency-ns has no source"),
        ("9000000", '"table:99=1/50=2"', "[disk.node] flush-latency-ns is 'table:99=1/50=2'"),
        (FLUSH, "latency-spread = { value = 'uniform:101'",
         "[disk.node] latency-spread is 'uniform:101', which is out of range"),
    ],
)  # fmt: skip
def test_a_wrong_file_ends_qemus_build(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    file = tmp_path / "classes.toml"
    file.write_text(GOOD.replace(old, new, 1))
    generator = paths.PROFILES.with_name("profile-gen.py")
    done = subprocess.run(
        [sys.executable, generator, file, tmp_path / "out.h"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"{file}: {complaint}" in done.stderr
    assert not (tmp_path / "out.h").exists()
