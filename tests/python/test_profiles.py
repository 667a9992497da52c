# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage classes: every number has a source, and a wrong file is refused in one sentence."""

from pathlib import Path

import pytest

from batchflush import profiles
from batchflush.errors import BatchflushError, UsageError

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


def load_text(folder: Path, text: str) -> dict[str, profiles.Profile]:
    file = folder / "profiles.toml"
    file.write_text(text)
    return profiles.load(file)


def test_the_four_classes_are_there() -> None:
    assert list(profiles.load()) == ["ramdisk", "array-battery", "sata-7200", "sata-7200-nocache"]


def test_a_class_whose_node_has_no_cache_reports_none() -> None:
    for profile in profiles.load().values():
        cached = profile.node["write-cache"].value != "none"
        assert profile.front_end["write-cache"].value == ("on" if cached else "off"), profile.name


def test_no_class_coalesces() -> None:
    assert {p.node["coalesce"].value for p in profiles.load().values()} == {"off"}


def test_a_durable_write_takes_what_the_sources_say() -> None:
    classes = profiles.load()

    def durable_ns(name: str) -> int:
        node = classes[name].node
        keys = ("write-latency-ns", "flush-latency-ns")
        drain = node["write-cache"].value == "volatile"
        keys += ("destage-latency-ns",) if drain else ()
        return sum(int(node[key].value) for key in keys)

    assert durable_ns("sata-7200") == 10_300_000
    assert durable_ns("array-battery") == 43_000


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
        ("9000000", "-1", "flush-latency-ns is -1; allowed is a whole number of ns, at least 0"),
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
