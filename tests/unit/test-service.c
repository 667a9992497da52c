/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What service.h says about time, as statements and closed forms */

#include <glib.h>
#include <math.h>

#include "cache.h"
#include "service.h"

#define READ  1000
#define WRITE 2000
#define STAGE 4000
#define FLUSH 50000
#define CLEAN 300

typedef struct Fixture {
    BfParams params;
    BfService service;
} Fixture;

static void setup(Fixture *f, int64_t lanes, BfFlushConcurrency concurrency)
{
    bf_params_init(&f->params);
    f->params.queue_depth = lanes;
    f->params.flush_concurrency = concurrency;
    f->params.read_latency_ns = READ;
    f->params.write_latency_ns = WRITE;
    f->params.destage_latency_ns = STAGE;
    f->params.flush_latency_ns = FLUSH;
    f->params.flush_clean_latency_ns = CLEAN;
    bf_service_init(&f->service, &f->params, 0);
}

static void teardown(Fixture *f)
{
    bf_service_destroy(&f->service);
}

static int64_t submit(Fixture *f, int64_t now, BfOp op, uint64_t bytes)
{
    BfRequest request = { .op = op, .bytes = bytes };

    return bf_service_submit(&f->service, now, &request);
}

static int64_t request(Fixture *f, int64_t now, BfOp op)
{
    return submit(f, now, op, 4096);
}

static int64_t flush(Fixture *f, int64_t now)
{
    return submit(f, now, BF_OP_FLUSH, 0);
}

static int64_t flush_clean(Fixture *f, int64_t now)
{
    return submit(f, now, BF_OP_FLUSH_CLEAN, 0);
}

static void test_idle_medium(void)
{
    Fixture f;

    setup(&f, 4, BF_FLUSH_CONCURRENT);
    g_assert_cmpint(request(&f, 100, BF_OP_READ), ==, 100 + READ);
    g_assert_cmpint(request(&f, 100, BF_OP_WRITE), ==, 100 + WRITE);
    g_assert_cmpint(request(&f, 100, BF_OP_DESTAGE), ==, 100 + STAGE);
    g_assert_cmpint(request(&f, 100, BF_OP_CACHE), ==, 100 + WRITE);
    teardown(&f);
}

/* c lanes serve n requests at once in ceil(n/c) rounds. */
static void test_lanes(void)
{
    static const int64_t lanes[] = { 1, 2, 3, 7, 32, 1024 };

    for (size_t l = 0; l < G_N_ELEMENTS(lanes); l++) {
        Fixture f;

        setup(&f, lanes[l], BF_FLUSH_SERIAL);
        for (int64_t n = 1; n <= 3000; n++) {
            int64_t rounds = (n + lanes[l] - 1) / lanes[l];

            g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, rounds * READ);
        }
        teardown(&f);
    }
}

static void test_request_takes_the_lane_free_first(void)
{
    Fixture f;

    setup(&f, 2, BF_FLUSH_SERIAL);
    g_assert_cmpint(request(&f, 0, BF_OP_DESTAGE), ==, STAGE);
    g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, READ);
    g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, 2 * READ);
    g_assert_cmpint(request(&f, 10 * STAGE, BF_OP_READ), ==,
                    10 * STAGE + READ);
    teardown(&f);
}

static void test_cache_takes_no_lane(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    for (int i = 0; i < 10; i++) {
        g_assert_cmpint(request(&f, 0, BF_OP_CACHE), ==, WRITE);
    }
    g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, READ);
    teardown(&f);
}

static void test_bandwidth(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    f.params.bandwidth = 1000000;
    g_assert_cmpint(submit(&f, 0, BF_OP_READ, 4096), ==,
                    READ + 4096000);
    g_assert_cmpint(submit(&f, 0, BF_OP_WRITE, 512), ==,
                    READ + 4096000 + WRITE + 512000);
    g_assert_cmpint(submit(&f, 0, BF_OP_CACHE, 4096), ==,
                    WRITE);
    teardown(&f);
}

/* Lanes seek side by side, but there is one channel. */
static void test_lanes_share_the_bandwidth(void)
{
    Fixture f;

    setup(&f, 4, BF_FLUSH_SERIAL);
    f.params.bandwidth = 1000000;
    for (int i = 1; i <= 8; i++) {
        g_assert_cmpint(submit(&f, 0, BF_OP_READ, 4096),
                        ==, MAX(READ + 4096000, i * 4096000));
    }
    teardown(&f);
}

static void test_a_long_latency_leaves_the_channel_to_others(void)
{
    Fixture f;

    setup(&f, 2, BF_FLUSH_SERIAL);
    f.params.bandwidth = 1000000;
    f.params.destage_latency_ns = INT64_C(60) * 1000000000;
    submit(&f, 0, BF_OP_DESTAGE, 4096);
    g_assert_cmpint(submit(&f, 0, BF_OP_READ, 4096), ==, 2 * 4096000);
    teardown(&f);
}

static void test_bandwidth_of_a_large_request(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    f.params.bandwidth = INT64_C(1) << 30;
    g_assert_cmpint(submit(&f, 0, BF_OP_READ,
                                       UINT64_C(1) << 40), ==,
                    READ + INT64_C(1024) * 1000000000);
    teardown(&f);
}

/* A drain completes requests at once: they keep nothing busy. */
static void test_reset_forgets(void)
{
    for (int kind = 0; kind < 3; kind++) {
        Fixture f;

        setup(&f, 4, kind);
        f.params.bandwidth = 1000000;
        for (int i = 0; i < 8; i++) {
            submit(&f, 0, BF_OP_DESTAGE, 4096);
        }
        flush(&f, 0);
        bf_service_reset(&f.service);
        f.params.bandwidth = 0;
        g_assert_cmpint(flush(&f, 10), ==, 10 + FLUSH);
        bf_service_reset(&f.service);
        g_assert_cmpint(request(&f, 20, BF_OP_READ), ==, 20 + READ);
        teardown(&f);
    }
}

static void test_flush_waits_for_destage(void)
{
    for (int kind = 0; kind < 3; kind++) {
        Fixture f;

        setup(&f, 4, kind);
        request(&f, 0, BF_OP_DESTAGE);
        request(&f, 100, BF_OP_DESTAGE);
        g_assert_cmpint(flush(&f, 200), ==, 100 + STAGE + FLUSH);
        teardown(&f);
    }
}

static void test_clean_flush_does_not_wait_for_destage(void)
{
    Fixture f;

    setup(&f, 4, BF_FLUSH_SERIAL);
    request(&f, 0, BF_OP_DESTAGE);
    g_assert_cmpint(flush_clean(&f, 10), ==, 10 + CLEAN);
    teardown(&f);
}

static void test_backed_flush_does_not_wait_for_destage(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    g_assert_cmpint(request(&f, 0, BF_OP_DESTAGE), ==, STAGE);
    g_assert_cmpint(submit(&f, 0, BF_OP_FLUSH_BACKED, 0), ==, FLUSH);
    g_assert_cmpint(flush(&f, 0), ==, 2 * FLUSH);
    teardown(&f);
}

static void test_flush_does_not_wait_for_reads(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    request(&f, 0, BF_OP_READ);
    g_assert_cmpint(flush(&f, 0), ==, FLUSH);
    g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, 2 * READ);
    teardown(&f);
}

static void test_concurrent_flushes_overlap(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_CONCURRENT);
    g_assert_cmpint(flush(&f, 0), ==, FLUSH);
    g_assert_cmpint(flush(&f, 1), ==, 1 + FLUSH);
    g_assert_cmpint(flush_clean(&f, 2), ==, 2 + CLEAN);
    g_assert_cmpint(request(&f, 3, BF_OP_WRITE), ==, 3 + WRITE);
    teardown(&f);
}

static void test_serial_flushes_queue(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    for (int n = 1; n <= 16; n++) {
        g_assert_cmpint(flush(&f, n), ==, 1 + n * FLUSH);
    }
    g_assert_cmpint(flush_clean(&f, 20), ==, 1 + 16 * FLUSH + CLEAN);
    g_assert_cmpint(request(&f, 20, BF_OP_WRITE), ==, 20 + WRITE);
    g_assert_cmpint(flush(&f, 99 * FLUSH), ==, 100 * FLUSH);
    teardown(&f);
}

/* It waits for the latest request and everything waits for it. */
static void test_exclusive_flush(void)
{
    static const BfOp ops[] = {
        BF_OP_READ, BF_OP_WRITE, BF_OP_CACHE, BF_OP_DESTAGE
    };

    for (size_t i = 0; i < G_N_ELEMENTS(ops); i++) {
        int64_t before, done;
        Fixture f;

        setup(&f, 4, BF_FLUSH_EXCLUSIVE);
        request(&f, 0, BF_OP_READ);
        before = request(&f, 10, ops[i]);
        done = flush_clean(&f, 20);
        g_assert_cmpint(done, ==, MAX(before, READ) + CLEAN);
        before = request(&f, 30, ops[i]);
        g_assert_cmpint(before, >, done);
        g_assert_cmpint(before - done, ==,
                        ops[i] == BF_OP_READ ? READ :
                        ops[i] == BF_OP_DESTAGE ? STAGE : WRITE);
        g_assert_cmpint(flush(&f, 40), ==, before + FLUSH);
        teardown(&f);
    }
}

static void test_flush_of_an_idle_device(void)
{
    for (int kind = 0; kind < 3; kind++) {
        Fixture f;

        setup(&f, 2, kind);
        g_assert_cmpint(flush_clean(&f, 100), ==, 100 + CLEAN);
        g_assert_cmpint(flush(&f, 2 * FLUSH), ==, 3 * FLUSH);
        teardown(&f);
    }
}

static void test_kind_of_flush_may_change(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_CONCURRENT);
    g_assert_cmpint(flush(&f, 0), ==, FLUSH);
    f.params.flush_concurrency = BF_FLUSH_SERIAL;
    g_assert_cmpint(flush(&f, 1), ==, 2 * FLUSH);
    f.params.flush_concurrency = BF_FLUSH_EXCLUSIVE;
    g_assert_cmpint(flush(&f, 2), ==, 3 * FLUSH);
    f.params.flush_concurrency = BF_FLUSH_CONCURRENT;
    g_assert_cmpint(flush(&f, 3), ==, 4 * FLUSH);
    g_assert_cmpint(flush(&f, 3 * FLUSH + 1), ==, 4 * FLUSH + 1);
    teardown(&f);
}

/* A short flush that overlaps a long one does not hide it. */
static void test_a_later_serial_flush_waits_for_all(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_CONCURRENT);
    flush(&f, 0);
    flush_clean(&f, 1);
    f.params.flush_concurrency = BF_FLUSH_SERIAL;
    g_assert_cmpint(flush(&f, 2), ==, 2 * FLUSH);
    teardown(&f);
}

static void test_latency_may_change(void)
{
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    f.params.read_latency_ns = 7;
    f.params.flush_latency_ns = 9;
    g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, 7);
    g_assert_cmpint(flush(&f, 0), ==, 9);
    teardown(&f);
}

/*
 * Reads and writes share the interface, and what the cache serves as
 * well; it is a second channel behind, or before, that of the medium.
 */
static void test_interface_bandwidth(void)
{
    Fixture f;

    setup(&f, 4, BF_FLUSH_SERIAL);
    f.params.interface_bandwidth = 1000000;
    g_assert_cmpint(submit(&f, 0, BF_OP_CACHE, 4096), ==, 4096000 + WRITE);
    g_assert_cmpint(submit(&f, 0, BF_OP_WRITE, 4096), ==,
                    2 * 4096000 + WRITE);
    g_assert_cmpint(submit(&f, 0, BF_OP_READ, 4096), ==, 3 * 4096000);
    /* A read takes the medium first, so its latency is not hidden. */
    g_assert_cmpint(submit(&f, 100000000, BF_OP_READ, 4096), ==,
                    100000000 + READ + 4096000);
    teardown(&f);
}

static void test_what_does_not_take_the_interface(void)
{
    static const BfOp ops[] = { BF_OP_DESTAGE, BF_OP_ZERO, BF_OP_DISCARD };

    for (size_t i = 0; i < G_N_ELEMENTS(ops); i++) {
        int64_t without;
        Fixture f;

        setup(&f, 4, BF_FLUSH_SERIAL);
        without = request(&f, 0, ops[i]);
        f.params.interface_bandwidth = 1000000;
        g_assert_cmpint(request(&f, 0, ops[i]), ==, without);
        g_assert_cmpint(request(&f, 0, BF_OP_READ), ==, READ + 4096000);
        teardown(&f);
    }
}

/* Each has a latency of its own; zeroes and discards transfer nothing. */
static void test_costs_past_the_cache(void)
{
    Fixture f;

    setup(&f, 3, BF_FLUSH_SERIAL);
    f.params.discard_latency_ns = 11;
    f.params.zero_latency_ns = 22;
    f.params.fua_latency_ns = 33;
    f.params.bandwidth = 1000000;
    g_assert_cmpint(request(&f, 0, BF_OP_DISCARD), ==, 11);
    g_assert_cmpint(request(&f, 0, BF_OP_ZERO), ==, 22);
    g_assert_cmpint(request(&f, 0, BF_OP_FUA), ==, 33 + 4096000);
    /* They occupy lanes. */
    g_assert_cmpint(request(&f, 0, BF_OP_DISCARD), ==, 22);
    teardown(&f);
}

/* A latency is drawn for each; a flush draws from its own distribution. */
static void test_spread(void)
{
    BfRandom random;
    char *why = NULL;
    Fixture f;

    setup(&f, 1, BF_FLUSH_CONCURRENT);
    g_assert_true(bf_spread_parse(&f.params.latency_spread, "uniform:50",
                                  &why));
    g_assert_true(bf_spread_parse(&f.params.flush_spread, "pareto:2", &why));
    bf_random_init(&random, f.params.seed);
    for (int64_t now = 0; now < 1000 * FLUSH; now += FLUSH) {
        g_assert_cmpint(request(&f, now, BF_OP_READ), ==, now +
                        bf_spread_ns(&f.params.latency_spread, &random,
                                     READ));
        g_assert_cmpint(flush(&f, now), ==, now +
                        bf_spread_ns(&f.params.flush_spread, &random,
                                     FLUSH));
    }
    teardown(&f);
}

/* What the background has already brought out, a flush need not. */
static void test_a_flush_pays_for_what_is_left(void)
{
    for (int64_t head_start = 0; head_start <= 8 * STAGE;
         head_start += STAGE / 2) {
        Fixture f;

        setup(&f, 1, BF_FLUSH_SERIAL);
        for (int i = 0; i < 8; i++) {
            request(&f, 0, BF_OP_DESTAGE);
        }
        g_assert_cmpint(flush(&f, head_start), ==, 8 * STAGE + FLUSH);
        teardown(&f);
    }
}

/* A writer at a constant pace, and background destage, run by run. */
typedef struct Level {
    uint64_t least;             /* once the high mark was passed */
    uint64_t most;
    int64_t stalled;            /* writes that found no room */
} Level;

#define BLOCKS 100              /* of the cache, so that one is a percent */

static Level write_at_pace(Fixture *f, int64_t pace)
{
    Level level = { .least = UINT64_MAX };
    int64_t now = 0, busy_until = 0;
    uint64_t used = 0;
    bool busy = false, passed = false;
    BfCache cache;

    bf_cache_init(&cache, &f->params);
    for (int i = 0; i < 100000; i++, now += pace) {
        bool wants;

        while (busy && busy_until <= now) {
            used--;
            busy = bf_cache_wants_destage(&cache, used * 4096);
            if (busy) {
                busy_until = request(f, busy_until, BF_OP_DESTAGE);
            }
        }
        if (!bf_cache_fits(&cache, used * 4096, 4096)) {
            level.stalled++;
            continue;
        }
        used++;
        wants = bf_cache_wants_destage(&cache, used * 4096);
        if (wants && !busy) {
            busy = true;
            busy_until = request(f, now, BF_OP_DESTAGE);
        }
        passed |= wants;
        level.most = MAX(level.most, used);
        level.least = passed ? MIN(level.least, used) : level.least;
    }
    return level;
}

static void test_destage_keeps_the_level_between_the_marks(void)
{
    for (int64_t percent = 20; percent < 100; percent += 20) {
        Level level;
        Fixture f;

        setup(&f, 1, BF_FLUSH_SERIAL);
        f.params.write_cache = BF_CACHE_VOLATILE;
        f.params.cache_size = BLOCKS * 4096;
        f.params.destage_high_percent = 70;
        f.params.destage_low_percent = 30;
        level = write_at_pace(&f, STAGE * 100 / percent);
        g_assert_cmpint(level.stalled, ==, 0);
        g_assert_cmpuint(level.most, ==, 71);
        /* The one that comes when the low mark is reached. */
        g_assert_cmpuint(level.least, >=, 30);
        g_assert_cmpuint(level.least, <=, 31);
        teardown(&f);
    }
}

/* Faster than the medium, the level rises, and room comes at its pace. */
static void test_writers_stall_at_the_pace_of_the_medium(void)
{
    Level level;
    Fixture f;

    setup(&f, 1, BF_FLUSH_SERIAL);
    f.params.write_cache = BF_CACHE_VOLATILE;
    f.params.cache_size = BLOCKS * 4096;
    f.params.destage_high_percent = 70;
    f.params.destage_low_percent = 30;
    level = write_at_pace(&f, STAGE / 4);
    g_assert_cmpuint(level.most, ==, BLOCKS);
    /* Three of four, but for what filled the cache and one at its edge. */
    g_assert_cmpint(ABS(level.stalled - 75000), <=, BLOCKS + 1);
    teardown(&f);
}

static double poisson(double mean, int k)
{
    return exp(k * log(mean) - mean - lgamma(k + 1));
}

/* The probability that it is at least @k. */
static double poisson_tail(double mean, int k)
{
    double sum = 0;

    for (int i = k; i < mean + 12 * sqrt(mean) + 50; i++) {
        sum += poisson(mean, i);
    }
    return sum;
}

/*
 * The mean wait of M/D/c in service times.  C. D. Crommelin, "Delay
 * probability formulae when the holding times are constant", 1932.  For
 * one lane it is that of Pollaczek and Khinchine.
 */
static double crommelin(int lanes, double rho)
{
    double sum = 0;

    for (int j = 1; j < 1000; j++) {
        double mean = j * lanes * rho;

        sum += poisson_tail(mean, j * lanes) -
               poisson_tail(mean, j * lanes + 1) / rho;
    }
    return sum;
}

static double mean_wait(int lanes, double rho, uint32_t seed)
{
    const int requests = 1000000;
    GRand *rand = g_rand_new_with_seed(seed);
    double now = 0;
    double waited = 0;
    Fixture f;

    setup(&f, lanes, BF_FLUSH_SERIAL);
    f.params.read_latency_ns = 1000 * READ;
    for (int i = 0; i < requests; i++) {
        now += -log(1 - g_rand_double(rand)) * 1000 * READ / rho / lanes;
        waited += request(&f, now, BF_OP_READ) - 1000 * READ - (int64_t)now;
    }
    teardown(&f);
    g_rand_free(rand);
    return waited / requests / (1000 * READ);
}

static void check_mean_wait(int lanes, double rho)
{
    double expected = crommelin(lanes, rho);
    double wait = mean_wait(lanes, rho, 7);

    g_test_message("M/D/%d at load %.2f: mean wait %.5f, formula %.5f",
                   lanes, rho, wait, expected);
    g_assert_cmpfloat_with_epsilon(wait / expected, 1, 0.02);
}

static void test_m_d_1(void)
{
    static const double rhos[] = { 0.2, 0.5, 0.8 };

    for (size_t i = 0; i < G_N_ELEMENTS(rhos); i++) {
        double rho = rhos[i];

        g_assert_cmpfloat_with_epsilon(crommelin(1, rho),
                                       rho / (2 * (1 - rho)), 0.00001);
        check_mean_wait(1, rho);
    }
}

static void test_m_d_c(void)
{
    check_mean_wait(2, 0.5);
    check_mean_wait(2, 0.8);
    check_mean_wait(4, 0.8);
    check_mean_wait(16, 0.8);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/service/idle-medium", test_idle_medium);
    g_test_add_func("/service/lanes", test_lanes);
    g_test_add_func("/service/request-takes-the-lane-free-first",
                    test_request_takes_the_lane_free_first);
    g_test_add_func("/service/cache-takes-no-lane", test_cache_takes_no_lane);
    g_test_add_func("/service/bandwidth", test_bandwidth);
    g_test_add_func("/service/lanes-share-the-bandwidth",
                    test_lanes_share_the_bandwidth);
    g_test_add_func("/service/a-long-latency-leaves-the-channel-to-others",
                    test_a_long_latency_leaves_the_channel_to_others);
    g_test_add_func("/service/bandwidth-of-a-large-request",
                    test_bandwidth_of_a_large_request);
    g_test_add_func("/service/reset-forgets", test_reset_forgets);
    g_test_add_func("/service/flush-waits-for-destage",
                    test_flush_waits_for_destage);
    g_test_add_func("/service/clean-flush-does-not-wait-for-destage",
                    test_clean_flush_does_not_wait_for_destage);
    g_test_add_func("/service/backed-flush-does-not-wait-for-destage",
                    test_backed_flush_does_not_wait_for_destage);
    g_test_add_func("/service/flush-does-not-wait-for-reads",
                    test_flush_does_not_wait_for_reads);
    g_test_add_func("/service/concurrent-flushes-overlap",
                    test_concurrent_flushes_overlap);
    g_test_add_func("/service/serial-flushes-queue",
                    test_serial_flushes_queue);
    g_test_add_func("/service/exclusive-flush", test_exclusive_flush);
    g_test_add_func("/service/flush-of-an-idle-device",
                    test_flush_of_an_idle_device);
    g_test_add_func("/service/kind-of-flush-may-change",
                    test_kind_of_flush_may_change);
    g_test_add_func("/service/a-later-serial-flush-waits-for-all",
                    test_a_later_serial_flush_waits_for_all);
    g_test_add_func("/service/latency-may-change", test_latency_may_change);
    g_test_add_func("/service/interface-bandwidth",
                    test_interface_bandwidth);
    g_test_add_func("/service/what-does-not-take-the-interface",
                    test_what_does_not_take_the_interface);
    g_test_add_func("/service/costs-past-the-cache",
                    test_costs_past_the_cache);
    g_test_add_func("/service/spread", test_spread);
    g_test_add_func("/service/a-flush-pays-for-what-is-left",
                    test_a_flush_pays_for_what_is_left);
    g_test_add_func("/service/destage-keeps-the-level-between-the-marks",
                    test_destage_keeps_the_level_between_the_marks);
    g_test_add_func("/service/writers-stall-at-the-pace-of-the-medium",
                    test_writers_stall_at_the_pace_of_the_medium);
    g_test_add_func("/service/m-d-1", test_m_d_1);
    g_test_add_func("/service/m-d-c", test_m_d_c);
    return g_test_run();
}
