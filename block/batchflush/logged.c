/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The driver's entries, with a line in the write log before and after
 *
 * A write's data is copied before the driver sees it: what is issued
 * may survive a cut even if it is never completed.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/error.h"

#include "batchflush.h"
#include "log.h"
#include "log-format.h"

/* Returns the position of its beginning. */
static uint64_t log_issue(BDRVBatchflushState *s, uint16_t kind,
                          int64_t offset, int64_t bytes,
                          BdrvRequestFlags flags, const QEMUIOVector *qiov,
                          size_t qiov_offset)
{
    BfLogRecord record = {
        .kind = kind,
        .flags = flags & BDRV_REQ_FUA ? BF_LOG_FUA : 0,
        .time_ns = batchflush_now(s->controller),
        .offset = offset,
        .length = bytes,
    };

    return batchflush_log_append(s->log, &record, qiov, qiov_offset, false);
}

/* Returns @ret. */
static int log_done(BDRVBatchflushState *s, uint64_t issued, int ret,
                    bool sync)
{
    BfLogRecord record = {
        .kind = BF_LOG_DONE,
        .time_ns = batchflush_now(s->controller),
        .offset = issued,
        .length = -ret,
    };

    batchflush_log_append(s->log, &record, NULL, 0, sync);
    return ret;
}

int coroutine_fn GRAPH_RDLOCK
batchflush_logged_pwritev_part(BlockDriverState *bs, int64_t offset,
                               int64_t bytes, QEMUIOVector *qiov,
                               size_t qiov_offset, BdrvRequestFlags flags)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t issued;
    int ret;

    if (!s->log) {
        return batchflush_co_pwritev_part(bs, offset, bytes, qiov,
                                          qiov_offset, flags);
    }
    issued = log_issue(s, BF_LOG_WRITE, offset, bytes, flags, qiov,
                       qiov_offset);
    ret = batchflush_co_pwritev_part(bs, offset, bytes, qiov, qiov_offset,
                                     flags);
    return log_done(s, issued, ret, false);
}

int coroutine_fn GRAPH_RDLOCK
batchflush_logged_pwrite_zeroes(BlockDriverState *bs, int64_t offset,
                                int64_t bytes, BdrvRequestFlags flags)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t issued;
    int ret;

    if (!s->log) {
        return batchflush_co_pwrite_zeroes(bs, offset, bytes, flags);
    }
    issued = log_issue(s, BF_LOG_ZERO, offset, bytes, flags, NULL, 0);
    ret = batchflush_co_pwrite_zeroes(bs, offset, bytes, flags);
    return log_done(s, issued, ret, false);
}

int coroutine_fn GRAPH_RDLOCK
batchflush_logged_pdiscard(BlockDriverState *bs, int64_t offset,
                           int64_t bytes)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t issued;
    int ret;

    if (!s->log) {
        return batchflush_co_pdiscard(bs, offset, bytes);
    }
    issued = log_issue(s, BF_LOG_DISCARD, offset, bytes, 0, NULL, 0);
    ret = batchflush_co_pdiscard(bs, offset, bytes);
    return log_done(s, issued, ret, false);
}

int coroutine_fn GRAPH_RDLOCK batchflush_logged_flush(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t issued;

    if (!s->log) {
        return batchflush_co_flush(bs);
    }
    issued = log_issue(s, BF_LOG_FLUSH, 0, 0, 0, NULL, 0);
    return log_done(s, issued, batchflush_co_flush(bs), true);
}

int coroutine_fn GRAPH_RDLOCK
batchflush_logged_truncate(BlockDriverState *bs, int64_t offset, bool exact,
                           PreallocMode prealloc, BdrvRequestFlags flags,
                           Error **errp)
{
    BDRVBatchflushState *s = bs->opaque;

    if (s->log) {
        error_setg(errp, "size=%" PRId64 " cannot be set while log=%s is "
                   "written; allowed is the size that the disk has", offset,
                   batchflush_log_filename(s->log));
        return -ENOTSUP;
    }
    return batchflush_co_truncate(bs, offset, exact, prealloc, flags, errp);
}
