# SPDX-License-Identifier: GPL-2.0-or-later
"""The crash explorer: what a power cut could leave of a workload, and whether that is enough.

Of a log, thousands a minute:

record     run a workload once in a guest, its disk writing a log (witness.c: what it ran)
log        read that log; history: what was durable when
states     which crash states there are; plan: which are tried, in which order
image      a state as base and overlay; overlay: programs that look at it
checkers   what is wrong with a state; trial: trying them; minimise: making them small
explore    the search; results: what came out
recreate   a state as an image file; export: a log for the kernel's own tools

And of a guest that runs:

campaign   cut its power, again and again; loads: what it does meanwhile (witness.c, stress.c)
soak       several campaigns at once, and what came out
"""

from batchflush.crash.command import HELP, NAME, add_arguments, run

__all__ = ["HELP", "NAME", "add_arguments", "run"]
