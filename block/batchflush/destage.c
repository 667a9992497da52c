/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Destage: moving dirty data from the cache to the child
 *
 * A flush destages everything.  In the background, data is destaged
 * one run after the other between the watermarks, and whenever a writer
 * waits for room.
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/block-io.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/units.h"

#include "batchflush.h"
#include "trace.h"

/* Largest write to the child. */
#define RUN_MAX (1 * MiB)

typedef struct InstantQuery {
    BDRVBatchflushState *s;
    int64_t now;
    int64_t instant;
} InstantQuery;

static void query_run(uint64_t offset, uint64_t bytes, void *opaque)
{
    InstantQuery *query = opaque;
    int64_t done = bf_service_request(&query->s->service, query->now,
                                      BF_OP_DESTAGE, bytes);

    query->instant = MAX(query->instant, done);
}

int64_t batchflush_destage_instant(BDRVBatchflushState *s,
                                   const BfSweep *sweep, int64_t now)
{
    InstantQuery query = { .s = s, .now = now, .instant = now };

    bf_sweep_foreach(sweep, query_run, &query);
    return query.instant;
}

static size_t next_run(BDRVBatchflushState *s, BfSweep *sweep,
                       uint64_t *offset)
{
    QEMU_LOCK_GUARD(&s->lock);
    return bf_sweep_next(s->store, sweep, s->destage_buffer, RUN_MAX,
                         offset);
}

/* Called under @medium. */
static int coroutine_fn GRAPH_RDLOCK
write_runs(BlockDriverState *bs, BfSweep *sweep)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t offset;
    size_t bytes;
    int ret = 0;

    if (!s->destage_buffer) {
        s->destage_buffer = qemu_try_blockalign(bs->file->bs, RUN_MAX);
        if (!s->destage_buffer) {
            return -ENOMEM;
        }
    }
    while (ret == 0 && (bytes = next_run(s, sweep, &offset))) {
        ret = bdrv_co_pwrite(bs->file, offset, bytes, s->destage_buffer, 0);
    }
    return ret;
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_destage(BlockDriverState *bs, BfSweep *sweep, bool flush)
{
    BDRVBatchflushState *s = bs->opaque;
    int ret = 0;

    QEMU_LOCK_GUARD(&s->medium);
    if (sweep) {
        ret = write_runs(bs, sweep);
    }
    /*
     * Only a flushed child lets data leave the cache: a write that
     * failed late, as fsync reports it, can then be tried again.
     */
    if (ret == 0 && flush) {
        ret = bdrv_co_flush(bs->file->bs);
    }
    if (ret < 0) {
        QEMU_LOCK_GUARD(&s->lock);
        s->destage_failures++;
        s->destage_error = ret;
    }
    return ret;
}

void coroutine_fn batchflush_co_sweep_done(BDRVBatchflushState *s,
                                           BfSweep *sweep, int ret)
{
    s->sweeps_open--;
    s->destaged_bytes += bf_store_sweep_done(s->store, sweep, ret == 0);
    qemu_co_queue_restart_all(&s->room);
    batchflush_kick_destage(s);
}

static bool wants_destage(BDRVBatchflushState *s)
{
    if (!s->store || s->power.off) {
        return false;
    }
    if (!bf_cache_wants_destage(&s->cache, bf_store_used(s->store))) {
        return false;
    }
    /* A drained node starts nothing by itself, but writers must end. */
    return !s->drained || s->cache.stalled > 0;
}

/*
 * Destage one run.  Called with the lock held, which is released
 * meanwhile.  Returns 0, or -errno, or -EAGAIN if there is nothing that
 * another sweep has not claimed.
 */
static int coroutine_fn destage_one(BDRVBatchflushState *s)
{
    BlockDriverState *bs = s->bs;
    uint64_t epoch = s->power.epoch;
    int64_t now = batchflush_now(s);
    BfSweep *sweep = bf_store_sweep(s->store, s->destage_from, RUN_MAX);
    int64_t done_at = now;
    int ret;

    if (!sweep) {
        return -EAGAIN;
    }
    s->sweeps_open++;
    if (batchflush_serving(s)) {
        done_at = batchflush_destage_instant(s, sweep, now);
    }
    trace_batchflush_destage(bs, bf_sweep_bytes(sweep), done_at - now);

    qemu_mutex_unlock(&s->lock);
    WITH_GRAPH_RDLOCK_GUARD() {
        ret = batchflush_co_destage(bs, sweep, false);
    }
    qemu_mutex_lock(&s->lock);

    batchflush_co_wait_until(s, done_at);
    if (!bf_power_alive(&s->power, epoch)) {
        ret = -EIO;
    }
    s->destage_from = bf_sweep_end(sweep);
    batchflush_co_sweep_done(s, sweep, ret);
    return ret;
}

static void coroutine_fn background_entry(void *opaque)
{
    BDRVBatchflushState *s = opaque;

    WITH_QEMU_LOCK_GUARD(&s->lock) {
        /*
         * After a failure, wait for the next write or flush to try
         * again: a child that fails would keep us busy for ever.
         */
        while (wants_destage(s) && destage_one(s) == 0) {
            continue;
        }
        s->destaging = false;
        qemu_co_queue_restart_all(&s->room);
    }
    bdrv_dec_in_flight(s->bs);
}

void batchflush_kick_destage(BDRVBatchflushState *s)
{
    AioContext *ctx = bdrv_get_aio_context(s->bs);
    Coroutine *co;

    if (s->destaging || !wants_destage(s)) {
        return;
    }
    s->destaging = true;
    bdrv_inc_in_flight(s->bs);
    co = qemu_coroutine_create(background_entry, s);
    if (qemu_in_coroutine()) {
        /* Enters it once we yield, with the lock released. */
        aio_co_enter(ctx, co);
    } else {
        aio_co_schedule(ctx, co);
    }
}
