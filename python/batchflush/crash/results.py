# SPDX-License-Identifier: GPL-2.0-or-later
"""The outcomes of a search, kept beside the log as they come in, so that it can go on.

LOG.states.jsonl: a line with the setting and the seed, then a line for each state tried.
LOG.report.json: what the table shows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.table import Table

from batchflush import paths
from batchflush.crash.trial import Outcome, Setting

SHOWN = 10
# What commands take if they are told nothing else.
ATOMIC = 4096
FINDINGS_SHOWN = 3


@dataclass
class Results:
    """All outcomes so far; made by open_results()."""

    path: Path
    outcomes: list[Outcome] = field(default_factory=list)
    resumed: int = 0
    _stream: IO[str] | None = None

    def add(self, outcomes: Iterable[Outcome]) -> None:
        assert self._stream is not None
        for outcome in outcomes:
            self.outcomes.append(outcome)
            self._stream.write(json.dumps(asdict(outcome)) + "\n")
        self._stream.flush()

    def known(self) -> dict[int, int]:
        """How many marks each content was held against."""
        known: dict[int, int] = {}
        for outcome in self.outcomes:
            known[outcome.hash] = max(known.get(outcome.hash, 0), outcome.owed)
        return known

    def failing(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.findings]

    def distinct(self) -> int:
        return len({outcome.hash for outcome in self.outcomes})

    def close(self) -> None:
        if self._stream:
            self._stream.close()


def beside(log: Path, suffix: str) -> Path:
    return log.with_name(f"{log.name}.{suffix}")


def open_results(setting: Setting, seed: int, fresh: bool) -> Results:
    """Those of the same search, unless `fresh`; else none."""
    log = Path(setting.log)
    path = beside(log, "states.jsonl")
    header = json.dumps({**asdict(setting), "seed": seed})
    results = Results(path)
    if not fresh and path.exists():
        lines = path.read_text().splitlines()
        if lines and lines[0] == header:
            results.outcomes = list(_read(lines[1:]))
            results.resumed = len(results.outcomes)
    results._stream = path.open("w")
    results._stream.write(header + "\n")
    kept, results.outcomes = results.outcomes, []
    results.add(kept)
    return results


def _read(lines: Iterable[str]) -> Iterable[Outcome]:
    """The last line is half a line if we were killed."""
    for line in lines:
        try:
            told = json.loads(line)
            yield Outcome(**{**told, "findings": tuple(told["findings"])})
        except (ValueError, TypeError, KeyError):
            return


def kind(finding: str) -> str:
    """A finding without what is peculiar to one state."""
    return re.sub(r"[\w.]*\d[\w.]*", "…", finding)


def kinds(outcomes: Iterable[Outcome]) -> Counter[str]:
    return Counter(k for outcome in outcomes for k in {kind(f) for f in outcome.findings})


def report(
    results: Results, smallest: dict[str, Outcome], setting: Setting, told: dict[str, Any]
) -> dict[str, Any]:
    """What goes into LOG.report.json."""
    failing = results.failing()
    return {
        **told,
        "tried": len(results.outcomes),
        "distinct": results.distinct(),
        "failing": len(failing),
        "findings": dict(kinds(failing).most_common()),
        "failing-states": [
            {
                "state": outcome.state,
                "findings": list(outcome.findings),
                **(
                    {"smallest": smallest[outcome.state].state} if outcome.state in smallest else {}
                ),
                "recreate": recreate_command(setting, smallest.get(outcome.state, outcome).state),
            }
            for outcome in failing
        ],
    }


def table(results: Results, smallest: dict[str, Outcome]) -> Table:
    """The failing states, those that were minimised first."""
    failing = sorted(results.failing(), key=lambda o: o.state not in smallest)
    shown = failing[:SHOWN]
    more = f", {len(shown)} shown" if len(failing) > len(shown) else ""
    result = Table(title=f"failing states ({len(failing)}{more})", title_justify="left")
    result.add_column("State", overflow="fold")
    result.add_column("Fewest lost writes that fail", overflow="fold")
    result.add_column("What is wrong")
    for outcome in shown:
        least = smallest.get(outcome.state)
        findings = (least or outcome).findings
        text = "\n".join(findings[:FINDINGS_SHOWN])
        if len(findings) > FINDINGS_SHOWN:
            text += f"\n(and {len(findings) - FINDINGS_SHOWN} more)"
        result.add_row(outcome.state, least.state if least else "", text)
    return result


def recreate_command(setting: Setting, state: str) -> str:
    """How to have the state as an image."""
    words = ["./batchflush crash recreate", paths.shown(Path(setting.log)), f"--state {state}"]
    if setting.atomic != ATOMIC:
        words.append(f"--atomic-write-size {setting.atomic}")
    if setting.first:
        words.append(f"--base {paths.shown(Path(setting.first))}")
    return " ".join([*map(str, words), "-o state.qcow2"])
