/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The way back from a power cut: hold-up, batteries, restoring */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qapi/qapi-events-batchflush.h"
#include "qapi/util.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/timer.h"
#include "qemu/units.h"

#include "outage.h"
#include "trace.h"

#define RUN_MAX (1 * MiB)

static int GRAPH_RDLOCK apply_patch(BDRVBatchflushState *s,
                                    const BfPatch *patch)
{
    return patch->data
        ? bdrv_pwrite(s->bs->file, patch->offset, patch->bytes, patch->data,
                      0)
        : bdrv_pwrite_zeroes(s->bs->file, patch->offset, patch->bytes, 0);
}

static int GRAPH_RDLOCK apply_patches(BDRVBatchflushState *s)
{
    GArray *patches = s->survivors.patches;
    int ret = 0;

    for (guint i = 0; ret == 0 && patches && i < patches->len; i++) {
        ret = apply_patch(s, &g_array_index(patches, BfPatch, i));
    }
    return ret;
}

/* What survived in a cache that no battery holds is on the medium. */
static int GRAPH_RDLOCK empty_cache(BDRVBatchflushState *s)
{
    g_autofree void *buffer = NULL;
    BfSweep *sweep;
    uint64_t offset;
    size_t bytes;
    int ret = 0;

    sweep = bf_store_sweep(s->store, 0, UINT64_MAX);
    if (!sweep) {
        return 0;
    }
    buffer = g_malloc(RUN_MAX);
    while (ret == 0 && (bytes = bf_sweep_next(s->store, sweep, buffer,
                                              RUN_MAX, &offset))) {
        ret = bdrv_pwrite(s->bs->file, offset, bytes, buffer, 0);
    }
    bf_store_sweep_done(s->store, sweep, ret == 0);
    bf_store_trim(s->store);
    return ret;
}

static int save(BDRVBatchflushState *s, bool held)
{
    BatchflushBatteryFile *file = s->battery_file;
    int ret = held ? batchflush_battery_file_save(file, &s->survivors,
                                                  s->store)
                   : batchflush_battery_file_clear(file);

    trace_batchflush_battery_file(s->bs, batchflush_battery_file_held(file),
                                  ret);
    if (ret < 0) {
        error_report("batchflush: node '%s': battery-file=%s cannot be "
                     "written: %s", bdrv_get_node_name(s->bs),
                     batchflush_battery_file_name(file), strerror(-ret));
    }
    return ret;
}

void batchflush_save_bh(void *opaque)
{
    BatchflushController *c = opaque;
    BDRVBatchflushState *s;

    QEMU_LOCK_GUARD(&c->lock);
    QLIST_FOREACH(s, &c->nodes, next) {
        /* With the power on, what they held is on its way. */
        if (s->battery_file && c->power.off) {
            save(s, c->power.held);
        }
    }
}

bool batchflush_save_at_close(BDRVBatchflushState *s)
{
    BatchflushController *c = s->controller;

    QEMU_LOCK_GUARD(&c->lock);
    if (!s->battery_file || !c->power.held || save(s, true) < 0) {
        return false;
    }
    bf_store_drop_all(s->store);
    return true;
}

int GRAPH_RDLOCK batchflush_apply_survivors(BDRVBatchflushState *s)
{
    int ret = apply_patches(s);

    if (ret == 0 && s->store && !s->controller->power.held) {
        ret = empty_cache(s);
    }
    if (ret == 0) {
        ret = bdrv_flush(s->bs->file->bs);
    }
    if (ret == 0) {
        bf_survivors_destroy(&s->survivors);
        if (s->battery_file) {
            save(s, false);
        }
    }
    return ret;
}

static bool apply_all(BatchflushController *c, Error **errp)
{
    BDRVBatchflushState *s;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    QLIST_FOREACH(s, &c->nodes, next) {
        int ret = batchflush_apply_survivors(s);

        if (ret < 0) {
            error_setg_errno(errp, -ret, "what survived on node '%s' cannot "
                             "be written to its file, and its power stays "
                             "off", bdrv_get_node_name(s->bs));
            return false;
        }
    }
    return true;
}

static void tell_restored(BatchflushController *c, Error *error)
{
    strList *names = batchflush_node_names(c);

    qapi_event_send_batchflush_power_restore(
        names, error ? error_get_pretty(error) : NULL);
    qapi_free_strList(names);
}

/* Its power is off, and nothing of it is under way. */
static bool restore_controller(BatchflushController *c, Error **errp)
{
    Error *error = NULL;

    if (apply_all(c, &error)) {
        QEMU_LOCK_GUARD(&c->lock);
        bf_power_restore(&c->power);
        batchflush_hold_up_end(c);
        batchflush_update_attention(c);
        batchflush_update_serving(c);
        batchflush_kick_destage(c);
        trace_batchflush_power_restore(c);
    }
    tell_restored(c, error);
    if (error) {
        error_propagate(errp, error);
        return false;
    }
    return true;
}

/* Nothing from before the cut may reach a medium afterwards. */
static void end_requests(void)
{
    bdrv_drain_all();
}

bool batchflush_restore(const char *node_name, const char *controller,
                        Error **errp)
{
    g_autoptr(GPtrArray) named = NULL;
    bool any = false;

    GLOBAL_STATE_CODE();
    named = batchflush_controllers_named(node_name, controller, errp);
    if (!named) {
        return false;
    }
    for (guint i = 0; i < named->len; i++) {
        any |= batchflush_cut_withdraw(g_ptr_array_index(named, i));
    }
    end_requests();
    /* The oldest first: what survived on a node is written to its child. */
    for (guint i = named->len; i-- > 0;) {
        BatchflushController *c = g_ptr_array_index(named, i);

        if (!qatomic_read(&c->power.off)) {
            continue;
        }
        any = true;
        if (!restore_controller(c, errp)) {
            return false;
        }
    }
    if (!any) {
        BatchflushController *c = g_ptr_array_index(named, 0);

        error_setg(errp, "the power of node '%s' is on",
                   bdrv_get_node_name(QLIST_FIRST(&c->nodes)->bs));
    }
    return any;
}

void batchflush_restore_at_reset(void)
{
    g_autoptr(GPtrArray) named = NULL;

    named = batchflush_controllers_named(NULL, NULL, NULL);
    if (!named) {
        return;
    }
    end_requests();
    for (guint i = named->len; i-- > 0;) {
        BatchflushController *c = g_ptr_array_index(named, i);

        if (qatomic_read(&c->power.off) && c->restore_at_reset) {
            /* The event says why it failed. */
            restore_controller(c, NULL);
        }
    }
}

static void tell_hold_up_over(BatchflushController *c)
{
    BatchflushSurvivorsList *nodes = NULL;
    BDRVBatchflushState *s;

    QLIST_FOREACH(s, &c->nodes, next) {
        QAPI_LIST_PREPEND(nodes, batchflush_settle(s, c->cut_policy,
                                                   c->cut_seed, false));
    }
    qapi_event_send_batchflush_hold_up_over(
        (BatchflushPowerCutPolicy)c->cut_policy, c->cut_seed, nodes);
    qapi_free_BatchflushSurvivorsList(nodes);
}

/* Called with the lock held. */
static void check_hold_up(BatchflushController *c)
{
    int64_t end = bf_power_hold_up_end(&c->power, &c->params);

    if (end == BF_NEVER) {
        batchflush_hold_up_end(c);
    } else if (end > batchflush_now(c)) {
        timer_mod(c->hold_up, end);
    } else {
        bf_power_hold_up_over(&c->power);
        tell_hold_up_over(c);
        batchflush_hold_up_end(c);
        qemu_bh_schedule(c->save_bh);
    }
}

static void hold_up_cb(void *opaque)
{
    BatchflushController *c = opaque;

    QEMU_LOCK_GUARD(&c->lock);
    check_hold_up(c);
}

void batchflush_hold_up_begin(BatchflushController *c)
{
    if (c->power.held) {
        qemu_bh_schedule(c->save_bh);
        c->hold_up = timer_new_ns(c->clock, hold_up_cb, c);
        check_hold_up(c);
    }
}

void batchflush_hold_up_end(BatchflushController *c)
{
    timer_free(c->hold_up);
    c->hold_up = NULL;
}

static void tell_battery(const BatchflushController *c)
{
    strList *names = batchflush_node_names(c);

    qapi_event_send_batchflush_battery(
        names, (BatchflushBatteryState)c->power.battery,
        c->params.battery_hold_up_ns);
    qapi_free_strList(names);
}

bool batchflush_set_battery(BatchflushController *c,
                            const BfBattery *battery,
                            const int64_t *hold_up_ns, Error **errp)
{
    BDRVBatchflushState *s;

    QEMU_LOCK_GUARD(&c->lock);
    if (c->params.write_cache != BF_CACHE_BATTERY) {
        error_setg(errp, "node '%s' has no battery; allowed is a node with "
                   "write-cache=battery",
                   bdrv_get_node_name(QLIST_FIRST(&c->nodes)->bs));
        return false;
    }
    if (battery) {
        c->power.battery = *battery;
    }
    if (hold_up_ns) {
        c->params.battery_hold_up_ns = *hold_up_ns;
        QLIST_FOREACH(s, &c->nodes, next) {
            s->params.battery_hold_up_ns = *hold_up_ns;
        }
    }
    tell_battery(c);
    if (c->power.held) {
        batchflush_hold_up_end(c);
        batchflush_hold_up_begin(c);
    }
    return true;
}
