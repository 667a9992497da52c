/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The coordinator under any order of writes, flushes and their ends
 *
 * Every flush that arrives is answered exactly once, nobody waits longer
 * than the rules allow, and the statistics add up.
 */

#include <glib.h>

#include "coordinator.h"
#include "fuzz.h"

#define FLIGHTS_MAX 64

typedef struct World {
    BfParams params;
    BfCoordinator c;
    int64_t now;
    BfFlight flights[FLIGHTS_MAX];
    unsigned flying;
    uint64_t arrived, answered;
    bool hurry;
} World;

static bool may_begin(World *w)
{
    return w->c.members && bf_coordinator_begin_at(&w->c, w->now) <= w->now;
}

static void begin(World *w)
{
    BfFlight *flight = &w->flights[w->flying++];

    bf_coordinator_begin(&w->c, w->now, flight);
    g_assert_cmpuint(flight->members, >, 0);
    g_assert_cmpint(flight->arrived_at, <=, w->now);
}

static void arrive(World *w)
{
    bool forming = w->c.members;

    if (w->flying >= FLIGHTS_MAX - 1) {
        return;
    }
    w->arrived++;
    switch (bf_coordinator_arrive(&w->c, w->now)) {
    case BF_ROLE_ALONE:
        bf_coordinator_begin_alone(&w->c, w->now, &w->flights[w->flying]);
        g_assert_cmpuint(w->flights[w->flying++].members, ==, 1);
        break;
    case BF_ROLE_LEAD:
        g_assert_false(forming);
        break;
    case BF_ROLE_JOIN:
        g_assert_true(forming);
        break;
    }
}

static void end(World *w, unsigned which, BfOutcome outcome)
{
    BfFlight flight;

    if (!w->flying) {
        return;
    }
    which %= w->flying;
    flight = w->flights[which];
    w->flights[which] = w->flights[--w->flying];
    w->answered += flight.members;
    bf_coordinator_end(&w->c, w->now, &flight, 4096, outcome);
}

/* The leader of a batch waits for company, or for the batch before. */
static void check_wait(World *w)
{
    int64_t at;

    if (!w->c.members) {
        return;
    }
    at = bf_coordinator_begin_at(&w->c, w->now);
    if (at == BF_NEVER) {
        g_assert_true(w->c.flushing);
        return;
    }
    g_assert_cmpint(at - w->now, <=, w->params.coalesce_max_wait_ns);
    if (w->hurry) {
        g_assert_cmpint(at, <=, w->now);
    }
}

static void step(World *w, uint8_t what, uint8_t much)
{
    switch (what % 8) {
    case 0:
        bf_coordinator_write(&w->c, w->now);
        break;
    case 1:
    case 2:
        arrive(w);
        break;
    case 3:
        end(w, much, much % 3);
        break;
    case 4:
        w->hurry = much & 1;
        bf_coordinator_hurry(&w->c, w->hurry);
        break;
    case 5:
        w->params.coalesce_max_wait_ns = 1000 + much * INT64_C(100000);
        bf_coordinator_reconsider(&w->c);
        break;
    default:
        w->now += (int64_t)much << what / 8;
    }
    check_wait(w);
    if (may_begin(w)) {
        begin(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    World *w;

    if (size < 4) {
        return 0;
    }
    w = g_new0(World, 1);
    bf_params_init(&w->params);
    w->params.write_cache = BF_CACHE_VOLATILE;
    w->params.coalesce = data[0] % 3;
    w->params.coalesce_wait = data[1] % 2;
    w->params.flush_concurrency = data[2] % 3;
    w->params.flush_latency_ns = data[3] * INT64_C(100000);
    bf_coordinator_init(&w->c, &w->params);
    for (size_t i = 4; i + 1 < size; i += 2) {
        step(w, data[i], data[i + 1]);
    }
    /* Whoever still waits is answered when there is nothing else. */
    while (w->flying || w->c.members) {
        if (may_begin(w)) {
            begin(w);
        } else if (w->flying) {
            end(w, 0, BF_OUTCOME_DURABLE);
        } else {
            int64_t at = bf_coordinator_begin_at(&w->c, w->now);

            g_assert_cmpint(at, !=, BF_NEVER);
            w->now = at;
        }
    }
    g_assert_cmpuint(w->answered, ==, w->arrived);
    g_assert_cmpuint(w->c.stats.arrivals, ==, w->arrived);
    g_assert_cmpuint(w->c.stats.issued + w->c.stats.joined, ==, w->arrived);
    g_assert_cmpuint(w->c.outstanding, ==, 0);
    g_free(w);
    return 0;
}
