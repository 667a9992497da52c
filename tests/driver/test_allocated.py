# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node says that it takes counts what its cache holds."""

import pytest
from conftest import MIB, Image
from programs import daemon, disk, file

from batchflush.nbd import connected


@pytest.mark.parametrize("cache", ["volatile", "battery"])
async def test_what_only_the_cache_holds_is_allocated(cache: str, image: Image, tmp_path) -> None:
    """qcow2 on it would take its clusters for preallocated, and look for holes in them."""
    path = image(size=8 * MIB)
    async with (
        daemon(tmp_path, disk(file(path), write_cache=cache, cache_size=4 * MIB)) as program,
        connected(tmp_path / "nbd") as connection,
    ):
        for offset in range(0, 2 * MIB, MIB):
            await connection.write(offset, bytes([1]) * MIB)
        assert path.stat().st_blocks == 0, "it went to the file already"
        (node,) = [
            node
            for node in await program.execute("query-named-block-nodes")
            if node["node-name"] == "disk"
        ]
        assert node["image"]["actual-size"] >= 2 * MIB
