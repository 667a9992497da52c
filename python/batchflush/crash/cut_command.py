# SPDX-License-Identifier: GPL-2.0-or-later
"""`batchflush crash cut` and `batchflush crash --soak`: power cuts of running guests."""

from __future__ import annotations

import argparse

from batchflush import profiles
from batchflush.crash import soak
from batchflush.crash.campaign import RESET, RUN, Campaign
from batchflush.crash.loads import FILE_SYSTEMS, LOADS
from batchflush.errors import UsageError
from batchflush.guest.command_line import parse_options

ATOMIC_SIZES = (512, 4096)
CUTS = 300


def add_cut_arguments(parser: argparse.ArgumentParser) -> None:
    plain = Campaign()
    add = parser.add_argument
    add("--load", choices=tuple(LOADS), default=plain.load, help="what the guest does (files)")
    add(
        "--fs", choices=tuple(FILE_SYSTEMS), default=plain.file_system,
        help="file system (default: ext4)",
    )  # fmt: skip
    add("--cuts", metavar="N", type=int, default=CUTS, help=f"how many ({CUTS})")
    add("--cut", metavar="N", type=int, help="only the cut of this number, on a fresh file system")
    add("--seed", metavar="N", type=int, default=plain.seed, help="of all cuts (1)")
    add(
        "--guest", choices=(RUN, RESET), default=plain.guest,
        help="what happens to the guest at a cut: it runs on with a dead disk, or is reset (run)",
    )  # fmt: skip
    add(
        "--atomic-write-size", metavar="BYTES", type=int, choices=ATOMIC_SIZES,
        default=plain.atomic, help="what is written as a whole or not at all, 512 or 4096 (4096)",
    )  # fmt: skip
    add(
        "--class", dest="profile", metavar="NAME", default=plain.profile,
        help=f"storage class of the disk (default: {plain.profile})",
    )  # fmt: skip
    add(
        "--option", metavar="KEY=VALUE", action="append", default=[],
        help="an option of the node that differs from the class, such as lie=flush; "
        "may be given again",
    )  # fmt: skip
    _add_limits(parser)


def add_soak_arguments(parser: argparse.ArgumentParser) -> None:
    """Beside the subcommands."""
    parser.add_argument(
        "--soak", action="store_true",
        help="cut the power of guests with ext4, xfs, btrfs and SQLite, sound disks and lying ones",
    )  # fmt: skip
    parser.add_argument("--cuts", metavar="N", type=int, default=CUTS, help="with --soak: of each")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="with --soak: of all cuts")
    _add_limits(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", metavar="N", type=float, help="end after so long")
    parser.add_argument(
        "--fresh", action="store_true", help="begin anew in place of going on where it was"
    )


def run_soak(args: argparse.Namespace) -> int:
    _check(args)
    return soak.run(soak.everything(args.cuts, args.seed), args.minutes, args.fresh)


def run_cut(args: argparse.Namespace) -> int:
    _check(args)
    profiles.find(args.profile)
    options = parse_options(args.option)
    lie = options.pop("lie", Campaign().lie)
    campaign = Campaign(
        args.load, args.fs, args.cuts, args.seed,
        atomic=args.atomic_write_size, lie=lie, guest=args.guest, profile=args.profile,
        options=tuple(sorted(options.items())),
    )  # fmt: skip
    if args.cut is None:
        return soak.run([campaign], args.minutes, args.fresh)
    return soak.run([campaign.only(args.cut)], args.minutes, fresh=True)


def _check(args: argparse.Namespace) -> None:
    for name, least, most in (
        ("cuts", 1, 1_000_000), ("cut", 0, 1_000_000), ("seed", 0, (1 << 63) - 1),
        ("minutes", 0.01, 100_000),
    ):  # fmt: skip
        value = getattr(args, name, None)
        if value is not None and not least <= value <= most:
            raise UsageError(f"--{name}={value} is out of range; allowed are {least} to {most}")
