/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Service time: see service.h */

#include <glib.h>
#include <string.h>

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
    bf_queue_init(&service->queue, params->queue_depth);
    bf_head_setup(&service->head, params, length);
}

void bf_service_destroy(BfService *service)
{
    g_free(service->lane_free_at);
    service->lane_free_at = NULL;
    bf_queue_destroy(&service->queue);
}

void bf_service_update(BfService *service)
{
    bf_head_setup(&service->head, service->params, service->length);
}

static void forget(BfRequests *list)
{
    BfRequest *request;

    while ((request = bf_requests_take(list))) {
        request->done_at = request->arrived_at;
    }
}

void bf_service_reset(BfService *service)
{
    BfService before = *service;

    forget(&service->queue.arrivals);
    forget(&service->destages);
    forget(&service->flushes);
    forget(&service->held);
    bf_head_reset(&before.head);
    memset(before.lane_free_at, 0,
           service->params->queue_depth * sizeof(*before.lane_free_at));
    *service = (BfService) {
        .params = before.params,
        .length = before.length,
        .random = before.random,
        .lane_free_at = before.lane_free_at,
        .head = before.head,
        .queue = before.queue,
        .decision_at = BF_NEVER,
    };
    bf_queue_reset(&service->queue);
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

static BfRun run_of(const BfRequest *request, size_t i)
{
    return request->n_runs ? request->runs[i]
                           : (BfRun) { request->offset, request->bytes };
}

/* The elevator's order begins with the first run at or above the head. */
static void board(const BfHead *head, BfRequest *request)
{
    size_t low = 0;
    size_t high = request->n_runs;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (request->runs[middle].offset < head->end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    request->runs_left = MAX(request->n_runs, 1);
    request->next_run = low < request->n_runs ? low : 0;
}

static int64_t serve_run(BfHead *head, BfRequest *request)
{
    BfRun run = run_of(request, request->next_run);

    request->runs_left--;
    if (++request->next_run >= request->n_runs) {
        request->next_run = 0;
    }
    return bf_head_serve(head, request->ready_at, false, run.offset,
                         run.bytes);
}

static int64_t serve_by_head(BfService *service, BfRequest *request)
{
    BfHead *head = &service->head;
    int64_t done;

    if (request->op != BF_OP_DESTAGE) {
        return bf_head_serve(head, request->ready_at,
                             request->op == BF_OP_READ, request->offset,
                             request->bytes);
    }
    board(head, request);
    do {
        done = serve_run(head, request);
    } while (request->runs_left);
    return done;
}

static int64_t destage_on_lanes(BfService *service, BfRequest *request,
                                int64_t start)
{
    int64_t done = take_lane(service, start, request->latency,
                             run_of(request, 0).bytes);

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
        done = serve_by_head(service, request);
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

static int64_t distance(const BfHead *head, int64_t cylinder)
{
    return ABS(cylinder - head->cylinder);
}

static BfRequest *nearest(const BfService *service)
{
    const BfHead *head = &service->head;
    BfRequest *above, *below;

    bf_queue_neighbours(&service->queue, head->end, &above, &below);
    if (!above || !below) {
        return above ?: below;
    }
    return distance(head, below->cylinder) < distance(head, above->cylinder)
        ? below : above;
}

/* Where the first destage goes on. */
static int64_t destage_cylinder(BfService *service)
{
    BfRequest *destage = service->destages.first;

    if (!destage->runs_left) {
        board(&service->head, destage);
    }
    return bf_head_cylinder(&service->head,
                            run_of(destage, destage->next_run).offset);
}

/* Whether what has waited @since then has to go first. */
static bool overdue(const BfService *service, int64_t since, int64_t now)
{
    return now - since >= service->params->queue_deadline_ns;
}

/* The read that continues the stream, if it is there. */
static BfRequest *continuing(const BfService *service)
{
    const BfHead *head = &service->head;
    BfRequest *request, *below;

    bf_queue_neighbours(&service->queue, head->end, &request, &below);
    return request && request->op == BF_OP_READ &&
           bf_head_continues(head, request->offset) ? request : NULL;
}

/* Whether the head prefers the stream that it is reading to all else. */
static bool prefers_stream(const BfService *service, int64_t now)
{
    const BfRequest *oldest = bf_queue_oldest(&service->queue);

    return service->params->idle_window_ns && service->head.in_stream &&
           !service->flushes.first &&
           !(oldest && overdue(service, oldest->entered_at, now)) &&
           !(service->destages.first &&
             overdue(service, service->destage_since, now));
}

/* Of the requests of the host; NULL if there are none. */
static BfRequest *choose_request(const BfService *service, int64_t now)
{
    BfRequest *oldest = bf_queue_oldest(&service->queue);
    BfQueueOrder order = service->params->queue_order;

    if (!oldest || order == BF_ORDER_FIFO ||
        (order == BF_ORDER_DEADLINE &&
         overdue(service, oldest->entered_at, now))) {
        return oldest;
    }
    return nearest(service);
}

/* Whether the next run of destage goes before @request. */
static bool destage_first(BfService *service, const BfRequest *request,
                          int64_t now)
{
    const BfHead *head = &service->head;
    int64_t since = service->destage_since;

    if (!service->destages.first || !request) {
        return !request;
    }
    switch (service->params->queue_order) {
    case BF_ORDER_FIFO:
        return service->destages.first->arrived_at < request->arrived_at;
    case BF_ORDER_DEADLINE:
        if (overdue(service, request->entered_at, now) ||
            overdue(service, since, now)) {
            return since < request->entered_at;
        }
        break;
    }
    return distance(head, destage_cylinder(service)) <
           distance(head, request->cylinder);
}

static void serve_destage(BfService *service)
{
    BfRequest *destage = service->destages.first;
    int64_t done;

    if (!destage->runs_left) {
        board(&service->head, destage);
    }
    done = serve_run(&service->head, destage);
    service->destage_since = service->head.free_at;
    if (!destage->runs_left) {
        bf_requests_remove(&service->destages, destage);
        service->destages_done++;
        decide_for(service, destage, done);
    }
}

static void serve_request(BfService *service, BfRequest *request,
                          int64_t now)
{
    int64_t start = MAX(request->arrived_at, service->gate);

    bf_queue_remove(&service->queue, request, now);
    decide_for(service, request,
               leave(service, request, start,
                     serve_by_head(service, request)));
}

static void choose(BfService *service, int64_t now)
{
    BfRequest *request = NULL;

    /* It may have waited for a stream. */
    service->head.free_at = MAX(service->head.free_at, now);
    if (prefers_stream(service, now)) {
        request = continuing(service);
    }
    if (!request) {
        request = choose_request(service, now);
        if (destage_first(service, request, now)) {
            serve_destage(service);
            return;
        }
    }
    serve_request(service, request, now);
}

/*
 * When the head has to choose: as soon as it is free and something is
 * there, or when it has waited long enough for the stream's next read.
 */
static int64_t choose_at(const BfService *service, int64_t now)
{
    const BfRequest *oldest = bf_queue_oldest(&service->queue);
    int64_t free_at = service->head.free_at;
    int64_t end;

    if (!oldest && !service->destages.first) {
        return BF_NEVER;
    }
    if (!prefers_stream(service, MAX(now, free_at)) || continuing(service)) {
        return MAX(now, free_at);
    }
    end = free_at + service->params->idle_window_ns;
    if (oldest) {
        end = MIN(end, oldest->entered_at +
                       service->params->queue_deadline_ns);
    }
    if (service->destages.first) {
        end = MIN(end, service->destage_since +
                       service->params->queue_deadline_ns);
    }
    return MAX(end, MAX(now, free_at));
}

static bool flush_may_go(const BfService *service, const BfRequest *flush)
{
    if (service->params->flush_concurrency == BF_FLUSH_EXCLUSIVE) {
        return !bf_queue_oldest(&service->queue) && !service->destages.first;
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
        if (request->op != BF_OP_DESTAGE) {
            request->cylinder = bf_head_cylinder(&service->head,
                                                 request->offset);
            bf_queue_add(&service->queue, request, start);
            return;
        }
        if (!service->destages.first) {
            service->destage_since = start;
        }
        request->runs_left = 0;
        service->destages_accepted++;
        bf_requests_append(&service->destages, request);
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
    service->decision_at = choose_at(service, now);
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
        service->decision_at = choose_at(service, instant);
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
