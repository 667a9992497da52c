# SPDX-License-Identifier: GPL-2.0-or-later
"""The laboratory: real kernels compared, each cell of an experiment in a guest of its own."""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

NAME = "lab"
HELP = "compare kernels: storage classes × threads × kernels, in virtual time"

# Not named after their commands: `run` is the function below.
MODULES = ("measure", "kernels", "diff", "knee", "posting", "seeds")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"batchflush.lab.{name}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in MODULES:
        module = _module(name)
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run_lab=module.run)


def run(args: argparse.Namespace) -> int:
    return args.run_lab(args)
