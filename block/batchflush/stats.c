/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Statistics of the batchflush node, as query-blockstats gives them */

#include "qemu/osdep.h"
#include "qapi/qapi-types-block-core.h"
#include "qapi/util.h"

#include "batchflush.h"
#include "snapshot.h"

BatchflushHistogramBucketList *
batchflush_histogram_to_qapi(const BfHistogram *histogram)
{
    BatchflushHistogramBucketList *list = NULL;
    BatchflushHistogramBucketList **tail = &list;

    for (unsigned i = 0; i < BF_HISTOGRAM_BUCKETS; i++) {
        BatchflushHistogramBucket *bucket;

        if (histogram->count[i] == 0) {
            continue;
        }
        bucket = g_new(BatchflushHistogramBucket, 1);
        bucket->upper = bf_histogram_upper(i);
        bucket->count = histogram->count[i];
        QAPI_LIST_APPEND(tail, bucket);
    }
    return list;
}

static BatchflushFlushRecordList *ledger_to_qapi(const BfFlushStats *stats)
{
    BatchflushFlushRecordList *list = NULL;
    BatchflushFlushRecordList **tail = &list;
    uint64_t kept = MIN(stats->issued, BF_LEDGER_SIZE);

    for (uint64_t i = stats->issued - kept; i < stats->issued; i++) {
        const BfFlushRecord *from = &stats->ledger[i % BF_LEDGER_SIZE];
        BatchflushFlushRecord *record = g_new(BatchflushFlushRecord, 1);

        *record = (BatchflushFlushRecord) {
            .arrival_ns = from->arrived_at,
            .members = from->members,
            .dirty_bytes = from->dirty_bytes,
            .wait_ns = from->wait_ns,
            .flush_ns = from->flush_ns,
        };
        QAPI_LIST_APPEND(tail, record);
    }
    return list;
}

static void fill_flush_stats(BlockStatsSpecificBatchflush *stats,
                             const BDRVBatchflushState *s)
{
    const BfFlushStats *from = &s->flush_stats;

    stats->flush_arrivals = from->arrivals;
    stats->flushes_issued = from->issued;
    stats->flushes_joined = from->joined;
    stats->flushes_alone = from->alone;
    stats->flushes_failed = from->failed;
    stats->flush_average_ns = s->flush_time.value;
    stats->batch_sizes = batchflush_histogram_to_qapi(&from->batch_sizes);
    stats->wait_times = batchflush_histogram_to_qapi(&from->wait_ns);
    stats->ledger = ledger_to_qapi(from);
}

static void fill_spin_stats(BlockStatsSpecificBatchflush *stats,
                            const BatchflushController *c)
{
    stats->wakeup_lead_ns = c->wakeup_lead_ns;
    stats->spin_ns = c->spin_ns;
    stats->spin_turns = batchflush_histogram_to_qapi(&c->spin_turns);
}

bool batchflush_snapshot(BlockDriverState *bs, BatchflushSnapshot *snapshot)
{
    BDRVBatchflushState *s = batchflush_state(bs);
    const BfFlushStats *flush;

    if (!s) {
        return false;
    }
    QEMU_LOCK_GUARD(&s->controller->lock);
    flush = &s->flush_stats;
    *snapshot = (BatchflushSnapshot) {
        .write_cache = s->params.write_cache,
        .power_off = s->controller->power.off,
        .flush_average_ns = batchflush_node_flush_time(s),
        .flush_arrivals = flush->arrivals,
        .flushes_issued = flush->issued,
        .flushes_joined = flush->joined,
        .flushes_alone = flush->alone,
        .flushes_failed = flush->failed,
        .cache_size = s->store ? bf_store_capacity(s->store) : 0,
        .dirty_bytes = s->store ? bf_store_dirty(s->store) : 0,
        .destaged_bytes = s->destaged_bytes,
        .destage_failures = s->destage_failures,
        .stalls = s->stalls,
        .stall_ns = s->stall_ns,
        .power_cuts = s->controller->power.epoch,
        .battery = s->params.write_cache == BF_CACHE_BATTERY
            ? 1 + s->controller->power.battery : 0,
        .hold_up_ns = s->params.battery_hold_up_ns,
    };
    return true;
}

BlockStatsSpecific *batchflush_get_specific_stats(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    BlockStatsSpecific *specific = g_new0(BlockStatsSpecific, 1);
    BlockStatsSpecificBatchflush *stats = &specific->u.batchflush;

    specific->driver = BLOCKDEV_DRIVER_BATCHFLUSH;

    QEMU_LOCK_GUARD(&s->controller->lock);
    fill_flush_stats(stats, s);
    stats->bookkeeping_ns = s->bookkeeping_ns;
    stats->dirty_bytes = s->store ? bf_store_dirty(s->store) : 0;
    stats->dirty_bytes_max = s->dirty_max;
    stats->destaged_bytes = s->destaged_bytes;
    stats->destage_failures = s->destage_failures;
    stats->stalls = s->stalls;
    stats->stall_ns = s->stall_ns;
    stats->power_cuts = s->controller->power.epoch;
    if (s->history) {
        stats->undo_bytes = bf_history_before_bytes(s->history);
        stats->history_bytes = bf_history_version_bytes(s->history);
        stats->history_forgotten_bytes =
            bf_history_forgotten_bytes(s->history);
    }
    stats->lateness = batchflush_lateness_to_qapi(s);
    fill_spin_stats(stats, s->controller);
    return specific;
}
