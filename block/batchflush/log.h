/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The write log: what a guest asked of its disk, and in which order
 *
 * A node with log=FILE records when each write, zero write, discard and
 * flush was issued and when it was completed.  From that ./batchflush
 * crash knows what a power cut could have left at any moment.  The
 * format is described in docs/specs/batchflush-log.rst.
 *
 * The log stands between the block layer and the driver: its entries
 * below record a request, hand it to the driver's, and record its end.
 * A position counts those records from 0 on.  "The flush covers the
 * write" is exactly: the write's end has a smaller position than the
 * flush's beginning.
 *
 * It has a mutex of its own, taken with no other one held.  Writing to
 * the host's page cache, it takes no emulated time.
 *
 * If the file cannot be written (a full disk), the log ends with its
 * last whole record, a running machine stops, BATCHFLUSH_LOG_ERROR is
 * emitted, and requests are served as before.
 */

#ifndef BLOCK_BATCHFLUSH_LOG_H
#define BLOCK_BATCHFLUSH_LOG_H

#include "block/block_int.h"

#include "log-format.h"
#include "model/params.h"

typedef struct BatchflushLog BatchflushLog;

/*
 * Create a log of a disk of @disk_size bytes.  Returns NULL and sets
 * @errp if the file exists or cannot be written.
 */
BatchflushLog *batchflush_log_new(const char *filename,
                                  const char *node_name,
                                  uint64_t disk_size,
                                  BfWriteCache write_cache, Error **errp);

/* Complete the index and close the file.  @log may be NULL. */
void batchflush_log_free(BatchflushLog *log);

const char *batchflush_log_filename(const BatchflushLog *log);

/* How many records there are. */
uint64_t batchflush_log_position(BatchflushLog *log);

/*
 * Append a record, in the host's byte order and without what the log
 * fills in by itself, with record->length bytes of @qiov (NULL: none)
 * from @skip on.  @sync: bring it to the file at once.  Returns its
 * position.
 */
uint64_t batchflush_log_append(BatchflushLog *log, const BfLogRecord *record,
                               const QEMUIOVector *qiov, size_t skip,
                               bool sync);

/* logged.c: the driver's entries */

int coroutine_fn GRAPH_RDLOCK
batchflush_logged_pwritev_part(BlockDriverState *bs, int64_t offset,
                               int64_t bytes, QEMUIOVector *qiov,
                               size_t qiov_offset, BdrvRequestFlags flags);
int coroutine_fn GRAPH_RDLOCK
batchflush_logged_pwrite_zeroes(BlockDriverState *bs, int64_t offset,
                                int64_t bytes, BdrvRequestFlags flags);
int coroutine_fn GRAPH_RDLOCK
batchflush_logged_pdiscard(BlockDriverState *bs, int64_t offset,
                           int64_t bytes);
int coroutine_fn GRAPH_RDLOCK batchflush_logged_flush(BlockDriverState *bs);

/* Refused while there is a log: its disk has one size. */
int coroutine_fn GRAPH_RDLOCK
batchflush_logged_truncate(BlockDriverState *bs, int64_t offset, bool exact,
                           PreallocMode prealloc, BdrvRequestFlags flags,
                           Error **errp);

#endif
