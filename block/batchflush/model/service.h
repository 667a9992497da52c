/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Service time: when is a request done?
 *
 * The medium has lanes; each serves one request at a time and is "free
 * at" an instant.  A request takes the lane that is free first, and then
 * the one channel that all data of the medium goes through.  There are
 * no threads and no sleeps here, only arithmetic on instants, all
 * in nanoseconds of whatever clock the caller uses (the idea is that
 * of NVMeVirt's channel model).
 *
 * The caller must pass times that never go back.
 */

#ifndef BF_SERVICE_H
#define BF_SERVICE_H

#include "params.h"

typedef enum BfOp {
    BF_OP_READ,             /* from the medium */
    BF_OP_WRITE,            /* onto the medium */
    BF_OP_CACHE,            /* read from or written to the cache */
    BF_OP_DESTAGE,          /* one run of dirty data, cache to medium */
} BfOp;

typedef struct BfService {
    const BfParams *params;
    int64_t *lane_free_at;  /* min-heap of queue_depth instants */
    int64_t channel_free_at;    /* the transfers accepted so far */
    int64_t flush_free_at;  /* end of the last flush that has to be alone */
    int64_t gate;           /* nothing starts before: exclusive flushes */
    int64_t latest;         /* when the last accepted request is done */
    int64_t destaged_at;    /* when the last accepted destage is done */
} BfService;

/* @params has to outlive @service; its times may change meanwhile. */
void bf_service_init(BfService *service, const BfParams *params);
void bf_service_destroy(BfService *service);

/* Forget what was accepted: it was not served after all. */
void bf_service_reset(BfService *service);

/* The instant at which a request that arrives @now is done. */
int64_t bf_service_request(BfService *service, int64_t now, BfOp op,
                           uint64_t bytes);

/*
 * The instant at which a flush that is issued @now is done.  @clean
 * says that it has nothing to drain; otherwise it ends after every
 * destage accepted so far.
 */
int64_t bf_service_flush(BfService *service, int64_t now, bool clean);

#endif
