/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An alarm: a timer of an iothread that is on time
 *
 * A host wakes a sleeping thread late.  So an alarm wakes it early, by as
 * much as the thread's wake-ups teach (model/wakeup.h), and spins for the
 * rest: through the event loop, of which every turn looks at the clock
 * once, so that all else the thread has to do is taken up meanwhile.  The
 * last microsecond is left to who is called: a part of it passes while a
 * coroutine is woken.  No lock is held while an alarm spins.
 *
 * On the host's monotonic clock and in iothreads only: a turn of the main
 * loop takes the BQL.  An alarm belongs to the thread that sets it, and is
 * cleared there.
 */

#ifndef BLOCK_BATCHFLUSH_ALARM_H
#define BLOCK_BATCHFLUSH_ALARM_H

#include "qemu/queue.h"
#include "qemu/timer.h"

typedef struct BatchflushAlarm {
    QEMUTimer timer;            /* wakes the thread */
    int64_t wake_at;
    int64_t instant;
    QEMUTimerCB *cb;
    void *opaque;
    bool spinning;
    QTAILQ_ENTRY(BatchflushAlarm) next; /* of those that spin */

    /* What it has cost: while several spin, the first one counts. */
    int64_t lead_ns;            /* what the thread has learned */
    int64_t spun_ns;
    unsigned turns;             /* of the event loop */
} BatchflushAlarm;

/*
 * Call @cb within the last microsecond before @instant, or as soon after
 * as can be, having spun for @spin_max ns at most.
 */
void batchflush_alarm_set(BatchflushAlarm *alarm, int64_t instant,
                          int64_t spin_max, QEMUTimerCB *cb, void *opaque);

/* What is left until the instant; to be called when @cb has been. */
void batchflush_alarm_spin_last(const BatchflushAlarm *alarm);

/* Not to be called any more.  Nothing to do if it has been. */
void batchflush_alarm_clear(BatchflushAlarm *alarm);

#endif
