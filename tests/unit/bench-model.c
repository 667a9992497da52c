/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the model costs: one JSON object on stdout, name to number
 *
 * Small and large are measured in turns, and medians are told, so that
 * a busy host disturbs both alike.  What is held against a limit of its
 * own is told as the least of the rounds, in processor time: a busy
 * host can only add to it.
 */

#include <glib.h>
#include <stdio.h>
#include <time.h>

#include "cache.h"
#include "coordinator.h"
#include "service.h"

#define ROUNDS 41
#define REQUESTS 100000

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof(values[0]), compare);
    return values[ROUNDS / 2];
}

static double least(const double *values)
{
    double result = values[0];

    for (int i = 1; i < ROUNDS; i++) {
        result = MIN(result, values[i]);
    }
    return result;
}

static int64_t processor_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Keeps the compiler from dropping what nobody looks at. */
static volatile int64_t sink;

/* Nanoseconds per request, with @depth requests under way. */
static double service_cost(int64_t depth)
{
    BfParams params;
    BfService service;
    int64_t start, now = 0;

    bf_params_init(&params);
    params.queue_depth = depth;
    params.read_latency_ns = 100000;
    params.bandwidth = INT64_C(1) << 30;
    bf_service_init(&service, &params, 0);
    start = g_get_monotonic_time();
    for (int i = 0; i < REQUESTS; i++) {
        BfRequest request = { .op = BF_OP_READ, .bytes = 4096 };

        sink = bf_service_submit(&service, now, &request);
        now += params.read_latency_ns / depth;
    }
    start = g_get_monotonic_time() - start;
    bf_service_destroy(&service);
    return start * 1000.0 / REQUESTS;
}

/* A disk on which everything is on that a request can cost. */
static void all_on(BfParams *params, int64_t depth)
{
    char *error = NULL;

    bf_params_init(params);
    params->queue_depth = depth;
    params->write_cache = BF_CACHE_VOLATILE;
    params->destage_high_percent = 50;
    params->destage_low_percent = 10;
    params->read_latency_ns = 100000;
    params->destage_latency_ns = 100000;
    params->rpm = 7200;
    params->bandwidth = 150000000;
    params->interface_bandwidth = 600000000;
    params->seek_settle_ns = 800000;
    params->seek_average_ns = 8500000;
    params->seek_full_ns = 17000000;
    params->track_switch_ns = 800000;
    params->queue_order = BF_ORDER_DEADLINE;
    params->queue_deadline_ns = depth * INT64_C(100000000);
    params->idle_window_ns = 2000000;
    if (!bf_params_set(params, "latency-spread", "log-normal:40", &error)) {
        g_error("%s", error);
    }
}

static void resubmit(BfService *service, BfRandom *random, int64_t now,
                     BfRequest *request)
{
    BfOp op = request->op;

    *request = (BfRequest) {
        .op = op,
        .offset = bf_random_u64(random) >> 24 & ~UINT64_C(4095),
        .bytes = 4096,
    };
    bf_service_submit(service, now, request);
}

/*
 * Nanoseconds per request with all of it on, at a constant @depth: each
 * request that the head has decided for is followed by another one, and
 * background destage, a run at a time, competes with them.
 */
static double all_on_cost(int64_t depth)
{
    g_autofree BfRequest *requests = g_new0(BfRequest, depth + 1);
    int64_t start, left = REQUESTS / 4;
    BfService service;
    BfParams params;
    BfRandom random;
    BfCache cache;

    all_on(&params, depth);
    bf_random_init(&random, depth);
    bf_cache_init(&cache, &params);
    bf_service_init(&service, &params, UINT64_C(1) << 40);
    for (int64_t i = 0; i <= depth; i++) {
        requests[i].op = i ? BF_OP_READ : BF_OP_DESTAGE;
        resubmit(&service, &random, 0, &requests[i]);
    }
    start = processor_ns();
    while (left > 0) {
        int64_t now = bf_service_decision_at(&service);
        BfRequest *request;

        bf_service_advance(&service, now);
        while ((request = bf_service_decided(&service))) {
            sink = bf_cache_wants_destage(&cache, params.cache_size / 2);
            resubmit(&service, &random, now, request);
            left--;
        }
    }
    start = processor_ns() - start;
    bf_service_destroy(&service);
    return (double)start / (REQUESTS / 4);
}

/* One batch: arrivals, as the driver looks at each of them, then done. */
static void flush_batch(BfCoordinator *c, int64_t waiters, int64_t *now)
{
    BfFlight flight;

    bf_coordinator_write(c, *now);
    for (int64_t i = 0; i < waiters; i++) {
        bf_coordinator_arrive(c, ++*now);
        sink = bf_coordinator_begin_at(c, *now);
    }
    bf_coordinator_begin(c, *now, &flight);
    *now += 8000000;
    bf_coordinator_end(c, *now, &flight, 4096, BF_OUTCOME_DURABLE);
}

/* Nanoseconds per waiter, in batches of @waiters. */
static double waiter_cost(int64_t waiters)
{
    const int64_t batches = REQUESTS / waiters;
    BfParams params;
    BfCoordinator *c = g_new(BfCoordinator, 1);
    int64_t start, now = 0;

    bf_params_init(&params);
    params.flush_latency_ns = 8000000;
    bf_coordinator_init(c, &params);
    start = g_get_monotonic_time();
    for (int64_t i = 0; i < batches; i++) {
        flush_batch(c, waiters, &now);
    }
    start = g_get_monotonic_time() - start;
    g_free(c);
    return start * 1000.0 / (batches * waiters);
}

/* --all-on DEPTH: that and nothing else, for counting instructions. */
static int count_only(const char *depth)
{
    printf("%.1f\n", all_on_cost(g_ascii_strtoll(depth, NULL, 10)));
    return 0;
}

int main(int argc, char **argv)
{
    double depth1[ROUNDS], depth32[ROUNDS], depth1024[ROUNDS];
    double all1[ROUNDS], all32[ROUNDS], all1024[ROUNDS];
    double few[ROUNDS], many[ROUNDS];

    if (argc == 3 && g_str_equal(argv[1], "--all-on")) {
        return count_only(argv[2]);
    }
    for (int i = 0; i < ROUNDS; i++) {
        all1[i] = all_on_cost(1);
        all32[i] = all_on_cost(32);
        all1024[i] = all_on_cost(1024);
        depth1[i] = service_cost(1);
        depth32[i] = service_cost(32);
        depth1024[i] = service_cost(1024);
        few[i] = waiter_cost(10);
        many[i] = waiter_cost(10000);
    }
    printf("{\n");
    printf("  \"service_depth1_ns\": %.1f,\n", median(depth1));
    printf("  \"service_depth32_ns\": %.1f,\n", median(depth32));
    printf("  \"service_depth1024_ns\": %.1f,\n", median(depth1024));
    printf("  \"all_on_depth1_ns\": %.1f,\n", least(all1));
    printf("  \"all_on_depth32_ns\": %.1f,\n", least(all32));
    printf("  \"all_on_depth1024_ns\": %.1f,\n", least(all1024));
    printf("  \"waiter_10_ns\": %.1f,\n", median(few));
    printf("  \"waiter_10000_ns\": %.1f,\n", median(many));
    printf("  \"waiter_growth_ratio\": %.3f\n", median(many) / median(few));
    printf("}\n");
    return 0;
}
