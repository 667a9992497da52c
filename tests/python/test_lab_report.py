# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory's report, as a browser sees it."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from batchflush.lab import report, results

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
LIMIT_SECONDS = 120
# Runs in a copy of the report: the report itself has no script.
PROBE = """<script>
const plots = [...document.querySelectorAll("svg.plot")].map(plot => ({
    width: plot.getBoundingClientRect().width,
    lines: [...plot.querySelectorAll("[id^=line2d] path")]
        .filter(path => path.getBBox().width > 50).length,
}));
document.body.dataset.probe = JSON.stringify(
    {plots, cells: document.querySelectorAll("details").length});
</script>"""


def file(folder: Path) -> results.File:
    """Two kernels on two classes, one cell of which has failed."""
    kernels = ("old", "<new & better>")
    cells = [
        (profile, kernel, threads)
        for profile in ("ramdisk", "sata-2009")
        for threads in (2, 4, 8)
        for kernel in kernels
    ]
    made = results.File(
        folder / "results.jsonl",
        {
            "experiment": "test", "title": "a <test>", "command": "./batchflush lab run x.toml",
            "qemu": "q", "shape": "exact", "seed": 1,
            "kernels": dict.fromkeys(kernels, "described"),
            "classes": {"ramdisk": {"title": "RAM", "node": {"a": 1}, "front-end": {"b": 2}}},
        },
    )  # fmt: skip
    made.begin()
    for number, (profile, kernel, threads) in enumerate(cells):
        record = dict.fromkeys(results.LABELS, "") | {
            "cell": f"key{number}", "class": profile, "kernel": kernel, "threads": threads,
            "repetition": 0, "seed": 1, "kernel-identity": "k", "kernel-parameters": [],
        }  # fmt: skip
        if number == 3:
            made.add(record | {"status": "failed", "error": "<script>boo()</script>"})
            continue
        buckets = [{"upper": 1 << n, "count": n * n} for n in range(1, 9)]
        flush = {"arrival-ns": 1, "members": 2, "dirty-bytes": 3, "wait-ns": 4, "flush-ns": 5}
        statistics = {"wait-times": buckets, "batch-sizes": buckets, "ledger": [flush] * 20}
        figure = {"value": 10.0 * threads + number, "unit": "files/s", "better": "more"}
        made.add(
            record
            | {"status": "ok", "figures": {"files_per_s": figure}, "statistics": statistics}
            | {"flushes": 7, "guest-seconds": 1.5}
        )
    return made


def test_the_report_has_all_it_promises_and_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = report.page(file(tmp_path))
    for said in (
        "a &lt;test&gt;", "&lt;new &amp; better&gt;", "--cell key11", "class=failed>failed",
        "The last flushes", "up to 256: 64", "seed 1", "described",
    ):  # fmt: skip
        assert said in page, said
    # Only names of XML; nothing that a browser would fetch or run.
    assert not re.search(r'(src|href)="(?!#|data:)', page.replace("xlink:href", "xlink"))
    assert "<script" not in page


def test_a_browser_draws_every_plot_and_complains_of_nothing(tmp_path: Path) -> None:
    if BROWSER is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    page = report.page(file(tmp_path))
    probed = tmp_path / "probed.html"
    probed.write_text(page.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--enable-logging=stderr", "--log-level=0", f"--user-data-dir={tmp_path / 'browser'}",
            "--window-size=1200,2000", "--dump-dom", probed.as_uri(),
        ],
        capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ":CONSOLE" not in done.stderr, done.stderr
    probe = re.search(r'data-probe="([^"]*)"', done.stdout)
    assert probe is not None, done.stdout[-2000:]
    found = json.loads(unescape(probe[1]))
    assert found["cells"] == 12
    assert len(found["plots"]) == 1
    for plot in found["plots"]:
        assert plot["width"] > 300
        # A line for each kernel in each of two fields.
        assert plot["lines"] >= 4
