# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage classes: every number has a source, and a wrong file is refused in one sentence."""

import re
from pathlib import Path

import pytest
from class_files import GOOD

from batchflush import curve, paths, profiles
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest.command_line import Disk, disk_arguments, user_line


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
