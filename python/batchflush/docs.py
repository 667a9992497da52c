# SPDX-License-Identifier: GPL-2.0-or-later
"""Build the documentation with Sphinx; a warning is an error."""

import argparse
import re

from batchflush import paths, processes, progress

NAME = "docs"
HELP = "build the documentation as HTML"


def html() -> None:
    """Bring build/docs up to date; BatchflushError lists what is wrong in the pages."""
    paths.DOCS.mkdir(parents=True, exist_ok=True)
    command = [
        paths.VENV_PYTHON, "-m", "sphinx", "--builder", "html", "--fail-on-warning",
        "--doctree-dir", paths.DOCS / ".doctrees", paths.ROOT / "docs", paths.DOCS,
    ]  # fmt: skip
    with progress.step("Building the documentation") as step:

        def show(line: str) -> None:
            match = re.match(r"(?:reading|writing).*\[ *(\d+)%\]", line)
            if match:
                step.update(int(match[1]), 100, line.split("]")[-1].strip())

        processes.run_logged(
            command,
            paths.BUILD / "docs.log",
            "building the documentation",
            on_line=show,
            cwd=paths.ROOT,
            env={"LC_ALL": "C.UTF-8", "NO_COLOR": "1"},
        )


def add_arguments(_parser: argparse.ArgumentParser) -> None:
    pass


def run(_args: argparse.Namespace) -> int:
    html()
    print(f"built: {paths.shown(paths.DOCS)}/index.html")
    return 0
