# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory's pure parts: experiments, cells, results."""

import csv
import json
import math
import statistics
from pathlib import Path

import pytest

from batchflush import cli, cluster, paths
from batchflush.errors import BatchflushError, UsageError
from batchflush.guest import packages
from batchflush.lab import (
    cell,
    diff,
    experiment,
    kernels,
    knee,
    posting,
    results,
    seeds,
    show,
    workloads,
)

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
    fewer = list(experiment.load(written(tmp_path, SMALL.replace("[2, 4, 8]", "[4]"))).cells())
    assert {cell.key("image", "qemu") for cell in fewer} < set(keys)
    slower = next(experiment.load(written(tmp_path, changed)).cells())
    assert slower.key("image", "qemu") != keys[0]


def test_cells_can_be_left_out(tmp_path: Path) -> None:
    skip = '\n[[skip]]\nclass = "ramdisk"\nkernel = "one"\n[[skip]]\nthreads = 8\n'
    cells = list(experiment.load(written(tmp_path, SMALL + skip)).cells())
    places = {(cell.profile, cell.kernel.name, cell.threads) for cell in cells}
    assert places == {
        (profile, kernel, threads)
        for profile, kernel in [("ramdisk", "two"), ("sata-2009", "one"), ("sata-2009", "two")]
        for threads in (2, 4)
    }


@pytest.mark.parametrize("file", sorted((paths.ROOT / "lab/experiments").glob("*.toml")))
def test_the_projects_experiments_can_be_read(file: Path) -> None:
    loaded = experiment.load(file)
    assert list(loaded.cells())
    assert loaded.title != loaded.name, "it has no title"


def test_the_first_experiment_has_all_thirty_cells_of_the_posting_and_a_third_arm() -> None:
    loaded = experiment.load(paths.ROOT / "lab/experiments/s0.toml")
    assert len(list(loaded.cells())) == 45 * loaded.repetitions
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
        ("[workload]", "[[skip]]\nhz = 1\n[workload]", "hz is not known"),
        ("[workload]", "[[skip]]\n[workload]", "would leave out everything"),
        ("[workload]", '[[skip]]\nkernel = "x"\n[workload]', "kernel=x is not in the experiment"),
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
    said = {"text": text, "operations": {"Close": [0.004, 2.522], "Flush": [26.143, 341.8]}}
    figures = workloads.KINDS["dbench"].figures(workloads.Workload("dbench"), 32, said)
    assert (figures["mb_per_s"].value, figures["max_latency_ms"].value) == (1008.02, 341.833)
    assert (figures["fsync_ms"].value, figures["max_fsync_ms"].value) == (26.143, 341.8)
    assert figures["max_latency_ms"].better == "less"


# --- results ------------------------------------------------------------------------------


def record(key: str, status: str = "ok", value: float = 10.0) -> results.Record:
    labels = dict.fromkeys(results.LABELS, "")
    figures = {"files_per_s": {"value": value, "unit": "files/s", "better": "more"}}
    return {"cell": key, **labels, "status": status, "figures": figures}


def test_repetitions_that_are_all_the_same_are_drawn(tmp_path: Path) -> None:
    """Their mean may be another than each of them, by its last digit."""
    value = 0.003
    assert statistics.fmean([value] * 3) != value
    file = results.File(tmp_path / "results.jsonl", {"title": "t"})
    file.begin()
    for key in "abc":
        file.add({**record(key, value=value), "threads": 2, "kernel": "one"})
    assert show.draw(file, list(file.records.values()), "files_per_s").axes


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


# --- differences --------------------------------------------------------------------------


def cells_of(kernel: str, values: list[float], better: str = "more") -> list[results.Record]:
    return [
        record(f"{kernel}{n}")
        | {"kernel": kernel, "repetition": n, "shape": "exact", "threads": 2}
        | {"figures": {"rate": {"value": value, "unit": "1/s", "better": better}}}
        for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("old", "new", "better", "verdict"),
    [
        ([100, 101, 99], [90, 91, 89], "more", "regression"),
        ([100, 101, 99], [110, 111, 109], "more", "gain"),
        ([100, 101, 99], [110, 111, 109], "less", "regression"),
        # A change beyond the bound, but of which the interval is not.
        ([100, 130, 70], [90, 120, 60], "more", ""),
        ([100, 101, 99], [97, 98, 96], "more", ""),
        # Measured once: as a cell of this shape repeats.
        ([100], [94.5], "more", ""),
        ([100], [93], "more", "regression"),
    ],
)
def test_a_regression_is_one_of_which_the_whole_interval_is_beyond_the_bound(
    old: list[float], new: list[float], better: str, verdict: str
) -> None:
    [change] = diff.changes(cells_of("a", old, better), cells_of("b", new, better), ["threads"])
    assert change.low <= change.ratio <= change.high
    assert change.regression(0.05) == (verdict == "regression")
    assert change.gain(0.05) == (verdict == "gain")


def test_the_interval_is_that_of_welch() -> None:
    # Equal variances and sizes: 4 degrees of freedom, t = 2.776.
    old, new = [math.exp(v) for v in (0, 1, 2)], [math.exp(v) for v in (1, 2, 3)]
    ratio, low, high = diff.interval(old, new, "exact")
    assert math.log(ratio) == pytest.approx(1)
    half = 2.776 * math.sqrt(2 / 3)
    assert (math.log(low), math.log(high)) == pytest.approx((1 - half, 1 + half))


def diff_of(*arguments: str) -> int:
    args = cli.parse(["lab", "diff", *arguments])
    return args.run(args)


def test_diff_fails_on_a_regression_and_on_a_cell_that_failed(tmp_path: Path) -> None:
    files = {}
    for name, records in {
        "old": cells_of("k", [100]),
        "same": cells_of("k", [100.5]),
        "worse": cells_of("k", [80]),
        "failed": [cells_of("k", [100])[0] | {"status": "failed"}],
        "other": cells_of("l", [100]),
    }.items():
        file = results.File(tmp_path / f"{name}.jsonl")
        file.begin()
        for one in records:
            file.add(one)
        files[name] = str(file.path)
    assert diff_of(files["old"], files["same"]) == 0
    assert diff_of(files["old"], files["worse"]) == 1
    assert diff_of(files["old"], files["worse"], "--bound", "25") == 0
    assert diff_of(files["old"], files["failed"]) == 1
    with pytest.raises(UsageError, match="no measured cell in common"):
        diff_of(files["old"], files["other"])
    with pytest.raises(UsageError, match="has no kernel x; it has k"):
        diff_of(files["old"], "--kernels", "k", "x")


def test_a_full_disk_is_told_in_one_sentence() -> None:
    with pytest.raises(BatchflushError, match="cannot write /dev/full: No space left on device"):
        results.File(Path("/dev/full")).begin()


def test_whatever_happens_in_a_cell_fails_that_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_space(task: cell.Task) -> results.Record:
        raise OSError(28, "No space left on device", "initramfs.cpio")

    monkeypatch.setattr(cell, "_boot", no_space)
    one = next(experiment.load(written(tmp_path, SMALL)).cells())
    kernel = packages.Kernel(tmp_path, {}, tmp_path)
    failed = cell.run(cell.Task(one, kernel, "image", "key", tmp_path))
    assert failed["status"] == "failed"
    assert "No space left on device: 'initramfs.cpio'" in failed["error"]


@pytest.mark.parametrize("processes", [False, True])
def test_work_is_done_by_workers_of_our_own(processes: bool) -> None:
    with cluster.connected(None, workers=2, processes=processes) as client:
        assert sorted(cluster.completed(client, abs, [-1, 2, -3])) == [1, 2, 3]
        assert sum(client.ncores().values()) == 2


def test_a_scheduler_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with (
        pytest.raises(UsageError, match=r"--scheduler=tcp://127\.0\.0\.1:1 does not answer"),
        cluster.connected("tcp://127.0.0.1:1"),
    ):
        pass


def test_what_is_kept_of_the_five_experiments_is_in_their_order(tmp_path: Path) -> None:
    more = {"kernel-identity": "k", "host-seconds": 1.0}
    records = [
        record(key, value=value) | {"threads": threads} | more
        for key, value, threads in [("b", 2, 4), ("a", 1, 2)]
    ]
    order = [{label: one[label] for label in results.LABELS} for one in reversed(records)]
    header = {"experiment": "s9", "title": "t", "command": "c", "shape": "exact", "seed": 1,
              "qemu": "q", "kernels": {}, "order": order}  # fmt: skip
    file = results.File(tmp_path / "results.jsonl", header)
    for one in records:
        file.add(one)
    file.write_csv()
    seeds.keep(file, tmp_path / "kept")
    rows = list(csv.DictReader((tmp_path / "kept/s9.csv").open()))
    assert [(row["threads"], row["value"]) for row in rows] == [("2", "1"), ("4", "2")]
    about = json.loads((tmp_path / "kept/s9.json").read_text())
    assert (about["cells"], about["failed"], about["kernel-images"]) == (2, 0, ["k"])


def test_an_experiment_that_is_not_one_of_the_five_is_refused() -> None:
    args = cli.parse(["lab", "seeds", "--only", "s0,s7"])
    with pytest.raises(UsageError, match="--only=s7 is not known; allowed are s0, s1, s2, s3, s4"):
        args.run(args)


# --- the knee -----------------------------------------------------------------------------


def test_the_knee_is_where_a_straight_line_in_logarithms_is() -> None:
    def at(value: int, ratio: float) -> knee.Ratio:
        return knee.Ratio(value, ratio, ratio * 0.99, ratio * 1.01)

    # The ratio is (value / 3000)^0.5.
    found = [at(value, math.sqrt(value / 3000)) for value in knee.geometric(100, 100_000, 4)]
    [(low, high)] = knee.crossings(found)
    assert (low.value, high.value) == (1000, 10_000)
    assert knee.knee(low, high) == pytest.approx(3000)
    assert knee.crossings(found[:2]) == []


def knee_of(tmp_path: Path, *arguments: str, text: str = SMALL) -> int:
    args = cli.parse(["lab", "knee", str(written(tmp_path, text)), *arguments])
    return args.run(args)


ONE_CLASS = SMALL.replace('"ramdisk", ', "").replace("[2, 4, 8]", "[2]")


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (["--from=9", "--to=9"], ONE_CLASS, "--from=9 is not below --to=9"),
        (["--steps=1"], ONE_CLASS, "--steps=1 is out of range; allowed are 2 to 100"),
        (["--over=flush"], ONE_CLASS, "the node has no option flush"),
        (["--over=threads"], ONE_CLASS, "--to=30000000 is out of range; allowed are 1 to 1024"),
        (["--kernels", "one", "three"], ONE_CLASS, "three is not there; it has one, two"),
        ([], SMALL, "one of its classes"),
        ([], SMALL.replace('"ramdisk", ', ""), "one of its numbers of threads"),
    ],
)
def test_a_knee_that_cannot_be_looked_for_is_refused_before_anything_runs(
    tmp_path: Path, arguments: list[str], text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        knee_of(tmp_path, *arguments, text=text)


def test_a_step_keeps_the_other_options_of_the_disk(tmp_path: Path) -> None:
    wanted = experiment.load(written(tmp_path, ONE_CLASS))
    stepped = knee.stepped(wanted, "destage-latency-ns", [10, 20])
    assert [disk.options for disk in stepped.disks] == [
        {"flush-latency-ns": "20000000", "destage-latency-ns": value} for value in ("10", "20")
    ]
    assert knee.stepped(wanted, "threads", [3, 5]).workload.threads == (3, 5)


# --- the published table ------------------------------------------------------------------


def published(change: float = 1.0, rule: str = "") -> list[posting.Compared]:
    """As published, but for one rule by a factor."""
    return [
        posting.Compared(profile, name, threads, value, value * (change if name == rule else 1))
        for profile, rules in posting.PUBLISHED.items()
        for name, values in rules.items()
        for threads, value in zip(posting.THREADS, values, strict=True)
    ]


def test_scores_of_the_published_table_itself_are_perfect() -> None:
    found = posting.scores(published())
    assert found["holdout_log_error_percent"] == found["ramdisk_log_error_percent"] == 0
    assert found["sign_agreement"] == found["sign_agreement_above_5_percent"] == 1
    assert sum(cell["held_out"] for cell in found["cells"]) == 10


def test_scores_tell_errors_and_wrong_winners() -> None:
    found = posting.scores(published(math.exp(-0.2), "adaptive"))
    # Of ten cells held out half have that rule.
    assert found["holdout_log_error_percent"] == found["fit_log_error_percent"] == 10
    # Adaptive loses now wherever it won by less than exp(0.2): 7 of 11 pairs.
    assert found["sign_agreement"] == pytest.approx(4 / 11, abs=1e-4)
