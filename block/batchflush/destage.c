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

#include "outage.h"
#include "trace.h"

/* Largest write to the child. */
#define RUN_MAX (1 * MiB)

static void add_run(uint64_t offset, uint64_t bytes, void *opaque)
{
    BfRun run = { offset, bytes };

    g_array_append_val((GArray *)opaque, run);
}

GArray *coroutine_fn batchflush_co_ask_destage(BDRVBatchflushState *s,
                                                BatchflushAsk *ask,
                                                const BfSweep *sweep,
                                                int64_t now)
{
    GArray *runs = g_array_new(false, false, sizeof(BfRun));

    bf_sweep_foreach(sweep, add_run, runs);
    ask->request = (BfRequest) {
        .op = BF_OP_DESTAGE,
        .runs = (const BfRun *)runs->data,
        .n_runs = runs->len,
    };
    batchflush_co_ask(s, ask, now);
    return runs;
}

static size_t next_run(BDRVBatchflushState *s, BfSweep *sweep,
                       uint64_t *offset)
{
    QEMU_LOCK_GUARD(&s->controller->lock);
    return bf_sweep_next(s->store, sweep, s->destage_buffer, RUN_MAX,
                         offset);
}

static bool GRAPH_RDLOCK get_buffers(BDRVBatchflushState *s)
{
    BlockDriverState *child = s->bs->file->bs;

    if (!s->destage_buffer) {
        s->destage_buffer = qemu_try_blockalign(child, RUN_MAX);
    }
    if (!s->before_buffer && s->history) {
        s->before_buffer = qemu_try_blockalign(child, RUN_MAX);
    }
    return s->destage_buffer && (s->before_buffer || !s->history);
}

/*
 * While times are not served, what is on the child is durable.  Returns
 * -EIO if the power was cut since the data was copied.
 */
static int coroutine_fn GRAPH_RDLOCK
keep_before(BDRVBatchflushState *s, const BfSweep *sweep, uint64_t offset,
            size_t bytes)
{
    BatchflushController *c = s->controller;

    QEMU_LOCK_GUARD(&c->lock);
    if (c->power.off) {
        return -EIO;
    }
    if (!s->history || !batchflush_serving(c)) {
        return 0;
    }
    return batchflush_co_keep_before(s, c->power.epoch,
                                     bf_sweep_order(sweep), offset, bytes,
                                     s->before_buffer);
}

/* Called in our turn, without the lock. */
static int coroutine_fn GRAPH_RDLOCK
write_runs(BDRVBatchflushState *s, BfSweep *sweep)
{
    uint64_t offset;
    size_t bytes;
    int ret = 0;

    if (!get_buffers(s)) {
        return -ENOMEM;
    }
    while (ret == 0 && (bytes = next_run(s, sweep, &offset))) {
        ret = keep_before(s, sweep, offset, bytes);
        if (ret == 0) {
            ret = bdrv_co_pwrite(s->bs->file, offset, bytes,
                                 s->destage_buffer, 0);
        }
    }
    return ret;
}

uint64_t batchflush_draw_turn(BDRVBatchflushState *s)
{
    return s->turn_next++;
}

void coroutine_fn batchflush_co_wait_turn(BDRVBatchflushState *s,
                                          uint64_t turn)
{
    while (s->turn_now != turn) {
        qemu_co_queue_wait(&s->turns, &s->controller->lock);
    }
}

void coroutine_fn batchflush_co_end_turn(BDRVBatchflushState *s)
{
    s->turn_now++;
    qemu_co_queue_restart_all(&s->turns);
}

/* Called in our turn, without the lock. */
static int coroutine_fn GRAPH_RDLOCK
move(BDRVBatchflushState *s, BfSweep *sweep, bool flush)
{
    int ret = sweep ? write_runs(s, sweep) : 0;

    /*
     * A flush keeps its data until the child is flushed: a write that
     * failed late, as fsync reports it, can then be tried again.
     */
    return ret == 0 && flush ? bdrv_co_flush(s->bs->file->bs) : ret;
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_destage(BDRVBatchflushState *s, BfSweep *sweep, uint64_t turn,
                      bool flush)
{
    BatchflushController *c = s->controller;
    int ret;

    batchflush_co_wait_turn(s, turn);
    qemu_mutex_unlock(&c->lock);
    ret = move(s, sweep, flush);
    qemu_mutex_lock(&c->lock);
    if (ret < 0) {
        s->destage_failures++;
        s->destage_error = ret;
        c->destage_failures++;
        c->destage_error = ret;
        /*
         * At once, not when the sweep's time is over: a flush that
         * begins from now on does not see this failure, only the data.
         */
        if (sweep) {
            bf_store_sweep_abort(s->store, sweep);
        }
    }
    batchflush_co_end_turn(s);
    return ret;
}

void coroutine_fn batchflush_co_sweep_done(BDRVBatchflushState *s,
                                           BfSweep *sweep, int ret)
{
    BatchflushController *c = s->controller;

    s->sweeps_open--;
    s->destaged_bytes += bf_store_sweep_done(s->store, sweep, ret == 0);
    qemu_co_queue_restart_all(&s->sweep_ends);
    batchflush_co_wake_stalled(c);
    batchflush_kick_destage(c);
}

static bool may_destage(const BatchflushController *c)
{
    return c->params.write_cache != BF_CACHE_NONE && !c->power.off &&
           !c->drained;
}

static bool wants_destage(BatchflushController *c)
{
    return may_destage(c) &&
           bf_cache_wants_destage(&c->cache, batchflush_controller_used(c));
}

/*
 * Destage a sweep.  Called with the lock held, which is released
 * meanwhile.  Returns 0, or -errno, or -EAGAIN if it is NULL: there is
 * nothing that another one has not claimed.
 */
static int coroutine_fn GRAPH_RDLOCK
destage_sweep(BDRVBatchflushState *s, BfSweep *sweep)
{
    BatchflushController *c = s->controller;
    uint64_t epoch = c->power.epoch;
    int64_t now = batchflush_now(c);
    BatchflushAsk ask;
    GArray *runs;
    int64_t done_at;
    uint64_t turn;
    int ret;

    if (!sweep) {
        return -EAGAIN;
    }
    turn = batchflush_draw_turn(s);
    s->sweeps_open++;
    runs = batchflush_co_ask_destage(s, &ask, sweep, now);

    ret = batchflush_co_destage(s, sweep, turn, false);
    done_at = batchflush_co_answer(s, &ask);
    g_array_free(runs, true);
    trace_batchflush_destage(s->bs, bf_sweep_bytes(sweep), done_at - now);
    batchflush_co_wait_until(c, done_at);
    if (!bf_power_alive(&c->power, epoch)) {
        ret = -EIO;
    }
    batchflush_co_sweep_done(s, sweep, ret);
    return ret;
}

static int coroutine_fn GRAPH_RDLOCK destage_run(BDRVBatchflushState *s)
{
    uint64_t from = s->params.rpm ? bf_service_place(&s->service)
                                  : s->destage_from;
    BfSweep *sweep = bf_store_sweep_run(s->store, from, RUN_MAX);

    if (sweep) {
        s->destage_from = bf_sweep_end(sweep);
    }
    return destage_sweep(s, sweep);
}

/*
 * What the background coroutine knows of its node until it has the graph
 * lock.  It must not keep a drain waiting before: a writer of the graph
 * drains nodes, too, and would wait for us while we wait for it.  So it
 * is not in flight until then, and the node may be gone by then.
 */
struct BatchflushBackground {
    unsigned refs;
    QemuMutex lock;             /* taken before the controller's */
    BDRVBatchflushState *s;     /* NULL: the node is closed */
};

BatchflushBackground *batchflush_background_new(BDRVBatchflushState *s)
{
    BatchflushBackground *background = g_new(BatchflushBackground, 1);

    *background = (BatchflushBackground) { .refs = 1, .s = s };
    qemu_mutex_init(&background->lock);
    return background;
}

static void background_unref(BatchflushBackground *background)
{
    if (qatomic_fetch_dec(&background->refs) == 1) {
        qemu_mutex_destroy(&background->lock);
        g_free(background);
    }
}

void batchflush_background_close(BatchflushBackground *background)
{
    WITH_QEMU_LOCK_GUARD(&background->lock) {
        background->s = NULL;
    }
    background_unref(background);
}

/* The node, in flight, or NULL if it is closed or drained. */
static BDRVBatchflushState *background_enter(BatchflushBackground *background)
{
    BDRVBatchflushState *s;

    QEMU_LOCK_GUARD(&background->lock);
    s = background->s;
    if (s) {
        QEMU_LOCK_GUARD(&s->controller->lock);
        if (s->drained) {
            s->destaging = false;
            return NULL;
        }
        bdrv_inc_in_flight(s->bs);
    }
    return s;
}

static void coroutine_fn GRAPH_RDLOCK background_run(BDRVBatchflushState *s)
{
    BatchflushController *c = s->controller;

    QEMU_LOCK_GUARD(&c->lock);
    if (s->overdue && may_destage(c)) {
        s->overdue = false;
        destage_sweep(s, bf_store_sweep(s->store, 0, UINT64_MAX));
    }
    /*
     * After a failure, wait for the next write or flush to try again: a
     * child that fails would keep us busy for ever.
     */
    while (wants_destage(c) && destage_run(s) == 0) {
        continue;
    }
    /*
     * Who waits for room is woken when a sweep ends.  Waking them here,
     * where others hold all that is dirty, would start us again, and so
     * on, without the event loop ever having a turn.
     */
    s->destaging = false;
}

static void coroutine_fn background_entry(void *opaque)
{
    BatchflushBackground *background = opaque;
    BDRVBatchflushState *s;

    WITH_GRAPH_RDLOCK_GUARD() {
        s = background_enter(background);
        if (s) {
            background_run(s);
            bdrv_dec_in_flight(s->bs);
        }
    }
    background_unref(background);
}

static void start_destage(BDRVBatchflushState *s)
{
    AioContext *ctx = bdrv_get_aio_context(s->bs);
    Coroutine *co = qemu_coroutine_create(background_entry, s->background);

    s->destaging = true;
    qatomic_inc(&s->background->refs);
    if (qemu_in_coroutine()) {
        /* Enters it once we yield, with the lock released. */
        aio_co_enter(ctx, co);
    } else {
        aio_co_schedule(ctx, co);
    }
}

void batchflush_kick_destage(BatchflushController *c)
{
    bool all = wants_destage(c);
    BDRVBatchflushState *s;

    if (!may_destage(c)) {
        return;
    }
    QLIST_FOREACH(s, &c->nodes, next) {
        if ((all || s->overdue) && !s->destaging &&
            bf_store_used(s->store) > 0 &&
            !(s->bs->open_flags & BDRV_O_INACTIVE)) {
            start_destage(s);
        }
    }
}

static void overdue_cb(void *opaque)
{
    BDRVBatchflushState *s = opaque;

    QEMU_LOCK_GUARD(&s->controller->lock);
    s->overdue = !s->controller->power.off;
    batchflush_kick_destage(s->controller);
}

void batchflush_destage_later(BDRVBatchflushState *s, int64_t ns)
{
    BatchflushController *c = s->controller;

    if (!s->overdue_timer) {
        s->overdue_timer = timer_new_ns(c->clock, overdue_cb, s);
    }
    if (!timer_pending(s->overdue_timer)) {
        timer_mod(s->overdue_timer, batchflush_now(c) + ns);
    }
}

void batchflush_destage_not_later(BDRVBatchflushState *s)
{
    s->overdue = false;
    timer_free(s->overdue_timer);
    s->overdue_timer = NULL;
}
