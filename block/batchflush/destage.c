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
    QEMU_LOCK_GUARD(&s->controller->lock);
    return bf_sweep_next(s->store, sweep, s->destage_buffer, RUN_MAX,
                         offset);
}

/* Called under @medium. */
static int coroutine_fn GRAPH_RDLOCK
write_runs(BDRVBatchflushState *s, BfSweep *sweep)
{
    BdrvChild *child = s->bs->file;
    uint64_t offset;
    size_t bytes;
    int ret = 0;

    if (!s->destage_buffer) {
        s->destage_buffer = qemu_try_blockalign(child->bs, RUN_MAX);
        if (!s->destage_buffer) {
            return -ENOMEM;
        }
    }
    while (ret == 0 && (bytes = next_run(s, sweep, &offset))) {
        ret = bdrv_co_pwrite(child, offset, bytes, s->destage_buffer, 0);
    }
    return ret;
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_destage(BDRVBatchflushState *s, BfSweep *sweep, bool flush)
{
    int ret = 0;

    QEMU_LOCK_GUARD(&s->medium);
    if (sweep) {
        ret = write_runs(s, sweep);
    }
    /*
     * A flush keeps its data until the child is flushed: a write that
     * failed late, as fsync reports it, can then be tried again.
     */
    if (ret == 0 && flush) {
        ret = bdrv_co_flush(s->bs->file->bs);
    }
    if (ret < 0) {
        QEMU_LOCK_GUARD(&s->controller->lock);
        s->destage_failures++;
        s->destage_error = ret;
        s->controller->destage_failures++;
        s->controller->destage_error = ret;
    }
    return ret;
}

void coroutine_fn batchflush_co_sweep_done(BDRVBatchflushState *s,
                                           BfSweep *sweep, int ret)
{
    BatchflushController *c = s->controller;

    s->sweeps_open--;
    s->destaged_bytes += bf_store_sweep_done(s->store, sweep, ret == 0);
    qemu_co_queue_restart_all(&c->room);
    batchflush_kick_destage(c);
}

static bool wants_destage(BatchflushController *c)
{
    if (c->params.write_cache == BF_CACHE_NONE || c->power.off ||
        !bf_cache_wants_destage(&c->cache, batchflush_controller_used(c))) {
        return false;
    }
    /* A drained node starts nothing by itself, but writers must end. */
    return !c->drained || c->cache.stalled > 0;
}

/*
 * Destage one run.  Called with the lock held, which is released
 * meanwhile.  Returns 0, or -errno, or -EAGAIN if there is nothing that
 * another sweep has not claimed.
 */
static int coroutine_fn destage_one(BDRVBatchflushState *s)
{
    BatchflushController *c = s->controller;
    uint64_t epoch = c->power.epoch;
    int64_t now = batchflush_now(c);
    BfSweep *sweep = bf_store_sweep_run(s->store, s->destage_from,
                                        RUN_MAX);
    int64_t done_at = now;
    int ret;

    if (!sweep) {
        return -EAGAIN;
    }
    s->sweeps_open++;
    s->destage_from = bf_sweep_end(sweep);
    if (batchflush_serving(c)) {
        done_at = batchflush_destage_instant(s, sweep, now);
    }
    trace_batchflush_destage(s->bs, bf_sweep_bytes(sweep), done_at - now);

    qemu_mutex_unlock(&c->lock);
    WITH_GRAPH_RDLOCK_GUARD() {
        ret = batchflush_co_destage(s, sweep, false);
    }
    qemu_mutex_lock(&c->lock);

    batchflush_co_wait_until(c, done_at);
    if (!bf_power_alive(&c->power, epoch)) {
        ret = -EIO;
    }
    batchflush_co_sweep_done(s, sweep, ret);
    return ret;
}

static void coroutine_fn background_entry(void *opaque)
{
    BDRVBatchflushState *s = opaque;
    BatchflushController *c = s->controller;

    WITH_QEMU_LOCK_GUARD(&c->lock) {
        /*
         * After a failure, wait for the next write or flush to try
         * again: a child that fails would keep us busy for ever.
         */
        while (wants_destage(c) && destage_one(s) == 0) {
            continue;
        }
        /*
         * Who waits for room is woken when a sweep ends.  Waking them
         * here, where others hold all that is dirty, would start us
         * again, and so on, without the event loop ever having a turn.
         */
        s->destaging = false;
    }
    bdrv_dec_in_flight(s->bs);
}

static void start_destage(BDRVBatchflushState *s)
{
    AioContext *ctx = bdrv_get_aio_context(s->bs);
    Coroutine *co = qemu_coroutine_create(background_entry, s);

    s->destaging = true;
    bdrv_inc_in_flight(s->bs);
    if (qemu_in_coroutine()) {
        /* Enters it once we yield, with the lock released. */
        aio_co_enter(ctx, co);
    } else {
        aio_co_schedule(ctx, co);
    }
}

void batchflush_kick_destage(BatchflushController *c)
{
    BDRVBatchflushState *s;

    if (!wants_destage(c)) {
        return;
    }
    QLIST_FOREACH(s, &c->nodes, next) {
        if (!s->destaging && bf_store_used(s->store) > 0) {
            start_destage(s);
        }
    }
}
