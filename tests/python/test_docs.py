# SPDX-License-Identifier: GPL-2.0-or-later
"""The options in docs, QAPI and Python are those of the model: names, defaults, ranges."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from batchflush import paths
from batchflush.guest.command_line import OTHER_NODE_OPTIONS
from batchflush.profiles import NODE_KINDS

MODEL = paths.ROOT / "block/batchflush/model"
QAPI = paths.ROOT / "qapi/batchflush.json"
OPTIONS_PAGE = paths.ROOT / "docs/options.rst"

# Prints the model's table of options, one JSON object per line.
DUMP = r"""
#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include "params.h"

int main(void)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        const BfOption *o = &bf_options[i];
        char *choices = o->choices ? g_strjoinv(" ", (char **)o->choices)
                                   : g_strdup("");

        printf("{\"name\": \"%s\", \"kind\": %d, \"min\": %" PRId64
               ", \"max\": %" PRId64 ", \"default\": %" PRId64
               ", \"choices\": \"%s\", \"changeable\": %s}\n",
               o->name, o->kind, o->min, o->max, o->def, choices,
               o->mutable_at_runtime ? "true" : "false");
        g_free(choices);
    }
    return 0;
}
"""

# In the order of the model's enum.
UNITS = (
    ("ns",), ("bytes", "bytes/s"), ("percent",), ("requests", "turns/min", "tracks", "number"),
    ("choice",), ("spread",),
)  # fmt: skip

SCALES = {
    "": 1, "µs": 10**3, "ms": 10**6, "s": 10**9,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip

# An option that has no default of its own follows another one.
FOLLOWS = {
    "flush-clean-latency-ns": "flush-latency-ns",
    "discard-latency-ns": "write-latency-ns",
    "zero-latency-ns": "write-latency-ns",
    "fua-latency-ns": "write-latency-ns",
}


@dataclass(frozen=True)
class Option:
    """What docs and QAPI may say of one option, in a form that can be compared."""

    units: tuple[str, ...]
    default: int | str
    range: tuple[int, int] | tuple[str, ...]
    changeable: bool


def quantity(text: str) -> int:
    """The number that people write as "64 KiB" or "15 ms"."""
    match = re.fullmatch(r"(\d+)(?: (\S+))?", text.strip())
    assert match, f"{text!r} is not a number with a unit"
    return int(match[1]) * SCALES[match[2] or ""]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Option]:
    program = tmp_path_factory.mktemp("docs") / "dump"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "glib-2.0"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    sources = (MODEL / name for name in ("params.c", "random.c", "spread.c"))
    subprocess.run(
        ["cc", "-D_GNU_SOURCE", "-I", MODEL, "-o", program, "-x", "c", "-",
         *sources, *flags, "-lm"],
        input=DUMP, text=True, check=True,
    )  # fmt: skip
    dumped = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    rows = [json.loads(line) for line in dumped.splitlines()]
    return {row["name"]: model_option(row) for row in rows}


def model_option(row: Mapping[str, object]) -> Option:
    choices = tuple(str(row["choices"]).split())
    default = row["default"]
    units = UNITS[int(str(row["kind"]))]
    if units == ("spread",):
        return Option(units, "fixed", ("see below",), bool(row["changeable"]))
    return Option(
        units=units,
        default=FOLLOWS.get(str(row["name"]))
        or (choices[int(str(default))] if choices else default),
        range=choices or (row["min"], row["max"]),
        changeable=bool(row["changeable"]),
    )


def page_rows() -> list[list[str]]:
    """The cells of the page's table, without its heading."""
    table = OPTIONS_PAGE.read_text().split(".. list-table::")[1].split("\n\n*Changeable*")[0]
    rows = re.findall(r"\* - (.+)\n((?:     - .+\n?)+)", table)
    return [[first, *re.findall(r"- (.+)", rest)] for first, rest in rows][1:]


def test_the_page_says_of_every_option_what_the_model_does(model: Mapping[str, Option]) -> None:
    rows = {row[0].strip("`"): row[1:] for row in page_rows()}
    assert list(rows) == list(model)
    for name, (unit, default, span, while_open) in rows.items():
        option = model[name]
        assert unit in option.units, name
        assert while_open == ("changeable" if option.changeable else "fixed"), name
        if isinstance(option.default, str):
            assert default.strip("`") == option.default, name
        else:
            assert quantity(default) == option.default, name
        if unit in ("choice", "spread"):
            assert tuple(span.split(", ")) == option.range, name
        else:
            assert tuple(quantity(end) for end in span.split(" to ")) == option.range, name


def test_the_page_explains_every_option(model: Mapping[str, Option]) -> None:
    terms = re.findall(r"^``.+$", OPTIONS_PAGE.read_text(), re.M)
    explained = {name for term in terms for name in re.findall(r"``([a-z-]+)``", term)}
    assert {"file", *qapi_members(), *model} - explained == set()


def qapi_members() -> dict[str, str]:
    """Members of the node's options and their types."""
    text = QAPI.read_text()
    struct = re.search(r"'struct': 'BatchflushNodeOptions',\s*'data': \{(.*?)\} \}", text, re.S)
    assert struct
    return dict(re.findall(r"'\*?([a-z-]+)': '(\w+)'", struct[1]))


def qapi_defaults() -> dict[str, str]:
    """What the members' documentation gives as "(default: …)"."""
    text = QAPI.read_text().split("# @BatchflushNodeOptions:")[1].split("\n##")[0]
    members = re.split(r"^# @([a-z-]+):", text, flags=re.M)[1:]
    defaults = {}
    for name, told in zip(members[::2], members[1::2], strict=True):
        match = re.search(r"\(default: ([^;,)]+)", " ".join(told.replace("#", " ").split()))
        if match:
            defaults[name] = match[1].lstrip("@")
    return defaults


def test_qapi_has_every_option_with_its_choices(model: Mapping[str, Option]) -> None:
    members = qapi_members()
    assert [name for name in members if name in model] == list(model)
    text = QAPI.read_text()
    for name, option in model.items():
        if option.units == ("choice",):
            enum = re.search(rf"'enum': '{members[name]}',\s*'data': \[(.*?)\]", text, re.S)
            assert enum, members[name]
            assert tuple(re.findall(r"'([\w-]+)'", enum[1])) == option.range, name
        else:
            kind = {"bytes": "size", "spread": "str"}.get(option.units[0], "int")
            assert members[name] == kind, name


def test_qapi_documents_the_defaults(model: Mapping[str, Option]) -> None:
    defaults = qapi_defaults()
    for name, option in model.items():
        told = defaults[name]
        assert (told if isinstance(option.default, str) else quantity(told)) == option.default, name


def test_the_command_line_knows_every_option(model: Mapping[str, Option]) -> None:
    assert {*NODE_KINDS, *OTHER_NODE_OPTIONS} == set(model)
    for name, kind in NODE_KINDS.items():
        assert kind.words == (model[name].range if model[name].units == ("choice",) else ()), name
        assert kind.is_spread == (model[name].units == ("spread",)), name


def test_pages_name_no_file_that_is_not_there() -> None:
    for page in sorted((paths.ROOT / "docs").glob("*.rst")):
        for name in re.findall(r"``([\w/-]+\.(?:rst|c|h|json|toml|py))``", page.read_text()):
            if name.startswith("build/"):
                continue  # made by the command that the page names
            places = (
                paths.ROOT / "docs" / name,
                paths.ROOT / name,
                paths.ROOT / "block/batchflush" / name,
            )
            assert any(place.exists() for place in places), f"{page.name}: {name}"
