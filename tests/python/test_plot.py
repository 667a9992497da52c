# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's plot shows every class, with its numbers and units."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from batchflush import plot
from batchflush.demo import Cell

TITLES = {"ramdisk": "RAM disk", "sata-7200": "SATA disk"}
POINTS = [
    Cell(name, threads, 100, rate * threads, 0, 0.0, 1.0)
    for name, rate in (("ramdisk", 1000.0), ("sata-7200", 15.0))
    for threads in (2, 8, 32)
]


def test_lines_labels_and_units_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: object, **kwargs: object) -> None:
        drawn.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    file = tmp_path / "new" / "fs_mark.png"
    plot.draw(POINTS, TITLES, file)

    assert file.read_bytes().startswith(b"\x89PNG")
    (axes,) = drawn[0].axes
    assert [line.get_label() for line in axes.lines] == [f"{k}: {v}" for k, v in TITLES.items()]
    assert list(axes.lines[1].get_ydata()) == [30.0, 120.0, 480.0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "threads" in axes.get_xlabel()
    assert "files per second" in axes.get_ylabel()
    assert {text.get_text() for text in axes.texts} >= {"30", "480", "32,000"}
