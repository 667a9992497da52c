/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The queue that a head chooses from
 *
 * All requests wait in the order of arrival.  The first of them, as many
 * as the device takes at once, are also sorted by place, so that the
 * neighbours of the head are found in a few steps at any depth.
 */

#ifndef BF_QUEUE_H
#define BF_QUEUE_H

#include "request.h"

typedef struct BfQueue {
    BfRequests arrivals;        /* all */
    BfRequest *outside;         /* first of them that is not sorted */
    int64_t count;              /* of those sorted */
    int64_t depth;              /* as many as that at most */
    BfRequest **requests;       /* by slot, as the next one */
    uint64_t *offsets;
    uint16_t *order;            /* slots by offset, then arrival, */
                                /* and behind @count those that are free */
} BfQueue;

/* @depth: at most 65536. */
void bf_queue_init(BfQueue *queue, int64_t depth);
void bf_queue_destroy(BfQueue *queue);

/* Forget all of them. */
void bf_queue_reset(BfQueue *queue);

/* Notes in entered_at when the device takes it, now or in a removal. */
void bf_queue_add(BfQueue *queue, BfRequest *request, int64_t now);

/* Remove one that bf_queue_oldest() or _neighbours() told. */
void bf_queue_remove(BfQueue *queue, BfRequest *request, int64_t now);

/* The one that has waited longest, or NULL. */
static inline BfRequest *bf_queue_oldest(const BfQueue *queue)
{
    return queue->arrivals.first;
}

/*
 * The next ones at or above a place, and below it, or NULL; of several
 * that wait for one place the first.
 */
void bf_queue_neighbours(const BfQueue *queue, uint64_t offset,
                         BfRequest **above, BfRequest **below);

#endif
