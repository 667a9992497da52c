/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A head that chooses which request it serves next
 *
 * It decides each time it is free, by queue-order, between the requests
 * of the host and the next run of destage; or it waits a moment for the
 * next read of a sequential stream (idle-window-ns).
 */

#ifndef BF_CHOOSER_H
#define BF_CHOOSER_H

#include "head.h"
#include "instant.h"
#include "queue.h"

typedef struct BfChooser {
    const BfParams *params;
    BfHead *head;
    BfQueue queue;          /* requests of the host */
    BfRequests destages;    /* first come, first served */
    int64_t destage_since;  /* when a destage last had its share */
} BfChooser;

/* @params and @head have to outlive @chooser. */
void bf_chooser_init(BfChooser *chooser, const BfParams *params,
                     BfHead *head);
void bf_chooser_destroy(BfChooser *chooser);

/* Abandon all that waits. */
void bf_chooser_reset(BfChooser *chooser);

/* A request whose electronics are at work waits for the head. */
void bf_chooser_add(BfChooser *chooser, BfRequest *request, int64_t now);

/* Whether nothing waits. */
bool bf_chooser_idle(const BfChooser *chooser);

/*
 * When the head has to choose: as soon as it is free and something is
 * there, or when it has waited long enough for the stream's next read,
 * which it does not do if @flush_waits.  BF_NEVER if nothing waits.
 */
int64_t bf_chooser_due(const BfChooser *chooser, int64_t now,
                       bool flush_waits);

/*
 * Choose @now, when it is due, and serve.  Returns the request, with
 * its done_at, or NULL if it was a run of a destage that has more.
 */
BfRequest *bf_chooser_serve(BfChooser *chooser, int64_t now,
                            bool flush_waits);

#endif
