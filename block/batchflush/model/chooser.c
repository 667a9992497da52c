/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A head that chooses: see chooser.h */

#include <glib.h>

#include "chooser.h"
#include "elevator.h"

void bf_chooser_init(BfChooser *chooser, const BfParams *params,
                     BfHead *head)
{
    *chooser = (BfChooser) { .params = params, .head = head };
    bf_queue_init(&chooser->queue, params->queue_depth);
}

void bf_chooser_destroy(BfChooser *chooser)
{
    bf_queue_destroy(&chooser->queue);
}

void bf_chooser_reset(BfChooser *chooser)
{
    bf_requests_abandon(&chooser->queue.arrivals);
    bf_requests_abandon(&chooser->destages);
    bf_queue_reset(&chooser->queue);
}

void bf_chooser_add(BfChooser *chooser, BfRequest *request, int64_t now)
{
    if (request->op == BF_OP_DESTAGE) {
        if (!chooser->destages.first) {
            chooser->destage_since = now;
        }
        request->runs_left = 0;
        bf_requests_append(&chooser->destages, request);
    } else {
        request->cylinder = bf_head_cylinder(chooser->head, request->offset);
        bf_queue_add(&chooser->queue, request, now);
    }
}

bool bf_chooser_idle(const BfChooser *chooser)
{
    return !bf_queue_oldest(&chooser->queue) && !chooser->destages.first;
}

static int64_t distance(const BfHead *head, int64_t cylinder)
{
    return ABS(cylinder - head->cylinder);
}

/* Of several in one cylinder: a stream is read upwards. */
static BfRequest *first_of_cylinder(const BfChooser *chooser,
                                    int64_t cylinder)
{
    BfRequest *first, *below;

    bf_queue_neighbours(&chooser->queue,
                        bf_head_cylinder_start(chooser->head, cylinder),
                        &first, &below);
    return first;
}

static BfRequest *nearest(const BfChooser *chooser)
{
    const BfHead *head = chooser->head;
    BfRequest *above, *below;

    bf_queue_neighbours(&chooser->queue, head->end, &above, &below);
    if (above && (!below || distance(head, above->cylinder) <=
                            distance(head, below->cylinder))) {
        return above;
    }
    return below ? first_of_cylinder(chooser, below->cylinder) : NULL;
}

/* Where the first destage goes on. */
static int64_t destage_cylinder(BfChooser *chooser)
{
    return bf_head_cylinder(chooser->head,
                            bf_elevator_next(chooser->head,
                                             chooser->destages.first));
}

/* Whether what has waited @since then has to go first. */
static bool overdue(const BfChooser *chooser, int64_t since, int64_t now)
{
    return now - since >= chooser->params->queue_deadline_ns;
}

/* The read that continues the stream, if it is there. */
static BfRequest *continuing(const BfChooser *chooser)
{
    const BfHead *head = chooser->head;
    BfRequest *request, *below;

    bf_queue_neighbours(&chooser->queue, head->end, &request, &below);
    return request && request->op == BF_OP_READ &&
           bf_head_continues(head, request->offset) ? request : NULL;
}

/* Whether the head prefers the stream that it is reading to all else. */
static bool prefers_stream(const BfChooser *chooser, int64_t now,
                           bool flush_waits)
{
    const BfRequest *oldest = bf_queue_oldest(&chooser->queue);

    return chooser->params->idle_window_ns && chooser->head->in_stream &&
           !flush_waits &&
           !(oldest && overdue(chooser, oldest->entered_at, now)) &&
           !(chooser->destages.first &&
             overdue(chooser, chooser->destage_since, now));
}

/* Of the requests of the host; NULL if there are none. */
static BfRequest *choose_request(const BfChooser *chooser, int64_t now)
{
    BfRequest *oldest = bf_queue_oldest(&chooser->queue);
    BfQueueOrder order = chooser->params->queue_order;

    if (!oldest || order == BF_ORDER_FIFO ||
        (order == BF_ORDER_DEADLINE &&
         overdue(chooser, oldest->entered_at, now))) {
        return oldest;
    }
    return nearest(chooser);
}

/* Whether the next run of destage goes before @request. */
static bool destage_first(BfChooser *chooser, const BfRequest *request,
                          int64_t now)
{
    const BfHead *head = chooser->head;
    int64_t since = chooser->destage_since;

    if (!chooser->destages.first || !request) {
        return !request;
    }
    switch (chooser->params->queue_order) {
    case BF_ORDER_FIFO:
        return chooser->destages.first->arrived_at < request->arrived_at;
    case BF_ORDER_DEADLINE:
        if (overdue(chooser, request->entered_at, now) ||
            overdue(chooser, since, now)) {
            return since < request->entered_at;
        }
        break;
    }
    return distance(head, destage_cylinder(chooser)) <
           distance(head, request->cylinder);
}

/* Returns the destage if that was its last run. */
static BfRequest *serve_destage(BfChooser *chooser)
{
    BfRequest *destage = chooser->destages.first;
    int64_t done = bf_elevator_serve_run(chooser->head, destage);

    chooser->destage_since = chooser->head->free_at;
    if (destage->runs_left) {
        return NULL;
    }
    destage->done_at = done;
    bf_requests_remove(&chooser->destages, destage);
    return destage;
}

BfRequest *bf_chooser_serve(BfChooser *chooser, int64_t now,
                            bool flush_waits)
{
    BfRequest *request = NULL;

    /* It may have waited for a stream. */
    chooser->head->free_at = MAX(chooser->head->free_at, now);
    if (prefers_stream(chooser, now, flush_waits)) {
        request = continuing(chooser);
    }
    if (!request) {
        request = choose_request(chooser, now);
        if (destage_first(chooser, request, now)) {
            return serve_destage(chooser);
        }
    }
    bf_queue_remove(&chooser->queue, request, now);
    request->done_at = bf_elevator_serve(chooser->head, request);
    return request;
}

int64_t bf_chooser_due(const BfChooser *chooser, int64_t now,
                       bool flush_waits)
{
    const BfRequest *oldest = bf_queue_oldest(&chooser->queue);
    int64_t free_at = chooser->head->free_at;
    int64_t end;

    if (bf_chooser_idle(chooser)) {
        return BF_NEVER;
    }
    if (!prefers_stream(chooser, MAX(now, free_at), flush_waits) ||
        continuing(chooser)) {
        return MAX(now, free_at);
    }
    end = free_at + chooser->params->idle_window_ns;
    if (oldest) {
        end = MIN(end, oldest->entered_at +
                       chooser->params->queue_deadline_ns);
    }
    if (chooser->destages.first) {
        end = MIN(end, chooser->destage_since +
                       chooser->params->queue_deadline_ns);
    }
    return MAX(end, MAX(now, free_at));
}
