# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad input is refused in one sentence that names option, value and what is allowed.

Each case comes in by every way there is. Where QAPI's own type check comes first, the
sentence is QEMU's; it has to name the option all the same.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import Image
from programs import Options, daemon, disk, dotted, file, promptly, run

from batchflush import paths, profiles
from batchflush.nbd import RequestError, connected

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
TIME = "0 to 60000000000 ns"
# What QAPI makes of a size of -1.
WRAPPED = (1 << 64) - 1
MEMORY_SIZE = "allowed is a multiple of 512 bytes, or an image to take it from"
NAMES = list(profiles.load())
PROFILES = ", ".join(NAMES)
OF_SATA = ", ".join(name for name in NAMES if "sata" in name)


@dataclass(frozen=True)
class Case:
    """Options that are refused. typed: the sentence where QAPI has checked types first."""

    options: dict[str, Any]
    sentence: str
    typed: str = ""
    node: Options = field(default_factory=dict)

    @property
    def name(self) -> str:
        return dotted(self.options) or "nothing"


def choice(option: str, value: str, allowed: str) -> Case:
    return Case(
        {option: value},
        f"{option}={value} is not known; allowed are {allowed}",
        f"Parameter '{option}' does not accept value '{value}'",
    )


def number(option: str, value: int, allowed: str, typed_value: int | None = None) -> Case:
    sentence = "{}={} is out of range; allowed are {}".format
    typed = sentence(option, typed_value, allowed) if typed_value else ""
    return Case({option: value}, sentence(option, value, allowed), typed)


def watermarks(low: int, high: int) -> Case:
    return Case(
        {"destage-low-percent": low, "destage-high-percent": high},
        f"destage-low-percent={low} is not below destage-high-percent={high}; "
        "it has to be, or both 0",
    )


def of_memory(sentence: str, typed: str = "", **options: Any) -> Case:
    return Case(options, sentence, typed, {"driver": "batchflush-memory", "node-name": "disk"})


CASES = [
    Case(
        {"flush-latency": 1},
        "Block format 'batchflush' does not support the option 'flush-latency'",
        "Parameter 'flush-latency' is unexpected",
    ),
    Case({"profile": "ramdsk"}, "profile=ramdsk is not known; similar are ramdisk"),
    Case({"profile": "sata"}, f"profile=sata is not known; similar are {OF_SATA}"),
    Case({"profile": "xyzzy"}, f"profile=xyzzy is not known; there are {PROFILES}"),
    Case({"profile": ""}, f"profile= is not known; there are {PROFILES}"),
    *(
        number(f"{option}-latency-ns", value, TIME)
        for option in ("read", "write", "destage", "flush", "flush-clean")
        for value in (-1, 60_000_000_001)
    ),
    Case(
        {"flush-latency-ns": "8ms"},
        f"flush-latency-ns=8ms is not a number; allowed are {TIME}",
        "Invalid parameter type for 'flush-latency-ns', expected: integer",
    ),
    Case(
        {"flush-latency-ns": 10**20},
        f"flush-latency-ns={10**20} is out of range; allowed are {TIME}",
        "Invalid parameter type for 'flush-latency-ns', expected: integer",
    ),
    number("coalesce-min-flush-ns", -1, TIME),
    number("coalesce-max-wait-ns", -1, "1000 to 60000000000 ns"),
    number("coalesce-max-wait-ns", 999, "1000 to 60000000000 ns"),
    number("queue-depth", 0, "1 to 1024"),
    number("queue-depth", 1025, "1 to 1024"),
    number("bandwidth", -1, "0 to 1099511627776 bytes", WRAPPED),
    number("cache-size", 65535, "65536 to 1099511627776 bytes"),
    number("cache-size", -1, "65536 to 1099511627776 bytes", WRAPPED),
    number("cache-size", 1 << 41, "65536 to 1099511627776 bytes"),
    Case(
        {"write-cache": "volatile", "cache-size": 1 << 40},
        f"cache-size={1 << 40} is more than the host's memory; "
        f"allowed are up to {MEMORY} bytes here",
    ),
    number("destage-high-percent", 101, "0 to 100 percent"),
    number("destage-low-percent", -1, "0 to 99 percent"),
    watermarks(50, 20),
    watermarks(50, 50),
    watermarks(5, 0),
    choice("write-cache", "maybe", "none, volatile, battery"),
    choice("flush-concurrency", "parallel", "exclusive, serial, concurrent"),
    choice("coalesce", "yes", "off, on, auto"),
    choice("coalesce-wait", "long", "delta, average"),
    choice("clock", "host", "auto, virtual, realtime"),
    of_memory(f"size=0 is not allowed; {MEMORY_SIZE}"),
    of_memory(f"size=0 is not allowed; {MEMORY_SIZE}", size=0),
    of_memory(f"size=1000 is not allowed; {MEMORY_SIZE}", size=1000),
    of_memory(
        "Block protocol 'batchflush-memory' doesn't support the option 'pattern'",
        "Parameter 'pattern' is unexpected",
        size=512,
        pattern=1,
    ),
    of_memory("image=/ is not a regular file", image="/"),
]


def said_by(output: str, sentence: str) -> bool:
    """Whether some program says just this, after its name and the argument at fault."""
    return any(line == sentence or line.endswith(f": {sentence}") for line in output.splitlines())


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture
def node(case: Case, image: Image) -> Options:
    return {**(case.node or disk(file(image()))), **case.options}


def refused(command: list[str | Path], sentence: str) -> None:
    outcome = run(command)
    assert outcome.code == 1, outcome
    assert said_by(outcome.output, sentence), outcome.output


MACHINE = ["-machine", "none", "-display", "none", "-nodefaults", "-S"]


def test_drive(case: Case, node: Options) -> None:
    command = [paths.QEMU_SYSTEM, *MACHINE, "-drive", f"if=none,id=drive,{dotted(node)}"]
    refused(command, case.sentence)


def test_image_opts(case: Case, node: Options) -> None:
    refused([paths.QEMU_IO, "--image-opts", dotted(node), "-c", "flush"], case.sentence)


def test_blockdev(case: Case, node: Options) -> None:
    command = [paths.QEMU_SYSTEM, *MACHINE, "-blockdev", json.dumps(node)]
    refused(command, case.typed or case.sentence)


def test_storage_daemon(case: Case, node: Options) -> None:
    command = [paths.STORAGE_DAEMON, "--blockdev", json.dumps(node)]
    refused(command, case.typed or case.sentence)


async def test_blockdev_add(case: Case, node: Options, tmp_path: Path) -> None:
    async with daemon(tmp_path, export=False) as program:
        said = await promptly(program.refuses("blockdev-add", **node))
        assert said == (case.typed or case.sentence)
        # Nothing is left of it, and the next one is opened.
        good = {key: node[key] for key in node if key not in case.options} | (
            {"size": 512} if case.node else {}
        )
        await program.execute("blockdev-add", **good)
        assert await program.quit() == 0


async def test_a_read_only_child(image: Image, tmp_path: Path) -> None:
    medium = {**file(image()), "node-name": "medium", "read-only": True}
    async with daemon(tmp_path, medium, export=False) as program:
        said = await promptly(program.refuses("blockdev-add", **disk("medium")))
        assert said == (
            "file=medium is read-only; allowed is a writable node, or read-only=on for this one"
        )


async def test_a_read_only_child_of_a_read_only_node(image: Image, tmp_path: Path) -> None:
    medium = {**file(image(pattern=7)), "read-only": True}
    node = disk(medium, read_only=True, write_cache="volatile")
    async with daemon(tmp_path, node, export=False) as program:
        export = {"type": "nbd", "id": "disk", "node-name": "disk"}
        said = await program.refuses("block-export-add", **export, writable=True)
        assert said == "Cannot export read-only node as writable"
        await program.execute("block-export-add", **export)
        async with connected(tmp_path / "nbd") as connection:
            assert await connection.read(0, 4096) == bytes([7]) * 4096
            with pytest.raises(RequestError):
                await connection.write(0, b"no")
        assert await program.quit() == 0


async def test_a_missing_image_of_a_memory_medium(tmp_path: Path) -> None:
    async with daemon(tmp_path, export=False) as program:
        missing = {"driver": "batchflush-memory", "node-name": "m", "image": "missing"}
        said = await program.refuses("blockdev-add", **missing)
        assert said == "image=missing cannot be opened: No such file or directory"


async def test_a_missing_child(tmp_path: Path) -> None:
    async with daemon(tmp_path, export=False) as program:
        said = await program.refuses("blockdev-add", driver="batchflush", node_name="disk")
        assert said == "Parameter 'file' is missing"
        said = await program.refuses("blockdev-add", **disk("nowhere"))
        assert said == "Cannot find device='nowhere' nor node-name='nowhere'"


async def test_reopen_refuses_in_the_same_words_and_changes_nothing(
    image: Image, tmp_path: Path
) -> None:
    medium = {**file(image()), "node-name": "medium"}
    node = disk("medium", write_cache="volatile", cache_size=65536)
    async with daemon(tmp_path, medium, node) as program:
        for change, sentence in {
            ("flush-latency-ns", -1): f"flush-latency-ns=-1 is out of range; allowed are {TIME}",
            ("profile", "ramdsk"): "profile=ramdsk is not known; similar are ramdisk",
            ("cache-size", 131072): "cache-size=131072 cannot be set while the node is open; "
            "allowed is 65536",
            ("write-cache", "none"): "write-cache=none cannot be set while the node is open; "
            "allowed is volatile",
        }.items():
            changed = {**node, change[0]: change[1]}
            assert await program.refuses("blockdev-reopen", options=[changed]) == sentence
        async with connected(tmp_path / "nbd") as connection:
            await connection.write(0, b"still here")
            assert (await program.statistics())["dirty-bytes"] == 512
            await connection.flush()
            assert await connection.read(0, 10) == b"still here"
        assert await program.quit() == 0


async def test_commands_refuse_other_nodes(image: Image, tmp_path: Path) -> None:
    medium = {**file(image()), "node-name": "medium"}
    async with daemon(tmp_path, medium, disk("medium"), export=False) as program:
        for command in ("batchflush-power-cut", "batchflush-power-restore"):
            said = await program.refuses(command, node_name="nowhere")
            assert said == "node-name=nowhere is not known"
            said = await program.refuses(command, node_name="medium")
            assert said == "node-name=medium is a file node; allowed is a batchflush node"
        said = await program.refuses("batchflush-power-restore", node_name="disk")
        assert said == "the power of node 'disk' is on"
