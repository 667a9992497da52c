# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory's pure parts: experiments, cells, results."""

import json
from pathlib import Path

import pytest

from batchflush import paths
from batchflush.errors import UsageError
from batchflush.lab import experiment, kernels, results, workloads

SMALL = """
title = "small"
classes = ["ramdisk", "sata-2009"]
repetitions = 2

[[kernel]]
name = "one"
parameters = ["batchflush.commit_wait=jiffy"]

[[kernel]]
name = "two"
package = "linux-image-cloud-amd64"

[[disk]]
name = "slow"
options = { flush-latency-ns = 20000000 }

[workload]
name = "fs_mark"
threads = [2, 4, 8]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "small.toml"
    file.write_text(text)
    return file


def test_cells_are_every_combination(tmp_path: Path) -> None:
    cells = list(experiment.load(written(tmp_path, SMALL)).cells())
    assert len(cells) == 2 * 2 * 3 * 2
    assert len({tuple(cell.labels().values()) for cell in cells}) == len(cells)
    assert {cell.disk.options["flush-latency-ns"] for cell in cells} == {"20000000"}
    assert {cell.seed for cell in cells} == {1, 2}


def test_a_key_changes_with_what_a_cell_is_made_of_and_with_nothing_else(tmp_path: Path) -> None:
    cells = list(experiment.load(written(tmp_path, SMALL)).cells())
    keys = [cell.key("image", "qemu") for cell in cells]
    assert len(set(keys)) == len(keys)
    again = list(experiment.load(written(tmp_path, SMALL)).cells())
    assert [cell.key("image", "qemu") for cell in again] == keys
    assert cells[0].key("other image", "qemu") != keys[0]
    assert cells[0].key("image", "other qemu") != keys[0]
    changed = SMALL.replace("20000000", "20000001")
    slower = next(experiment.load(written(tmp_path, changed)).cells())
    assert slower.key("image", "qemu") != keys[0]


@pytest.mark.parametrize("file", sorted((paths.ROOT / "lab/experiments").glob("*.toml")))
def test_the_projects_experiments_can_be_read(file: Path) -> None:
    loaded = experiment.load(file)
    assert list(loaded.cells())
    assert loaded.title != loaded.name, "it has no title"


def test_the_first_experiment_has_all_thirty_cells_of_the_posting_and_a_third_arm() -> None:
    loaded = experiment.load(paths.ROOT / "lab/experiments/s0.toml")
    assert len(list(loaded.cells())) == 45
    assert [kernel.name for kernel in loaded.kernels] == ["1 jiffy", "adaptive", "today"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("repetitions", "repetitons", "repetitons is not known"),
        ('"sata-2009"', '"sata-2008"', "sata-2008"),
        ("[2, 4, 8]", "[2, 0]", "threads=0 is out of range; allowed are 1 to 1024"),
        ('"fs_mark"', '"fsmark"', "fsmark is not known; allowed are fs_mark, fio, dbench, script"),
        ("flush-latency-ns", "flush-latency", "no option flush-latency"),
        ('name = "one"', 'name = "one"\nhz = 300', "hz=300; allowed are 100, 250, 1000"),
        ('name = "two"', 'name = "two"\nimage = "x"', "both package and image"),
        ('title = "small"', "format = 2", "format=2 is not known; allowed is 1"),
        ('title = "small"', 'shape = "round"', "shape=round is not known; allowed are exact, mq"),
        ("repetitions = 2", "repetitions = 0", "repetitions=0 is out of range"),
        ("title", "[title", "is not TOML"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in SMALL
    with pytest.raises(UsageError) as caught:
        experiment.load(written(tmp_path, SMALL.replace(old, new, 1)))
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_a_kernel_on_the_command_line(tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    image.touch()
    flag = experiment.kernel_of_flag
    assert flag(str(image)).image == image
    assert flag("debian").package == "linux-image-cloud-amd64"
    old = flag("old=linux-source-6.1@100,batchflush.commit_wait=jiffy")
    assert (old.name, old.hz, old.graft) == ("old", 100, kernels.GRAFT)
    assert old.parameters == ("batchflush.commit_wait=jiffy",)
    with pytest.raises(UsageError, match="neither a file nor a kernel's name"):
        flag("bzimage")


# --- workloads ----------------------------------------------------------------------------


def test_figures_of_fs_mark_are_those_of_the_mean_thread() -> None:
    workload = workloads.Workload("fs_mark", files={"2": 100})
    # 100 files of 5000 µs each by both threads at once, without overhead.
    text = "0 200 4096 400.0 0 100 100 100 10 10 10 4880 4880 4880 0 0 0 10 10 10 0 0 0"
    figures = workloads.KINDS["fs_mark"].figures(workload, 2, {"text": text})
    assert figures["files_per_s"].value == pytest.approx(400)
    assert figures["fsync_us"].value == 4880


def test_figures_of_dbench() -> None:
    text = "Throughput 1008.02 MB/sec  32 clients  32 procs  max_latency=341.833 ms"
    figures = workloads.KINDS["dbench"].figures(workloads.Workload("dbench"), 32, {"text": text})
    assert (figures["mb_per_s"].value, figures["max_latency_ms"].value) == (1008.02, 341.833)
    assert figures["max_latency_ms"].better == "less"


# --- results ------------------------------------------------------------------------------


def record(key: str, status: str = "ok", value: float = 10.0) -> results.Record:
    labels = dict.fromkeys(results.LABELS, "")
    figures = {"files_per_s": {"value": value, "unit": "files/s", "better": "more"}}
    return {"cell": key, **labels, "status": status, "figures": figures}


def test_results_are_read_as_they_were_written_and_the_newest_of_a_cell_counts(
    tmp_path: Path,
) -> None:
    file = results.File(tmp_path / "results.jsonl", {"title": "t"})
    file.begin()
    file.add(record("a", value=1))
    file.add(record("b", "failed"))
    file.add(record("a", value=2))
    read = results.File.read(file.path)
    assert read.header["title"] == "t"
    assert {key: r["status"] for key, r in read.records.items()} == {"a": "ok", "b": "failed"}
    assert results.values([read.records["a"]], "files_per_s") == [2]


def test_a_run_ended_in_the_middle_of_a_line_loses_that_line_only(tmp_path: Path) -> None:
    file = results.File(tmp_path / "results.jsonl")
    file.begin()
    file.add(record("a"))
    with file.path.open("a") as stream:
        stream.write('{"cell": "b", "cla')
    assert list(results.File.read(file.path).records) == ["a"]


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ({"format": "batchflush-lab", "version": 7}, "is of version 7, but .* reads version 1"),
        ({"format": "something"}, "no result file"),
        (["a list"], "no result file"),
    ],
)
def test_a_file_of_another_kind_or_version_is_refused(
    tmp_path: Path, first: object, said: str
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(first) + "\n")
    with pytest.raises(UsageError, match=said):
        results.File.read(path)
