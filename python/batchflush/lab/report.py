# SPDX-License-Identifier: GPL-2.0-or-later
"""The report of an experiment: one HTML file that needs nothing else.

Table, plots, latency histograms, flush ledger, who was measured, and the command that
repeats each cell. There is no script in it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from batchflush.lab import results, show

STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .7rem 0; }
th, td { border: 1px solid #bbb; padding: .15rem .5rem; text-align: right; }
th, td:first-child, td.text { text-align: left; }
.failed { color: #b00020; font-weight: bold; }
.faint { color: #666; }
code { background: #f2f2f2; padding: 0 .2rem; }
svg.plot { max-width: 100%; height: auto; }
svg.bars { vertical-align: middle; }
"""
# Of the ledger, the last flushes of a cell.
LEDGER_LINES = 12


def write(file: results.File) -> Path:
    """The report beside the results."""
    path = file.path.with_name("report.html")
    path.write_text(page(file), encoding="utf-8")
    return path


def page(file: results.File) -> str:
    records = file.in_order()
    ok = results.measured(records)
    title = escape(file.header["title"])
    parts = [f"<h1>{title}</h1>", _identity(file)]
    for figure in show.primary_figures(ok):
        parts.append(f"<h2>{escape(figure)}</h2>")
        parts.append(_figure_table(records, figure))
        parts.append(_plot(file, ok, figure))
    parts.append("<h2>Cells</h2>")
    parts += [_cell(file, record) for record in records]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        # Without this a browser asks for /favicon.ico, and reports that it is not there.
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{STYLE}</style></head>'
        f"<body>\n{body}\n</body></html>\n"
    )


def _identity(file: results.File) -> str:
    header = file.header
    lines = [
        ("Again", f"<code>{escape(header['command'])}</code>"),
        ("Guest", f"shape {escape(header['shape'])}, seed {header['seed']}"),
        ("QEMU", f"<code>{escape(header['qemu'])}</code>"),
    ]
    lines += [
        (f"Kernel {name}", escape(described)) for name, described in header["kernels"].items()
    ]
    for name, described in header["classes"].items():
        settings = {**described["node"], **described["front-end"]}
        said = ", ".join(f"{key}={value}" for key, value in settings.items())
        lines.append(
            (f"Class {name}", f"{escape(described['title'])}<br><small>{escape(said)}</small>")
        )
    rows = (f"<tr><th>{escape(k)}</th><td class=text>{v}</td></tr>" for k, v in lines)
    return f"<table>{''.join(rows)}</table>"


def _figure_table(records: Sequence[results.Record], figure: str) -> str:
    threads = sorted({record["threads"] for record in records})
    head = ["Storage", "Kernel", *(f"{count} threads" for count in threads)]
    rows = []
    for place, group in results.grouped(records, *show.PLACE).items():
        for (kernel,), found in results.grouped(group, "kernel").items():
            cells = [" ".join(filter(None, place)), kernel]
            by_threads = results.grouped(found, "threads")
            cells += [_mean(by_threads.get((count,), []), figure) for count in threads]
            rows.append(cells)
    return _table(head, rows)


def _mean(records: Sequence[results.Record], figure: str) -> str:
    values = results.values(records, figure)
    if values:
        return f"{results.mean(records, figure):,.1f}"
    return "failed" if records else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def row(tag: str, cells: Sequence[Any]) -> str:
        made = "".join(
            f"<{tag}{' class=failed' if cell == 'failed' else ''}>{escape(str(cell))}</{tag}>"
            for cell in cells
        )
        return f"<tr>{made}</tr>"

    return f"<table>{row('th', head)}{''.join(row('td', cells) for cells in rows)}</table>"


def _plot(file: results.File, records: Sequence[results.Record], figure: str) -> str:
    drawn = show.draw(file, records, figure)
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None})
    show.close(drawn)
    svg = buffer.getvalue()
    return svg[svg.index("<svg") :].replace("<svg", '<svg class="plot"', 1)


# --- one cell -----------------------------------------------------------------------------


def _cell(file: results.File, record: results.Record) -> str:
    title = escape(show.described(record))
    again = f"{file.header['command']} --cell {record['cell']}"
    said = [f"<p>seed {record['seed']}, kernel <code>{escape(record['kernel-identity'])}</code>"]
    said.append(f" {escape(' '.join(record['kernel-parameters']))}<br>")
    said.append(f"again: <code>{escape(again)}</code></p>")
    if record["status"] != "ok":
        mark = '<span class="failed">failed</span>'
        said.append(f"<pre class=failed>{escape(record.get('error', ''))}</pre>")
        if "console" in record:
            said.append(f"<p>console: <code>{escape(record['console'])}</code></p>")
    else:
        first = next(iter(record["figures"].items()))
        mark = escape(f"{first[0]} {first[1]['value']:,} {first[1]['unit']}")
        rows = [(n, f["value"], f["unit"]) for n, f in record["figures"].items()]
        rows.append(("flushes while measured", record["flushes"], ""))
        rows.append(("guest's time", record["guest-seconds"], "s"))
        said.append(_table(("Figure", "Value", "Unit"), rows))
        said.append(_histograms(record["statistics"]))
        said.append(_ledger(record["statistics"]))
    return f"<details><summary>{title}: {mark}</summary>{''.join(said)}</details>"


def _histograms(statistics: Mapping[str, Any]) -> str:
    said = []
    for name in ("wait-times", "batch-sizes"):
        if statistics.get(name):
            said.append(f"<p>{name} {_bars(statistics[name])}</p>")
    for lateness in statistics.get("lateness", ()):
        if lateness.get("histogram"):
            name = f"lateness of {lateness['operation']}, p99 {lateness['p99-ns']:,} ns"
            said.append(f"<p>{escape(name)} {_bars(lateness['histogram'])}</p>")
    return "".join(said)


def _bars(buckets: Sequence[Mapping[str, int]]) -> str:
    """A small picture of a histogram; what a bar stands for is its tool tip."""
    highest = max(bucket["count"] for bucket in buckets) or 1
    bars = []
    for place, bucket in enumerate(buckets):
        height = max(1, round(40 * bucket["count"] / highest))
        bars.append(
            f'<rect x="{place * 12}" y="{40 - height}" width="10" height="{height}" fill="#4477aa">'
            f"<title>up to {bucket['upper']:,}: {bucket['count']:,}</title></rect>"
        )
    return f'<svg class="bars" width="{12 * len(buckets)}" height="40">{"".join(bars)}</svg>'


def _ledger(statistics: Mapping[str, Any]) -> str:
    last = statistics.get("ledger", [])[-LEDGER_LINES:]
    if not last:
        return ""
    head = ("arrival, ms", "members", "dirty bytes", "wait, µs", "flush, µs")
    rows = [
        (
            f"{flush['arrival-ns'] / 1e6:,.3f}", flush["members"], f"{flush['dirty-bytes']:,}",
            f"{flush['wait-ns'] / 1e3:,.1f}", f"{flush['flush-ns'] / 1e3:,.1f}",
        )
        for flush in last
    ]  # fmt: skip
    return f"<p>The last flushes:</p>{_table(head, rows)}"
