/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Service time: when is a request done?
 *
 * A medium without a head has lanes; each serves one request at a time
 * and is "free at" an instant.  A request takes the lane that is free
 * first, and then the one channel that all data of the medium goes
 * through.  A medium with a head (head.h) serves one request after the
 * other.  There are no threads and no sleeps here, only arithmetic on
 * instants, all in nanoseconds of whatever clock the caller uses (the
 * idea is that of NVMeVirt's channel model).
 *
 * Where a request is served in the order of arrival, its instant is
 * known at once.  A head that chooses (queue-order, idle-window-ns)
 * decides each time it is free, so the instant is known once the head
 * has decided for the request:
 *
 *     submit, and if done_at is BF_NEVER:
 *     at bf_service_decision_at(), or any time later, bf_service_advance()
 *     take those whose instant has become known, bf_service_decided()
 *
 * A decision that is due at an instant takes into account what was
 * submitted before, and nothing else.  So instants depend on when
 * requests arrive, and not on when the caller asks: an advance() that
 * comes late, or never, changes none of them.
 *
 * The caller must pass times that never go back.
 */

#ifndef BF_SERVICE_H
#define BF_SERVICE_H

#include "chooser.h"
#include "head.h"
#include "instant.h"
#include "random.h"
#include "request.h"

typedef struct BfService {
    const BfParams *params;
    uint64_t length;
    BfRandom random;
    int64_t *lane_free_at;  /* min-heap of queue_depth instants */
    int64_t channel_free_at;    /* the transfers accepted so far */
    int64_t interface_free_at;  /* the same, towards the host */
    int64_t flush_free_at;  /* end of the last flush that has to be alone */
    int64_t gate;           /* nothing starts before: exclusive flushes */
    int64_t latest;         /* when the last accepted request is done */
    int64_t destaged_at;    /* when the last accepted destage is done */
    BfHead head;

    /* Of a head that chooses. */
    BfChooser chooser;
    BfRequests flushes;     /* wait for the first destages or all */
    BfRequests held;        /* behind an exclusive flush that waits */
    BfRequests decided;     /* for the caller to take */
    uint64_t destages_accepted;
    uint64_t destages_done;
    int64_t decision_at;    /* BF_NEVER: nothing to decide */
} BfService;

/*
 * @length is the node's, in bytes.  @params has to outlive @service; its
 * times may change meanwhile, with bf_service_update() afterwards.
 */
void bf_service_init(BfService *service, const BfParams *params,
                     uint64_t length);
void bf_service_destroy(BfService *service);

/* @params has changed.  Nothing may be queued. */
void bf_service_update(BfService *service);

/*
 * Forget what was accepted: it was not served after all.  What was
 * queued is done when it arrived, and nothing is left to be taken.
 */
void bf_service_reset(BfService *service);

/*
 * A request arrives @now.  Returns its done_at.  If that is BF_NEVER,
 * @request and its runs have to stay until it is known.
 *
 * A BF_OP_FLUSH ends after every destage submitted so far.
 */
int64_t bf_service_submit(BfService *service, int64_t now,
                          BfRequest *request);

/* Take all decisions that are due by @now. */
void bf_service_advance(BfService *service, int64_t now);

/* When the next one is due, BF_NEVER if none is. */
int64_t bf_service_decision_at(const BfService *service);

/*
 * The next request whose instant was not known when it was submitted
 * and is now, in the order of decisions; NULL if there are no more.
 */
BfRequest *bf_service_decided(BfService *service);

/* Where destage best goes on: where the head is; 0 without one. */
uint64_t bf_service_place(const BfService *service);

#endif
