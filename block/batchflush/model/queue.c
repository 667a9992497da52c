/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The queue that a head chooses from: see queue.h */

#include <glib.h>
#include <string.h>

#include "queue.h"

void bf_queue_init(BfQueue *queue, int64_t depth)
{
    *queue = (BfQueue) {
        .sorted = g_new(BfQueueEntry, depth),
        .depth = depth,
    };
}

void bf_queue_destroy(BfQueue *queue)
{
    g_free(queue->sorted);
    queue->sorted = NULL;
}

/* The first entry at or above @offset. */
static int64_t find(const BfQueue *queue, uint64_t offset)
{
    int64_t low = 0;
    int64_t high = queue->count;

    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (queue->sorted[middle].offset < offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void sort_in(BfQueue *queue, BfRequest *request)
{
    /* Behind those that wait for the same place. */
    int64_t at = find(queue, request->offset + 1);
    BfQueueEntry *entry = &queue->sorted[at];

    memmove(entry + 1, entry, (queue->count - at) * sizeof(*entry));
    *entry = (BfQueueEntry) { request->offset, request };
    queue->count++;
}

static void sort_out(BfQueue *queue, const BfRequest *request)
{
    int64_t at = find(queue, request->offset);
    BfQueueEntry *entry;

    while (queue->sorted[at].request != request) {
        at++;
    }
    entry = &queue->sorted[at];
    queue->count--;
    memmove(entry, entry + 1, (queue->count - at) * sizeof(*entry));
}

void bf_queue_add(BfQueue *queue, BfRequest *request)
{
    bf_requests_append(&queue->arrivals, request);
    if (queue->count < queue->depth) {
        sort_in(queue, request);
    } else if (!queue->outside) {
        queue->outside = request;
    }
}

void bf_queue_remove(BfQueue *queue, BfRequest *request)
{
    bf_requests_remove(&queue->arrivals, request);
    sort_out(queue, request);
    if (queue->outside) {
        sort_in(queue, queue->outside);
        queue->outside = queue->outside->next;
    }
}

BfRequest *bf_queue_oldest(const BfQueue *queue)
{
    return queue->arrivals.first;
}

BfRequest *bf_queue_above(const BfQueue *queue, uint64_t offset)
{
    int64_t at = find(queue, offset);

    return at < queue->count ? queue->sorted[at].request : NULL;
}

BfRequest *bf_queue_below(const BfQueue *queue, uint64_t offset)
{
    int64_t at = find(queue, offset);

    if (at == 0) {
        return NULL;
    }
    /* Of those that wait for one place the first. */
    return queue->sorted[find(queue, queue->sorted[at - 1].offset)].request;
}
