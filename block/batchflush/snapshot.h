/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a batchflush node tells others about itself
 *
 * The door for the control device, which knows nodes only by name.
 */

#ifndef BLOCK_BATCHFLUSH_SNAPSHOT_H
#define BLOCK_BATCHFLUSH_SNAPSHOT_H

#include "block/block.h"

typedef struct BatchflushSnapshot {
    uint32_t write_cache;           /* BfWriteCache */
    bool power_off;
    int64_t flush_average_ns;       /* measured, or else expected */
    uint64_t flush_arrivals;
    uint64_t flushes_issued;
    uint64_t flushes_joined;
    uint64_t flushes_alone;
    uint64_t flushes_failed;
    uint64_t cache_size;            /* bytes, 0 without a cache */
    uint64_t dirty_bytes;
    uint64_t destaged_bytes;
    uint64_t destage_failures;
    uint64_t stalls;
    uint64_t stall_ns;
    uint64_t power_cuts;
    uint32_t battery;               /* 0: none, else 1 + BfBattery */
    int64_t hold_up_ns;             /* 0: for any time */
} BatchflushSnapshot;

/* Returns false if @bs is not a batchflush node. */
bool batchflush_snapshot(BlockDriverState *bs, BatchflushSnapshot *snapshot);

#endif
