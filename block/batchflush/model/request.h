/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the service model is asked about
 *
 * A request belongs to the caller and is part of something of his: the
 * model allocates nothing for it, and links it into its lists while its
 * instant is not known.
 */

#ifndef BF_REQUEST_H
#define BF_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum BfOp {
    BF_OP_READ,             /* from the medium */
    BF_OP_WRITE,            /* onto the medium */
    BF_OP_FUA,              /* likewise, past a cache */
    BF_OP_ZERO,
    BF_OP_DISCARD,
    BF_OP_CACHE,            /* read from or written to the cache */
    BF_OP_DESTAGE,          /* runs of dirty data, cache to medium */
    BF_OP_FLUSH,
    BF_OP_FLUSH_CLEAN,      /* a flush that has nothing to drain */
    BF_OP_FLUSH_BACKED,     /* one of a cache that need not be drained */
} BfOp;

/* A contiguous piece of the medium, in bytes. */
typedef struct BfRun {
    uint64_t offset;
    uint64_t bytes;
} BfRun;

typedef struct BfRequest BfRequest;

struct BfRequest {
    BfOp op;
    uint64_t offset;
    uint64_t bytes;
    const BfRun *runs;      /* of a destage of several: by rising offset */
    size_t n_runs;          /* 0: what @offset and @bytes say */

    int64_t arrived_at;     /* set by submitting it */
    int64_t done_at;        /* BF_NEVER: not known yet */

    /* The model's own. */
    int64_t ready_at;       /* when its electronics are done */
    int64_t entered_at;     /* when the device had room for it */
    int64_t latency;        /* what was drawn for it */
    int64_t cylinder;       /* while it waits for the head */
    uint64_t number;        /* of a flush: the destages before it */
    size_t next_run;
    size_t runs_left;
    BfRequest *next;
    BfRequest *previous;
};

/* The @i-th of a destage, or the one that another request is about. */
static inline BfRun bf_request_run(const BfRequest *request, size_t i)
{
    return request->n_runs ? request->runs[i]
                           : (BfRun) { request->offset, request->bytes };
}

/* A list, linked through its requests. */
typedef struct BfRequests {
    BfRequest *first;
    BfRequest *last;
} BfRequests;

static inline void bf_requests_append(BfRequests *list, BfRequest *request)
{
    request->next = NULL;
    request->previous = list->last;
    if (list->last) {
        list->last->next = request;
    } else {
        list->first = request;
    }
    list->last = request;
}

static inline void bf_requests_remove(BfRequests *list, BfRequest *request)
{
    if (request->previous) {
        request->previous->next = request->next;
    } else {
        list->first = request->next;
    }
    if (request->next) {
        request->next->previous = request->previous;
    } else {
        list->last = request->previous;
    }
}

/* Returns NULL if there is none. */
static inline BfRequest *bf_requests_take(BfRequests *list)
{
    BfRequest *request = list->first;

    if (request) {
        bf_requests_remove(list, request);
    }
    return request;
}

/* They were not served after all: each is done when it arrived. */
static inline void bf_requests_abandon(BfRequests *list)
{
    BfRequest *request;

    while ((request = bf_requests_take(list))) {
        request->done_at = request->arrived_at;
    }
}

#endif
