/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Service time: see service.h */

#include <glib.h>
#include <string.h>

#include "service.h"

void bf_service_init(BfService *service, const BfParams *params)
{
    *service = (BfService) {
        .params = params,
        .lane_free_at = g_new0(int64_t, params->queue_depth),
    };
}

void bf_service_destroy(BfService *service)
{
    g_free(service->lane_free_at);
    service->lane_free_at = NULL;
}

void bf_service_reset(BfService *service)
{
    int64_t *lanes = service->lane_free_at;

    memset(lanes, 0, service->params->queue_depth * sizeof(*lanes));
    *service = (BfService) {
        .params = service->params,
        .lane_free_at = lanes,
    };
}

/* Replace the smallest instant of the heap by a later one. */
static void replace_first(int64_t *heap, int64_t count, int64_t instant)
{
    int64_t hole = 0;

    for (;;) {
        int64_t child = 2 * hole + 1;

        if (child >= count) {
            break;
        }
        if (child + 1 < count && heap[child + 1] < heap[child]) {
            child++;
        }
        if (instant <= heap[child]) {
            break;
        }
        heap[hole] = heap[child];
        hole = child;
    }
    heap[hole] = instant;
}

static int64_t transfer_ns(const BfParams *params, uint64_t bytes)
{
    if (!params->bandwidth) {
        return 0;
    }
    return (unsigned __int128)bytes * 1000000000 / params->bandwidth;
}

/*
 * Lanes seek side by side, but what they transfer shares the bandwidth
 * of the medium: first come, first served.
 */
static int64_t take_lane(BfService *service, int64_t now, int64_t latency,
                         uint64_t bytes)
{
    int64_t *lanes = service->lane_free_at;
    int64_t ready = MAX(now, lanes[0]) + latency;
    int64_t transfer = transfer_ns(service->params, bytes);
    int64_t done = ready;

    if (transfer) {
        done = MAX(ready, service->channel_free_at) + transfer;
        service->channel_free_at = done;
    }
    replace_first(lanes, service->params->queue_depth, done);
    return done;
}

/* Onto the medium, through the cache where there is one. */
static int64_t write_latency(const BfParams *params)
{
    return params->write_latency_ns +
           (params->write_cache == BF_CACHE_NONE ? 0
                                                 : params->destage_latency_ns);
}

int64_t bf_service_request(BfService *service, int64_t now, BfOp op,
                           uint64_t bytes)
{
    const BfParams *params = service->params;
    int64_t start = MAX(now, service->gate);
    int64_t done = start;

    switch (op) {
    case BF_OP_READ:
        done = take_lane(service, start, params->read_latency_ns, bytes);
        break;
    case BF_OP_WRITE:
        done = take_lane(service, start, write_latency(params), bytes);
        break;
    case BF_OP_DESTAGE:
        done = take_lane(service, start, params->destage_latency_ns, bytes);
        service->destaged_at = MAX(service->destaged_at, done);
        break;
    case BF_OP_CACHE:
        done = start + params->write_latency_ns;
        break;
    }
    service->latest = MAX(service->latest, done);
    return done;
}

int64_t bf_service_flush(BfService *service, int64_t now, bool clean)
{
    const BfParams *params = service->params;
    int64_t start = MAX(now, service->gate);
    int64_t done;

    if (!clean) {
        start = MAX(start, service->destaged_at);
    }
    if (params->flush_concurrency != BF_FLUSH_CONCURRENT) {
        start = MAX(start, service->flush_free_at);
    }
    if (params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
        start = MAX(start, service->latest);
    }

    done = start + (clean ? params->flush_clean_latency_ns
                          : params->flush_latency_ns);

    service->flush_free_at = MAX(service->flush_free_at, done);
    service->latest = MAX(service->latest, done);
    if (params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
        service->gate = done;
    }
    return done;
}
