/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Power cuts: ordering one, waiting for its moment, settling survivors */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qapi/qapi-events-batchflush.h"
#include "qapi/util.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"

#include "outage.h"
#include "trace.h"

/*
 * A cut that waits for its moment.  All controllers that it will cut
 * refer to it; it is freed with the last of them.
 */
struct BatchflushCut {
    unsigned refs;              /* under cuts_lock */
    bool everything;            /* whatever there is at that moment */
    BDRVBatchflushState *node;  /* whose requests count; NULL: any */
    BatchflushCutMoment when;
    int64_t left;               /* atomic: requests to go */
    int64_t ns;
    BatchflushCutGuest guest;
    bool has_policy;
    BfCutPolicy policy;
    bool has_seed;
    uint64_t seed;
    QEMUTimer *timer;
};

const BatchflushMachine *batchflush_machine;

/*
 * Taken before the lock of any controller; only with it held may the
 * locks of several be.
 */
static QemuMutex cuts_lock;
static QLIST_HEAD(, BatchflushController) controllers =
    QLIST_HEAD_INITIALIZER(controllers);

static void __attribute__((constructor)) cuts_init(void)
{
    qemu_mutex_init(&cuts_lock);
}

void batchflush_controller_enlist(BatchflushController *c)
{
    QEMU_LOCK_GUARD(&cuts_lock);
    QLIST_INSERT_HEAD(&controllers, c, everywhere);
}

static void cut_unref(BatchflushCut *cut)
{
    if (--cut->refs == 0) {
        timer_free(cut->timer);
        g_free(cut);
    }
}

/* With cuts_lock and the controller's lock held. */
static void withdraw(BatchflushController *c)
{
    if (c->cut) {
        cut_unref(c->cut);
        c->cut = NULL;
        batchflush_update_attention(c);
    }
}

void batchflush_controller_delist(BatchflushController *c)
{
    QEMU_LOCK_GUARD(&cuts_lock);
    WITH_QEMU_LOCK_GUARD(&c->lock) {
        withdraw(c);
    }
    QLIST_REMOVE(c, everywhere);
}

void batchflush_cut_forget(BatchflushController *c,
                           const BDRVBatchflushState *s)
{
    QEMU_LOCK_GUARD(&cuts_lock);
    QEMU_LOCK_GUARD(&c->lock);
    if (c->cut && (c->cut->node == s || c->n_nodes == 0)) {
        withdraw(c);
    }
}

void batchflush_cut_order_init(BatchflushCutOrder *order)
{
    *order = (BatchflushCutOrder) {
        .guest = BATCHFLUSH_CUT_GUEST_RESET,
        .when = BATCHFLUSH_CUT_MOMENT_NOW,
        .count = 1,
        .ns = -1,
    };
}

static BDRVBatchflushState *find_node(const char *node_name, Error **errp)
{
    BlockDriverState *bs = bdrv_find_node(node_name);
    BDRVBatchflushState *s;

    if (!bs) {
        error_setg(errp, "node-name=%s is not known", node_name);
        return NULL;
    }
    s = batchflush_state(bs);
    if (!s) {
        error_setg(errp, "node-name=%s is a %s node; allowed is a batchflush "
                   "node", node_name, bs->drv->format_name);
    }
    return s;
}

static BatchflushController *find_controller(const char *id, Error **errp)
{
    BatchflushController *c = batchflush_controller_find(id, errp);

    if (c && c->n_nodes == 0) {
        error_setg(errp, "controller=%s has no nodes", id);
        return NULL;
    }
    return c;
}

GPtrArray *batchflush_controllers_named(const char *node_name,
                                        const char *controller, Error **errp)
{
    g_autoptr(GPtrArray) named = g_ptr_array_new();
    BatchflushController *c = NULL;
    BDRVBatchflushState *s;

    GLOBAL_STATE_CODE();
    if (node_name && controller) {
        error_setg(errp, "node-name=%s and controller=%s are both given; "
                   "allowed is one of them, or none", node_name, controller);
        return NULL;
    }
    if (node_name) {
        s = find_node(node_name, errp);
        c = s ? s->controller : NULL;
    } else if (controller) {
        c = find_controller(controller, errp);
    }
    if (c) {
        g_ptr_array_add(named, c);
    } else if (node_name || controller) {
        return NULL;
    } else {
        QEMU_LOCK_GUARD(&cuts_lock);
        QLIST_FOREACH(c, &controllers, everywhere) {
            if (c->n_nodes) {
                g_ptr_array_add(named, c);
            }
        }
    }
    if (!named->len) {
        error_setg(errp, "there is no batchflush node");
        return NULL;
    }
    return g_steal_pointer(&named);
}

strList *batchflush_node_names(const BatchflushController *c)
{
    BDRVBatchflushState *s;
    strList *names = NULL;

    QLIST_FOREACH(s, &c->nodes, next) {
        QAPI_LIST_PREPEND(names, g_strdup(bdrv_get_node_name(s->bs)));
    }
    return names;
}

static const char *any_node_name(const BatchflushController *c)
{
    return bdrv_get_node_name(QLIST_FIRST(&c->nodes)->bs);
}

/*
 * With cache=unsafe the block layer takes FUA from writes before we see
 * them, so that a cut would take what the guest was told is durable.
 */
static bool check_nodes(const BatchflushController *c, Error **errp)
{
    BDRVBatchflushState *s;

    QLIST_FOREACH(s, &c->nodes, next) {
        if (s->bs->open_flags & BDRV_O_NO_FLUSH) {
            error_setg(errp, "cache=unsafe of node '%s' loses FUA; allowed "
                       "for a power cut is cache.no-flush=off",
                       bdrv_get_node_name(s->bs));
            return false;
        }
        if (c->params.write_cache == BF_CACHE_VOLATILE &&
            batchflush_machine && batchflush_machine->loses_fua(s->bs)) {
            error_setg(errp, "node '%s' is behind nvme, which loses FUA; "
                       "allowed for a power cut are other devices, or "
                       "write-cache=none and battery",
                       bdrv_get_node_name(s->bs));
            return false;
        }
    }
    if (!c->params.power_cuts) {
        error_setg(errp, "power-cuts=off of node '%s' refuses power cuts; "
                   "allowed for one is power-cuts=on", any_node_name(c));
        return false;
    }
    return true;
}

/* Called with the lock held. */
static bool check_controller(const BatchflushController *c, Error **errp)
{
    if (!check_nodes(c, errp)) {
        return false;
    }
    if (c->power.off) {
        error_setg(errp, "the power of node '%s' is already cut",
                   any_node_name(c));
        return false;
    }
    if (c->cut) {
        error_setg(errp, "a power cut of node '%s' is waiting for its "
                   "moment; batchflush-power-restore withdraws it",
                   any_node_name(c));
        return false;
    }
    return true;
}

static bool check_order(const BatchflushCutOrder *order, Error **errp)
{
    bool counts = order->when == BATCHFLUSH_CUT_MOMENT_FLUSH ||
                  order->when == BATCHFLUSH_CUT_MOMENT_WRITE ||
                  order->when == BATCHFLUSH_CUT_MOMENT_IN_FLUSH;

    if (order->count < 1 || (order->count > 1 && !counts)) {
        error_setg(errp, "count=%" PRId64 " is not allowed with when=%s; "
                   "allowed is %s", order->count,
                   BatchflushCutMoment_str(order->when),
                   counts ? "1 or more" : "none");
        return false;
    }
    if (order->ns < 0 && order->when == BATCHFLUSH_CUT_MOMENT_TIME) {
        error_setg(errp, "when=time needs ns, 0 or more");
        return false;
    }
    if (order->has_seed && order->seed < 0) {
        error_setg(errp, "seed=%" PRId64 " is out of range; allowed are 0 to "
                   "%" PRId64, order->seed, INT64_MAX);
        return false;
    }
    return true;
}

static bool keep(uint64_t number, uint64_t unit, void *opaque)
{
    return bf_choice_keep(opaque, number, unit);
}

BatchflushSurvivors *batchflush_settle(BDRVBatchflushState *s,
                                       BfCutPolicy policy, uint64_t seed,
                                       bool held)
{
    const char *name = bdrv_get_node_name(s->bs);
    g_autoptr(GArray) numbers = bf_cut_writes(s->store, s->history);
    BatchflushSurvivors *info = g_new0(BatchflushSurvivors, 1);
    BfSurvivors survivors;
    BfChoice choice;

    bf_choice_init(&choice, policy, bf_choice_part_seed(seed, name),
                   s->completions, (uint64_t *)numbers->data, numbers->len,
                   bf_history_floor(s->history));
    if (held) {
        bf_choice_hold(&choice);
    }
    bf_cut(s->store, s->history, s->params.atomic_write_size, keep, &choice,
           &survivors);
    bf_completions_settle(s->completions);
    *info = (BatchflushSurvivors) {
        .node_name = g_strdup(name),
        .position = s->writes + s->flushes,
        .writes = s->writes,
        .flushes = s->flushes,
        .has_log_position = s->log,
        .log_position = s->log ? batchflush_log_position(s->log) : 0,
        .kept_bytes = survivors.kept_bytes,
        .lost_bytes = survivors.lost_bytes,
        .hash = g_strdup_printf("%016" PRIx64, survivors.hash),
    };
    bf_survivors_join(&s->survivors, &survivors);
    trace_batchflush_power_cut(s->bs, info->lost_bytes);
    return info;
}

/* What a cut has done, for those outside. */
typedef struct Report {
    BatchflushCutGuest guest;
    BfCutPolicy policy;
    uint64_t seed;
    BatchflushSurvivorsList *nodes;
} Report;

/* With cuts_lock and the controller's lock held. */
static void cut_controller(BatchflushController *c, Report *report)
{
    BDRVBatchflushState *s;

    withdraw(c);
    bf_power_cut(&c->power, &c->params, batchflush_now(c));
    c->cut_policy = report->policy;
    c->cut_seed = report->seed;
    c->restore_at_reset = report->guest == BATCHFLUSH_CUT_GUEST_RESET;
    QLIST_FOREACH(s, &c->nodes, next) {
        BatchflushSurvivors *info = batchflush_settle(s, report->policy,
                                                      report->seed,
                                                      c->power.held);

        s->overdue = false;
        QAPI_LIST_PREPEND(report->nodes, info);
    }
    batchflush_update_attention(c);
    batchflush_update_serving(c);
    batchflush_hold_up_begin(c);
}

static void tell(Report *report)
{
    qapi_event_send_batchflush_power_cut(
        report->guest, (BatchflushPowerCutPolicy)report->policy,
        report->seed, report->nodes);
    qapi_free_BatchflushSurvivorsList(report->nodes);
    if (batchflush_machine) {
        batchflush_machine->act(report->guest);
    }
}

/* The node's own policy and seed, unless the cut has some. */
static void settle_report(Report *report, const BatchflushCut *cut,
                          const BatchflushController *c)
{
    *report = (Report) {
        .guest = cut->guest,
        .policy = cut->has_policy ? cut->policy : c->params.power_cut_policy,
        .seed = cut->has_seed ? cut->seed
            : bf_choice_seed(QLIST_FIRST(&c->nodes)->params.seed,
                             c->power.epoch),
    };
}

/*
 * Cut all that it is about, with their locks held together.  Returns
 * false if somebody else has, or has withdrawn it.  With cuts_lock held.
 */
static bool fire(BatchflushCut *cut, BatchflushController *first,
                 Report *report)
{
    g_autoptr(GPtrArray) taken = g_ptr_array_new();
    BatchflushController *c;
    bool fires;

    QLIST_FOREACH(c, &controllers, everywhere) {
        qemu_mutex_lock(&c->lock);
        g_ptr_array_add(taken, c);
    }
    fires = first->cut == cut && first->n_nodes && !first->power.off;
    if (fires) {
        cut->refs++;
        settle_report(report, cut, first);
    }
    for (guint i = 0; i < taken->len; i++) {
        c = g_ptr_array_index(taken, i);
        if (fires && c->n_nodes && !c->power.off &&
            (c->cut == cut || cut->everything)) {
            cut_controller(c, report);
        }
        qemu_mutex_unlock(&c->lock);
    }
    if (fires) {
        cut_unref(cut);
    }
    return fires;
}

static void fire_and_tell(BatchflushCut *cut, BatchflushController *first)
{
    Report report;
    bool fired;

    WITH_QEMU_LOCK_GUARD(&cuts_lock) {
        fired = fire(cut, first, &report);
    }
    if (fired) {
        tell(&report);
    }
}

static void cut_timer_cb(void *opaque)
{
    BatchflushController *first = opaque;
    BatchflushCut *cut;

    WITH_QEMU_LOCK_GUARD(&first->lock) {
        cut = first->cut;
    }
    if (cut) {
        fire_and_tell(cut, first);
    }
}

static BatchflushCut *cut_new(const BatchflushCutOrder *order)
{
    BatchflushCut *cut = g_new0(BatchflushCut, 1);

    *cut = (BatchflushCut) {
        .everything = !order->node_name && !order->controller,
        .when = order->when,
        .left = order->count,
        .ns = order->ns,
        .guest = order->guest,
        .has_policy = order->has_policy,
        .policy = order->policy,
        .has_seed = order->has_seed,
        .seed = order->seed,
    };
    if (order->node_name) {
        cut->node = batchflush_state(bdrv_find_node(order->node_name));
    }
    return cut;
}

static void cut_wait(BatchflushCut *cut, GPtrArray *named)
{
    for (guint i = 0; i < named->len; i++) {
        BatchflushController *c = g_ptr_array_index(named, i);

        QEMU_LOCK_GUARD(&c->lock);
        c->cut = cut;
        cut->refs++;
        batchflush_update_attention(c);
    }
}

bool batchflush_cut(const BatchflushCutOrder *order, Error **errp)
{
    g_autoptr(GPtrArray) named = NULL;
    BatchflushController *first;
    BatchflushCut *cut;

    GLOBAL_STATE_CODE();
    named = batchflush_controllers_named(order->node_name, order->controller,
                                         errp);
    if (!named || !check_order(order, errp)) {
        return false;
    }
    for (guint i = 0; i < named->len; i++) {
        BatchflushController *c = g_ptr_array_index(named, i);

        QEMU_LOCK_GUARD(&c->lock);
        if (!check_controller(c, errp)) {
            return false;
        }
    }
    if (order->guest == BATCHFLUSH_CUT_GUEST_RESET && batchflush_machine) {
        batchflush_machine->prepare_reset();
    }
    cut = cut_new(order);
    first = g_ptr_array_index(named, 0);
    WITH_QEMU_LOCK_GUARD(&cuts_lock) {
        cut_wait(cut, named);
    }
    if (cut->when == BATCHFLUSH_CUT_MOMENT_NOW) {
        fire_and_tell(cut, first);
    } else if (cut->when == BATCHFLUSH_CUT_MOMENT_TIME) {
        cut->timer = timer_new_ns(first->clock, cut_timer_cb, first);
        timer_mod(cut->timer, batchflush_now(first) + cut->ns);
    }
    return true;
}

/* Whether the moment has come.  Called with the lock held. */
static bool has_come(BatchflushController *c, const BDRVBatchflushState *s,
                     BatchflushCutMoment moment)
{
    BatchflushCut *cut = c->cut;

    return cut && cut->when == moment && (!cut->node || cut->node == s) &&
           qatomic_fetch_dec(&cut->left) == 1;
}

void coroutine_fn batchflush_cut_moment(BDRVBatchflushState *s,
                                        BatchflushCutMoment moment)
{
    BatchflushController *c = s->controller;
    BatchflushCut *cut = c->cut;

    if (moment == BATCHFLUSH_CUT_MOMENT_FLUSH &&
        has_come(c, s, BATCHFLUSH_CUT_MOMENT_IN_FLUSH)) {
        c->cut_in_flush = true;
        return;
    }
    if (moment != BATCHFLUSH_CUT_MOMENT_IN_FLUSH &&
        !has_come(c, s, moment)) {
        return;
    }
    qemu_mutex_unlock(&c->lock);
    fire_and_tell(cut, c);
    qemu_mutex_lock(&c->lock);
}

bool batchflush_cut_in_flush(BatchflushController *c, int64_t flush_ns,
                             int64_t *after_ns)
{
    bool cuts = c->cut_in_flush;

    c->cut_in_flush = false;
    if (!cuts || !c->cut) {
        return false;
    }
    *after_ns = c->cut->ns < 0 ? flush_ns / 2 : MIN(c->cut->ns, flush_ns);
    return true;
}

BatchflushPendingCut *batchflush_cut_pending(const BatchflushController *c)
{
    BatchflushPendingCut *pending;

    if (!c->cut) {
        return NULL;
    }
    pending = g_new0(BatchflushPendingCut, 1);
    *pending = (BatchflushPendingCut) {
        .when = c->cut->when,
        .count = qatomic_read(&c->cut->left),
        .guest = c->cut->guest,
    };
    return pending;
}

bool batchflush_cut_withdraw(BatchflushController *c)
{
    bool waited;

    QEMU_LOCK_GUARD(&cuts_lock);
    QEMU_LOCK_GUARD(&c->lock);
    waited = c->cut;
    withdraw(c);
    return waited;
}
