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

void qmp_batchflush_power_cut(const char *node_name, Error **errp)
{
    BDRVBatchflushState *s = find_node(node_name, errp);
    BatchflushController *c;
    uint64_t lost;

    if (!s) {
        return;
    }
    c = s->controller;
    WITH_QEMU_LOCK_GUARD(&c->lock) {
        if (!bf_power_cut(&c->power)) {
            error_setg(errp, "the power of node '%s' is already cut",
                       node_name);
            return;
        }
        lost = lose_caches(c);
        batchflush_update_serving(c);
    }
    trace_batchflush_power_cut(s->bs, lost);

    /* Stalled writers find the power off and fail. */
    qemu_mutex_lock(&c->lock);
    qemu_co_enter_all(&c->room, &c->lock);
    qemu_mutex_unlock(&c->lock);
}

void qmp_batchflush_power_restore(const char *node_name, Error **errp)
{
    BDRVBatchflushState *s = find_node(node_name, errp);

    if (!s) {
        return;
    }
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
