/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Service time: see service.h */

#include <glib.h>
#include <string.h>

#include "elevator.h"
#include "service.h"

#define SECOND_NS UINT64_C(1000000000)
#define GIB       (UINT64_C(1) << 30)

void bf_service_init(BfService *service, const BfParams *params,
                     uint64_t length)
{
    *service = (BfService) {
        .params = params,
        .length = length,
        .lane_free_at = g_new0(int64_t, params->queue_depth),
        .decision_at = BF_NEVER,
    };
    bf_random_init(&service->random, params->seed);
    bf_head_setup(&service->head, params, length);
    bf_chooser_init(&service->chooser, params, &service->head);
}

void bf_service_destroy(BfService *service)
{
    g_free(service->lane_free_at);
    service->lane_free_at = NULL;
    bf_chooser_destroy(&service->chooser);
}

void bf_service_update(BfService *service)
{
    bf_head_setup(&service->head, service->params, service->length);
}

void bf_service_reset(BfService *service)
{
    BfService before;

    bf_chooser_reset(&service->chooser);
    bf_requests_abandon(&service->flushes);
    bf_requests_abandon(&service->held);
    bf_head_reset(&service->head);
    memset(service->lane_free_at, 0,
           service->params->queue_depth * sizeof(*service->lane_free_at));
    before = *service;
    *service = (BfService) {
        .params = before.params,
        .length = before.length,
        .random = before.random,
        .lane_free_at = before.lane_free_at,
        .head = before.head,
        .chooser = before.chooser,
        .decision_at = BF_NEVER,
    };
}

/* --- one request ------------------------------------------------------ */

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

static int64_t transfer_ns(uint64_t bandwidth, uint64_t bytes)
{
    if (bandwidth == 0) {
        return 0;
    }
    /* Dividing 128 bits takes several times as long. */
    return bytes < GIB ? bytes * SECOND_NS / bandwidth
                       : (unsigned __int128)bytes * SECOND_NS / bandwidth;
}

/*
 * Lanes seek side by side, but what they transfer shares the bandwidth
 * of the medium.  A transfer counts from when its request begins, so
 * that one with a long latency keeps nobody else waiting.
 */
static int64_t take_lane(BfService *service, int64_t now, int64_t latency,
                         uint64_t bytes)
{
    int64_t *lanes = service->lane_free_at;
    int64_t start = MAX(now, lanes[0]);
    int64_t transfer = transfer_ns(service->params->bandwidth, bytes);
    int64_t done = start + latency + transfer;

    if (transfer) {
        service->channel_free_at = MAX(start, service->channel_free_at) +
                                   transfer;
        done = MAX(done, service->channel_free_at);
    }
    replace_first(lanes, service->params->queue_depth, done);
    return done;
}

/*
 * Requests share the interface.  A transfer counts from when its request
 * begins, so that one that has to wait for the medium keeps nobody
 * waiting; all together they never exceed the bandwidth.  Returns when
 * the transfer's turn is over.
 */
static int64_t take_interface(BfService *service, int64_t start,
                              int64_t transfer)
{
    service->interface_free_at = MAX(start, service->interface_free_at) +
                                 transfer;
    return service->interface_free_at;
}

static bool over_interface(BfOp op)
{
    return op == BF_OP_READ || op == BF_OP_WRITE || op == BF_OP_FUA ||
           op == BF_OP_CACHE;
}

/* What a request takes without bandwidth, head and queueing. */
static int64_t nominal_ns(const BfParams *params, BfOp op)
{
    switch (op) {
    case BF_OP_READ:
        return params->read_latency_ns;
    case BF_OP_WRITE:
        /* Onto the medium, through the cache where there is one. */
        return params->write_latency_ns +
               (params->write_cache == BF_CACHE_NONE
                ? 0 : params->destage_latency_ns);
    case BF_OP_FUA:
        return params->fua_latency_ns;
    case BF_OP_ZERO:
        return params->zero_latency_ns;
    case BF_OP_DISCARD:
        return params->discard_latency_ns;
    case BF_OP_CACHE:
        return params->write_latency_ns;
    case BF_OP_DESTAGE:
        return params->destage_latency_ns;
    case BF_OP_FLUSH:
    case BF_OP_FLUSH_BACKED:
        return params->flush_latency_ns;
    case BF_OP_FLUSH_CLEAN:
        return params->flush_clean_latency_ns;
    }
    g_assert_not_reached();
}

static bool is_flush(const BfRequest *request)
{
    return request->op == BF_OP_FLUSH || request->op == BF_OP_FLUSH_CLEAN ||
           request->op == BF_OP_FLUSH_BACKED;
}

static int64_t draw(BfService *service, const BfRequest *request)
{
    const BfParams *params = service->params;

    return bf_spread_ns(is_flush(request) ? &params->flush_spread
                                          : &params->latency_spread,
                        &service->random, nominal_ns(params, request->op));
}

/* What a request moves through the channel of a medium without a head. */
static uint64_t channel_bytes(const BfRequest *request)
{
    return request->op == BF_OP_ZERO || request->op == BF_OP_DISCARD
        ? 0 : request->bytes;
}

static bool needs_head(const BfService *service, const BfRequest *request)
{
    return service->head.turn_ns && request->op != BF_OP_CACHE &&
           request->op != BF_OP_DISCARD && !is_flush(request);
}

/* On its way to the medium; returns when the medium may begin. */
static int64_t arrive(BfService *service, BfRequest *request, int64_t start)
{
    request->latency = draw(service, request);
    if (over_interface(request->op) && request->op != BF_OP_READ &&
        service->params->interface_bandwidth) {
        start = take_interface(service, start,
                               transfer_ns(
                                   service->params->interface_bandwidth,
                                   request->bytes));
    }
    request->ready_at = start + request->latency;
    return start;
}

/* The medium is done with it at @done; what it read goes to the host. */
static int64_t leave(BfService *service, const BfRequest *request,
                     int64_t start, int64_t done)
{
    if (request->op == BF_OP_READ && service->params->interface_bandwidth) {
        int64_t transfer = transfer_ns(service->params->interface_bandwidth,
                                       request->bytes);
        int64_t turn_over = take_interface(service, start, transfer);

        return MAX(done + transfer, turn_over);
    }
    return done;
}

static int64_t finish(BfService *service, BfRequest *request, int64_t done)
{
    request->done_at = done;
    service->latest = MAX(service->latest, done);
    if (request->op == BF_OP_DESTAGE) {
        service->destaged_at = MAX(service->destaged_at, done);
    }
    return done;
}

static int64_t destage_on_lanes(BfService *service, BfRequest *request,
                                int64_t start)
{
    int64_t done = take_lane(service, start, request->latency,
                             bf_request_run(request, 0).bytes);

    for (size_t i = 1; i < request->n_runs; i++) {
        int64_t end = take_lane(service, start, draw(service, request),
                                request->runs[i].bytes);

        done = MAX(done, end);
    }
    return done;
}

static int64_t flush_done(BfService *service, const BfRequest *request,
                          int64_t start)
{
    const BfParams *params = service->params;
    int64_t done;

    if (request->op == BF_OP_FLUSH) {
        start = MAX(start, service->destaged_at);
    }
    if (params->flush_concurrency != BF_FLUSH_CONCURRENT) {
        start = MAX(start, service->flush_free_at);
    }
    if (params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
        start = MAX(start, service->latest);
    }

    done = start + request->latency;
    service->flush_free_at = MAX(service->flush_free_at, done);
    if (params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
        service->gate = done;
    }
    return done;
}

/* Serve it now, behind all that was accepted before. */
static int64_t serve(BfService *service, BfRequest *request, int64_t now)
{
    int64_t start = MAX(now, service->gate);
    int64_t begin = arrive(service, request, start);
    int64_t done;

    if (is_flush(request)) {
        done = flush_done(service, request, start);
    } else if (needs_head(service, request)) {
        done = bf_elevator_serve(&service->head, request);
    } else if (request->op == BF_OP_CACHE || service->head.turn_ns) {
        done = request->ready_at;
    } else if (request->op == BF_OP_DESTAGE) {
        done = destage_on_lanes(service, request, begin);
    } else {
        done = take_lane(service, begin, request->latency,
                         channel_bytes(request));
    }
    return finish(service, request, leave(service, request, start, done));
}

/* --- a head that chooses ---------------------------------------------- */

static bool chooses(const BfService *service)
{
    return service->head.turn_ns &&
           (service->params->queue_order != BF_ORDER_FIFO ||
            service->params->idle_window_ns);
}

static void decide_for(BfService *service, BfRequest *request, int64_t done)
{
    finish(service, request, done);
    bf_requests_append(&service->decided, request);
}

static bool flush_may_go(const BfService *service, const BfRequest *flush)
{
    if (service->params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
        return bf_chooser_idle(&service->chooser);
    }
    return flush->op != BF_OP_FLUSH ||
           service->destages_done >= flush->number;
}

static void accept(BfService *service, BfRequest *request, int64_t now);

static void release_held(BfService *service, int64_t now)
{
    BfRequests held = service->held;
    BfRequest *request;

    service->held = (BfRequests) { NULL, NULL };
    /* The head keeps still until the flush is over. */
    service->head.free_at = MAX(service->head.free_at, service->gate);
    while ((request = bf_requests_take(&held))) {
        accept(service, request, now);
        if (request->done_at != BF_NEVER) {
            bf_requests_append(&service->decided, request);
        }
    }
}

static void let_flushes_go(BfService *service, int64_t now)
{
    BfRequest *flush;

    while ((flush = service->flushes.first) && flush_may_go(service, flush)) {
        bf_requests_remove(&service->flushes, flush);
        decide_for(service, flush,
                   flush_done(service, flush, flush->ready_at));
        if (service->params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
            release_held(service, now);
        }
    }
}

static bool barrier(const BfService *service)
{
    return service->flushes.first &&
           service->params->flush_concurrency == BF_FLUSH_EXCLUSIVE;
}

static void accept_flush(BfService *service, BfRequest *flush, int64_t start)
{
    bool overlaps = service->params->flush_concurrency ==
                    BF_FLUSH_CONCURRENT;

    flush->latency = draw(service, flush);
    flush->ready_at = start;
    flush->number = service->destages_accepted;
    if (flush_may_go(service, flush) &&
        (!service->flushes.first || (overlaps &&
                                     flush->op != BF_OP_FLUSH))) {
        finish(service, flush, flush_done(service, flush, start));
        if (service->params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
            service->head.free_at = MAX(service->head.free_at,
                                        service->gate);
        }
    } else {
        bf_requests_append(&service->flushes, flush);
    }
}

/* What need not wait gets its instant, the rest its place in a list. */
static void accept(BfService *service, BfRequest *request, int64_t now)
{
    int64_t start = MAX(now, service->gate);

    if (barrier(service)) {
        bf_requests_append(&service->held, request);
    } else if (is_flush(request)) {
        accept_flush(service, request, start);
    } else if (!needs_head(service, request)) {
        serve(service, request, now);
    } else {
        arrive(service, request, start);
        service->destages_accepted += request->op == BF_OP_DESTAGE;
        bf_chooser_add(&service->chooser, request, start);
    }
}

static int64_t due(const BfService *service, int64_t now)
{
    return bf_chooser_due(&service->chooser, now, service->flushes.first);
}

static void choose(BfService *service, int64_t now)
{
    BfRequest *request = bf_chooser_serve(&service->chooser, now,
                                          service->flushes.first);

    if (request) {
        int64_t start = MAX(request->arrived_at, service->gate);

        service->destages_done += request->op == BF_OP_DESTAGE;
        decide_for(service, request,
                   leave(service, request, start, request->done_at));
    }
}

int64_t bf_service_submit(BfService *service, int64_t now,
                          BfRequest *request)
{
    request->arrived_at = now;
    if (!chooses(service)) {
        return serve(service, request, now);
    }
    bf_service_advance(service, now);
    request->done_at = BF_NEVER;
    accept(service, request, now);
    service->decision_at = due(service, now);
    if (request->done_at == BF_NEVER) {
        bf_service_advance(service, now);
        if (request->done_at != BF_NEVER) {
            /* The caller knows from us. */
            bf_requests_remove(&service->decided, request);
        }
    }
    return request->done_at;
}

void bf_service_advance(BfService *service, int64_t now)
{
    while (service->decision_at <= now) {
        int64_t instant = service->decision_at;

        choose(service, instant);
        let_flushes_go(service, instant);
        service->decision_at = due(service, instant);
    }
}

int64_t bf_service_decision_at(const BfService *service)
{
    return service->decision_at;
}

BfRequest *bf_service_decided(BfService *service)
{
    return bf_requests_take(&service->decided);
}

uint64_t bf_service_place(const BfService *service)
{
    return service->head.end;
}
