/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What coordinator.h says about flushes, as statements */

#include <glib.h>

#include "coordinator.h"
#include "writers.h"

#define MS INT64_C(1000000)

typedef struct Fixture {
    BfParams params;
    BfCoordinator c;
    int64_t now;
} Fixture;

/* Flushes take 8 ms, waits are at most 15 ms, the threshold is 2 ms. */
static void setup(Fixture *f, BfCoalesce coalesce, BfCoalesceWait wait)
{
    bf_params_init(&f->params);
    f->params.coalesce = coalesce;
    f->params.coalesce_wait = wait;
    f->params.write_cache = BF_CACHE_VOLATILE;
    f->params.flush_concurrency = BF_FLUSH_SERIAL;
    f->params.flush_latency_ns = 8 * MS;
    f->params.coalesce_max_wait_ns = 15 * MS;
    f->params.coalesce_min_flush_ns = 2 * MS;
    f->now = 1000 * MS;
    bf_coordinator_init(&f->c, &f->params);
}

static void write_now(Fixture *f)
{
    bf_coordinator_write(&f->c, f->now);
}

static BfRole arrive(Fixture *f)
{
    return bf_coordinator_arrive(&f->c, f->now);
}

static int64_t begin_at(Fixture *f)
{
    return bf_coordinator_begin_at(&f->c, f->now);
}

static BfFlight begin(Fixture *f)
{
    BfFlight flight;

    bf_coordinator_begin(&f->c, f->now, &flight);
    return flight;
}

static BfFlight begin_alone(Fixture *f)
{
    BfFlight flight;

    bf_coordinator_begin_alone(&f->c, f->now, &flight);
    return flight;
}

static void end(Fixture *f, const BfFlight *flight, BfOutcome outcome)
{
    bf_coordinator_end(&f->c, f->now, flight, 4096, outcome);
}

/* A batch of so many that takes so long, from write to end. */
static void batch(Fixture *f, unsigned members, int64_t took)
{
    BfFlight flight;

    write_now(f);
    for (unsigned i = 0; i < members; i++) {
        g_assert_cmpint(arrive(f), !=, BF_ROLE_ALONE);
    }
    flight = begin(f);
    f->now += took;
    end(f, &flight, BF_OUTCOME_DURABLE);
}

/* Who leads, who joins, who goes alone */

static void test_first_leads_others_join(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_LEAD);
    f.now += MS;
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_JOIN);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_JOIN);
    flight = begin(&f);
    g_assert_cmpuint(flight.members, ==, 3);
    g_assert_cmpint(flight.arrived_at, ==, f.now - MS);
    g_assert_cmpint(flight.began_at, ==, f.now);
    g_assert_true(flight.batch);
}

static void test_arrivals_while_flushing_are_the_next_batch(void)
{
    Fixture f;
    BfFlight first, second;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    first = begin(&f);
    f.now += MS;
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_LEAD);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_JOIN);
    g_assert_cmpint(begin_at(&f), ==, BF_NEVER);
    f.now += 7 * MS;
    end(&f, &first, BF_OUTCOME_DURABLE);
    g_assert_cmpint(begin_at(&f), !=, BF_NEVER);
    second = begin(&f);
    g_assert_cmpuint(first.members, ==, 1);
    g_assert_cmpuint(second.members, ==, 2);
}

static void test_nobody_there_nothing_begins(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    g_assert_cmpint(begin_at(&f), ==, BF_NEVER);
    batch(&f, 2, MS);
    g_assert_cmpint(begin_at(&f), ==, BF_NEVER);
}

static void test_off_everyone_goes_alone(void)
{
    Fixture f;
    BfFlight first, second;

    setup(&f, BF_COALESCE_OFF, BF_WAIT_AVERAGE);
    write_now(&f);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_ALONE);
    first = begin_alone(&f);
    f.now += MS;
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_ALONE);
    second = begin_alone(&f);
    g_assert_cmpuint(first.members, ==, 1);
    g_assert_cmpint(second.arrived_at, ==, f.now);
    g_assert_false(first.batch);
    f.now += MS;
    end(&f, &second, BF_OUTCOME_DURABLE);
    end(&f, &first, BF_OUTCOME_DURABLE);
    g_assert_cmpuint(f.c.stats.alone, ==, 2);
    g_assert_cmpuint(f.c.stats.joined, ==, 0);
}

/* Whether the flush is fast or slow: overlapping ones gain nothing. */
static void test_auto_on_concurrent_hardware_goes_alone(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    f.params.flush_concurrency = BF_FLUSH_CONCURRENT;
    f.params.flush_latency_ns = MS / 10;
    write_now(&f);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_ALONE);
    f.params.flush_latency_ns = 20 * MS;
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_ALONE);
}

/* When a leader that has company, and a fresh write, may begin. */
static int64_t wait_with_company(Fixture *f)
{
    f->c.company = 2;
    write_now(f);
    g_assert_cmpint(arrive(f), ==, BF_ROLE_LEAD);
    return begin_at(f) - f->now;
}

static void test_auto_waits_from_the_threshold_on(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    f.params.flush_latency_ns = 2 * MS - 1;
    g_assert_cmpint(wait_with_company(&f), ==, 0);

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    f.params.flush_latency_ns = 2 * MS;
    g_assert_cmpint(wait_with_company(&f), ==, 2 * MS);
}

static void test_on_ignores_the_threshold(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    f.params.flush_concurrency = BF_FLUSH_CONCURRENT;
    f.params.flush_latency_ns = MS;
    write_now(&f);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_LEAD);
    g_assert_cmpint(begin_at(&f), ==, f.now + MS);
}

/* Those that queue behind one another share, but nobody waits. */
static void test_auto_fast_and_serial_shares_without_waiting(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    f.params.flush_latency_ns = MS;
    write_now(&f);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_LEAD);
    g_assert_cmpint(begin_at(&f), ==, f.now);
    flight = begin(&f);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_LEAD);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_JOIN);
    f.now += MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    write_now(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

/* How long the leader waits */

static void test_average_counts_from_now(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    f.now += 3 * MS;
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
}

static void test_delta_counts_from_the_first_write(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_DELTA);
    write_now(&f);
    f.now += 3 * MS;
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 5 * MS);
}

static void test_cap(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    f.params.flush_latency_ns = 40 * MS;
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 15 * MS);

    setup(&f, BF_COALESCE_ON, BF_WAIT_DELTA);
    f.params.flush_latency_ns = 40 * MS;
    write_now(&f);
    f.now += 14 * MS;
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + MS);
}

static void test_no_wait_if_the_first_write_is_old(void)
{
    for (int wait = 0; wait < 2; wait++) {
        Fixture f;

        setup(&f, BF_COALESCE_ON, wait);
        write_now(&f);
        f.now += 8 * MS - 1;
        arrive(&f);
        g_assert_cmpint(begin_at(&f), >, f.now);

        setup(&f, BF_COALESCE_ON, wait);
        write_now(&f);
        f.now += 8 * MS;
        arrive(&f);
        g_assert_cmpint(begin_at(&f), ==, f.now);
    }
}

static void test_on_without_a_write_waits_from_the_arrival(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_DELTA);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
}

static void test_auto_alone_without_a_write_does_not_wait(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 1, 8 * MS);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

/* It is only the first of them to be back. */
static void test_auto_in_company_without_a_write_waits(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 4, 8 * MS);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
    f.now += MS;
    for (int i = 0; i < 3; i++) {
        write_now(&f);
        arrive(&f);
    }
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

/* Those that arrived while the others flushed have nobody to wait for. */
static void test_auto_queued_without_a_write_does_not_wait(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    flight = begin(&f);
    for (int i = 0; i < 15; i++) {
        arrive(&f);
    }
    f.now += 8 * MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpuint(f.c.company, ==, 16);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

/* A flush that found nothing says little about who else writes. */
static void test_a_clean_flush_does_not_shrink_the_company(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 4, 8 * MS);
    f.now += 100 * MS;
    arrive(&f);
    flight = begin(&f);
    end(&f, &flight, BF_OUTCOME_CLEAN);
    g_assert_cmpuint(f.c.company, ==, 4);
    arrive(&f);
    flight = begin(&f);
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpuint(f.c.company, ==, 1);
}

static void test_the_wait_does_not_move(void)
{
    Fixture f;
    int64_t due;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    due = begin_at(&f);
    for (int i = 0; i < 7; i++) {
        f.now += MS;
        write_now(&f);
        arrive(&f);
        g_assert_cmpint(begin_at(&f), ==, due);
    }
}

static void test_a_write_during_a_flush_is_the_next_ones(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_ON, BF_WAIT_DELTA);
    write_now(&f);
    arrive(&f);
    flight = begin(&f);
    f.now += 5 * MS;
    write_now(&f);
    arrive(&f);
    f.now += 3 * MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpint(begin_at(&f), ==, f.now + 5 * MS);
}

/* A flush by itself takes up all writes, too. */
static void test_a_write_before_a_flush_alone_is_covered(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_OFF, BF_WAIT_DELTA);
    write_now(&f);
    arrive(&f);
    flight = begin_alone(&f);
    f.now += 6 * MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    f.params.coalesce = BF_COALESCE_ON;
    bf_coordinator_reconsider(&f.c);
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 6 * MS);
}

/* The average flush time */

static void test_expected_until_measured(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    g_assert_cmpint(bf_coordinator_flush_time(&f.c), ==, 8 * MS);
    batch(&f, 1, 4 * MS);
    g_assert_cmpint(bf_coordinator_flush_time(&f.c), ==, 4 * MS);
    batch(&f, 1, 8 * MS);
    g_assert_cmpint(bf_coordinator_flush_time(&f.c), ==, 7 * MS);
}

static void test_clean_and_failed_do_not_count(void)
{
    static const BfOutcome outcomes[] = {
        BF_OUTCOME_CLEAN, BF_OUTCOME_FAILED
    };

    for (size_t i = 0; i < G_N_ELEMENTS(outcomes); i++) {
        Fixture f;
        BfFlight flight;

        setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
        arrive(&f);
        flight = begin(&f);
        f.now += MS;
        end(&f, &flight, outcomes[i]);
        g_assert_cmpint(bf_coordinator_flush_time(&f.c), ==, 8 * MS);
    }
}

static void test_wait_for_company_does_not_count(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    arrive(&f);
    f.now += 8 * MS;
    flight = begin(&f);
    f.now += 3 * MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpint(bf_coordinator_flush_time(&f.c), ==, 3 * MS);
}

static void test_a_device_that_becomes_fast_is_noticed(void)
{
    Fixture f;
    int rounds = 0;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 1, 8 * MS);
    f.now += MS;
    while (wait_with_company(&f) > 0) {
        BfFlight flight;

        f.now = begin_at(&f);
        flight = begin(&f);
        f.now += MS / 10;
        end(&f, &flight, BF_OUTCOME_DURABLE);
        g_assert_cmpint(++rounds, <, 4);
    }
}

static void test_a_device_that_becomes_slow_is_noticed(void)
{
    Fixture f;
    int rounds = 0;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    f.params.flush_latency_ns = MS / 10;
    while (wait_with_company(&f) == 0) {
        BfFlight flight = begin(&f);

        f.now += 8 * MS;
        end(&f, &flight, BF_OUTCOME_DURABLE);
        g_assert_cmpint(++rounds, <, 2);
    }
}

/* Company (coalesce=auto) */

static void test_a_lone_flusher_never_waits(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    for (int i = 0; i < 10; i++) {
        BfFlight flight;

        write_now(&f);
        g_assert_cmpint(arrive(&f), ==, BF_ROLE_LEAD);
        g_assert_cmpint(begin_at(&f), ==, f.now);
        flight = begin(&f);
        f.now += 8 * MS;
        end(&f, &flight, BF_OUTCOME_DURABLE);
        f.now += i * MS;
    }
}

static void test_the_wait_ends_when_everybody_is_here(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 3, 8 * MS);
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
    f.now += MS;
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

static void test_on_waits_for_more_than_the_company(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    batch(&f, 1, 8 * MS);
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
}

/* One that arrived while another flushed makes two, not one and one. */
static void test_antiphase_is_a_company_of_two(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    flight = begin(&f);
    f.now += 4 * MS;
    write_now(&f);
    arrive(&f);
    f.now += 4 * MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpint(begin_at(&f), >, f.now);
    f.now += MS;
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

static void test_company_that_left_is_forgotten(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 5, 8 * MS);
    batch(&f, 1, 8 * MS);
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

/* An old write says nothing about those just completed. */
static void test_company_is_given_time_to_be_back(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    f.params.flush_latency_ns = 20 * MS;
    write_now(&f);
    arrive(&f);
    flight = begin(&f);
    write_now(&f);
    arrive(&f);
    f.now += 20 * MS;
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpint(begin_at(&f), ==, f.now + 15 * MS);
}

/* A company of four of which one comes back: the wait was in vain. */
static int64_t wait_in_vain(Fixture *f)
{
    int64_t came_at = f->now;
    int64_t waited;
    BfFlight flight;

    write_now(f);
    arrive(f);
    f->now = begin_at(f);
    waited = f->now - came_at;
    flight = begin(f);
    for (int i = 0; i < 3; i++) {
        arrive(f);
    }
    f->now += 8 * MS;
    end(f, &flight, BF_OUTCOME_DURABLE);
    flight = begin(f);
    end(f, &flight, BF_OUTCOME_CLEAN);
    f->c.company = 4;
    return waited;
}

static void test_vain_waits_become_rare(void)
{
    Fixture f;
    int waits = 0;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    batch(&f, 4, 8 * MS);
    g_assert_cmpint(wait_in_vain(&f), ==, 8 * MS);
    for (int i = 0; i < 160; i++) {
        waits += wait_in_vain(&f) > 0;
    }
    g_assert_cmpint(waits, >, 0);
    g_assert_cmpint(waits, <=, 24);
}

/* Whoever did not wait has not waited in vain. */
static void test_beginning_at_once_is_not_in_vain(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_AUTO, BF_WAIT_AVERAGE);
    bf_coordinator_hurry(&f.c, true);
    for (int i = 0; i < 4; i++) {
        f.c.company = 4;
        arrive(&f);
        g_assert_cmpint(begin_at(&f), ==, f.now);
        flight = begin(&f);
        end(&f, &flight, BF_OUTCOME_CLEAN);
    }
    bf_coordinator_hurry(&f.c, false);
    f.now += MS;
    f.c.company = 4;
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), ==, f.now + 8 * MS);
}

/* Changes on the way */

static void test_hurry(void)
{
    Fixture f;
    int64_t due;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    due = begin_at(&f);
    bf_coordinator_hurry(&f.c, true);
    g_assert_cmpint(begin_at(&f), ==, f.now);
    bf_coordinator_hurry(&f.c, false);
    g_assert_cmpint(begin_at(&f), ==, due);
}

static void test_hurry_does_not_overtake_the_flush_before(void)
{
    Fixture f;
    BfFlight flight;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    arrive(&f);
    flight = begin(&f);
    arrive(&f);
    bf_coordinator_hurry(&f.c, true);
    g_assert_cmpint(begin_at(&f), ==, BF_NEVER);
    end(&f, &flight, BF_OUTCOME_FAILED);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

static void test_reopen_to_off_releases_the_batch(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    g_assert_cmpint(begin_at(&f), >, f.now);
    f.params.coalesce = BF_COALESCE_OFF;
    bf_coordinator_reconsider(&f.c);
    g_assert_cmpint(begin_at(&f), ==, f.now);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_ALONE);
    g_assert_cmpuint(begin(&f).members, ==, 1);
}

static void test_reopen_with_another_cap(void)
{
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    write_now(&f);
    arrive(&f);
    begin_at(&f);
    f.now += MS;
    f.params.coalesce_max_wait_ns = 2 * MS;
    bf_coordinator_reconsider(&f.c);
    g_assert_cmpint(begin_at(&f), ==, f.now + 2 * MS);
}

/* Mode off meanwhile: the batch is still the only one that flushes. */
static void test_a_batch_survives_reopen_while_flushing(void)
{
    Fixture f;
    BfFlight flight, alone;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    arrive(&f);
    flight = begin(&f);
    arrive(&f);
    f.params.coalesce = BF_COALESCE_OFF;
    bf_coordinator_reconsider(&f.c);
    g_assert_cmpint(begin_at(&f), ==, BF_NEVER);
    g_assert_cmpint(arrive(&f), ==, BF_ROLE_ALONE);
    alone = begin_alone(&f);
    end(&f, &alone, BF_OUTCOME_DURABLE);
    g_assert_cmpint(begin_at(&f), ==, BF_NEVER);
    end(&f, &flight, BF_OUTCOME_DURABLE);
    g_assert_cmpint(begin_at(&f), ==, f.now);
}

/* What is counted */

static void test_statistics(void)
{
    const BfFlushStats *stats;
    BfFlight flight;
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    stats = &f.c.stats;
    batch(&f, 3, 8 * MS);
    batch(&f, 1, 8 * MS);
    arrive(&f);
    flight = begin(&f);
    end(&f, &flight, BF_OUTCOME_FAILED);
    g_assert_cmpuint(stats->arrivals, ==, 5);
    g_assert_cmpuint(stats->joined, ==, 2);
    g_assert_cmpuint(stats->issued, ==, 3);
    g_assert_cmpuint(stats->alone, ==, 2);
    g_assert_cmpuint(stats->failed, ==, 1);
    g_assert_cmpint(stats->batch_sizes.sum, ==, 5);
    g_assert_cmpuint(stats->batch_sizes.count[3], ==, 1);
    g_assert_cmpuint(stats->wait_ns.total, ==, 3);
}

static void test_ledger(void)
{
    const BfFlushRecord *last;
    BfFlight flight;
    Fixture f;

    setup(&f, BF_COALESCE_ON, BF_WAIT_AVERAGE);
    for (int i = 0; i < BF_LEDGER_SIZE; i++) {
        batch(&f, 1, MS);
    }
    arrive(&f);
    f.now += 5 * MS;
    arrive(&f);
    flight = begin(&f);
    f.now += 7 * MS;
    bf_coordinator_end(&f.c, f.now, &flight, 12345, BF_OUTCOME_DURABLE);

    last = &f.c.stats.ledger[BF_LEDGER_SIZE % BF_LEDGER_SIZE];
    g_assert_cmpint(last->arrived_at, ==, f.now - 12 * MS);
    g_assert_cmpuint(last->members, ==, 2);
    g_assert_cmpuint(last->dirty_bytes, ==, 12345);
    g_assert_cmpint(last->wait_ns, ==, 5 * MS);
    g_assert_cmpint(last->flush_ns, ==, 7 * MS);
    g_assert_cmpint(f.c.stats.wait_ns.max, ==, 5 * MS);
}

/* Closed-loop writers */

static LoadResult run(unsigned writers, int64_t flush_ns, int64_t think_ns,
                      BfCoalesce coalesce)
{
    Load load = {
        .writers = writers,
        .think_ns = think_ns,
        .jitter = think_ns ? 0.5 : 0,
        .stagger_ns = flush_ns / 2,
        .duration_ns = 1000 * (flush_ns + think_ns + 50000),
        .seed = 1,
    };
    char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    params.write_cache = BF_CACHE_VOLATILE;
    params.write_latency_ns = 50000;
    params.flush_latency_ns = flush_ns;
    params.coalesce = coalesce;
    g_assert_true(bf_params_finish(&params, &error));
    return load_run(&load, &params);
}

static void test_two_in_antiphase_fall_into_step(void)
{
    static const int64_t flush_ms[] = { 2, 3, 8, 14, 20, 40 };

    for (size_t i = 0; i < G_N_ELEMENTS(flush_ms); i++) {
        LoadResult result = run(2, flush_ms[i] * MS, 0, BF_COALESCE_AUTO);

        g_assert_cmpfloat(result.shared, >=, 0.99);
    }
}

static void test_one_writer_loses_nothing(void)
{
    static const int64_t flush_us[] = { 200, 1500, 2000, 3000, 8000, 20000 };

    for (size_t i = 0; i < G_N_ELEMENTS(flush_us); i++) {
        for (int64_t think = 0; think < 10 * MS; think += 3 * MS) {
            LoadResult off = run(1, flush_us[i] * 1000, think,
                                 BF_COALESCE_OFF);
            LoadResult with = run(1, flush_us[i] * 1000, think,
                                  BF_COALESCE_AUTO);

            g_assert_cmpfloat(with.flushes_per_second, ==,
                              off.flushes_per_second);
            g_assert_cmpint(with.wait_max_ns, ==, 0);
        }
    }
}

static void test_sixteen_writers_gain(void)
{
    static const int64_t flush_ms[] = { 2, 3, 8, 20 };

    for (size_t i = 0; i < G_N_ELEMENTS(flush_ms); i++) {
        LoadResult off = run(16, flush_ms[i] * MS, 0, BF_COALESCE_OFF);
        LoadResult with = run(16, flush_ms[i] * MS, 0, BF_COALESCE_AUTO);

        g_assert_cmpfloat(with.flushes_per_second, >=,
                          15 * off.flushes_per_second);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
#define ADD(name, function) \
    g_test_add_func("/coordinator/" name, test_##function)
    ADD("first-leads-others-join", first_leads_others_join);
    ADD("arrivals-while-flushing-are-the-next-batch",
        arrivals_while_flushing_are_the_next_batch);
    ADD("nobody-there-nothing-begins", nobody_there_nothing_begins);
    ADD("off-everyone-goes-alone", off_everyone_goes_alone);
    ADD("auto-on-concurrent-hardware-goes-alone",
        auto_on_concurrent_hardware_goes_alone);
    ADD("auto-waits-from-the-threshold-on",
        auto_waits_from_the_threshold_on);
    ADD("on-ignores-the-threshold", on_ignores_the_threshold);
    ADD("auto-fast-and-serial-shares-without-waiting",
        auto_fast_and_serial_shares_without_waiting);
    ADD("average-counts-from-now", average_counts_from_now);
    ADD("delta-counts-from-the-first-write",
        delta_counts_from_the_first_write);
    ADD("cap", cap);
    ADD("no-wait-if-the-first-write-is-old",
        no_wait_if_the_first_write_is_old);
    ADD("on-without-a-write-waits-from-the-arrival",
        on_without_a_write_waits_from_the_arrival);
    ADD("auto-alone-without-a-write-does-not-wait",
        auto_alone_without_a_write_does_not_wait);
    ADD("auto-in-company-without-a-write-waits",
        auto_in_company_without_a_write_waits);
    ADD("auto-queued-without-a-write-does-not-wait",
        auto_queued_without_a_write_does_not_wait);
    ADD("a-clean-flush-does-not-shrink-the-company",
        a_clean_flush_does_not_shrink_the_company);
    ADD("the-wait-does-not-move", the_wait_does_not_move);
    ADD("a-write-during-a-flush-is-the-next-ones",
        a_write_during_a_flush_is_the_next_ones);
    ADD("a-write-before-a-flush-alone-is-covered",
        a_write_before_a_flush_alone_is_covered);
    ADD("expected-until-measured", expected_until_measured);
    ADD("clean-and-failed-do-not-count", clean_and_failed_do_not_count);
    ADD("wait-for-company-does-not-count", wait_for_company_does_not_count);
    ADD("a-device-that-becomes-fast-is-noticed",
        a_device_that_becomes_fast_is_noticed);
    ADD("a-device-that-becomes-slow-is-noticed",
        a_device_that_becomes_slow_is_noticed);
    ADD("a-lone-flusher-never-waits", a_lone_flusher_never_waits);
    ADD("the-wait-ends-when-everybody-is-here",
        the_wait_ends_when_everybody_is_here);
    ADD("on-waits-for-more-than-the-company",
        on_waits_for_more_than_the_company);
    ADD("antiphase-is-a-company-of-two", antiphase_is_a_company_of_two);
    ADD("company-that-left-is-forgotten", company_that_left_is_forgotten);
    ADD("company-is-given-time-to-be-back",
        company_is_given_time_to_be_back);
    ADD("beginning-at-once-is-not-in-vain", beginning_at_once_is_not_in_vain);
    ADD("vain-waits-become-rare", vain_waits_become_rare);
    ADD("hurry", hurry);
    ADD("hurry-does-not-overtake-the-flush-before",
        hurry_does_not_overtake_the_flush_before);
    ADD("reopen-to-off-releases-the-batch",
        reopen_to_off_releases_the_batch);
    ADD("reopen-with-another-cap", reopen_with_another_cap);
    ADD("a-batch-survives-reopen-while-flushing",
        a_batch_survives_reopen_while_flushing);
    ADD("statistics", statistics);
    ADD("ledger", ledger);
    ADD("two-in-antiphase-fall-into-step", two_in_antiphase_fall_into_step);
    ADD("one-writer-loses-nothing", one_writer_loses_nothing);
    ADD("sixteen-writers-gain", sixteen_writers_gain);
#undef ADD
    return g_test_run();
}
