/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How early to wake
 *
 * A host wakes a sleeping thread later than it asked for, by tens of
 * microseconds that differ from host to host and from hour to hour.  A
 * wait that has to end on time is therefore woken earlier, and spins for
 * the rest.  How much earlier, the lead, is learned from the wake-ups: it
 * is what all but one in 200 of the last 512 to 1024 of them would have
 * needed.  Longer would only burn the processor.
 *
 * Times are in nanoseconds.  Nothing here is locked: each thread that
 * sleeps has a state of its own.
 */

#ifndef BF_WAKEUP_H
#define BF_WAKEUP_H

#include "stats.h"

typedef struct BfWakeup {
    BfHistogram lateness[2];    /* of the latest wake-ups, and before */
    int64_t lead;
    unsigned sleepless;         /* waits without a wake-up, in a row */
} BfWakeup;

void bf_wakeup_init(BfWakeup *wakeup);

/* A thread that slept came @lateness after the time it had asked for. */
void bf_wakeup_observe(BfWakeup *wakeup, int64_t lateness);

/*
 * How long before its end a wait of @wait is to be woken, at most
 * @spin_max; @wait if there is no time to sleep at all.  Now and then
 * such a wait sleeps all the same, for half of its time: else a thread
 * that has learned on a busy host, and has only short waits, would not
 * notice that the host has become quiet.
 */
int64_t bf_wakeup_lead(BfWakeup *wakeup, int64_t wait, int64_t spin_max);

#endif
