#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# First process of the guest.  It brings up the devices, opens the two
# channels to the host, runs the job in /job and says how it ended.  The
# channels are described in machine.py.  What goes wrong before they are open
# goes to the serial console, which the host keeps in a file.

fail() {
    echo "batchflush init: $*"
    poweroff -f
}

# The device file of the channel named $1.
channel() {
    for port in /sys/class/virtio-ports/*; do
        read -r name <"$port/name" && [ "$name" = "$1" ] || continue
        echo "/dev/${port##*/}"
        return 0
    done 2>/dev/null
    return 1
}

# Drivers find their devices in the background; wait until test $@ holds.
await() {
    for attempt in $(seq 1000); do
        "$@" && return 0
        usleep 10000
    done
    return 1
}

# For the job: say something to the host, one JSON object.
report() {
    echo "$1" >&3
}

# For the job: say something to the host and wait for its answer.
ask() {
    report "$1"
    read -r answer <&3
}

export PATH=/bin:/sbin HOME=/
/bin/busybox mkdir -p /proc /sys /dev /tmp /mnt
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev || fail "the kernel lacks devtmpfs"

while read -r module; do
    insmod "$module" || fail "cannot load $module"
done </job/modules

for name in report output; do
    await channel "org.batchflush.$name" >/dev/null ||
        fail "no channel $name: does the kernel have virtio_console?"
done
exec 3<>"$(channel org.batchflush.report)"
exec 4>"$(channel org.batchflush.output)"

(. /job/run) >&4 2>&1 </dev/null
code=$?
umount /mnt 2>/dev/null
report "{\"type\": \"exit\", \"code\": $code}"
exec 4>&-

# The host reads the device's statistics and ends the machine.
read -r answer <&3
poweroff -f
