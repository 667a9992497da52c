/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands of the batchflush node */

#include "qemu/osdep.h"
#include "block/block.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-batchflush.h"
#include "qapi/util.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "qobject/qdict.h"

#include "outage.h"

void qmp_batchflush_power_cut(const char *node_name, const char *controller,
                              bool has_guest, BatchflushCutGuest guest,
                              bool has_when, BatchflushCutMoment when,
                              bool has_count, int64_t count,
                              bool has_ns, int64_t ns,
                              bool has_policy,
                              BatchflushPowerCutPolicy policy,
                              bool has_seed, int64_t seed, Error **errp)
{
    BatchflushCutOrder order;

    batchflush_cut_order_init(&order);
    order.node_name = node_name;
    order.controller = controller;
    order.guest = has_guest ? guest : order.guest;
    order.when = has_when ? when : order.when;
    order.count = has_count ? count : order.count;
    order.has_policy = has_policy;
    order.policy = (BfCutPolicy)policy;
    order.has_seed = has_seed;
    order.seed = seed;
    if (has_ns) {
        if (ns < 0) {
            error_setg(errp, "ns=%" PRId64 " is out of range; allowed are 0 "
                       "to %" PRId64, ns, INT64_MAX);
            return;
        }
        order.ns = ns;
    }
    batchflush_cut(&order, errp);
}

void qmp_batchflush_power_restore(const char *node_name,
                                  const char *controller, Error **errp)
{
    batchflush_restore(node_name, controller, errp);
}

static bool check_hold_up(int64_t hold_up_ns, Error **errp)
{
    g_autofree char *text = g_strdup_printf("%" PRId64, hold_up_ns);
    g_autofree char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    if (!bf_params_set(&params, "battery-hold-up-ns", text, &error)) {
        error_setg(errp, "%s", error);
        return false;
    }
    return true;
}

void qmp_batchflush_battery(const char *node_name, const char *controller,
                            bool has_state, BatchflushBatteryState state,
                            bool has_hold_up_ns, int64_t hold_up_ns,
                            Error **errp)
{
    g_autoptr(GPtrArray) named = NULL;
    BfBattery battery = (BfBattery)state;

    named = batchflush_controllers_named(node_name, controller, errp);
    if (!named || (has_hold_up_ns && !check_hold_up(hold_up_ns, errp))) {
        return;
    }
    for (guint i = 0; i < named->len; i++) {
        if (!batchflush_set_battery(g_ptr_array_index(named, i),
                                    has_state ? &battery : NULL,
                                    has_hold_up_ns ? &hold_up_ns : NULL,
                                    errp)) {
            return;
        }
    }
}

/* Called with the lock held. */
static void add_battery(BatchflushNodeInfo *info,
                        const BatchflushController *c)
{
    int64_t end = bf_power_hold_up_end(&c->power, &c->params);

    if (c->params.write_cache != BF_CACHE_BATTERY) {
        return;
    }
    info->has_battery = true;
    info->battery = (BatchflushBatteryState)c->power.battery;
    info->has_hold_up_ns = true;
    info->hold_up_ns = c->params.battery_hold_up_ns;
    if (end != BF_NEVER) {
        info->has_hold_up_left_ns = true;
        info->hold_up_left_ns = MAX(end - batchflush_now(c), 0);
    }
}

/* Called with the lock held. */
static void add_configuration(BatchflushNodeInfo *info,
                              const BDRVBatchflushState *s)
{
    AioContext *ctx = bdrv_get_aio_context(s->bs);
    QEMUClockType clock = batchflush_serving_clock(s->controller);

    info->profile = g_strdup(qdict_get_try_str(s->bs->options, "profile"));
    info->cache_size = s->store ? bf_store_capacity(s->store) : 0;
    info->flush_concurrency =
        (BatchflushFlushConcurrency)s->params.flush_concurrency;
    info->coalesce = (BatchflushCoalesce)s->params.coalesce;
    info->clock = clock == QEMU_CLOCK_VIRTUAL ? BATCHFLUSH_CLOCK_VIRTUAL
                                              : BATCHFLUSH_CLOCK_REALTIME;
    info->now_ns = qemu_clock_get_ns(clock);
    info->main_loop = ctx == qemu_get_aio_context();
    info->spin_max_ns = s->params.spin_max_ns;
    info->max_lateness_ns = s->params.max_lateness_ns;
}

/* Called with the lock held. */
static BatchflushNodeInfo *node_info(const BDRVBatchflushState *s)
{
    const BatchflushController *c = s->controller;
    BatchflushNodeInfo *info = g_new0(BatchflushNodeInfo, 1);
    uint64_t dirty = s->store ? bf_store_dirty(s->store) : 0;
    bool waits = c->power.off && !c->power.held;

    *info = (BatchflushNodeInfo) {
        .node_name = g_strdup(bdrv_get_node_name(s->bs)),
        .controller = g_strdup(c->id),
        .write_cache = (BatchflushWriteCache)s->params.write_cache,
        .powered = !c->power.off,
        .power_cuts = c->power.epoch,
        .pending_cut = batchflush_cut_pending(c),
        .dirty_bytes = waits ? 0 : dirty,
        .survivor_bytes = bf_survivors_bytes(&s->survivors) +
                          (waits ? dirty : 0),
        .lie = (BatchflushLie)s->params.lie,
        .position = s->writes + s->flushes,
        .writes = s->writes,
        .flushes = s->flushes,
        .reads = s->reads,
    };
    if (s->history) {
        info->undo_bytes = bf_history_before_bytes(s->history);
        info->history_bytes = bf_history_version_bytes(s->history);
        info->history_forgotten_bytes =
            bf_history_forgotten_bytes(s->history);
    }
    add_battery(info, c);
    add_configuration(info, s);
    return info;
}

BatchflushNodeInfoList *qmp_query_batchflush(Error **errp)
{
    BatchflushNodeInfoList *list = NULL;
    BlockDriverState *bs = NULL;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    while ((bs = bdrv_next_node(bs))) {
        BDRVBatchflushState *s = batchflush_state(bs);

        if (s) {
            QEMU_LOCK_GUARD(&s->controller->lock);
            QAPI_LIST_PREPEND(list, node_info(s));
        }
    }
    return list;
}
