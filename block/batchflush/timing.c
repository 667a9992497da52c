/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Asking the model for instants
 *
 * Mostly it knows at once.  A head that chooses knows when it has
 * decided: those who ask wait for that, and one of them, the keeper,
 * wakes in time for the next decision, wakes whom it was for, and hands
 * its role on when it leaves.  The model does not mind if that is late.
 */

#include "qemu/osdep.h"

#include "batchflush.h"

/* Wake whose instants have become known.  Called with the lock held. */
static void coroutine_fn tell(BDRVBatchflushState *s)
{
    BfRequest *request;

    while ((request = bf_service_decided(&s->service))) {
        BatchflushAsk *ask = container_of(request, BatchflushAsk, request);

        if (ask->delay) {
            batchflush_co_unpark(ask->delay);
        }
    }
    if (s->keeper && bf_service_decision_at(&s->service) < s->keeper_until) {
        batchflush_co_unpark(s->keeper);
    }
}

void coroutine_fn batchflush_co_ask(BDRVBatchflushState *s,
                                    BatchflushAsk *ask, int64_t now)
{
    ask->delay = NULL;
    if (!batchflush_serving(s->controller)) {
        ask->request.arrived_at = now;
        ask->request.done_at = now;
        return;
    }
    bf_service_submit(&s->service, now, &ask->request);
    tell(s);
}

/* Wait for a decision, or as the keeper until it is time for one. */
static void coroutine_fn wait_for_decision(BDRVBatchflushState *s,
                                           BatchflushAsk *ask)
{
    BatchflushController *c = s->controller;
    BatchflushDelay delay = {};
    int64_t until = BF_NEVER;

    if (!s->keeper) {
        s->keeper = &delay;
        s->keeper_until = until = bf_service_decision_at(&s->service);
    }
    ask->delay = &delay;
    QTAILQ_INSERT_TAIL(&s->asking, ask, next);
    batchflush_co_park(c, &delay, until);
    QTAILQ_REMOVE(&s->asking, ask, next);
    ask->delay = NULL;
    if (s->keeper == &delay) {
        s->keeper = NULL;
    }
}

static void coroutine_fn hand_over(BDRVBatchflushState *s)
{
    BatchflushAsk *next = QTAILQ_FIRST(&s->asking);

    if (!s->keeper && next) {
        batchflush_co_unpark(next->delay);
    }
}

int64_t coroutine_fn batchflush_co_answer(BDRVBatchflushState *s,
                                          BatchflushAsk *ask)
{
    bool waited = false;

    while (ask->request.done_at == BF_NEVER) {
        if (!batchflush_serving(s->controller)) {
            /* What is queued is cut short, ours too. */
            bf_service_reset(&s->service);
            break;
        }
        waited = true;
        wait_for_decision(s, ask);
        bf_service_advance(&s->service, batchflush_now(s->controller));
        tell(s);
    }
    if (waited) {
        hand_over(s);
    }
    return ask->request.done_at;
}
