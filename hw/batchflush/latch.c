/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the guest reads until it selects a disk again */

#include "qemu/osdep.h"
#include "qemu/bswap.h"

#include "block/batchflush/snapshot.h"
#include "latch.h"
#include "trace.h"

static bool take(const char *name, BatchflushSnapshot *snapshot)
{
    BlockDriverState *bs = bdrv_find_node(name);

    return bs && batchflush_snapshot(bs, snapshot);
}

static uint64_t slowest_ns(char **names)
{
    BatchflushSnapshot snapshot;
    int64_t slowest = 0;

    for (; *names; names++) {
        if (take(*names, &snapshot)) {
            slowest = MAX(slowest, snapshot.flush_average_ns);
        }
    }
    return slowest;
}

static void put(BatchflushLatch *latch, unsigned offset, uint64_t value)
{
    latch->disk[(offset - BFC_DISK) / sizeof(value)] = value;
}

/* A guest that reads the words in ascending order gets the bytes so. */
static void put_name(BatchflushLatch *latch, const char *name)
{
    char bytes[BFC_NODE_NAME_SIZE] = {};

    memcpy(bytes, name, MIN(strlen(name), sizeof(bytes)));
    for (unsigned i = 0; i < sizeof(bytes); i += sizeof(uint64_t)) {
        put(latch, BFC_NODE_NAME + i, ldq_le_p(bytes + i));
    }
}

static void put_snapshot(BatchflushLatch *latch, const BatchflushSnapshot *s)
{
    put(latch, BFC_WRITE_CACHE, s->write_cache);
    put(latch, BFC_POWER_OFF, s->power_off);
    put(latch, BFC_FLUSH_AVERAGE_NS, s->flush_average_ns);
    put(latch, BFC_FLUSH_ARRIVALS, s->flush_arrivals);
    put(latch, BFC_FLUSHES_ISSUED, s->flushes_issued);
    put(latch, BFC_FLUSHES_JOINED, s->flushes_joined);
    put(latch, BFC_FLUSHES_ALONE, s->flushes_alone);
    put(latch, BFC_FLUSHES_FAILED, s->flushes_failed);
    put(latch, BFC_CACHE_SIZE, s->cache_size);
    put(latch, BFC_DIRTY_BYTES, s->dirty_bytes);
    put(latch, BFC_DESTAGED_BYTES, s->destaged_bytes);
    put(latch, BFC_DESTAGE_FAILURES, s->destage_failures);
    put(latch, BFC_STALLS, s->stalls);
    put(latch, BFC_STALL_NS, s->stall_ns);
    put(latch, BFC_POWER_CUTS, s->power_cuts);
    put(latch, BFC_BATTERY, s->battery);
    put(latch, BFC_HOLD_UP_NS, s->hold_up_ns);
}

static BfcStatus put_disk(BatchflushLatch *latch, const char *name)
{
    BatchflushSnapshot snapshot;

    put_name(latch, name);
    if (!take(name, &snapshot)) {
        return BFC_STATUS_GONE;
    }
    put_snapshot(latch, &snapshot);
    return BFC_STATUS_PRESENT;
}

void batchflush_latch(BatchflushLatch *latch, char **names,
                      uint64_t selector)
{
    BfcStatus status = BFC_STATUS_NONE;

    *latch = (BatchflushLatch) { .slowest_ns = slowest_ns(names) };
    if (selector < g_strv_length(names)) {
        status = put_disk(latch, names[selector]);
    }
    put(latch, BFC_STATUS, status);
    trace_batchflush_control_latch(
        selector, status,
        latch->disk[(BFC_FLUSH_AVERAGE_NS - BFC_DISK) / sizeof(uint64_t)],
        latch->slowest_ns);
}
