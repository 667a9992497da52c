/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reads, writes, zeroes, discards
 *
 * Every request asks the model for its instant when it arrives, does
 * its work at once, and completes at that instant.  What it reads or
 * writes is in the cache or on the child long before, so that on the
 * virtual clock the host's speed does not show.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qemu/memalign.h"

#include "outage.h"
#include "trace.h"

/* A request under way. */
typedef struct Request {
    BDRVBatchflushState *s;
    BfOperation operation;
    uint64_t epoch;
    uint64_t number;            /* of a write */
    BatchflushAsk ask;
} Request;

/* Called with the lock held.  Returns -EIO while the power is off. */
static int request_begin(BDRVBatchflushState *s, Request *req,
                         BfOperation operation)
{
    const BfPower *power = &s->controller->power;

    *req = (Request) {
        .s = s, .operation = operation, .epoch = power->epoch,
    };
    return power->off ? -EIO : 0;
}

/* Ask the model when it is done.  Called with the lock held. */
static void coroutine_fn request_time(Request *req, BfOp op, uint64_t offset,
                                      uint64_t bytes)
{
    BDRVBatchflushState *s = req->s;

    req->ask.request = (BfRequest) {
        .op = op, .offset = offset, .bytes = bytes,
    };
    batchflush_co_ask(s, &req->ask, batchflush_now(s->controller));
}

/*
 * Complete it at its instant.  Called with the lock held.  Returns @ret,
 * or -EIO if the power was cut meanwhile.
 */
static int coroutine_fn request_end(Request *req, int ret)
{
    BatchflushController *c = req->s->controller;
    int64_t done_at = batchflush_co_answer(req->s, &req->ask);
    int64_t late = batchflush_co_wait_until(c, done_at);

    if (!bf_power_alive(&c->power, req->epoch)) {
        return -EIO;
    }
    if (done_at > req->ask.request.arrived_at) {
        batchflush_count_lateness(req->s, req->operation, late);
    }
    return ret;
}

/* A completed write: what the next flush has to cover. */
static void write_done(const Request *req)
{
    BatchflushController *c = req->s->controller;

    bf_coordinator_write(&c->coordinator, batchflush_now(c));
    if (req->s->completions) {
        bf_completions_end(req->s->completions, req->number);
    }
}

static int coroutine_fn request_end_write(Request *req, int ret)
{
    ret = request_end(req, ret);
    if (ret == 0) {
        write_done(req);
    }
    return ret;
}

/* Whether requests are handed straight on, for nobody looks at them. */
static bool hands_on(const BDRVBatchflushState *s)
{
    return s->pass_through && !qatomic_read(&s->controller->attention);
}

/* One that was handed on does not succeed after a cut, either. */
static int handed_on(const BDRVBatchflushState *s, int ret)
{
    return qatomic_read(&s->controller->power.off) ? -EIO : ret;
}

/*
 * Copy what is cached, until the first sector that is not.  Called with
 * the lock held.  Returns the bytes copied; *@hole tells how many follow
 * that are not cached.
 */
static uint64_t read_cached(BDRVBatchflushState *s, uint64_t offset,
                            uint64_t bytes, QEMUIOVector *qiov,
                            size_t qiov_offset, uint64_t *hole)
{
    uint64_t copied = 0;
    uint64_t run;

    *hole = 0;
    while (copied < bytes) {
        bool cached = bf_store_lookup(s->store, offset + copied,
                                      bytes - copied, &run);

        if (!cached) {
            *hole = run;
            break;
        }
        bf_store_read(s->store, offset + copied, run, qiov->iov, qiov->niov,
                      qiov_offset + copied);
        copied += run;
    }
    return copied;
}

/*
 * What is cached is copied before the rest is read from the child.  A
 * sector found missing in the cache is on the child already, so nothing
 * newer can be missed, even if destage moves data meanwhile.  Called
 * with the lock held, which is released meanwhile.
 */
static int coroutine_fn GRAPH_RDLOCK
read_holes(BlockDriverState *bs, uint64_t offset, uint64_t bytes,
           QEMUIOVector *qiov, size_t qiov_offset, uint64_t hole)
{
    BDRVBatchflushState *s = bs->opaque;
    QemuMutex *lock = &s->controller->lock;
    int ret;

    for (;;) {
        uint64_t copied;

        qemu_mutex_unlock(lock);
        ret = bdrv_co_preadv_part(bs->file, offset, hole, qiov, qiov_offset,
                                  0);
        qemu_mutex_lock(lock);
        offset += hole;
        bytes -= hole;
        qiov_offset += hole;
        if (ret < 0 || bytes == 0) {
            return ret;
        }

        copied = read_cached(s, offset, bytes, qiov, qiov_offset, &hole);
        offset += copied;
        bytes -= copied;
        qiov_offset += copied;
        if (bytes == 0) {
            return 0;
        }
    }
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_preadv_part(BlockDriverState *bs, int64_t offset,
                          int64_t bytes, QEMUIOVector *qiov,
                          size_t qiov_offset, BdrvRequestFlags flags)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t hole = bytes;
    uint64_t copied = 0;
    Request req;
    int ret;

    if (hands_on(s)) {
        return handed_on(s, bdrv_co_preadv_part(bs->file, offset, bytes,
                                                qiov, qiov_offset, flags));
    }

    QEMU_LOCK_GUARD(&s->controller->lock);
    s->reads++;
    ret = request_begin(s, &req, BF_OPERATION_READ);
    if (ret < 0) {
        return ret;
    }
    if (s->store) {
        copied = read_cached(s, offset, bytes, qiov, qiov_offset, &hole);
    }
    request_time(&req, hole ? BF_OP_READ : BF_OP_CACHE, offset, bytes);
    if (hole) {
        ret = read_holes(bs, offset + copied, bytes - copied, qiov,
                         qiov_offset + copied, hole);
    }
    return request_end(&req, ret);
}

static bool fits(const BDRVBatchflushState *s, uint64_t offset,
                 uint64_t bytes)
{
    const BatchflushController *c = s->controller;

    return bf_cache_fits(&c->cache, batchflush_controller_used(c),
                         bf_store_room_for(s->store, offset, bytes));
}

/*
 * Wait until the cache has room for the range.  Called with the lock
 * held.  Fails if the data in the way could not be destaged, and with
 * -EAGAIN if times are no longer served: a drain waits for us, and
 * starts nothing that could make room.
 */
static int coroutine_fn wait_for_room(Request *req, uint64_t offset,
                                      uint64_t bytes)
{
    BDRVBatchflushState *s = req->s;
    BatchflushController *c = s->controller;
    uint64_t failures = c->destage_failures;
    int64_t since = batchflush_now(c);
    BatchflushDelay delay = { .for_room = true };
    int64_t waited;
    int ret = 0;

    if (fits(s, offset, bytes)) {
        return 0;
    }
    bf_cache_stall_begin(&c->cache);
    while (!fits(s, offset, bytes)) {
        if (!bf_power_alive(&c->power, req->epoch)) {
            ret = -EIO;
            break;
        }
        if (c->destage_failures != failures) {
            ret = c->destage_error;
            break;
        }
        if (!batchflush_serving(c)) {
            ret = -EAGAIN;
            break;
        }
        batchflush_kick_destage(c);
        batchflush_co_park(c, &delay, BF_NEVER);
    }
    waited = batchflush_now(c) - since;
    bf_cache_stall_end(&c->cache, waited);
    s->stalls++;
    s->stall_ns += waited;
    trace_batchflush_stall(s->bs, bytes, waited, ret);
    return ret;
}

/* A write that has a number now is in flight: a cut may wait for it. */
static void coroutine_fn write_arrived(Request *req, uint64_t number)
{
    BDRVBatchflushState *s = req->s;

    req->number = number;
    if (s->completions) {
        bf_completions_begin(s->completions, number);
    }
    batchflush_cut_moment(s, BATCHFLUSH_CUT_MOMENT_WRITE);
}

/* Wait until the range may be written to the cache. */
static int coroutine_fn wait_to_write(Request *req, uint64_t offset,
                                      uint64_t bytes)
{
    BDRVBatchflushState *s = req->s;

    for (;;) {
        int ret = wait_for_room(req, offset, bytes);

        if (ret < 0) {
            return ret;
        }
        if (!s->history || !bf_history_changing(s->history, offset, bytes)) {
            return 0;
        }
        batchflush_co_wait_unchanging(s, offset, bytes);
        if (!bf_power_alive(&s->controller->power, req->epoch)) {
            return -EIO;
        }
    }
}

static int coroutine_fn write_cached(Request *req, uint64_t offset,
                                     uint64_t bytes, QEMUIOVector *qiov,
                                     size_t qiov_offset)
{
    BDRVBatchflushState *s = req->s;
    int ret = wait_to_write(req, offset, bytes);
    uint64_t number;

    if (ret < 0) {
        return ret;
    }
    number = bf_store_write(s->store, offset, bytes, qiov->iov, qiov->niov,
                            qiov_offset);
    s->dirty_max = MAX(s->dirty_max, bf_store_dirty(s->store));
    request_time(req, BF_OP_CACHE, offset, bytes);
    write_arrived(req, number);
    batchflush_kick_destage(s->controller);
    return request_end_write(req, 0);
}

/* Something that changes the medium itself, behind the cache's back. */
typedef struct MediumChange {
    BlockDriverState *bs;
    BfOp op;
    int64_t offset;
    int64_t bytes;
    QEMUIOVector *qiov;
    size_t qiov_offset;
    BdrvRequestFlags flags;
    bool keeps_cache;           /* what is cached remains valid */
} MediumChange;

/* Called with the graph locked for reading, which a type cannot say. */
typedef int coroutine_fn (*MediumChangeFunc)(const MediumChange *change);

static int coroutine_fn GRAPH_RDLOCK change_write(const MediumChange *c)
{
    return bdrv_co_pwritev_part(c->bs->file, c->offset, c->bytes, c->qiov,
                                c->qiov_offset, c->flags);
}

static int coroutine_fn GRAPH_RDLOCK change_zero(const MediumChange *c)
{
    return bdrv_co_pwrite_zeroes(c->bs->file, c->offset, c->bytes, c->flags);
}

/*
 * A child may ignore any part of a discard, and does not say so.  Where
 * the cache holds something newer than the child, that would bring the
 * older back; so there the child gets zeroes.
 */
static int coroutine_fn GRAPH_RDLOCK
discard_run(const MediumChange *c, int64_t offset, int64_t bytes,
            uint64_t *run)
{
    BDRVBatchflushState *s = c->bs->opaque;
    bool cached = false;

    *run = bytes;
    if (s->store && !c->keeps_cache) {
        QEMU_LOCK_GUARD(&s->controller->lock);
        cached = bf_store_lookup(s->store, offset, bytes, run);
    }
    return cached ? bdrv_co_pwrite_zeroes(c->bs->file, offset, *run,
                                          BDRV_REQ_MAY_UNMAP)
                  : bdrv_co_pdiscard(c->bs->file, offset, *run);
}

static int coroutine_fn GRAPH_RDLOCK change_discard(const MediumChange *c)
{
    int64_t offset = c->offset;
    int64_t end = c->offset + c->bytes;
    uint64_t run;
    int ret = 0;

    for (; ret == 0 && offset < end; offset += run) {
        ret = discard_run(c, offset, end - offset, &run);
    }
    return ret;
}

static uint64_t next_write(BDRVBatchflushState *s)
{
    return s->store ? bf_store_next_write(s->store) : ++s->last_write;
}

static int coroutine_fn GRAPH_RDLOCK
keep_before(const Request *req, const MediumChange *change)
{
    BDRVBatchflushState *s = req->s;
    void *buffer = qemu_try_blockalign(s->bs->file->bs, change->bytes);
    int ret;

    if (!buffer) {
        return -ENOMEM;
    }
    ret = batchflush_co_keep_before(s, req->epoch,
                                    bf_order_of_write(req->number),
                                    change->offset, change->bytes, buffer);
    qemu_vfree(buffer);
    return ret;
}

/* Forget what the cache holds for the range, as far as it is older. */
static void coroutine_fn drop_replaced(BDRVBatchflushState *s,
                                       const MediumChange *change,
                                       uint64_t place)
{
    if (s->store && !change->keeps_cache) {
        bf_store_drop(s->store, change->offset, change->bytes, place);
        batchflush_co_wake_stalled(s->controller);
    }
}

/*
 * In its turn, change the child.  With @undo, what was there before is
 * kept: it is not durable yet.  Without, it is write @place of all, and
 * the cache forgets what it replaces.  Called with the lock held, which
 * is released meanwhile.
 */
static int coroutine_fn GRAPH_RDLOCK
change_in_turn(const Request *req, const MediumChange *change,
               MediumChangeFunc func, uint64_t place, bool undo)
{
    BDRVBatchflushState *s = req->s;
    BatchflushController *c = s->controller;
    bool alive;
    int ret = 0;

    if (s->store) {
        batchflush_co_wait_turn(s, batchflush_draw_turn(s));
    }
    alive = bf_power_alive(&c->power, req->epoch);
    if (!alive) {
        ret = -EIO;
    } else if (undo) {
        ret = keep_before(req, change);
    }
    if (ret == 0) {
        qemu_mutex_unlock(&c->lock);
        ret = func(change);
        qemu_mutex_lock(&c->lock);
    }
    /* After a cut, the cache may hold the only copy of what survived. */
    if (ret == 0 && !undo && bf_power_alive(&c->power, req->epoch)) {
        drop_replaced(s, change, place);
    }
    if (s->store) {
        batchflush_co_end_turn(s);
    }
    return ret;
}

/* What came before it is no longer wanted.  Called with the lock held. */
static void change_durable(BDRVBatchflushState *s,
                           const MediumChange *change, uint64_t place)
{
    if (s->history && !change->keeps_cache) {
        bf_history_durable(s->history, bf_order_of_write(place),
                           change->offset, change->bytes);
    }
}

/* It is durable as soon as it is on the child. */
static int coroutine_fn GRAPH_RDLOCK
change_now(Request *req, const MediumChange *change, MediumChangeFunc func)
{
    int ret;

    write_arrived(req, next_write(req->s));
    ret = change_in_turn(req, change, func, req->number, false);
    ret = request_end_write(req, ret);
    if (ret == 0) {
        change_durable(req->s, change, req->number);
    }
    return ret;
}

/*
 * Data is brought to the child at once and is durable at the request's
 * instant; until then a cut may need what it replaces, and itself.
 */
static int coroutine_fn GRAPH_RDLOCK
change_data(Request *req, const MediumChange *change, MediumChangeFunc func)
{
    BDRVBatchflushState *s = req->s;
    uint64_t number = next_write(s);
    uint8_t *data = g_try_malloc(change->bytes);
    BfChange record;
    int ret;

    if (!data) {
        return request_end_write(req, -ENOMEM);
    }
    qemu_iovec_to_buf(change->qiov, change->qiov_offset, data,
                      change->bytes);
    bf_history_begin(s->history, &record, number, change->offset,
                     change->bytes, data);
    if (s->store) {
        bf_store_settle(s->store, change->offset, change->bytes, number);
    }
    write_arrived(req, number);
    ret = change_in_turn(req, change, func, number, true);
    record.failed = ret < 0;
    ret = request_end_write(req, ret);
    if (ret == 0) {
        drop_replaced(s, change, number);
        change_durable(s, change, number);
    } else {
        bf_history_failed(s->history, bf_order_of_write(number),
                          change->offset, change->bytes);
    }
    batchflush_change_end(s, &record);
    return ret;
}

/*
 * Zeroes and discards may be large: rather than to keep what they
 * replace, they are brought to the child when their instant has come.
 */
static int coroutine_fn GRAPH_RDLOCK
change_later(Request *req, const MediumChange *change, MediumChangeFunc func)
{
    BDRVBatchflushState *s = req->s;
    uint64_t number = next_write(s);
    uint64_t place;
    BfChange record;
    int ret;

    bf_history_begin(s->history, &record, number, change->offset,
                     change->bytes, NULL);
    write_arrived(req, number);
    ret = request_end(req, 0);
    if (ret == 0) {
        place = next_write(s);
        ret = change_in_turn(req, change, func, place, false);
    }
    if (ret == 0 && !bf_power_alive(&s->controller->power, req->epoch)) {
        ret = -EIO;
    }
    if (ret == 0) {
        change_durable(s, change, place);
        write_done(req);
    }
    batchflush_change_end(s, &record);
    return ret;
}

/* Called with the lock held. */
static int coroutine_fn GRAPH_RDLOCK
change_medium(Request *req, const MediumChange *change,
              MediumChangeFunc func)
{
    BDRVBatchflushState *s = req->s;
    BatchflushController *c = s->controller;

    batchflush_co_wait_unchanging(s, change->offset, change->bytes);
    if (!bf_power_alive(&c->power, req->epoch)) {
        return -EIO;
    }
    request_time(req, change->op, change->offset, change->bytes);
    if (!s->history || !change->bytes || change->keeps_cache ||
        req->ask.request.done_at <= batchflush_now(c)) {
        return change_now(req, change, func);
    }
    return change->qiov ? change_data(req, change, func)
                        : change_later(req, change, func);
}

/* Whether a write goes into the cache.  Called with the lock held. */
static bool takes_cache(const BDRVBatchflushState *s, BdrvRequestFlags flags)
{
    switch (s->params.write_cache) {
    case BF_CACHE_VOLATILE:
        return !(flags & BDRV_REQ_FUA) || s->params.lie == BF_LIE_FUA ||
               s->params.lie == BF_LIE_DELAYED;
    case BF_CACHE_BATTERY:
        /* A write to it is durable, FUA or not, while it is charged. */
        return bf_power_backed(&s->controller->power, &s->params);
    default:
        return false;
    }
}

static int coroutine_fn GRAPH_RDLOCK
write_whole(BlockDriverState *bs, int64_t offset, int64_t bytes,
            QEMUIOVector *qiov, size_t qiov_offset, BdrvRequestFlags flags)
{
    BDRVBatchflushState *s = bs->opaque;
    MediumChange change = {
        .bs = bs,
        .op = flags & BDRV_REQ_FUA ? BF_OP_FUA : BF_OP_WRITE,
        .offset = offset,
        .bytes = bytes,
        .qiov = qiov,
        .qiov_offset = qiov_offset,
        .flags = flags,
    };
    Request req;
    int ret;

    if (hands_on(s)) {
        return handed_on(s, change_write(&change));
    }

    QEMU_LOCK_GUARD(&s->controller->lock);
    ret = request_begin(s, &req, BF_OPERATION_WRITE);
    if (ret < 0) {
        return ret;
    }
    s->writes++;
    if (takes_cache(s, flags)) {
        ret = write_cached(&req, offset, bytes, qiov, qiov_offset);
        if (ret == 0 && (flags & BDRV_REQ_FUA) &&
            s->params.lie == BF_LIE_DELAYED) {
            batchflush_destage_later(s, s->params.lie_delay_ns);
        }
        if (ret != -EAGAIN) {
            return ret;
        }
    }
    return change_medium(&req, &change, change_write);
}

/* A single write has to fit into the cache, whatever its alignment. */
static int64_t largest_write(const BlockDriverState *bs)
{
    const BDRVBatchflushState *s = bs->opaque;

    return s->store ? QEMU_ALIGN_DOWN(bf_store_capacity(s->store) / 2,
                                      bs->bl.request_alignment) : INT64_MAX;
}

/*
 * We split writes, and not the block layer by our max_transfer: a node
 * above inherits that, and copy-on-read asserts that its clusters fit.
 */
int coroutine_fn GRAPH_RDLOCK
batchflush_co_pwritev_part(BlockDriverState *bs, int64_t offset,
                           int64_t bytes, QEMUIOVector *qiov,
                           size_t qiov_offset, BdrvRequestFlags flags)
{
    int64_t largest = largest_write(bs);
    int ret;

    for (; bytes > largest; bytes -= largest) {
        ret = write_whole(bs, offset, largest, qiov, qiov_offset, flags);
        if (ret < 0) {
            return ret;
        }
        offset += largest;
        qiov_offset += largest;
    }
    return write_whole(bs, offset, bytes, qiov, qiov_offset, flags);
}

static int coroutine_fn GRAPH_RDLOCK
change_request(const MediumChange *change, MediumChangeFunc func,
               BfOperation operation)
{
    BDRVBatchflushState *s = change->bs->opaque;
    Request req;
    int ret;

    QEMU_LOCK_GUARD(&s->controller->lock);
    ret = request_begin(s, &req, operation);
    if (ret < 0) {
        return ret;
    }
    s->writes++;
    return change_medium(&req, change, func);
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_pwrite_zeroes(BlockDriverState *bs, int64_t offset,
                            int64_t bytes, BdrvRequestFlags flags)
{
    MediumChange change = {
        .bs = bs, .op = BF_OP_ZERO, .offset = offset, .bytes = bytes,
        .flags = flags,
    };

    return change_request(&change, change_zero, BF_OPERATION_WRITE_ZEROES);
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_pdiscard(BlockDriverState *bs, int64_t offset, int64_t bytes)
{
    MediumChange change = {
        .bs = bs,
        .op = BF_OP_DISCARD,
        .offset = offset,
        .bytes = bytes,
        /* Ignored there: older data must not come back. */
        .keeps_cache = !(bs->file->bs->open_flags & BDRV_O_UNMAP),
    };

    /* The block layer tries the unaligned ends of a discard by themselves. */
    if (!QEMU_IS_ALIGNED(offset | bytes, bs->bl.request_alignment)) {
        return -ENOTSUP;
    }
    return change_request(&change, change_discard, BF_OPERATION_DISCARD);
}

/*
 * The cache knows sectors.  Where the end falls into one, the part that
 * stays is brought to the child first, so that the sector can go.
 */
static int coroutine_fn GRAPH_RDLOCK destage_end(BDRVBatchflushState *s)
{
    uint64_t turn = batchflush_draw_turn(s);
    BfSweep *sweep = bf_store_sweep(s->store, 0, UINT64_MAX);
    int ret;

    s->sweeps_open += sweep != NULL;
    ret = batchflush_co_destage(s, sweep, turn, false);
    if (sweep) {
        batchflush_co_sweep_done(s, sweep, ret);
    }
    return ret;
}

/* Called with the lock held, which is released meanwhile. */
static int coroutine_fn GRAPH_RDLOCK
truncate_child(BDRVBatchflushState *s, int64_t offset, bool exact,
               PreallocMode prealloc, BdrvRequestFlags flags, Error **errp)
{
    QemuMutex *lock = &s->controller->lock;
    uint64_t turn = batchflush_draw_turn(s);
    int ret;

    batchflush_co_wait_turn(s, turn);
    qemu_mutex_unlock(lock);
    ret = bdrv_co_truncate(s->bs->file, offset, exact, prealloc, flags,
                           errp);
    qemu_mutex_lock(lock);
    if (ret == 0 && s->store) {
        uint64_t keep = QEMU_ALIGN_DOWN(offset, BF_SECTOR_SIZE);

        bf_store_drop(s->store, keep,
                      QEMU_ALIGN_DOWN(INT64_MAX - keep, BF_BLOCK_SIZE),
                      UINT64_MAX);
        batchflush_co_wake_stalled(s->controller);
    }
    batchflush_co_end_turn(s);
    return ret;
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_truncate(BlockDriverState *bs, int64_t offset, bool exact,
                       PreallocMode prealloc, BdrvRequestFlags flags,
                       Error **errp)
{
    BDRVBatchflushState *s = bs->opaque;
    int ret = 0;

    QEMU_LOCK_GUARD(&s->controller->lock);
    if (s->controller->power.off) {
        error_setg(errp, "size=%" PRId64 " cannot be set: the power of node "
                   "'%s' is cut", offset, bdrv_get_node_name(bs));
        return -EIO;
    }
    if (s->store && offset % BF_SECTOR_SIZE) {
        ret = destage_end(s);
    }
    if (ret < 0) {
        error_setg_errno(errp, -ret, "size=%" PRId64 " cannot be set: the "
                         "write cache cannot be destaged", offset);
        return ret;
    }
    return truncate_child(s, offset, exact, prealloc, flags, errp);
}

int coroutine_fn GRAPH_RDLOCK
batchflush_co_block_status(BlockDriverState *bs, BATCHFLUSH_STATUS_WANT want,
                           int64_t offset, int64_t bytes, int64_t *pnum,
                           int64_t *map, BlockDriverState **file)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t run = bytes;
    bool cached = false;

    if (s->store) {
        QEMU_LOCK_GUARD(&s->controller->lock);
        cached = bf_store_lookup(s->store, offset, bytes, &run);
    }
    *pnum = run;
    if (cached) {
        return BDRV_BLOCK_DATA;
    }
    *map = offset;
    *file = bs->file->bs;
    return BDRV_BLOCK_RAW | BDRV_BLOCK_OFFSET_VALID;
}
