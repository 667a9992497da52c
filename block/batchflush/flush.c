/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Flushes: arrive, share or go alone, drain, complete
 *
 * bdrv_co_flush() calls us without serialising flushes of the node
 * (BlockDriver.supports_concurrent_flush), so this is where concurrent
 * flushes meet.  What it leaves to us: BDRV_O_NO_FLUSH, and flushing
 * the child.
 *
 * The lock is held on entry and on return of every function here that
 * takes a job, and released while it waits.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qemu/main-loop.h"

#include "outage.h"
#include "trace.h"

/* What a flush of the hardware has to do on one disk. */
typedef struct FlushPart {
    BDRVBatchflushState *s;
    BfFlight flight;            /* as this disk sees it */
    BfSweep *sweep;             /* what it drains, or NULL */
    uint64_t dirty_bytes;
    uint64_t behind;            /* the last sweep before it */
    bool drains;                /* it moves dirty data to the child */
    uint64_t turn;              /* and when */
    bool clean;                 /* it found nothing to do */
    bool served;                /* its time was served */
    BatchflushAsk destage;      /* of the sweep */
    GArray *runs;               /* and what of, or NULL */
    BatchflushAsk ask;          /* of the flush */
    int64_t done_at;            /* when the model has it durable */
    int64_t durable_at;         /* and when it was */
    uint64_t failures;          /* of destage, when it began */
    int ret;
} FlushPart;

typedef struct FlushJob {
    BatchflushController *controller;
    BfFlight flight;
    uint64_t epoch;
    FlushPart *parts;           /* one per disk of its members */
    unsigned n_parts;
    int64_t late;               /* see batchflush_co_wait_until() */
    FlushPart single;           /* the usual case needs no allocation */
} FlushJob;

static void job_init(FlushJob *job, BatchflushController *c)
{
    *job = (FlushJob) { .controller = c, .epoch = c->power.epoch };
    job->parts = c->n_nodes > 1 ? g_new0(FlushPart, c->n_nodes)
                                : &job->single;
}

static void job_destroy(FlushJob *job)
{
    if (job->parts != &job->single) {
        g_free(job->parts);
    }
}

static FlushPart *job_part(FlushJob *job, const BDRVBatchflushState *s)
{
    for (unsigned i = 0; i < job->n_parts; i++) {
        if (job->parts[i].s == s) {
            return &job->parts[i];
        }
    }
    return NULL;
}

static void job_add(FlushJob *job, BDRVBatchflushState *s,
                    int64_t arrived_at)
{
    FlushPart *part = job_part(job, s);

    if (!part) {
        part = &job->parts[job->n_parts++];
        *part = (FlushPart) { .s = s, .flight.arrived_at = arrived_at };
    }
    part->flight.members++;
}

/*
 * A battery-backed cache acknowledges a flush without draining, and so
 * does a device that lies.  Not so while times are not served: then
 * nobody's flush time is at stake, and it is QEMU that flushes, to stop,
 * migrate, reopen or close, and wants the image complete.
 */
static bool drains(const BDRVBatchflushState *s)
{
    const BatchflushController *c = s->controller;

    if (!s->store || c->power.off) {
        return false;
    }
    if (!batchflush_serving(c)) {
        return true;
    }
    return !bf_power_backed(&c->power, &s->params) &&
           s->params.lie != BF_LIE_FLUSH && s->params.lie != BF_LIE_DELAYED;
}

static bool is_clean(const FlushPart *part)
{
    const BDRVBatchflushState *s = part->s;

    if (!s->store) {
        return true;
    }
    if (bf_power_backed(&s->controller->power, &s->params)) {
        return bf_store_used(s->store) == 0;
    }
    return !part->sweep && s->sweeps_open == 0;
}

static BfOp flush_op(const FlushPart *part)
{
    if (part->clean) {
        return BF_OP_FLUSH_CLEAN;
    }
    return part->drains ? BF_OP_FLUSH : BF_OP_FLUSH_BACKED;
}

/* Take the snapshot: what was completed until now, this flush covers. */
static void coroutine_fn part_begin(FlushPart *part, int64_t now)
{
    BDRVBatchflushState *s = part->s;

    part->flight.began_at = now;
    part->failures = s->destage_failures;
    part->drains = drains(s);
    if (part->drains) {
        part->turn = batchflush_draw_turn(s);
        part->behind = bf_store_last_sweep(s->store);
        part->sweep = bf_store_sweep(s->store, 0, UINT64_MAX);
    }
    part->clean = is_clean(part);
    if (part->sweep) {
        part->dirty_bytes = bf_sweep_bytes(part->sweep);
        s->sweeps_open++;
    }
    part->served = batchflush_serving(s->controller);
    if (part->sweep) {
        part->runs = batchflush_co_ask_destage(s, &part->destage,
                                               part->sweep, now);
    }
    part->ask.request = (BfRequest) { .op = flush_op(part) };
    batchflush_co_ask(s, &part->ask, now);
    trace_batchflush_flush_begin(s->bs, part->flight.members,
                                 part->dirty_bytes,
                                 now - part->flight.arrived_at,
                                 part->ask.request.done_at == BF_NEVER
                                 ? -1 : part->ask.request.done_at - now);
}

/* A flush is decided behind its destage, so both are answered. */
static int64_t coroutine_fn part_answer(FlushPart *part)
{
    part->done_at = batchflush_co_answer(part->s, &part->ask);
    part->durable_at = MAX(part->durable_at, part->done_at);
    if (part->runs) {
        g_array_free(part->runs, true);
    }
    return part->done_at;
}

/* Move the data; the time that takes to the guest is the model's. */
static int coroutine_fn GRAPH_RDLOCK part_move(const FlushPart *part)
{
    BDRVBatchflushState *s = part->s;
    bool child_flush = !(s->bs->open_flags & BDRV_O_NO_FLUSH);
    int ret = 0;

    if (part->drains) {
        return batchflush_co_destage(s, part->sweep, part->turn,
                                     child_flush);
    }
    if (!s->store && child_flush) {
        qemu_mutex_unlock(&s->controller->lock);
        ret = bdrv_co_flush(s->bs->file->bs);
        qemu_mutex_lock(&s->controller->lock);
    }
    return ret;
}

/*
 * One disk after the other: what the host takes adds up, what the
 * hardware takes does not.
 */
static void coroutine_fn GRAPH_RDLOCK job_move(FlushJob *job)
{
    for (unsigned i = 0; i < job->n_parts; i++) {
        FlushPart *part = &job->parts[i];

        part->ret = part_move(part);
        part->durable_at = batchflush_now(job->controller);
    }
}

/* What it has moved is durable now. */
static void coroutine_fn part_settle(const FlushJob *job, FlushPart *part)
{
    if (part->sweep && part->ret == 0 &&
        bf_power_alive(&job->controller->power, job->epoch)) {
        bf_sweep_set_durable(part->sweep);
        qemu_co_queue_restart_all(&part->s->sweep_ends);
    }
}

/* So is what others had claimed before, when they are done. */
static void coroutine_fn part_wait_behind(const FlushPart *part)
{
    BDRVBatchflushState *s = part->s;

    while (part->drains && bf_store_sweeping(s->store, part->behind)) {
        qemu_co_queue_wait(&s->sweep_ends, &s->controller->lock);
    }
}

/*
 * A disk by itself is as late as it was; of several the one that waits
 * for others was durable when the model says.
 */
static void part_end(const FlushJob *job, FlushPart *part)
{
    BDRVBatchflushState *s = part->s;
    int64_t now = batchflush_now(job->controller);

    part->durable_at = job->n_parts == 1 ? now : MIN(part->durable_at, now);
    part->served &= now >= part->done_at;
    if (part->done_at > part->flight.began_at) {
        batchflush_count_lateness(s, BF_OPERATION_FLUSH, job->late);
    }
    if (!bf_power_alive(&job->controller->power, job->epoch)) {
        part->ret = -EIO;
    } else if (part->ret == 0 && s->destage_failures != part->failures) {
        /* A sweep that was under way when we began held data we cover. */
        part->ret = s->destage_error;
    }
}

/* A flush whose time was not served says nothing about flush times. */
static BfOutcome outcome_of(int ret, bool clean, bool served)
{
    if (ret < 0) {
        return BF_OUTCOME_FAILED;
    }
    return clean || !served ? BF_OUTCOME_CLEAN : BF_OUTCOME_DURABLE;
}

static void part_account(FlushPart *part)
{
    BDRVBatchflushState *s = part->s;
    BfOutcome outcome = outcome_of(part->ret, part->clean, part->served);
    int64_t took = part->durable_at - part->flight.began_at;

    if (outcome == BF_OUTCOME_DURABLE) {
        bf_average_add(&s->flush_time, took);
    }
    if (part->ret == 0 && s->params.lie == BF_LIE_DELAYED) {
        batchflush_destage_later(s, s->params.lie_delay_ns);
    }
    s->flush_stats.joined += part->flight.members - 1;
    bf_flush_stats_add(&s->flush_stats, &part->flight, part->durable_at,
                       part->dirty_bytes, outcome);
    trace_batchflush_flush_end(s->bs, part->flight.members, took, part->ret);
}

static void coroutine_fn job_account(FlushJob *job)
{
    BatchflushController *c = job->controller;
    uint64_t dirty_bytes = 0;
    bool clean = true;
    bool served = true;
    int ret = 0;

    for (unsigned i = 0; i < job->n_parts; i++) {
        FlushPart *part = &job->parts[i];

        part_account(part);
        dirty_bytes += part->dirty_bytes;
        clean &= part->clean;
        served &= part->served;
        ret = ret ?: part->ret;
    }
    bf_coordinator_end(&c->coordinator, batchflush_now(c), &job->flight,
                       dirty_bytes, outcome_of(ret, clean, served));
    if (c->leader) {
        batchflush_co_unpark(c->leader);
    }
}

/* If a power cut waits for the middle of a flush, that is here. */
static void coroutine_fn cut_in_flush(FlushJob *job, int64_t done_at)
{
    BatchflushController *c = job->controller;
    int64_t began_at = job->flight.began_at;
    int64_t after_ns;

    if (batchflush_cut_in_flush(c, done_at - began_at, &after_ns)) {
        batchflush_co_wait_until(c, began_at + after_ns);
        batchflush_cut_moment(job->parts[0].s,
                              BATCHFLUSH_CUT_MOMENT_IN_FLUSH);
    }
}

/* Begin, move the data, and wait until it is durable everywhere. */
static void coroutine_fn GRAPH_RDLOCK job_run(FlushJob *job)
{
    BatchflushController *c = job->controller;
    int64_t done_at = job->flight.began_at;

    for (unsigned i = 0; i < job->n_parts; i++) {
        part_begin(&job->parts[i], job->flight.began_at);
    }
    job_move(job);
    for (unsigned i = 0; i < job->n_parts; i++) {
        done_at = MAX(done_at, part_answer(&job->parts[i]));
    }
    c->flush_done_at = done_at;
    cut_in_flush(job, done_at);
    job->late = batchflush_co_wait_until(c, done_at);

    for (unsigned i = 0; i < job->n_parts; i++) {
        part_settle(job, &job->parts[i]);
    }
    for (unsigned i = 0; i < job->n_parts; i++) {
        part_wait_behind(&job->parts[i]);
    }
    for (unsigned i = 0; i < job->n_parts; i++) {
        part_end(job, &job->parts[i]);
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

    WITH_QEMU_LOCK_GUARD(&s->controller->lock) {
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
static void coroutine_fn part_bookkeeping(const FlushPart *part)
{
    BDRVBatchflushState *s = part->s;
    BatchflushController *c = s->controller;
    Bookkeeping *work;

    if (!part->sweep) {
        return;
    }
    if (c->clock == QEMU_CLOCK_VIRTUAL || !batchflush_serving(c)) {
        bookkeeping_run(s, part->sweep, part->ret);
        return;
    }
    work = g_new(Bookkeeping, 1);
    *work = (Bookkeeping) { .s = s, .sweep = part->sweep, .ret = part->ret };
    bdrv_inc_in_flight(s->bs);
    aio_co_schedule(qemu_get_current_aio_context(),
                    qemu_coroutine_create(bookkeeping_entry, work));
}

static void coroutine_fn complete_members(FlushJob *job,
                                          BatchflushMembers *members)
{
    BatchflushMember *member, *next;

    /* A member is gone once it is woken. */
    QSIMPLEQ_FOREACH_SAFE(member, members, next, next) {
        member->ret = job_part(job, member->s)->ret;
        aio_co_wake(member->co);
    }
}

/* The rest, once its members are completed.  Returns @s's result. */
static int coroutine_fn job_finish(FlushJob *job,
                                   const BDRVBatchflushState *s)
{
    int ret = job_part(job, s)->ret;

    job_account(job);
    for (unsigned i = 0; i < job->n_parts; i++) {
        part_bookkeeping(&job->parts[i]);
    }
    job_destroy(job);
    return ret;
}

static int coroutine_fn GRAPH_RDLOCK flush_alone(BDRVBatchflushState *s,
                                                 int64_t now)
{
    BatchflushController *c = s->controller;
    FlushJob job;

    job_init(&job, c);
    job_add(&job, s, now);
    bf_coordinator_begin_alone(&c->coordinator, now, &job.flight);
    job_run(&job);
    return job_finish(&job, s);
}

/* Returns true if all it waited for was the flush before. */
static bool coroutine_fn wait_for_company(BatchflushController *c,
                                          uint64_t epoch)
{
    BatchflushDelay delay = {};
    bool queued = false;

    for (;;) {
        int64_t now = batchflush_now(c);
        int64_t begin_at = bf_coordinator_begin_at(&c->coordinator, now);

        if (begin_at <= now ||
            (begin_at != BF_NEVER &&
             !(batchflush_serving(c) && bf_power_alive(&c->power, epoch)))) {
            return queued;
        }
        queued = begin_at == BF_NEVER;
        c->leader = &delay;
        batchflush_co_park(c, &delay, begin_at);
        c->leader = NULL;
    }
}

static int coroutine_fn GRAPH_RDLOCK flush_lead(BDRVBatchflushState *s,
                                                int64_t now)
{
    BatchflushController *c = s->controller;
    BatchflushMembers members = QSIMPLEQ_HEAD_INITIALIZER(members);
    BatchflushMember *member;
    uint64_t epoch = c->power.epoch;
    FlushJob job;
    bool queued;

    queued = wait_for_company(c, epoch);
    job_init(&job, c);
    job.epoch = epoch;
    job_add(&job, s, now);
    bf_coordinator_begin(&c->coordinator, batchflush_now(c), &job.flight);
    if (queued && c->n_nodes == 1) {
        /*
         * The hardware went on when it was done, not when the host had
         * woken us: lateness must not add up from one batch to the next.
         */
        job.flight.began_at = MAX(now, MIN(job.flight.began_at,
                                           c->flush_done_at));
    }
    QSIMPLEQ_CONCAT(&members, &c->joined);
    QSIMPLEQ_FOREACH(member, &members, next) {
        job_add(&job, member->s, member->arrived_at);
    }
    job_run(&job);
    complete_members(&job, &members);
    return job_finish(&job, s);
}

static int coroutine_fn flush_join(BDRVBatchflushState *s, int64_t now)
{
    BatchflushController *c = s->controller;
    BatchflushMember self = {
        .s = s,
        .co = qemu_coroutine_self(),
        .arrived_at = now,
    };

    QSIMPLEQ_INSERT_TAIL(&c->joined, &self, next);
    if (c->leader && bf_coordinator_begin_at(&c->coordinator, now) <= now) {
        batchflush_co_unpark(c->leader);
    }
    batchflush_check_stuck(c);
    qemu_mutex_unlock(&c->lock);
    qemu_coroutine_yield();
    qemu_mutex_lock(&c->lock);
    return self.ret;
}

int coroutine_fn batchflush_co_flush(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    BatchflushController *c = s->controller;
    int64_t now;
    BfRole role;

    QEMU_LOCK_GUARD(&c->lock);
    if (c->power.off) {
        return -EIO;
    }
    s->flushes++;
    batchflush_cut_moment(s, BATCHFLUSH_CUT_MOMENT_FLUSH);
    if (c->power.off) {
        return -EIO;
    }
    now = batchflush_now(c);
    s->flush_stats.arrivals++;
    role = bf_coordinator_arrive(&c->coordinator, now);
    trace_batchflush_flush_arrive(bs, role);
    switch (role) {
    case BF_ROLE_ALONE:
        return flush_alone(s, now);
    case BF_ROLE_LEAD:
        return flush_lead(s, now);
    case BF_ROLE_JOIN:
        return flush_join(s, now);
    }
    g_assert_not_reached();
}
