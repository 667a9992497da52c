/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The batchflush node: where model, store and coroutines meet
 *
 * The model says when a request is done, the store what its data is;
 * the driver asks both, waits, and moves data between the store and
 * the child.  Times are in nanoseconds of the controller's clock.
 */

#ifndef BLOCK_BATCHFLUSH_H
#define BLOCK_BATCHFLUSH_H

#include "block/block_int.h"
#include "qapi/qapi-types-batchflush.h"

#include "battery-file.h"
#include "compat.h"
#include "controller.h"
#include "log.h"
#include "model/lateness.h"
#include "model/choice.h"
#include "model/service.h"
#include "store/cut.h"
#include "store/history.h"
#include "store/store.h"

typedef struct BatchflushBackground BatchflushBackground;

/* Something that the model is asked about.  See timing.c. */
typedef struct BatchflushAsk {
    BfRequest request;
    BatchflushDelay *delay;     /* of who waits for the answer */
    QTAILQ_ENTRY(BatchflushAsk) next;
} BatchflushAsk;

struct BDRVBatchflushState {
    BlockDriverState *bs;
    BatchflushController *controller;
    QLIST_ENTRY(BDRVBatchflushState) next;
    bool drained;               /* as far as the controller knows */
    bool pass_through;          /* no request is delayed or cached */
    BatchflushLog *log;         /* of its requests, or NULL */
    BatchflushBatteryFile *battery_file;    /* or NULL */

    /* From here on protected by the controller's lock. */

    BfParams params;
    BfService service;
    QTAILQ_HEAD(, BatchflushAsk) asking;    /* that wait for a decision */
    BatchflushDelay *keeper;    /* of who wakes when one is due */
    int64_t keeper_until;
    BfStore *store;             /* NULL without a write cache */

    /* What a power cut has to know: see outage.h. */
    BfHistory *history;         /* NULL: power-cuts=off */
    BfCompletions *completions; /* likewise */
    CoQueue changes;            /* for the end of one past the cache */
    uint64_t last_write;        /* its number, without a store */
    uint64_t writes;            /* that have arrived */
    uint64_t flushes;
    uint64_t reads;
    BfSurvivors survivors;      /* while the power is off */

    BfFlushStats flush_stats;   /* this node's share of the flushes */
    BfAverage flush_time;
    BfLateness lateness[BF_OPERATIONS];

    BatchflushBackground *background;
    bool destaging;             /* the background coroutine is at work */
    bool overdue;               /* what a lie has put off has to be done */
    QEMUTimer *overdue_timer;
    uint64_t destage_from;      /* where its next sweep begins */
    uint64_t sweeps_open;
    CoQueue sweep_ends;
    uint64_t destaged_bytes;
    uint64_t destage_failures;
    int destage_error;          /* of the last failure */
    uint64_t stalls;
    int64_t stall_ns;
    uint64_t dirty_max;
    uint64_t bookkeeping_ns;

    /*
     * Whatever changes the child while there is a cache takes its turn,
     * so that an older version never overtakes a newer one.  A turn is
     * drawn in the critical section that claims a sweep: who claims
     * later moves later, and finds what those before have left.
     */
    uint64_t turn_next;         /* to be drawn */
    uint64_t turn_now;          /* whose turn it is */
    CoQueue turns;
    void *destage_buffer;       /* used by whose turn it is */
    void *before_buffer;        /* likewise */
};

/* batchflush.c */

/* The state of a batchflush node, NULL if @bs is none. */
BDRVBatchflushState *batchflush_state(BlockDriverState *bs);

/* Its average flush time, measured or else expected.  Lock held. */
int64_t batchflush_node_flush_time(const BDRVBatchflushState *s);

/* options.c */

/* Create the option list and the list of options that may be reopened. */
void batchflush_options_init(BlockDriver *driver);

/*
 * Take the node's options out of @options; *@controller, *@log and
 * *@battery_file are to be freed and NULL if none is named.  Returns
 * false and sets @errp if one is unknown, out of range or contradicts
 * another.
 */
bool batchflush_options_parse(QDict *options, BfParams *params,
                              char **controller, char **log,
                              char **battery_file, Error **errp);

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

/* timing.c: the lock is held */

/*
 * Ask the model about what arrives @now.  From then on until it is
 * answered @ask has to stay where it is.
 */
void coroutine_fn batchflush_co_ask(BDRVBatchflushState *s,
                                    BatchflushAsk *ask, int64_t now);

/*
 * Wait until the model knows, which is mostly at once.  Returns when it
 * is done: when it arrived, if times are no longer served.
 */
int64_t coroutine_fn batchflush_co_answer(BDRVBatchflushState *s,
                                          BatchflushAsk *ask);

/* flush.c */

int coroutine_fn GRAPH_RDLOCK batchflush_co_flush(BlockDriverState *bs);

/* destage.c */

/*
 * Take part in changing the child.  Every turn that is drawn has to be
 * waited for and ended.  Called with the lock held; waiting releases it.
 */
uint64_t batchflush_draw_turn(BDRVBatchflushState *s);
void coroutine_fn batchflush_co_wait_turn(BDRVBatchflushState *s,
                                          uint64_t turn);
void coroutine_fn batchflush_co_end_turn(BDRVBatchflushState *s);

/*
 * In its turn, which it ends, write a sweep's data (NULL: none) to the
 * child, and flush the child if @flush.  Does not end the sweep, but
 * empties it if that fails: its data is dirty and unclaimed again.
 * Called with the lock held, which is released meanwhile.  Returns 0 or
 * -errno.
 */
int coroutine_fn GRAPH_RDLOCK
batchflush_co_destage(BDRVBatchflushState *s, BfSweep *sweep, uint64_t turn,
                      bool flush);

/*
 * End a sweep: its data leaves the cache if @ret is 0 and stays dirty
 * otherwise.  Called with the lock held.
 */
void coroutine_fn batchflush_co_sweep_done(BDRVBatchflushState *s,
                                           BfSweep *sweep, int ret);

/*
 * Ask when a new sweep's data will be on the medium.  The runs that are
 * returned have to stay until that is answered, and go then.
 */
GArray *coroutine_fn batchflush_co_ask_destage(BDRVBatchflushState *s,
                                                BatchflushAsk *ask,
                                                const BfSweep *sweep,
                                                int64_t now);

/*
 * Start destaging in the background, on every disk of the controller,
 * if the cache's level asks for it.  Called with the lock held.
 */
void batchflush_kick_destage(BatchflushController *c);

/*
 * Destage in @ns all that is dirty then, unless that is to happen earlier
 * already; or, on the main thread, no longer.  Called with the lock held.
 */
void batchflush_destage_later(BDRVBatchflushState *s, int64_t ns);
void batchflush_destage_not_later(BDRVBatchflushState *s);

/* What background destage needs of a node, from its opening to its end. */
BatchflushBackground *batchflush_background_new(BDRVBatchflushState *s);
void batchflush_background_close(BatchflushBackground *background);

/* lateness.c */

/*
 * Count a request that was completed @late after its instant; not if
 * that is BATCHFLUSH_NOT_SERVED.  Reports a budget that is exceeded.
 * Called with the lock held.
 */
void batchflush_count_lateness(BDRVBatchflushState *s,
                               BfOperation operation, int64_t late);

/* Of those operations that were counted; to be freed. */
BatchflushLatenessList *
batchflush_lateness_to_qapi(const BDRVBatchflushState *s);

/* stats.c */

BatchflushHistogramBucketList *
batchflush_histogram_to_qapi(const BfHistogram *histogram);


BlockStatsSpecific *batchflush_get_specific_stats(BlockDriverState *bs);

#endif
