/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The flush coordinator: see coordinator.h */

#include <glib.h>

#include "coordinator.h"

/* At most 15 batches do not wait after a wait in vain. */
#define VAIN_MAX 4

void bf_coordinator_init(BfCoordinator *c, const BfParams *params)
{
    *c = (BfCoordinator) {
        .params = params,
        .begin_at = BF_NEVER,
        .company = 1,
        .first_write_at = BF_NEVER,
        .ended_at = INT64_MIN / 2,
    };
}

void bf_coordinator_write(BfCoordinator *c, int64_t now)
{
    if (c->first_write_at == BF_NEVER) {
        c->first_write_at = now;
    }
}

int64_t bf_coordinator_flush_time(const BfCoordinator *c)
{
    return c->flush_time.sampled
        ? c->flush_time.value : bf_params_expected_flush_ns(c->params);
}

static bool overlaps(const BfCoordinator *c)
{
    return c->params->flush_concurrency == BF_FLUSH_CONCURRENT;
}

/* Whether anybody waits for company at all. */
static bool collects(const BfCoordinator *c)
{
    switch (c->params->coalesce) {
    case BF_COALESCE_ON:
        return true;
    case BF_COALESCE_AUTO:
        return !overlaps(c) && bf_coordinator_flush_time(c) >=
                               c->params->coalesce_min_flush_ns;
    default:
        return false;
    }
}

static bool goes_alone(const BfCoordinator *c)
{
    if (c->params->coalesce == BF_COALESCE_OFF) {
        return true;
    }
    return !collects(c) && c->members == 0 && overlaps(c);
}

BfRole bf_coordinator_arrive(BfCoordinator *c, int64_t now)
{
    c->stats.arrivals++;
    c->outstanding++;
    if (goes_alone(c)) {
        return BF_ROLE_ALONE;
    }
    if (c->members++ > 0) {
        c->stats.joined++;
        return BF_ROLE_JOIN;
    }
    c->arrived_at = now;
    c->begin_at = BF_NEVER;
    return BF_ROLE_LEAD;
}

static bool everybody_is_here(const BfCoordinator *c)
{
    return c->params->coalesce == BF_COALESCE_AUTO &&
           c->members >= c->company;
}

static bool gave_up(const BfCoordinator *c)
{
    return c->params->coalesce == BF_COALESCE_AUTO && c->skip > 0;
}

/* Did waiting pay?  Called when the batch begins. */
static void learn(BfCoordinator *c, int64_t now)
{
    bool waited = c->begin_at > MAX(c->arrived_at, c->ended_at) &&
                  now >= c->begin_at;

    if (c->skip > 0) {
        c->skip--;
    } else if (c->members >= c->company) {
        c->vain = c->company > 1 ? 0 : c->vain;
    } else if (waited && c->members * 2 <= c->company) {
        c->vain = MIN(c->vain + 1, VAIN_MAX);
        c->skip = (1u << c->vain) - 1;
    }
}

/*
 * When the wait begins to count, BF_NEVER for no wait at all.  With
 * coalesce=auto the company was completed by the flush before, and
 * cannot be back any earlier.  A flush with nothing to cover waits for
 * nobody, unless the company was completed before it arrived: then it
 * is the first of them to be back.
 */
static int64_t counts_from(const BfCoordinator *c)
{
    if (c->params->coalesce == BF_COALESCE_ON) {
        return c->first_write_at == BF_NEVER ? c->arrived_at
                                             : c->first_write_at;
    }
    if (c->first_write_at == BF_NEVER) {
        return c->company > 1 && c->arrived_at >= c->ended_at ? c->ended_at
                                                              : BF_NEVER;
    }
    return MAX(c->first_write_at, c->ended_at);
}

/* S0's rule, in both readings. */
static int64_t decide(const BfCoordinator *c, int64_t now)
{
    int64_t wait = MIN(bf_coordinator_flush_time(c),
                       c->params->coalesce_max_wait_ns);
    int64_t since = counts_from(c);

    if (since == BF_NEVER || now - since >= wait) {
        return now;
    }
    return wait + (c->params->coalesce_wait == BF_WAIT_DELTA ? since : now);
}

int64_t bf_coordinator_begin_at(BfCoordinator *c, int64_t now)
{
    if (c->members == 0 || c->flushing) {
        return BF_NEVER;
    }
    if (c->hurry || !collects(c) || everybody_is_here(c) || gave_up(c)) {
        return now;
    }
    if (c->begin_at == BF_NEVER) {
        c->begin_at = decide(c, now);
    }
    return c->begin_at;
}

void bf_coordinator_begin(BfCoordinator *c, int64_t now, BfFlight *flight)
{
    g_assert(c->members > 0 && !c->flushing);
    *flight = (BfFlight) {
        .arrived_at = c->arrived_at,
        .began_at = now,
        .members = c->members,
        .batch = true,
    };
    learn(c, now);
    c->flushing = true;
    c->members = 0;
    c->begin_at = BF_NEVER;
    c->first_write_at = BF_NEVER;
}

void bf_coordinator_begin_alone(BfCoordinator *c, int64_t now,
                                BfFlight *flight)
{
    *flight = (BfFlight) {
        .arrived_at = now,
        .began_at = now,
        .members = 1,
    };
    c->first_write_at = BF_NEVER;
}

void bf_flush_stats_add(BfFlushStats *stats, const BfFlight *flight,
                        int64_t now, uint64_t dirty_bytes,
                        BfOutcome outcome)
{
    int64_t wait_ns = flight->began_at - flight->arrived_at;

    stats->ledger[stats->issued % BF_LEDGER_SIZE] = (BfFlushRecord) {
        .arrived_at = flight->arrived_at,
        .members = flight->members,
        .dirty_bytes = dirty_bytes,
        .wait_ns = wait_ns,
        .flush_ns = now - flight->began_at,
    };
    stats->issued++;
    stats->alone += flight->members == 1;
    stats->failed += outcome == BF_OUTCOME_FAILED;
    bf_histogram_add(&stats->batch_sizes, flight->members);
    bf_histogram_add(&stats->wait_ns, wait_ns);
}

void bf_coordinator_end(BfCoordinator *c, int64_t now,
                        const BfFlight *flight, uint64_t dirty_bytes,
                        BfOutcome outcome)
{
    g_assert(c->outstanding >= flight->members);
    /* Nothing was written, so it tells little about who else writes. */
    c->company = outcome == BF_OUTCOME_CLEAN
        ? MAX(c->company, c->outstanding) : c->outstanding;
    c->outstanding -= flight->members;
    if (flight->batch) {
        g_assert(c->flushing);
        c->flushing = false;
        c->ended_at = now;
    }
    if (outcome == BF_OUTCOME_DURABLE) {
        bf_average_add(&c->flush_time, now - flight->began_at);
    }
    bf_flush_stats_add(&c->stats, flight, now, dirty_bytes, outcome);
}

void bf_coordinator_hurry(BfCoordinator *c, bool hurry)
{
    c->hurry = hurry;
}

void bf_coordinator_reconsider(BfCoordinator *c)
{
    c->begin_at = BF_NEVER;
}
