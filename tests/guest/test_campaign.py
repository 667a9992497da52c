# SPDX-License-Identifier: GPL-2.0-or-later
"""The power of running guests is cut: what was synced survives, unless the disk lies.

`./batchflush crash --soak` is the long form. BF_SEED=N repeats the cuts of a run.
"""

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from batchflush.crash import soak
from batchflush.crash.campaign import Campaign

SEED = int(os.environ.get("BF_SEED") or random.randrange(1 << 32))
CUTS = 4
# So many cuts a lying disk survives at most without being found out.
LUCKY = 20


def test_what_was_synced_survives_and_a_liar_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them together: the guests share the host's cores."""
    print(f"BF_SEED={SEED}")
    monkeypatch.setattr(soak, "FOLDER", tmp_path)
    sound = [
        *(Campaign("files", name, CUTS, SEED) for name in ("ext4", "xfs", "btrfs")),
        *(Campaign(name, "ext4", CUTS, SEED) for name in ("sqlite-rollback", "sqlite-wal")),
    ]
    lying = [replace(c, lie="flush", cuts=LUCKY, stop_after=1) for c in sound]
    reset = Campaign("files", "ext4", 1, SEED, guest="reset")
    assert soak.run([*sound, reset, *lying], minutes=None, fresh=True) == 0
    told = [json.loads((tmp_path / f"{c.name}.json").read_text()) for c in sound]
    assert [campaign["cuts"] for campaign in told] == [CUTS] * len(sound)
    # Loads that do nothing lose nothing.
    assert sum(campaign["acknowledged"] for campaign in told) > CUTS
    assert all(campaign["lost-bytes"] + campaign["kept-bytes"] > 0 for campaign in told)
