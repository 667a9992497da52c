/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The batchflush node: where model, store and coroutines meet
 *
 * The model says when a request is done, the store what its data is;
 * the driver asks both, waits, and moves data between the store and
 * the child.  Times are in nanoseconds of the node's clock.
 */

#ifndef BLOCK_BATCHFLUSH_H
#define BLOCK_BATCHFLUSH_H

#include "block/block_int.h"
#include "qemu/queue.h"
#include "system/runstate.h"

#include "compat.h"
#include "model/cache.h"
#include "model/coordinator.h"
#include "model/params.h"
#include "model/power.h"
#include "model/service.h"
#include "store/store.h"

/* A coroutine that waits until an instant or until somebody wakes it. */
typedef struct BatchflushDelay {
    Coroutine *co;
    QEMUTimer loop_timer;       /* on the main loop's own list */
    QEMUTimer context_timer;    /* on the AioContext's list */
    struct BDRVBatchflushState *s;
    QTAILQ_ENTRY(BatchflushDelay) next;
    bool waiting;
} BatchflushDelay;

/* A guest flush that joined a batch; it lives on its coroutine's stack. */
typedef struct BatchflushMember {
    Coroutine *co;
    int ret;
    QSIMPLEQ_ENTRY(BatchflushMember) next;
} BatchflushMember;

typedef QSIMPLEQ_HEAD(, BatchflushMember) BatchflushMembers;

typedef struct BDRVBatchflushState {
    BlockDriverState *bs;
    QEMUClockType clock;
    VMChangeStateEntry *vmstate;
    bool pass_through;          /* fixed when the node is opened */

    /*
     * Protects everything below, the store included.  Never held while
     * a coroutine yields.  A node's requests may come from several
     * AioContexts at once.
     */
    QemuMutex lock;

    BfParams params;
    BfService service;
    BfCache cache;
    BfCoordinator coordinator;
    BfPower power;
    BfStore *store;             /* NULL without a write cache */

    /* Times are only served while the machine runs and is not drained. */
    bool running;
    unsigned drained;

    QTAILQ_HEAD(, BatchflushDelay) delays;
    BatchflushMembers joined;   /* of the batch that is forming */
    BatchflushDelay *leader;    /* its leader, while it waits */

    CoQueue room;               /* writers stalled for want of it */
    bool destaging;             /* the background coroutine is at work */
    uint64_t destage_from;      /* where its next sweep begins */
    uint64_t sweeps_open;
    uint64_t destaged_bytes;
    uint64_t destage_failures;
    int destage_error;          /* of the last failure */
    uint64_t bookkeeping_ns;

    /*
     * Taken around everything that changes the child while there is a
     * cache, so that an older version never overtakes a newer one.
     * Taken before @lock.  It is fair: who comes later goes later.
     */
    CoMutex medium;
    void *destage_buffer;       /* used under @medium */
} BDRVBatchflushState;

/* options.c */

/* Create the option list and the list of options that may be reopened. */
void batchflush_options_init(BlockDriver *driver);

/*
 * Take the node's options out of @options.  Returns false and sets
 * @errp if one is unknown, out of range or contradicts another.
 */
bool batchflush_options_parse(QDict *options, BfParams *params,
                              Error **errp);

/* delay.c */

int64_t batchflush_now(const BDRVBatchflushState *s);

/* Whether times are served.  Called with the lock held. */
bool batchflush_serving(const BDRVBatchflushState *s);

/*
 * Wait until @instant, or not at all while times are not served.  The
 * lock is held on entry and on return, and released meanwhile.
 */
void coroutine_fn batchflush_co_wait_until(BDRVBatchflushState *s,
                                           int64_t instant);

/*
 * Wait until @instant (BF_NEVER: without limit) or until @delay is
 * woken.  Locks as batchflush_co_wait_until().
 */
void coroutine_fn batchflush_co_park(BDRVBatchflushState *s,
                                     BatchflushDelay *delay,
                                     int64_t instant);

/* End a wait early.  Called with the lock held, from a coroutine. */
void coroutine_fn batchflush_co_unpark(BatchflushDelay *delay);

/* End all waits early.  Called with the lock held, from anywhere. */
void batchflush_wake_all(BDRVBatchflushState *s);

/* Machine or drain state has changed.  Called with the lock held. */
void batchflush_update_serving(BDRVBatchflushState *s);

/* io.c */

int coroutine_fn GRAPH_RDLOCK
batchflush_co_preadv_part(BlockDriverState *bs, int64_t offset,
                          int64_t bytes, QEMUIOVector *qiov,
                          size_t qiov_offset, BdrvRequestFlags flags);
int coroutine_fn GRAPH_RDLOCK
batchflush_co_pwritev_part(BlockDriverState *bs, int64_t offset,
                           int64_t bytes, QEMUIOVector *qiov,
                           size_t qiov_offset, BdrvRequestFlags flags);
int coroutine_fn GRAPH_RDLOCK
batchflush_co_pwrite_zeroes(BlockDriverState *bs, int64_t offset,
                            int64_t bytes, BdrvRequestFlags flags);
int coroutine_fn GRAPH_RDLOCK
batchflush_co_pdiscard(BlockDriverState *bs, int64_t offset,
                       int64_t bytes);
int coroutine_fn GRAPH_RDLOCK
batchflush_co_truncate(BlockDriverState *bs, int64_t offset, bool exact,
                       PreallocMode prealloc, BdrvRequestFlags flags,
                       Error **errp);
int coroutine_fn GRAPH_RDLOCK
batchflush_co_block_status(BlockDriverState *bs, BATCHFLUSH_STATUS_WANT want,
                           int64_t offset, int64_t bytes, int64_t *pnum,
                           int64_t *map, BlockDriverState **file);

/* flush.c */

int coroutine_fn GRAPH_RDLOCK batchflush_co_flush(BlockDriverState *bs);

/* destage.c */

/*
 * Write a sweep's data to the child, and flush the child if @flush.
 * Does not end the sweep.  Returns 0 or -errno.
 */
int coroutine_fn GRAPH_RDLOCK
batchflush_co_destage(BlockDriverState *bs, BfSweep *sweep, bool flush);

/*
 * End a sweep: its data leaves the cache if @ret is 0 and stays dirty
 * otherwise.  Called with the lock held, in coroutine context.
 */
void coroutine_fn batchflush_co_sweep_done(BDRVBatchflushState *s,
                                           BfSweep *sweep, int ret);

/*
 * The instant at which a new sweep's data will be on the medium.
 * Called with the lock held.
 */
int64_t batchflush_destage_instant(BDRVBatchflushState *s,
                                   const BfSweep *sweep, int64_t now);

/*
 * Start destaging in the background if the cache's level asks for it.
 * Called with the lock held.
 */
void batchflush_kick_destage(BDRVBatchflushState *s);

/* stats.c */

BlockStatsSpecific *batchflush_get_specific_stats(BlockDriverState *bs);

/* batchflush.c */

/* The state of a batchflush node, NULL if @bs is none. */
BDRVBatchflushState *batchflush_state(BlockDriverState *bs);

#endif
