# SPDX-License-Identifier: GPL-2.0-or-later
"""A class is refused when it is read if, and only if, the model would refuse its options."""

import random
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from batchflush import paths, rules
from batchflush.profiles import NODE_KINDS, Kind

MODEL = paths.ROOT / "block/batchflush/model"
Node = dict[str, int | str]

# Sets the options of each line, "name=value;name=value", and prints what is wrong or nothing.
PROGRAM = r"""
#include <glib.h>
#include <stdio.h>
#include "params.h"

static char *complaint(char **settings)
{
    BfParams params;
    char *error = NULL;

    bf_params_init(&params);
    for (; *settings; settings++) {
        char **pair = g_strsplit(*settings, "=", 2);

        if (!bf_params_set(&params, pair[0], pair[1], &error)) {
            return g_strconcat("set: ", error, NULL);
        }
    }
    return bf_params_finish(&params, &error) ? g_strdup("") : error;
}

int main(void)
{
    static char line[100000];

    while (fgets(line, sizeof(line), stdin)) {
        puts(complaint(g_strsplit(g_strchomp(line), ";", -1)));
    }
    return 0;
}
"""

Judge = Callable[[list[Node]], list[str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """What the model says of each node."""
    program = tmp_path_factory.mktemp("rules") / "rules"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "glib-2.0"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    sources: list[Path] = [MODEL / f"{name}.c" for name in ("params", "random", "spread")]
    subprocess.run(
        ["cc", "-D_GNU_SOURCE", "-I", MODEL, "-o", program, "-x", "c", "-",
         *sources, *flags, "-lm"],
        input=PROGRAM, text=True, check=True,
    )  # fmt: skip

    def judge(nodes: list[Node]) -> list[str]:
        lines = [";".join(f"{name}={value}" for name, value in node.items()) for node in nodes]
        done = subprocess.run(
            [program], input="".join(f"{line}\n" for line in lines),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    return judge


HEAD: Node = {"rpm": 7200, "bandwidth": 200_000_000}


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ({}, ""),
        ({"bandwidth": 1023}, "bandwidth=1023 is out of range; allowed are 0 and 1024 to"),
        ({"interface-bandwidth": 1}, "interface-bandwidth=1 is out of range"),
        ({"bandwidth": 1024}, ""),
        ({"seek-full-ns": 5}, "seek-full-ns=5 needs a disk with a head; allowed is 0, or set rpm"),
        ({"queue-order": "nearest"}, "queue-order=nearest needs a disk with a head"),
        ({"rpm": 7200}, "rpm=7200 needs bandwidth"),
        ({"rpm": 59, "bandwidth": 1 << 20}, "rpm=59 is out of range; allowed are 0 and 60"),
        ({"rpm": 60_000, "bandwidth": 1 << 20}, "makes tracks of 1048 bytes; allowed are at least"),
        ({**HEAD, "seek-settle-ns": 2}, "seek-average-ns=0 is below seek-settle-ns=2"),
        ({**HEAD, "seek-average-ns": 2}, "seek-full-ns=0 is below seek-average-ns=2"),
        ({**HEAD, "seek-settle-ns": 2, "seek-average-ns": 2, "seek-full-ns": 2}, ""),
        ({"destage-low-percent": 1}, "destage-low-percent=1 is not below destage-high-percent=0"),
        ({"destage-high-percent": 5, "destage-low-percent": 5}, "destage-low-percent=5 is not"),
        ({"destage-high-percent": 5, "destage-low-percent": 4}, ""),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(node: Node, sentence: str, model: Judge) -> None:
    said = rules.complaint(node)
    assert said == model([node])[0]
    assert sentence in said and bool(sentence) == bool(said)


def value(random_: random.Random, kind: Kind) -> int | str:
    """Most are good; the others are just outside."""
    if kind.words:
        return random_.choice([*kind.words, "maybe"] if random_.random() < 0.1 else kind.words)
    if kind.is_spread:
        return random_.choice(["fixed", "uniform:100", "normal:34", "table:5=1/50=0.5", "pareto:2"])
    assert kind.largest is not None
    edges = [kind.smallest, kind.smallest + 1, kind.largest - 1, kind.largest]
    edges += [random_.randint(0, 2000), 1 << random_.randrange(40)]
    if random_.random() < 0.05:
        edges = [kind.smallest - 1, kind.largest + 1]
    return random_.choice(edges)


def refused(node: Mapping[str, int | str]) -> bool:
    return any(NODE_KINDS[key].complaint(v) for key, v in node.items()) or bool(
        rules.complaint(node)
    )


def test_random_classes(model: Judge) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_ = random.Random(seed)
    nodes: list[Node] = []
    for _ in range(5000):
        names = random_.sample(list(NODE_KINDS), random_.randint(1, 8))
        node = {name: value(random_, NODE_KINDS[name]) for name in names}
        nodes.append({**HEAD, **node} if random_.random() < 0.5 else node)
    verdicts = model(nodes)
    for node, said in zip(nodes, verdicts, strict=True):
        assert refused(node) == bool(said), (node, said)
        if said and not said.startswith("set: "):
            assert rules.complaint(node) == said, node
    good = verdicts.count("")
    assert 500 < good < 4500, "both verdicts have to be common"


def test_ranges_are_the_models(model: Judge) -> None:
    for name, kind in NODE_KINDS.items():
        if kind.largest is None:
            assert kind.words or kind.is_spread, name
            continue
        edges: list[Node] = [
            {name: number}
            for number in (kind.smallest - 1, kind.smallest, kind.largest, kind.largest + 1)
        ]
        said = [text.startswith("set: ") for text in model(edges)]
        assert said == [True, False, False, True], name
