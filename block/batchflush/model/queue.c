/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The queue that a head chooses from: see queue.h */

#include <glib.h>
#include <string.h>

#include "queue.h"

void bf_queue_init(BfQueue *queue, int64_t depth)
{
    *queue = (BfQueue) {
        .depth = depth,
        .requests = g_new(BfRequest *, depth),
        .offsets = g_new(uint64_t, depth),
        .order = g_new(uint16_t, depth),
    };
    bf_queue_reset(queue);
}

void bf_queue_destroy(BfQueue *queue)
{
    g_free(queue->requests);
    g_free(queue->offsets);
    g_free(queue->order);
    *queue = (BfQueue) { .depth = 0 };
}

void bf_queue_reset(BfQueue *queue)
{
    queue->arrivals = (BfRequests) { NULL, NULL };
    queue->outside = NULL;
    queue->count = 0;
    for (int64_t i = 0; i < queue->depth; i++) {
        queue->order[i] = i;
    }
}

static uint64_t offset_of(const BfQueue *queue, int64_t at)
{
    return queue->offsets[queue->order[at]];
}

static BfRequest *request_of(const BfQueue *queue, int64_t at)
{
    return queue->requests[queue->order[at]];
}

/*
 * How many wait below @offset.  Halves without a branch, which would be
 * guessed wrong every other time.
 */
static int64_t count_below(const BfQueue *queue, uint64_t offset)
{
    int64_t left = queue->count;
    int64_t low = 0;

    while (left > 0) {
        int64_t half = (left + 1) / 2;

        low += offset_of(queue, low + half - 1) < offset ? half : 0;
        left -= half;
    }
    return low;
}

static void sort_in(BfQueue *queue, BfRequest *request, int64_t now)
{
    /* Behind those that wait for the same place. */
    int64_t at = count_below(queue, request->offset + 1);
    uint16_t *entry = &queue->order[at];
    uint16_t slot = queue->order[queue->count];

    memmove(entry + 1, entry, (queue->count - at) * sizeof(*entry));
    *entry = slot;
    queue->requests[slot] = request;
    queue->offsets[slot] = request->offset;
    request->entered_at = now;
    queue->count++;
}

static void sort_out(BfQueue *queue, const BfRequest *request)
{
    int64_t at = count_below(queue, request->offset);
    uint16_t *entry = &queue->order[at];
    uint16_t slot = *entry;

    g_assert(queue->requests[slot] == request);
    queue->count--;
    memmove(entry, entry + 1, (queue->count - at) * sizeof(*entry));
    queue->order[queue->count] = slot;
}

void bf_queue_add(BfQueue *queue, BfRequest *request, int64_t now)
{
    bf_requests_append(&queue->arrivals, request);
    if (queue->count < queue->depth) {
        sort_in(queue, request, now);
    } else if (!queue->outside) {
        queue->outside = request;
    }
}

void bf_queue_remove(BfQueue *queue, BfRequest *request, int64_t now)
{
    bf_requests_remove(&queue->arrivals, request);
    sort_out(queue, request);
    if (queue->outside) {
        sort_in(queue, queue->outside, now);
        queue->outside = queue->outside->next;
    }
}

void bf_queue_neighbours(const BfQueue *queue, uint64_t offset,
                         BfRequest **above, BfRequest **below)
{
    int64_t at = count_below(queue, offset);

    *above = at < queue->count ? request_of(queue, at) : NULL;
    *below = NULL;
    if (at > 0) {
        offset = offset_of(queue, --at);
        if (at > 0 && offset_of(queue, at - 1) == offset) {
            at = count_below(queue, offset);
        }
        *below = request_of(queue, at);
    }
}
