/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Flushes: arrive, share or go alone, drain, complete
 *
 * bdrv_co_flush() calls us without serialising flushes of the node
 * (BlockDriver.supports_concurrent_flush), so this is where concurrent
 * flushes meet.  What it leaves to us: BDRV_O_NO_FLUSH, and flushing
 * the child.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qemu/main-loop.h"

#include "batchflush.h"
#include "trace.h"

/* What a flush of the hardware has to do, fixed when it begins. */
typedef struct FlushJob {
    BfFlight flight;
    uint64_t epoch;
    BfSweep *sweep;             /* what it drains, or NULL */
    uint64_t dirty_bytes;
    bool drains;                /* it moves dirty data to the child */
    bool clean;                 /* it found nothing to do */
    int64_t done_at;
    uint64_t failures;          /* of destage, so far */
} FlushJob;

/*
 * A battery-backed cache acknowledges a flush without draining.  Not
 * so while times are not served: then nobody's flush time is at stake,
 * and it is QEMU that flushes, to stop, migrate, reopen or close, and
 * wants the image complete.
 */
static bool drains(const BDRVBatchflushState *s)
{
    return s->params.write_cache == BF_CACHE_VOLATILE ||
           (s->store && !batchflush_serving(s));
}

static bool is_clean(const BDRVBatchflushState *s, const FlushJob *job)
{
    switch (s->params.write_cache) {
    case BF_CACHE_VOLATILE:
        return !job->sweep && s->sweeps_open == 0;
    case BF_CACHE_BATTERY:
        return bf_store_used(s->store) == 0;
    default:
        return true;
    }
}

/* Take the snapshot: what was completed until now, this flush covers. */
static void flush_begin(BDRVBatchflushState *s, FlushJob *job)
{
    int64_t now = job->flight.began_at;

    job->epoch = s->power.epoch;
    job->failures = s->destage_failures;
    job->done_at = now;
    job->drains = drains(s);
    if (job->drains) {
        job->sweep = bf_store_sweep(s->store, 0, UINT64_MAX);
    }
    job->clean = is_clean(s, job);
    if (job->sweep) {
        job->dirty_bytes = bf_sweep_bytes(job->sweep);
        s->sweeps_open++;
    }
    if (batchflush_serving(s)) {
        if (job->sweep) {
            batchflush_destage_instant(s, job->sweep, now);
        }
        job->done_at = bf_service_flush(&s->service, now, job->clean);
    }
    trace_batchflush_flush_begin(s->bs, job->flight.members,
                                 job->dirty_bytes,
                                 now - job->flight.arrived_at,
                                 job->done_at - now);
}

/* Move the data; the time it takes to the guest is the model's. */
static int coroutine_fn GRAPH_RDLOCK
flush_medium(BlockDriverState *bs, const FlushJob *job)
{
    BDRVBatchflushState *s = bs->opaque;
    bool child_flush = !(bs->open_flags & BDRV_O_NO_FLUSH);

    if (!s->store) {
        return child_flush ? bdrv_co_flush(bs->file->bs) : 0;
    }
    return job->drains ? batchflush_co_destage(bs, job->sweep, child_flush)
                       : 0;
}

/* Called with the lock held, which is released meanwhile. */
static int coroutine_fn GRAPH_RDLOCK
flush_run(BlockDriverState *bs, FlushJob *job)
{
    BDRVBatchflushState *s = bs->opaque;
    int ret;

    flush_begin(s, job);
    qemu_mutex_unlock(&s->lock);
    ret = flush_medium(bs, job);
    qemu_mutex_lock(&s->lock);
    batchflush_co_wait_until(s, job->done_at);

    if (!bf_power_alive(&s->power, job->epoch)) {
        return -EIO;
    }
    /* A sweep that was under way when we began held data we cover. */
    if (ret == 0 && s->store && s->destage_failures != job->failures) {
        return s->destage_error;
    }
    return ret;
}

static void coroutine_fn flush_account(BDRVBatchflushState *s,
                                       const FlushJob *job, int ret)
{
    BfOutcome outcome = ret < 0 ? BF_OUTCOME_FAILED
                      : job->clean ? BF_OUTCOME_CLEAN : BF_OUTCOME_DURABLE;
    int64_t now = batchflush_now(s);

    bf_coordinator_end(&s->coordinator, now, &job->flight,
                       job->dirty_bytes, outcome);
    trace_batchflush_flush_end(s->bs, job->flight.members,
                               now - job->flight.began_at, ret);
    if (s->leader) {
        batchflush_co_unpark(s->leader);
    }
}

typedef struct Bookkeeping {
    BDRVBatchflushState *s;
    BfSweep *sweep;
    int ret;
} Bookkeeping;

static void coroutine_fn bookkeeping_run(BDRVBatchflushState *s,
                                         BfSweep *sweep, int ret)
{
    int64_t start = get_clock();

    batchflush_co_sweep_done(s, sweep, ret);
    s->bookkeeping_ns += get_clock() - start;
}

static void coroutine_fn bookkeeping_entry(void *opaque)
{
    g_autofree Bookkeeping *work = opaque;
    BDRVBatchflushState *s = work->s;

    WITH_QEMU_LOCK_GUARD(&s->lock) {
        bookkeeping_run(s, work->sweep, work->ret);
    }
    bdrv_dec_in_flight(s->bs);
}

/*
 * The sweep has served its purpose; dropping its data from the cache
 * is nobody's business any more, so nobody waits for it (S4).  On the
 * virtual clock it takes no time anyway, and a coroutine of its own
 * would run at a moment that depends on the host.
 */
static void coroutine_fn flush_bookkeeping(BDRVBatchflushState *s,
                                           const FlushJob *job, int ret)
{
    Bookkeeping *work;

    if (!job->sweep) {
        return;
    }
    if (s->clock == QEMU_CLOCK_VIRTUAL || !batchflush_serving(s)) {
        bookkeeping_run(s, job->sweep, ret);
        return;
    }
    work = g_new(Bookkeeping, 1);
    *work = (Bookkeeping) { .s = s, .sweep = job->sweep, .ret = ret };
    bdrv_inc_in_flight(s->bs);
    aio_co_schedule(qemu_get_current_aio_context(),
                    qemu_coroutine_create(bookkeeping_entry, work));
}

static void coroutine_fn complete_members(BatchflushMembers *members,
                                          int ret)
{
    BatchflushMember *member, *next;

    /* A member is gone once it is woken. */
    QSIMPLEQ_FOREACH_SAFE(member, members, next, next) {
        member->ret = ret;
        aio_co_wake(member->co);
    }
}

/* The three roles are called, and return, with the lock held. */

static int coroutine_fn GRAPH_RDLOCK flush_alone(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    FlushJob job = {};
    int ret;

    bf_coordinator_begin_alone(&s->coordinator, batchflush_now(s),
                               &job.flight);
    ret = flush_run(bs, &job);
    flush_account(s, &job, ret);
    flush_bookkeeping(s, &job, ret);
    return ret;
}

static void coroutine_fn wait_for_company(BDRVBatchflushState *s)
{
    BatchflushDelay delay;

    for (;;) {
        int64_t now = batchflush_now(s);
        int64_t begin_at = bf_coordinator_begin_at(&s->coordinator, now);

        if (begin_at <= now) {
            return;
        }
        s->leader = &delay;
        batchflush_co_park(s, &delay, begin_at);
        s->leader = NULL;
    }
}

static int coroutine_fn GRAPH_RDLOCK flush_lead(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    BatchflushMembers members = QSIMPLEQ_HEAD_INITIALIZER(members);
    FlushJob job = {};
    int ret;

    wait_for_company(s);
    bf_coordinator_begin(&s->coordinator, batchflush_now(s), &job.flight);
    QSIMPLEQ_CONCAT(&members, &s->joined);
    ret = s->power.off ? -EIO : flush_run(bs, &job);
    complete_members(&members, ret);
    flush_account(s, &job, ret);
    flush_bookkeeping(s, &job, ret);
    return ret;
}

static int coroutine_fn flush_join(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    BatchflushMember self = { .co = qemu_coroutine_self() };
    int64_t now = batchflush_now(s);

    QSIMPLEQ_INSERT_TAIL(&s->joined, &self, next);
    if (s->leader && bf_coordinator_begin_at(&s->coordinator, now) <= now) {
        batchflush_co_unpark(s->leader);
    }
    qemu_mutex_unlock(&s->lock);
    qemu_coroutine_yield();
    qemu_mutex_lock(&s->lock);
    return self.ret;
}

int coroutine_fn batchflush_co_flush(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    BfRole role;
    int ret = -EIO;

    QEMU_LOCK_GUARD(&s->lock);
    if (s->power.off) {
        return -EIO;
    }
    role = bf_coordinator_arrive(&s->coordinator, batchflush_now(s));
    trace_batchflush_flush_arrive(bs, role);
    switch (role) {
    case BF_ROLE_ALONE:
        ret = flush_alone(bs);
        break;
    case BF_ROLE_LEAD:
        ret = flush_lead(bs);
        break;
    case BF_ROLE_JOIN:
        ret = flush_join(bs);
        break;
    }
    return ret;
}
