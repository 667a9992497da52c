/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Commands of the batchflush node */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/block.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-batchflush.h"
#include "qemu/main-loop.h"

#include "batchflush.h"
#include "trace.h"

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

/*
 * With cache=unsafe the block layer takes FUA from writes before we see
 * them, so that a cut would take what the guest was told is durable.
 */
static bool check_fua(const BatchflushController *c, Error **errp)
{
    BDRVBatchflushState *s;

    QLIST_FOREACH(s, &c->nodes, next) {
        if (s->bs->open_flags & BDRV_O_NO_FLUSH) {
            error_setg(errp, "cache=unsafe of node '%s' loses FUA; allowed "
                       "for a power cut is cache.no-flush=off",
                       bdrv_get_node_name(s->bs));
            return false;
        }
    }
    return true;
}

/* The disks of a controller have one power supply and one cache. */
static uint64_t lose_caches(BatchflushController *c)
{
    BDRVBatchflushState *s;
    uint64_t lost = 0;

    QLIST_FOREACH(s, &c->nodes, next) {
        if (s->store && !bf_power_cache_survives(&c->params)) {
            lost += bf_store_dirty(s->store);
            bf_store_drop_all(s->store);
        }
    }
    return lost;
}

void qmp_batchflush_power_cut(const char *node_name, const char *controller,
                              bool has_guest, BatchflushCutGuest guest,
                              bool has_when, BatchflushCutMoment when,
                              bool has_count, int64_t count,
                              bool has_ns, int64_t ns,
                              bool has_policy,
                              BatchflushPowerCutPolicy policy,
                              bool has_seed, int64_t seed, Error **errp)
{
    BDRVBatchflushState *s;
    BatchflushController *c;
    uint64_t lost;

    if (!node_name || (has_when && when != BATCHFLUSH_CUT_MOMENT_NOW) ||
        (has_policy && policy != BATCHFLUSH_POWER_CUT_POLICY_DROP_ALL)) {
        error_setg(errp, "only a node's power can be cut, now, and with "
                   "policy=drop-all");
        return;
    }
    s = find_node(node_name, errp);
    if (!s) {
        return;
    }
    c = s->controller;
    WITH_QEMU_LOCK_GUARD(&c->lock) {
        if (!check_fua(c, errp)) {
            return;
        }
        if (!bf_power_cut(&c->power)) {
            error_setg(errp, "the power of node '%s' is already cut",
                       node_name);
            return;
        }
        lost = lose_caches(c);
        batchflush_update_serving(c);
    }
    trace_batchflush_power_cut(s->bs, lost);
}

void qmp_batchflush_power_restore(const char *node_name,
                                  const char *controller, Error **errp)
{
    BDRVBatchflushState *s = node_name ? find_node(node_name, errp) : NULL;

    if (!s) {
        return;
    }
    /* Nothing from before the cut may reach a medium afterwards. */
    bdrv_drain_all();
    WITH_QEMU_LOCK_GUARD(&s->controller->lock) {
        if (!bf_power_restore(&s->controller->power)) {
            error_setg(errp, "the power of node '%s' is on", node_name);
            return;
        }
        batchflush_update_serving(s->controller);
        batchflush_kick_destage(s->controller);
    }
    trace_batchflush_power_restore(s->bs);
}

void qmp_batchflush_battery(const char *node_name, const char *controller,
                            bool has_state, BatchflushBatteryState state,
                            bool has_hold_up_ns, int64_t hold_up_ns,
                            Error **errp)
{
    error_setg(errp, "batteries cannot be changed yet");
}

BatchflushNodeInfoList *qmp_query_batchflush(Error **errp)
{
    return NULL;
}
