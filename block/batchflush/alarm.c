/* SPDX-License-Identifier: GPL-2.0-or-later */
/* An alarm: see alarm.h */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "qemu/coroutine-tls.h"
#include "qemu/notify.h"
#include "qemu/processor.h"
#include "qemu/thread.h"

#include "alarm.h"
#include "model/wakeup.h"

/*
 * The end of a spin, in which nothing else is taken up: to go round once
 * more, or to wake somebody, could take that long.  How long a turn takes
 * is told by the last one, which may have been an interruption.
 */
#define LAST_MIN_NS 1000
#define LAST_MAX_NS 2000

/* The alarms of a thread that spin, and what its wake-ups have taught. */
typedef struct Spinner {
    AioContext *ctx;
    BfWakeup wakeup;
    QTAILQ_HEAD(, BatchflushAlarm) alarms;  /* by instant */
    bool turning;               /* the next turn is scheduled */
    int64_t turned_at;          /* when the last one began */
    int64_t last_ns;            /* of a spin: see LAST_MIN_NS */
    Notifier thread_exit;
} Spinner;

QEMU_DEFINE_STATIC_CO_TLS(Spinner *, spinner)

static void spinner_free(Notifier *notifier, void *unused)
{
    g_free(container_of(notifier, Spinner, thread_exit));
    set_spinner(NULL);
}

static Spinner *spinner_of_thread(void)
{
    Spinner *spinner = get_spinner();

    if (!spinner) {
        spinner = g_new0(Spinner, 1);
        spinner->ctx = qemu_get_current_aio_context();
        spinner->last_ns = LAST_MIN_NS;
        spinner->thread_exit.notify = spinner_free;
        bf_wakeup_init(&spinner->wakeup);
        QTAILQ_INIT(&spinner->alarms);
        qemu_thread_atexit_add(&spinner->thread_exit);
        set_spinner(spinner);
    }
    return spinner;
}

static int64_t now(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
}

static void spinner_turn(void *opaque);

static void schedule_turn(Spinner *spinner)
{
    if (!spinner->turning) {
        spinner->turning = true;
        aio_bh_schedule_oneshot(spinner->ctx, spinner_turn, spinner);
    }
}

static void end_spin(Spinner *spinner, BatchflushAlarm *alarm)
{
    QTAILQ_REMOVE(&spinner->alarms, alarm, next);
    alarm->spinning = false;
}

static void spinner_turn(void *opaque)
{
    Spinner *spinner = opaque;
    BatchflushAlarm *alarm = QTAILQ_FIRST(&spinner->alarms);
    int64_t at;

    spinner->turning = false;
    if (!alarm) {
        return;
    }
    /* Now, as a callback may run an event loop of its own. */
    schedule_turn(spinner);

    at = now();
    spinner->last_ns = CLAMP(at - spinner->turned_at, LAST_MIN_NS,
                             LAST_MAX_NS);
    alarm->turns++;
    alarm->spun_ns += at - spinner->turned_at;
    /* Each callback may clear others, and set new ones. */
    while (alarm && alarm->instant - spinner->last_ns <= at) {
        end_spin(spinner, alarm);
        alarm->cb(alarm->opaque);
        alarm = QTAILQ_FIRST(&spinner->alarms);
        at = now();
    }
    spinner->turned_at = at;
}

static void begin_spin(Spinner *spinner, BatchflushAlarm *alarm)
{
    BatchflushAlarm *before;

    QTAILQ_FOREACH_REVERSE(before, &spinner->alarms, next) {
        if (before->instant <= alarm->instant) {
            break;
        }
    }
    if (before) {
        QTAILQ_INSERT_AFTER(&spinner->alarms, before, alarm, next);
    } else {
        QTAILQ_INSERT_HEAD(&spinner->alarms, alarm, next);
        spinner->turned_at = now();
    }
    alarm->spinning = true;
    schedule_turn(spinner);
}

static void alarm_timer_cb(void *opaque)
{
    BatchflushAlarm *alarm = opaque;
    Spinner *spinner = get_spinner();
    /* A thread that spins for another alarm was not asleep. */
    bool slept = QTAILQ_EMPTY(&spinner->alarms);
    int64_t at = now();
    int64_t late = at - alarm->wake_at;

    if (at < alarm->instant - spinner->last_ns) {
        begin_spin(spinner, alarm);
    } else {
        alarm->cb(alarm->opaque);
    }
    if (slept) {
        bf_wakeup_observe(&spinner->wakeup, late);
    }
}

void batchflush_alarm_set(BatchflushAlarm *alarm, int64_t instant,
                          int64_t spin_max, QEMUTimerCB *cb, void *opaque)
{
    Spinner *spinner = spinner_of_thread();
    int64_t wait = instant - now();
    int64_t lead = bf_wakeup_lead(&spinner->wakeup, MAX(wait, 0), spin_max);

    *alarm = (BatchflushAlarm) {
        .wake_at = instant - lead,
        .instant = instant,
        .cb = cb,
        .opaque = opaque,
        .lead_ns = MIN(spinner->wakeup.lead, spin_max),
    };
    timer_init_full(&alarm->timer, &spinner->ctx->tlg, QEMU_CLOCK_REALTIME,
                    SCALE_NS, 0, alarm_timer_cb, alarm);
    if (lead < wait) {
        timer_mod_ns(&alarm->timer, alarm->wake_at);
    } else {
        begin_spin(spinner, alarm);
    }
}

void batchflush_alarm_clear(BatchflushAlarm *alarm)
{
    if (timer_pending(&alarm->timer)) {
        timer_del(&alarm->timer);
    }
    if (alarm->spinning) {
        end_spin(get_spinner(), alarm);
    }
}

void batchflush_alarm_spin_last(const BatchflushAlarm *alarm)
{
    while (now() < alarm->instant) {
        cpu_relax();
    }
}
