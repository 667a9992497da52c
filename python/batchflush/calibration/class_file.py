# SPDX-License-Identifier: GPL-2.0-or-later
"""A fitted class as the text of a class file, each number beside where it comes from."""

from __future__ import annotations

import datetime
import os
import textwrap
from collections.abc import Sequence

from batchflush.calibration.fit import Choice
from batchflush.calibration.target import Facts, Target
from batchflush.profiles import FRONT_END_KINDS, NODE_KINDS, Profile, Setting


def profile(name: str, target: Target, choices: Sequence[Choice]) -> Profile:
    measured = f"{target.shown}, {_when()}"
    node = {
        choice.option: _setting(
            choice.option, choice.value, "measured", f"{choice.how}: {measured}"
        )
        for choice in choices
    }
    for option, value, why in (
        ("flush-concurrency", "serial", "our choice: how flushes overlap is not probed"),
        ("coalesce", "off", "a class stands for hardware, which is not known to merge flushes"),
    ):
        node[option] = _setting(option, value, "folk", why)
    title = f"{target.facts.model or 'disk'} as probed through {target.shown}"
    return Profile(name, title, node, _front_end(target.facts, measured), built_in=False)


def _when() -> str:
    system = os.uname()
    return f"{datetime.date.today().isoformat()}, {system.sysname} {system.release}"


def _setting(option: str, value: int | str, grade: str, source: str) -> Setting:
    return Setting(value, (NODE_KINDS | FRONT_END_KINDS)[option].unit, grade, source)


def _front_end(facts: Facts, measured: str) -> dict[str, Setting]:
    settings = {
        "device": Setting("virtio-blk-pci", "", "folk", "the cheapest device of QEMU to drive")
    }
    reported = facts.write_cache
    settings["write-cache"] = (
        Setting(
            "on" if reported == "write back" else "off", "", "measured",
            f"Linux says {reported}: {measured}",
        )
        if reported
        else Setting("on", "", "folk", "our choice: Linux does not say, and so flushes arrive")
    )  # fmt: skip
    for name, value in (
        ("num-queues", facts.queues),
        ("logical-block-size", facts.logical_block),
        ("physical-block-size", facts.physical_block),
    ):
        if value:
            source = f"Linux says so: {measured}"
            settings[name] = Setting(value, FRONT_END_KINDS[name].unit, "measured", source)
    return settings


def text(made: Profile, remarks: Sequence[str]) -> str:
    """remarks: what else a reader has to know, a paragraph each."""
    head = "\n#\n".join(
        textwrap.fill(
            remark, 76, initial_indent="# ", subsequent_indent="# ",
            break_long_words=False, break_on_hyphens=False,
        )
        for remark in remarks
    )  # fmt: skip
    tables = [
        f"{head}\n\n[{made.name}]\ntitle = {_quoted(made.title)}\n",
        f"[{made.name}.node]\n" + "".join(_line(k, s) for k, s in made.node.items()),
        f"[{made.name}.front-end]\n" + "".join(_line(k, s) for k, s in made.front_end.items()),
    ]
    return "\n".join(tables)


def _line(name: str, setting: Setting) -> str:
    value = setting.value if isinstance(setting.value, int) else _quoted(setting.value)
    return (
        f"{name} = {{ value = {value}, grade = {_quoted(setting.grade)}, "
        f"source = {_quoted(setting.source)} }}\n"
    )


def _quoted(words: str) -> str:
    """A basic string of TOML."""
    escaped = words.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'
