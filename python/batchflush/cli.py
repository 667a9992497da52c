# SPDX-License-Identifier: GPL-2.0-or-later
"""The list of subcommands, and how their errors reach the user.

A subcommand is a module with NAME, HELP, add_arguments(parser) and run(args).
"""

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

from batchflush import processes, progress
from batchflush.errors import BatchflushError, UsageError

# In the order a newcomer meets them.
COMMANDS = (
    "demo",
    "check",
    "run",
    "top",
    "doctor",
    "profiles",
    "calibrate",
    "lab",
    "crash",
    "bench",
    "docs",
    "series",
    "fuzz",
    "build",
    "configure",
    "graft",
)


def main(arguments: Sequence[str]) -> int:
    processes.end_children_when_told_to_end()
    try:
        args = parse(arguments)
        return args.run(args)
    except BatchflushError as error:
        progress.print_error(error)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("batchflush: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has gone; the interpreter must not flush it.
        sys.stdout = None
        return 128 + signal.SIGPIPE


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="batchflush",
        description="Emulated disks for people who work on fsync.",
        epilog="'batchflush COMMAND --help' tells about one command.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _modules(arguments):
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    if not arguments or arguments[0] == "help":
        arguments = ["--help"]
    return parser.parse_args(arguments)


def _modules(arguments: Sequence[str]) -> list[ModuleType]:
    """The command's own module, or all of them when help or an error needs their names."""
    named = [name for name in COMMANDS if arguments[:1] == [name]]
    return [importlib.import_module(f"batchflush.{name}") for name in named or COMMANDS]
