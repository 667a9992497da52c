# SPDX-License-Identifier: GPL-2.0-or-later
"""A node in our storage daemon, in a guest of the distribution's own QEMU, by vhost-user-blk."""

import asyncio
import hashlib
import subprocess
from pathlib import Path

import programs
import pytest

from batchflush.guest import initramfs, packages

# Debian's, of whichever version; it does not know our driver.
QEMU = Path("/usr/bin/qemu-system-x86_64")
LIMIT_SECONDS = 240
SIZE = 64 << 20
BYTES = 3 << 20

INIT = """\
#!/bin/busybox sh
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod "$module"; done </modules
for attempt in $(seq 500); do [ -b /dev/vda ] && break; usleep 20000; done
echo "cache: $(cat /sys/block/vda/queue/write_cache)"
head -c BYTES /dev/urandom >/tmp/data
dd if=/tmp/data of=/dev/vda bs=4k seek=7 conv=fsync 2>/dev/null || echo "writing failed"
echo 3 >/proc/sys/vm/drop_caches
echo "written: $(md5sum </tmp/data)"
echo "read: $(dd if=/dev/vda bs=4k skip=7 count=BLOCKS 2>/dev/null | md5sum)"
poweroff -f
"""


@pytest.fixture(scope="module")
def kernel() -> packages.Kernel:
    return packages.prepare()


def guest(kernel: packages.Kernel) -> bytes:
    """An initramfs that says on its console what it wrote to the disk."""
    order = kernel.modules.load_order(("virtio_pci", "virtio_blk"))
    script = INIT.replace("BYTES", str(BYTES)).replace("BLOCKS", str(BYTES // 4096))
    busybox = initramfs.find_in(packages.ROOT, initramfs.PROGRAM_DIRECTORIES, "busybox")
    listed = "".join(f"/{initramfs.guest_module_path(name)}\n" for name in order)
    return initramfs.cpio(
        initramfs.with_parents(
            [
                initramfs.Entry.file("init", script.encode(), executable=True),
                initramfs.Entry.file("bin/busybox", busybox.read_bytes(), executable=True),
                initramfs.Entry.file("modules", listed.encode()),
                *kernel.modules.entries(order),
            ]
        )
    )


def test_debian_s_own_qemu_writes_flushes_and_reads(
    tmp_path: Path, kernel: packages.Kernel
) -> None:
    archive, image, socket = tmp_path / "initramfs", tmp_path / "image", tmp_path / "vhost"
    archive.write_bytes(guest(kernel))
    with image.open("wb") as stream:
        stream.truncate(SIZE)
    disk = programs.disk(
        programs.file(image), write_cache="volatile", cache_size=8 << 20, flush_latency_ns=2_000_000
    )

    async def boot() -> tuple[str, dict]:
        async with programs.daemon(tmp_path, disk, export=False) as daemon:
            await daemon.execute(
                "block-export-add", type="vhost-user-blk", id="disk", node_name="disk",
                writable=True, num_queues=1, addr={"type": "unix", "path": str(socket)},
            )  # fmt: skip
            console = await asyncio.to_thread(run_guest, kernel, archive, socket)
            counted = await daemon.statistics()
            assert await daemon.quit() == 0
            return console, counted

    console, counted = asyncio.run(boot())
    said = dict(line.split(": ", 1) for line in console.splitlines() if ": " in line)
    assert said["cache"] == "write back", console
    assert said["read"] == said["written"], console
    assert counted["flush-arrivals"] > 0
    written = image.read_bytes()[7 * 4096 : 7 * 4096 + BYTES]
    assert said["written"].split()[0] == hashlib.md5(written).hexdigest()


def run_guest(kernel: packages.Kernel, archive: Path, socket: Path) -> str:
    """What a guest of Debian's QEMU with the disk at the socket prints."""
    done = subprocess.run(
        [
            QEMU, "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio", "-m", "512",
            "-object", "memory-backend-memfd,id=memory,size=512M,share=on",
            "-machine", "q35,memory-backend=memory",
            "-kernel", kernel.image, "-initrd", archive, "-append", "console=ttyS0 quiet",
            "-chardev", f"socket,id=disk,path={socket}",
            "-device", "vhost-user-blk-pci,chardev=disk,num-queues=1,config-wce=off",
        ],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
