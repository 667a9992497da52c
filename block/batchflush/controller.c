/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The controller: see controller.h */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "system/qtest.h"

#include "compat.h"
#include "outage.h"

int64_t batchflush_now(const BatchflushController *c)
{
    return qemu_clock_get_ns(c->clock);
}

void batchflush_update_attention(BatchflushController *c)
{
    qatomic_set(&c->attention, c->power.off || c->cut);
}

bool batchflush_serving(const BatchflushController *c)
{
    return c->running && !c->drained && !c->power.off &&
           !batchflush_stuck(c);
}

void batchflush_update_serving(BatchflushController *c)
{
    bool serving = batchflush_serving(c);
    BDRVBatchflushState *s;

    bf_coordinator_hurry(&c->coordinator, !serving);
    if (serving) {
        return;
    }
    /* What is cut short keeps nothing busy. */
    QLIST_FOREACH(s, &c->nodes, next) {
        bf_service_reset(&s->service);
    }
    batchflush_wake_all(c);
}

/*
 * With icount and qtest the guest's time is simulated, and ours has to
 * be the same.  QEMU_CLOCK_VIRTUAL is of no use in the tools, where it
 * is the host's wall clock and may go back.
 *
 * "-blockdev" opens nodes before QEMU knows its accelerator, so in a
 * machine this can only be settled when it runs.  Until then no times
 * are served, and the virtual clock, at 0, is not ahead of any other.
 */
static QEMUClockType clock_of(const BatchflushController *c, bool running)
{
    bool has_machine = c->vmstate;
    bool simulated = icount_enabled() || qtest_enabled();

    switch (c->params.clock) {
    case BF_CLOCK_VIRTUAL:
        return QEMU_CLOCK_VIRTUAL;
    case BF_CLOCK_REALTIME:
        return QEMU_CLOCK_REALTIME;
    default:
        return has_machine && (simulated || !running)
            ? QEMU_CLOCK_VIRTUAL : QEMU_CLOCK_REALTIME;
    }
}

static void settle_clock(BatchflushController *c)
{
    c->clock = clock_of(c, c->running);
}

QEMUClockType batchflush_serving_clock(const BatchflushController *c)
{
    return clock_of(c, true);
}

static void set_running(BatchflushController *c, bool running)
{
    c->running = running;
    settle_clock(c);
    batchflush_update_serving(c);
}

static void vm_state_change(void *opaque, bool running, RunState state)
{
    BatchflushController *c = opaque;

    QEMU_LOCK_GUARD(&c->lock);
    /* A stopped machine keeps its clock: times never go back. */
    if (running) {
        set_running(c, true);
    } else {
        c->running = false;
        batchflush_update_serving(c);
    }
}

BatchflushController *batchflush_controller_new(const char *id)
{
    BatchflushController *c = g_new0(BatchflushController, 1);

    GLOBAL_STATE_CODE();
    c->id = g_strdup(id);
    c->refs = 1;
    qemu_mutex_init(&c->lock);
    QLIST_INIT(&c->nodes);
    QTAILQ_INIT(&c->delays);
    QSIMPLEQ_INIT(&c->joined);
    bf_params_init(&c->params);
    bf_cache_init(&c->cache, &c->params);
    bf_coordinator_init(&c->coordinator, &c->params);
    c->stuck_bh = qemu_bh_new(batchflush_stuck_bh, c);
    c->save_bh = qemu_bh_new(batchflush_save_bh, c);

    /* The tools have no machine, and nothing that ever stops. */
    c->vmstate = qemu_add_vm_change_state_handler(vm_state_change, c);
    set_running(c, !c->vmstate || runstate_check(RUN_STATE_RUNNING));
    batchflush_controller_enlist(c);
    return c;
}

void batchflush_controller_ref(BatchflushController *c)
{
    GLOBAL_STATE_CODE();
    c->refs++;
}

void batchflush_controller_unref(BatchflushController *c)
{
    GLOBAL_STATE_CODE();
    if (--c->refs > 0) {
        return;
    }
    batchflush_controller_delist(c);
    batchflush_hold_up_end(c);
    if (c->vmstate) {
        qemu_del_vm_change_state_handler(c->vmstate);
    }
    qemu_bh_delete(c->stuck_bh);
    qemu_bh_delete(c->save_bh);
    qemu_mutex_destroy(&c->lock);
    g_free(c->id);
    g_free(c);
}

static bool check_agreement(BatchflushController *c, BDRVBatchflushState *s,
                            Error **errp)
{
    const BfOption *option;
    g_autofree char *theirs = NULL;
    g_autofree char *ours = NULL;

    if (QLIST_EMPTY(&c->nodes)) {
        return true;
    }
    option = bf_params_shared_mismatch(&c->params, &s->params);
    if (!option) {
        return true;
    }
    theirs = bf_params_get(&c->params, option);
    ours = bf_params_get(&s->params, option);
    error_setg(errp, "%s=%s contradicts node '%s' behind controller '%s'; "
               "allowed is %s", option->name, ours,
               bdrv_get_node_name(QLIST_FIRST(&c->nodes)->bs), c->id,
               theirs);
    return false;
}

/* The coordinator expects what the slowest node takes. */
static void expect_slowest(BatchflushController *c)
{
    BDRVBatchflushState *node;

    c->params.flush_latency_ns = 0;
    c->params.flush_clean_latency_ns = 0;
    QLIST_FOREACH(node, &c->nodes, next) {
        c->params.flush_latency_ns = MAX(c->params.flush_latency_ns,
                                         node->params.flush_latency_ns);
        c->params.flush_clean_latency_ns =
            MAX(c->params.flush_clean_latency_ns,
                node->params.flush_clean_latency_ns);
    }
    bf_coordinator_reconsider(&c->coordinator);
}

void batchflush_controller_update(BDRVBatchflushState *s)
{
    BatchflushController *c = s->controller;
    BDRVBatchflushState *node;

    bf_params_copy_shared(&c->params, &s->params);
    QLIST_FOREACH(node, &c->nodes, next) {
        bf_params_copy_shared(&node->params, &c->params);
    }
    expect_slowest(c);
    batchflush_wake_all(c);
}

bool batchflush_controller_attach(BatchflushController *c,
                                  BDRVBatchflushState *s, Error **errp)
{
    GLOBAL_STATE_CODE();
    QEMU_LOCK_GUARD(&c->lock);
    if (!check_agreement(c, s, errp)) {
        return false;
    }
    batchflush_controller_ref(c);
    s->controller = c;
    c->drained += s->drained;
    QLIST_INSERT_HEAD(&c->nodes, s, next);
    c->n_nodes++;
    batchflush_controller_update(s);
    if (c->n_nodes == 1) {
        settle_clock(c);
    }
    batchflush_update_serving(c);
    return true;
}

void batchflush_controller_detach(BDRVBatchflushState *s)
{
    BatchflushController *c = s->controller;

    GLOBAL_STATE_CODE();
    WITH_QEMU_LOCK_GUARD(&c->lock) {
        QLIST_REMOVE(s, next);
        c->n_nodes--;
        c->drained -= s->drained;
        s->controller = NULL;
        expect_slowest(c);
        batchflush_update_serving(c);
    }
    batchflush_cut_forget(c, s);
    batchflush_controller_unref(c);
}

uint64_t batchflush_controller_used(const BatchflushController *c)
{
    BDRVBatchflushState *node;
    uint64_t used = 0;

    QLIST_FOREACH(node, &c->nodes, next) {
        used += node->store ? bf_store_used(node->store) : 0;
    }
    return used;
}

int64_t batchflush_controller_flush_time(const BatchflushController *c)
{
    BDRVBatchflushState *node;
    int64_t slowest = 0;

    QLIST_FOREACH(node, &c->nodes, next) {
        slowest = MAX(slowest, batchflush_node_flush_time(node));
    }
    return slowest;
}
