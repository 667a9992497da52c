/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The flush coordinator: which flushes share one, and who waits
 *
 * The state machine is that of Darrick Wong's ext4 patches of 2010-11
 * (idle, collecting, flushing), the wait that of Josef Bacik's jbd
 * patch of 2009-01-08 (linux f420d4dc):
 *
 * - The first flush to arrive leads a batch and may wait for company.
 *   Flushes that arrive while it waits join.  Those that arrive while
 *   a batch is flushing form the next one, which begins after it.
 * - The wait is the average flush time, at most coalesce-max-wait-ns,
 *   counted from the first write since the last flush began.  A batch
 *   that formed while another was flushing has usually waited enough.
 * - With coalesce=auto nobody waits on a device whose average flush
 *   time is below coalesce-min-flush-ns, and the wait ends as soon as
 *   the batch is as large as the company: the number of flushes that
 *   were under way when the last one ended.  A lone flusher is its own
 *   company and so never waits, while two writers in antiphase are a
 *   company of two and fall into step.  It is counted from the end of
 *   the batch before if that is later than the first write, because
 *   those it completed need a write's time to be back.  A wait that
 *   brought no more than half of the company is not repeated for 1, 3,
 *   7, then 15 batches, until the company is complete again.
 *   With nothing written since the last flush began nobody waits, but
 *   for one of a company that arrived after the batch before had ended:
 *   it is the first of them to be back.  A flush that found nothing to
 *   do does not shrink the company.
 * - Where flushes overlap, coalesce=auto lets each go alone: there a
 *   wait can only lose.  Where they do not, but the device is too fast
 *   to wait for company, those that queue behind one another share the
 *   next flush: it costs nobody anything.
 *
 * The average is that of the time from the start of a flush until its
 * data is durable: it includes queueing inside the device, not the wait
 * for company or for the flush before.  Until the first sample it is
 * taken to be flush-latency-ns, or flush-clean-latency-ns without a
 * cache.  Flushes that failed or had nothing to
 * drain do not count.
 *
 * A flush covers every write that was completed when it *began*: the
 * caller takes its snapshot right after bf_coordinator_begin().
 *
 * Nothing here waits or locks.  Times are in nanoseconds, must not go
 * back, and are those of the caller's clock.
 */

#ifndef BF_COORDINATOR_H
#define BF_COORDINATOR_H

#include "instant.h"
#include "params.h"
#include "stats.h"

#define BF_LEDGER_SIZE 64

typedef enum BfRole {
    BF_ROLE_ALONE,          /* begin at once, by yourself */
    BF_ROLE_LEAD,           /* begin the forming batch when it is time */
    BF_ROLE_JOIN,           /* the forming batch's leader flushes for you */
} BfRole;

/* One flush of the hardware, for whoever called it. */
typedef struct BfFlight {
    int64_t arrived_at;     /* the first of its members */
    int64_t began_at;
    uint64_t members;
    bool batch;             /* the next batch waits for its end */
} BfFlight;

typedef struct BfFlushRecord {
    int64_t arrived_at;
    uint64_t members;
    uint64_t dirty_bytes;
    int64_t wait_ns;
    int64_t flush_ns;
} BfFlushRecord;

typedef struct BfFlushStats {
    uint64_t arrivals;
    uint64_t issued;
    uint64_t joined;
    uint64_t alone;         /* issued with one member */
    uint64_t failed;
    BfHistogram batch_sizes;
    BfHistogram wait_ns;
    BfFlushRecord ledger[BF_LEDGER_SIZE];   /* slot: issued % size */
} BfFlushStats;

typedef enum BfOutcome {
    BF_OUTCOME_DURABLE,     /* drained something, or acknowledged it */
    BF_OUTCOME_CLEAN,       /* found nothing to do */
    BF_OUTCOME_FAILED,
} BfOutcome;

/* Count a flush that has ended; arrivals and joined are not touched. */
void bf_flush_stats_add(BfFlushStats *stats, const BfFlight *flight,
                        int64_t now, uint64_t dirty_bytes,
                        BfOutcome outcome);

typedef struct BfCoordinator {
    const BfParams *params;

    /* the batch that is forming; members is 0 if there is none */
    uint64_t members;
    int64_t arrived_at;
    int64_t begin_at;       /* BF_NEVER: not decided yet */

    bool flushing;          /* a batch is */
    bool hurry;             /* nobody waits for company */
    uint64_t outstanding;   /* arrivals that have not ended */
    uint64_t company;
    int64_t first_write_at; /* since the last flush began, or BF_NEVER */
    int64_t ended_at;       /* the last batch */
    unsigned vain;          /* waits in a row that brought too few */
    unsigned skip;          /* batches that do not wait because of them */
    BfAverage flush_time;

    BfFlushStats stats;
} BfCoordinator;

/* @params has to outlive @c and may change; see _reconsider(). */
void bf_coordinator_init(BfCoordinator *c, const BfParams *params);

/* A write was completed. */
void bf_coordinator_write(BfCoordinator *c, int64_t now);

/*
 * A flush arrived.  A BF_ROLE_LEAD has to call bf_coordinator_begin()
 * as soon as bf_coordinator_begin_at() is not in the future, a
 * BF_ROLE_ALONE bf_coordinator_begin_alone() at once.
 */
BfRole bf_coordinator_arrive(BfCoordinator *c, int64_t now);

/*
 * When the forming batch begins, as things stand: at once if the result
 * is not after @now, BF_NEVER if the flush before it has to end first.
 * Every arrival, end and change of parameters may bring it forward.
 */
int64_t bf_coordinator_begin_at(BfCoordinator *c, int64_t now);

/* The forming batch, or a flush by itself, goes to the hardware. */
void bf_coordinator_begin(BfCoordinator *c, int64_t now, BfFlight *flight);
void bf_coordinator_begin_alone(BfCoordinator *c, int64_t now,
                                BfFlight *flight);

/*
 * It is done.  Its members may be completed before this is called, but
 * must not arrive again before.
 */
void bf_coordinator_end(BfCoordinator *c, int64_t now,
                        const BfFlight *flight, uint64_t dirty_bytes,
                        BfOutcome outcome);

/*
 * From now on nobody waits for company (true), or they do again: while
 * a node is drained or its machine is stopped.
 */
void bf_coordinator_hurry(BfCoordinator *c, bool hurry);

/* Parameters have changed: decide about the forming batch anew. */
void bf_coordinator_reconsider(BfCoordinator *c);

/* The average flush time, measured or else expected. */
int64_t bf_coordinator_flush_time(const BfCoordinator *c);

#endif
