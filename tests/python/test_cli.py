# SPDX-License-Identifier: GPL-2.0-or-later
import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from batchflush import check, cli, paths
from batchflush.errors import BatchflushError, UsageError

# The command line


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], int]], None]:
    """Makes `batchflush probe` do what is given."""

    def define(action: Callable[[], int]) -> None:
        def run(_args: argparse.Namespace) -> int:
            return action()

        probe = SimpleNamespace(NAME="probe", HELP="a test", add_arguments=lambda _: None, run=run)
        monkeypatch.setattr(cli, "_modules", lambda _arguments: [probe])

    return define


def raises(error: BaseException) -> Callable[[], int]:
    def action() -> int:
        raise error

    return action


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda: 0, 0),
        (lambda: 1, 1),
        (raises(BatchflushError("broken")), 1),
        (raises(UsageError("misused")), 2),
        (raises(KeyboardInterrupt()), 130),
    ],
)
def test_exit_codes(command, action: Callable[[], int], code: int) -> None:
    command(action)
    assert cli.main(["probe"]) == code


def test_an_error_is_told_with_its_hint(command, capsys: pytest.CaptureFixture[str]) -> None:
    command(raises(BatchflushError("the [disk] is full", "empty it")))
    cli.main(["probe"])
    assert capsys.readouterr().err == "batchflush: the [disk] is full\nhint: empty it\n"


def test_an_unknown_command_is_refused_with_those_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["chekc"])
    assert caught.value.code == 2
    assert "check" in capsys.readouterr().err


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([])
    assert caught.value.code == 0
    listed = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert re.search(rf"^    {name}\b", listed, re.MULTILINE), name


# What check makes of its runners' output


def test_tap_is_counted() -> None:
    results, planned = check.tap(
        [
            "1..4",
            "ok 1 /x86_64/flush/waits",
            "# flush came after 3 ns",
            "not ok 2 /x86_64/flush/early",
            "ok 3 /x86_64/numa # SKIP no second node",
        ]
    )
    assert planned == 4
    assert [(result.name, result.outcome) for result in results] == [
        ("/x86_64/flush/waits", check.PASSED),
        ("/x86_64/flush/early", check.FAILED),
        ("/x86_64/numa", check.SKIPPED),
    ]
    assert results[1].detail == "# flush came after 3 ns"
    assert results[2].detail == "no second node"


def test_junit_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        "<testcase classname='a' name='good'/>"
        "<testcase classname='a' name='bad'><failure message='short'>long</failure></testcase>"
        "<testcase classname='a' name='broken'><error message='crashed'/></testcase>"
        "<testcase classname='a' name='left'><skipped message='no disk'/></testcase>"
        "<testcase classname='a' name='module'><skipped message='collection skipped'>"
        "('a.py', 3, 'Skipped: no kernel')</skipped></testcase>"
        "</testsuite></testsuites>"
    )
    assert list(check.junit(report)) == [
        check.Result("a.good", check.PASSED),
        check.Result("a.bad", check.FAILED, "long"),
        check.Result("a.broken", check.FAILED, "crashed"),
        check.Result("a.left", check.SKIPPED, "no disk"),
        check.Result("a.module", check.SKIPPED, "('a.py', 3, 'Skipped: no kernel')"),
    ]


def run_check(monkeypatch: pytest.MonkeyPatch, suite: Callable[[], list[check.Result]]) -> int:
    monkeypatch.setattr(check, "SUITES", {"unit": suite})
    return check.run(argparse.Namespace(suites=[], results=None))


@pytest.mark.parametrize(
    ("outcomes", "last_line", "code"),
    [
        ([check.PASSED, check.PASSED], "2 passed, 0 failed", 0),
        ([check.PASSED, check.FAILED], "1 passed, 1 failed", 1),
        ([check.PASSED, check.SKIPPED], "1 passed, 0 failed, 1 skipped", 0),
        ([], "0 passed, 0 failed", 1),
    ],
)
def test_the_last_line_counts(
    outcomes: list[str], last_line: str, code: int, monkeypatch, capsys
) -> None:
    results = [check.Result("test", outcome, "reason") for outcome in outcomes]
    assert run_check(monkeypatch, lambda: results) == code
    assert capsys.readouterr().out.splitlines()[-1] == last_line


def test_a_suite_that_cannot_run_has_failed(monkeypatch, capsys) -> None:
    assert run_check(monkeypatch, raises(BatchflushError("no compiler"))) == 1
    shown = capsys.readouterr().out
    assert "no compiler" in shown
    assert shown.splitlines()[-1] == "0 passed, 1 failed"


# The front door

TOOLS = ("sh", "dirname", "mkdir", "flock", "cut", "cat", "sha256sum", "tail", "sed", "env")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout on a machine that has only a few tools; what is called is logged."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "python").mkdir()
    shutil.copy(paths.ROOT / "batchflush", tmp_path)
    shutil.copy(paths.ROOT / "python/pyproject.toml", tmp_path / "python")
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    install(tmp_path, "id", "echo 0")
    # Everything is installed but python3-venv.
    install(
        tmp_path, "dpkg-query",
        "for name; do [ $name = python3-venv ] || printf 'installed=%s ' $name; done",
    )  # fmt: skip
    install(tmp_path, "apt-get", 'echo "$@" >>' + str(tmp_path / "called") + "; exit 1")
    return tmp_path


def install(machine: Path, name: str, script: str) -> None:
    tool = machine / "bin" / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def knock(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [machine / "batchflush", *arguments],
        env={**os.environ, "PATH": str(machine / "bin"), "HOME": str(machine)},
        capture_output=True,
        text=True,
    )


def test_only_missing_packages_are_installed_after_an_update(machine: Path) -> None:
    done = knock(machine, "profiles")
    assert done.returncode == 1
    called = (machine / "called").read_text().splitlines()
    actions = [set(line.split()) & {"install", "update"} for line in called]
    assert actions == [{"install"}, {"update"}, {"install"}]
    assert called[0].endswith("--no-install-recommends python3-venv")
    assert "installing Debian packages failed" in done.stderr
    assert "apt-get install --no-install-recommends python3-venv" in done.stderr


def test_without_root_and_sudo_the_packages_and_the_command_are_named(machine: Path) -> None:
    install(machine, "id", "echo 1000")
    done = knock(machine, "profiles")
    assert done.returncode == 1
    assert "neither root nor sudo" in done.stderr
    assert "as root: apt-get install --no-install-recommends python3-venv" in done.stderr
    assert not (machine / "called").exists()


def test_a_user_with_sudo_installs_by_it(machine: Path) -> None:
    install(machine, "id", "echo 1000")
    install(machine, "sudo", f'[ "$1" = -v ] || {{ echo sudo >>{machine}/called; exec "$@"; }}')
    knock(machine, "profiles")
    called = (machine / "called").read_text().splitlines()
    assert called[0] == "sudo"
    assert "install" in called[1]


def test_another_distribution_is_told_so(machine: Path) -> None:
    (machine / "bin/apt-get").unlink()
    done = knock(machine, "demo")
    assert done.returncode == 1
    assert "no Debian machine" in done.stderr
