/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Waiting until an instant
 *
 * A time is only served while the machine runs and the node is not
 * drained.  Otherwise a wait would never end: the virtual clock stands
 * still before the machine starts (virtio-blk reads sector 0 when it is
 * realized) and while it is stopped, and drain waits for every request.
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/aio-wait.h"
#include "qemu/coroutine.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"

#include "controller.h"

/*
 * Whoever clears @waiting wakes the coroutine, so it is woken once.
 * Called with the lock held.
 */
static bool stop_waiting(BatchflushDelay *delay)
{
    if (!delay->waiting) {
        return false;
    }
    delay->waiting = false;
    QTAILQ_REMOVE(&delay->controller->delays, delay, next);
    return true;
}

static void delay_timer_cb(void *opaque)
{
    BatchflushDelay *delay = opaque;
    bool wake;

    WITH_QEMU_LOCK_GUARD(&delay->controller->lock) {
        wake = stop_waiting(delay);
        delay->on_time |= wake;
    }
    if (wake) {
        aio_co_wake(delay->co);
    }
}

/* What spinning for it has cost.  Called with the lock held. */
static void account_alarm(BatchflushController *c,
                          const BatchflushAlarm *alarm)
{
    c->wakeup_lead_ns = alarm->lead_ns;
    c->spin_ns += alarm->spun_ns;
    if (alarm->turns) {
        bf_histogram_add(&c->spin_turns, alarm->spun_ns / alarm->turns);
    }
}

/*
 * The main AioContext rounds its timers up to 1 ms (util/async.c),
 * timers on the main loop's own list keep the nanosecond.  With icount
 * the vCPU thread runs those at their exact instant, so that nothing
 * depends on when the host schedules the main loop.  But only the
 * AioContext's timers run while somebody in the main thread polls for
 * the end of a request, as the tools do: there we need both.
 * An iothread on the real clock can be on time.
 */
static void arm(BatchflushDelay *delay, int64_t instant)
{
    AioContext *ctx = qemu_get_current_aio_context();
    QEMUClockType clock = delay->controller->clock;
    bool in_main = ctx == qemu_get_aio_context();

    delay->has_alarm = !in_main && clock == QEMU_CLOCK_REALTIME;
    if (delay->has_alarm) {
        batchflush_alarm_set(&delay->alarm, instant,
                             delay->controller->params.spin_max_ns,
                             delay_timer_cb, delay);
        return;
    }
    timer_init_full(&delay->loop_timer, NULL, clock, SCALE_NS, 0,
                    delay_timer_cb, delay);
    timer_init_full(&delay->context_timer, &ctx->tlg, clock, SCALE_NS, 0,
                    delay_timer_cb, delay);
    if (in_main) {
        timer_mod_ns(&delay->loop_timer, instant);
    }
    if (!in_main || clock != QEMU_CLOCK_VIRTUAL) {
        timer_mod_ns(&delay->context_timer, instant);
    }
}

/*
 * The callbacks run in this thread or, like us, under the BQL: none is
 * at work now, and @delay may go.
 */
static void disarm(BatchflushDelay *delay)
{
    if (delay->has_alarm) {
        batchflush_alarm_clear(&delay->alarm);
        return;
    }
    if (timer_pending(&delay->loop_timer)) {
        timer_del(&delay->loop_timer);
    }
    if (timer_pending(&delay->context_timer)) {
        timer_del(&delay->context_timer);
    }
}

/*
 * While the main thread polls for the end of a request (device_add of a
 * disk reads its first sector that way, so does "qemu-io" of the human
 * monitor) it holds the BQL, no vCPU runs, and the virtual clock stands
 * still: nothing that waits for it would ever end.
 */
bool batchflush_stuck(const BatchflushController *c)
{
    return c->clock == QEMU_CLOCK_VIRTUAL &&
           qatomic_read(&global_aio_wait.num_waiters) > 0;
}

/*
 * The poll may begin at any time as long as somebody waits.  An idle
 * bottom half runs in it, within 10 ms; without a poll it does nothing.
 */
void batchflush_stuck_bh(void *opaque)
{
    BatchflushController *c = opaque;

    QEMU_LOCK_GUARD(&c->lock);
    if (batchflush_stuck(c)) {
        batchflush_wake_all(c);
    } else if (!QTAILQ_EMPTY(&c->delays)) {
        qemu_bh_schedule_idle(c->stuck_bh);
    }
}

void batchflush_check_stuck(BatchflushController *c)
{
    if (c->clock == QEMU_CLOCK_VIRTUAL) {
        qemu_bh_schedule_idle(c->stuck_bh);
    }
}

void coroutine_fn batchflush_co_park(BatchflushController *c,
                                     BatchflushDelay *delay,
                                     int64_t instant)
{
    bool timed = instant != BF_NEVER;

    delay->co = qemu_coroutine_self();
    delay->controller = c;
    delay->waiting = true;
    QTAILQ_INSERT_TAIL(&c->delays, delay, next);
    if (timed) {
        arm(delay, instant);
    }
    batchflush_check_stuck(c);
    qemu_mutex_unlock(&c->lock);

    qemu_coroutine_yield();

    if (timed) {
        disarm(delay);
    }
    if (delay->has_alarm && delay->on_time) {
        batchflush_alarm_spin_last(&delay->alarm);
    }
    qemu_mutex_lock(&c->lock);
    if (delay->has_alarm) {
        account_alarm(c, &delay->alarm);
    }
}

int64_t coroutine_fn batchflush_co_wait_until(BatchflushController *c,
                                              int64_t instant)
{
    BatchflushDelay delay = {};

    if (!batchflush_serving(c)) {
        return BATCHFLUSH_NOT_SERVED;
    }
    if (instant > batchflush_now(c)) {
        batchflush_co_park(c, &delay, instant);
        if (!delay.on_time) {
            return BATCHFLUSH_NOT_SERVED;
        }
    }
    return batchflush_now(c) - instant;
}

void coroutine_fn batchflush_co_unpark(BatchflushDelay *delay)
{
    if (stop_waiting(delay)) {
        aio_co_wake(delay->co);
    }
}

void coroutine_fn batchflush_co_wake_stalled(BatchflushController *c)
{
    BatchflushDelay *delay, *next;

    if (c->cache.stalled == 0) {
        return;
    }
    QTAILQ_FOREACH_SAFE(delay, &c->delays, next, next) {
        if (delay->for_room) {
            batchflush_co_unpark(delay);
        }
    }
}

void batchflush_wake_all(BatchflushController *c)
{
    BatchflushDelay *delay;

    while ((delay = QTAILQ_FIRST(&c->delays))) {
        stop_waiting(delay);
        /* Not aio_co_wake(): it may enter the coroutine, which locks. */
        aio_co_schedule(qemu_coroutine_get_aio_context(delay->co),
                        delay->co);
    }
}
