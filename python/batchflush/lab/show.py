# SPDX-License-Identifier: GPL-2.0-or-later
"""What comes out of an experiment: a table on the terminal, plots, and where they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from batchflush import paths
from batchflush.lab import results
from batchflush.progress import console

MARKERS = "osD^vPX"


def everything(file: results.File) -> int:
    """Show all of it; the exit code says whether each cell was measured."""
    records = file.in_order()
    ok = results.measured(records)
    for figure in primary_figures(ok):
        console.print(table(file, figure))
    # It shows the same tables and plots.
    from batchflush.lab import report

    made = plots(file) if ok else []
    failed = [record for record in records if record["status"] != "ok"]
    console.print(
        f"\nresults: {paths.shown(file.path)}, {paths.shown(file.path.with_suffix('.csv'))}"
    )
    if ok:
        console.print(f"report:  {paths.shown(report.write(file))}")
    for path in made:
        console.print(f"plot:    {paths.shown(path)}")
    for record in failed:
        where = f"; its console: {record['console']}" if "console" in record else ""
        console.print(f"[bold red]failed[/]: {described(record)}{where}")
    console.print(f"again:   {file.header['command']}")
    return 1 if failed else 0


def described(record: results.Record) -> str:
    said = [str(record[label]) for label in ("class", "disk", "file-system", "setup", "kernel")]
    return ", ".join([part for part in said if part] + [f"{record['threads']} threads"])


def primary_figures(records: Sequence[results.Record]) -> list[str]:
    """The figure that a workload is run for; of a workload of several jobs, each one's."""
    figures = list(dict.fromkeys(name for r in records for name in r["figures"]))
    rates = [name for name in figures if name.endswith(("_iops", "_mb_per_s", "_files_per_s"))]
    return rates or figures[: 3 if "max_latency_ms" in figures else 1]


def table(file: results.File, figure: str) -> Table:
    records = [r for r in file.in_order() if r["status"] != "ok" or figure in r["figures"]]
    threads = sorted({record["threads"] for record in records})
    unit = next(r["figures"][figure]["unit"] for r in results.measured(records))
    made = Table(title=f"{file.header['title']}: {figure}, {unit}", title_justify="left")
    made.add_column("Storage", no_wrap=True)
    made.add_column("Kernel")
    for count in threads:
        made.add_column(f"{count} thr.", justify="right")
    for place, group in results.grouped(records, *PLACE).items():
        first: dict[int, float] = {}
        for (kernel,), rows in results.grouped(group, "kernel").items():
            cells = []
            for count in threads:
                found = [r for r in rows if r["threads"] == count]
                cells.append(_shown(found, figure, first.get(count)))
                if results.values(found, figure) and count not in first:
                    first[count] = results.mean(found, figure)
            made.add_row(" ".join(filter(None, place)), kernel, *cells)
        made.add_section()
    return made


PLACE = ("class", "disk", "file-system", "setup")


def _shown(records: Sequence[results.Record], figure: str, first: float | None) -> str:
    values = results.values(records, figure)
    if not values:
        return "[bold red]failed[/]" if records else ""
    mean = statistics.fmean(values)
    text = f"{mean:,.1f}" if mean < 10000 else f"{mean:,.0f}"
    if len(values) > 1:
        text += f" ±{100 * statistics.stdev(values) / mean:.1f} %"
    if first:
        text += f" [dim]×{mean / first:.2f}[/]"
    return text


# --- plots --------------------------------------------------------------------------------


def plots(file: results.File) -> list[Path]:
    """For each figure a picture of all places, as PNG and as SVG."""
    records = results.measured(file.in_order())
    made = []
    for figure in primary_figures(records):
        drawn = draw(file, records, figure)
        for suffix in (".png", ".svg"):
            path = file.path.with_name(f"{figure}{suffix}")
            drawn.savefig(path, dpi=130, metadata={"Date": None} if suffix == ".svg" else None)
            made.append(path)
        close(drawn)
    return made


def draw(file: results.File, records: Sequence[results.Record], figure: str) -> Any:
    """One field for each place, one line for each kernel."""
    # Imported here: it takes a second, and it must not look for a display.
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "batchflush"
    from matplotlib import pyplot
    from matplotlib.ticker import NullLocator

    records = [record for record in records if figure in record["figures"]]
    places = results.grouped(records, *PLACE)
    columns = min(3, len(places))
    lines = math.ceil(len(places) / columns)
    drawn, fields = pyplot.subplots(
        lines, columns, figsize=(4.6 * columns, 3.6 * lines + 0.6), layout="constrained",
        squeeze=False,
    )  # fmt: skip
    kernels = list(dict.fromkeys(record["kernel"] for record in records))
    for axes, (place, group) in zip(fields.flat, places.items(), strict=False):
        for number, kernel in enumerate(kernels):
            by_threads = results.grouped([r for r in group if r["kernel"] == kernel], "threads")
            points = sorted(
                (count, results.mean(rows, figure), results.values(rows, figure))
                for (count,), rows in by_threads.items()
            )
            if not points:
                continue
            x, y, spread = zip(*points, strict=True)
            # Where all are the same, their mean may be another by its last digit.
            reach = [
                (max(0, m - min(v)), max(0, max(v) - m)) for m, v in zip(y, spread, strict=True)
            ]
            axes.errorbar(
                x, y, yerr=list(zip(*reach, strict=True)), capsize=2,
                marker=MARKERS[number % len(MARKERS)], label=kernel, color=f"C{number}",
            )  # fmt: skip
        axes.set_title(" ".join(filter(None, place)), fontsize=10)
        threads = sorted({record["threads"] for record in group})
        axes.set_xscale("log", base=2)
        axes.set_xticks(threads, [str(count) for count in threads])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.grid(True, alpha=0.3)
        axes.set_xlabel("threads")
    for axes in list(fields.flat)[len(places) :]:
        axes.set_visible(False)
    unit = records[0]["figures"][figure]["unit"]
    fields[0][0].set_ylabel(unit)
    drawn.suptitle(f"{file.header['title']}: {figure}")
    handles, labels = fields.flat[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=len(kernels), frameon=False)
    return drawn


def close(drawn: Any) -> None:
    from matplotlib import pyplot

    pyplot.close(drawn)
