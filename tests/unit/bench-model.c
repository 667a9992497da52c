/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the model costs: one JSON object on stdout, name to number
 *
 * Small and large are measured in turns, and medians are told, so that
 * a busy host disturbs both alike.
 */

#include <glib.h>
#include <stdio.h>

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

int main(void)
{
    double depth1[ROUNDS], depth32[ROUNDS], depth1024[ROUNDS];
    double few[ROUNDS], many[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
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
    printf("  \"waiter_10_ns\": %.1f,\n", median(few));
    printf("  \"waiter_10000_ns\": %.1f,\n", median(many));
    printf("  \"waiter_growth_ratio\": %.3f\n", median(many) / median(few));
    printf("}\n");
    return 0;
}
