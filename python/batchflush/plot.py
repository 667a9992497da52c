# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's plot: files per second over threads, one line per storage class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

MARKERS = "osD^vP"
# Two points are close if a label between them would touch both.
CLOSE = 1.6


class Point(Protocol):
    @property
    def profile(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def files_per_s(self) -> float: ...


def draw(points: Sequence[Point], titles: Mapping[str, str], file: Path) -> None:
    """Write the plot; titles: class → what it is, in the order of the legend."""
    # Imported here: it takes a second, and it must not look for a display.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    threads = sorted({point.threads for point in points})
    for (name, title), marker in zip(titles.items(), MARKERS, strict=False):
        line = sorted((p.threads, p.files_per_s) for p in points if p.profile == name)
        axes.plot(*zip(*line, strict=True), marker=marker, label=f"{name}: {title}")
        for x, y in line:
            others = (p.files_per_s for p in points if p.threads == x)
            # Above its point, or below if another line is close above.
            above = not any(y < other < CLOSE * y for other in others)
            axes.annotate(
                f"{y:,.0f}", (x, y), xytext=(0, 7 if above else -8), textcoords="offset points",
                ha="center", va="bottom" if above else "top", fontsize=9,
                color=axes.lines[-1].get_color(),
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(threads, [str(count) for count in threads])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlim(threads[0] * 0.75, threads[-1] * 1.35)
    rates = [point.files_per_s for point in points]
    axes.set_ylim(min(rates) / CLOSE, max(rates) * CLOSE)
    axes.set_xlabel("threads, each writing 4 KiB files with an fsync per file")
    axes.set_ylabel("files per second of the guest's time")
    axes.set_title("fs_mark on a fresh ext4: what fsync batching is worth on each disk")
    axes.grid(True, which="both", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)
    pyplot.close(figure)
