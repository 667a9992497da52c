/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * batchflush: a disk whose flush latency and write cache are chosen
 *
 * A format-like node over one child.  It is no filter: with a dirty
 * cache its child holds other data, and block jobs must not bypass it.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "block/coroutines.h"
#include "block/snapshot.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "qobject/qdict.h"

#include "outage.h"
#include "trace.h"

/* Largest write in a log, which holds it in memory. */
#define LOGGED_MAX (16 * MiB)

static BlockDriver bdrv_batchflush;

BDRVBatchflushState *batchflush_state(BlockDriverState *bs)
{
    return bs->drv == &bdrv_batchflush ? bs->opaque : NULL;
}

int64_t batchflush_node_flush_time(const BDRVBatchflushState *s)
{
    return s->flush_time.sampled ? s->flush_time.value
                                 : bf_params_expected_flush_ns(&s->params);
}

static bool open_store(BDRVBatchflushState *s, Error **errp)
{
    uint64_t size = s->params.cache_size;
    uint64_t memory = qemu_get_host_physmem();

    if (s->params.write_cache == BF_CACHE_NONE) {
        return true;
    }
    if (memory && size > memory) {
        error_setg(errp, "cache-size=%" PRIu64 " is more than the host's "
                   "memory; allowed are up to %" PRIu64 " bytes here",
                   size, memory);
        return false;
    }
    s->store = bf_store_new(size, false);
    if (!s->store) {
        error_setg_errno(errp, errno, "cache-size=%" PRIu64 " cannot be "
                         "allocated; allowed is what the host has free",
                         size);
        return false;
    }
    return true;
}

static void open_history(BDRVBatchflushState *s)
{
    if (!s->params.power_cuts) {
        return;
    }
    s->history = bf_history_new(s->params.power_cut_history_size);
    s->completions = bf_completions_new();
    if (s->store) {
        bf_store_set_history(s->store, s->history);
    }
}

/* What a node holds of its data, unless it is NULL. */
static void free_data(BDRVBatchflushState *s)
{
    bf_store_free(s->store);
    bf_history_free(s->history);
    bf_completions_free(s->completions);
    bf_survivors_destroy(&s->survivors);
    batchflush_battery_file_close(s->battery_file);
}

/* The block layer would refuse it without saying which node it means. */
static bool check_child_writable(QDict *options, int flags, Error **errp)
{
    const char *name = qdict_get_try_str(options, "file");
    BlockDriverState *child = name ? bdrv_find_node(name) : NULL;

    if (child && bdrv_is_read_only(child) && (flags & BDRV_O_RDWR)) {
        error_setg(errp, "file=%s is read-only; allowed is a writable node, "
                   "or read-only=on for this one", name);
        return false;
    }
    return true;
}

/* Behind the controller that is named, or one of its own. */
static bool open_controller(BDRVBatchflushState *s, const char *id,
                            Error **errp)
{
    BatchflushController *c = id ? batchflush_controller_find(id, errp)
                                 : batchflush_controller_new(NULL);
    bool ok = c && batchflush_controller_attach(c, s, errp);

    if (c && !id) {
        batchflush_controller_unref(c);
    }
    return ok;
}

static bool open_log(BDRVBatchflushState *s, const char *filename,
                     Error **errp)
{
    int64_t size;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    if (!filename) {
        return true;
    }
    size = bdrv_getlength(s->bs->file->bs);
    if (size < 0) {
        error_setg_errno(errp, -size, "log=%s: the size of the disk is not "
                         "known", filename);
        return false;
    }
    s->log = batchflush_log_new(filename, bdrv_get_node_name(s->bs), size,
                                s->params.write_cache, errp);
    return s->log;
}

/* What the battery has kept is on the medium before anybody reads. */
static bool empty_battery_file(BDRVBatchflushState *s, int flags,
                               Error **errp)
{
    uint64_t held = batchflush_battery_file_held(s->battery_file);
    const char *filename = batchflush_battery_file_name(s->battery_file);
    int ret;

    if (!held) {
        return true;
    }
    if (!(flags & BDRV_O_RDWR) || (flags & BDRV_O_INACTIVE)) {
        error_setg(errp, "battery-file=%s holds %" PRIu64 " bytes of this "
                   "disk; allowed is read-only=off, so that they can be "
                   "destaged", filename, held);
        return false;
    }
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    ret = batchflush_battery_file_destage(s->battery_file, s->bs->file);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "battery-file=%s holds %" PRIu64
                         " bytes that cannot be destaged", filename, held);
    }
    return ret == 0;
}

static bool open_battery_file(BDRVBatchflushState *s, const char *filename,
                              int flags, Error **errp)
{
    int64_t size;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    if (!filename) {
        return true;
    }
    size = bdrv_getlength(s->bs->file->bs);
    if (size < 0) {
        error_setg_errno(errp, -size, "battery-file=%s: the size of the disk "
                         "is not known", filename);
        return false;
    }
    s->battery_file = batchflush_battery_file_open(filename, size, errp);
    return s->battery_file && empty_battery_file(s, flags, errp);
}

/* What a stroke of the head spans, if there is one. */
static uint64_t child_length(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    return MAX(bdrv_getlength(bs->file->bs), 0);
}

static void take_zero_flags(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    bs->supported_zero_flags = BDRV_REQ_WRITE_UNCHANGED | BDRV_REQ_FUA |
        ((BDRV_REQ_MAY_UNMAP | BDRV_REQ_NO_FALLBACK) &
         bs->file->bs->supported_zero_flags);
}

static int batchflush_open(BlockDriverState *bs, QDict *options, int flags,
                           Error **errp)
{
    BDRVBatchflushState *s = bs->opaque;
    g_autofree char *controller = NULL;
    g_autofree char *log = NULL;
    g_autofree char *battery_file = NULL;
    int ret;

    GLOBAL_STATE_CODE();
    s->bs = bs;
    qemu_co_queue_init(&s->turns);
    QTAILQ_INIT(&s->asking);
    qemu_co_queue_init(&s->changes);
    qemu_co_queue_init(&s->sweep_ends);
    if (!check_child_writable(options, flags, errp)) {
        return -EINVAL;
    }
    ret = bdrv_open_file_child(NULL, options, "file", bs, errp);
    if (ret < 0) {
        return ret;
    }
    if (!batchflush_options_parse(options, &s->params, &controller, &log,
                                  &battery_file, errp) ||
        !open_battery_file(s, battery_file, flags, errp) ||
        !open_store(s, errp)) {
        free_data(s);
        return -EINVAL;
    }
    open_history(s);
    s->pass_through = bf_params_pass_through(&s->params);
    bf_service_init(&s->service, &s->params, child_length(bs));
    s->drained = bs->quiesce_counter > 0;
    if (!open_log(s, log, errp) || !open_controller(s, controller, errp)) {
        if (s->log) {
            batchflush_log_free(s->log);
            unlink(log);
        }
        bf_service_destroy(&s->service);
        free_data(s);
        return -EINVAL;
    }
    s->background = batchflush_background_new(s);

    bs->supported_write_flags = BDRV_REQ_WRITE_UNCHANGED | BDRV_REQ_FUA;
    take_zero_flags(bs);
    trace_batchflush_open(bs, s->params.write_cache);
    return 0;
}

/* What a cut has left is on the medium when the process ends. */
static void close_survivors(BDRVBatchflushState *s)
{
    int ret;

    if (!qatomic_read(&s->controller->power.off) ||
        batchflush_save_at_close(s)) {
        return;
    }
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    ret = batchflush_apply_survivors(s);
    if (ret < 0) {
        error_report("batchflush: node '%s': what survived the power cut "
                     "cannot be written to its file: %s",
                     bdrv_get_node_name(s->bs), strerror(-ret));
    }
}

static void batchflush_close(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    uint64_t lost;

    GLOBAL_STATE_CODE();
    close_survivors(s);
    lost = s->store ? bf_store_dirty(s->store) : 0;
    /* bdrv_close() has flushed us while we were drained. */
    if (lost) {
        error_report("batchflush: node '%s': %" PRIu64 " bytes in the write "
                     "cache could not be written to its file and are lost",
                     bdrv_get_node_name(bs), lost);
    }
    batchflush_background_close(s->background);
    WITH_QEMU_LOCK_GUARD(&s->controller->lock) {
        batchflush_destage_not_later(s);
    }
    batchflush_controller_detach(s);
    batchflush_log_free(s->log);
    qemu_vfree(s->destage_buffer);
    qemu_vfree(s->before_buffer);
    free_data(s);
    bf_service_destroy(&s->service);
}

/* Refuse new values of options that are fixed while the node is open. */
static bool check_immutable(const BfParams *old, const BfParams *new,
                            Error **errp)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        g_autofree char *before = bf_params_get(old, &bf_options[i]);
        g_autofree char *after = bf_params_get(new, &bf_options[i]);

        if (!bf_options[i].mutable_at_runtime && strcmp(before, after)) {
            error_setg(errp, "%s=%s cannot be set while the node is open; "
                       "allowed is %s", bf_options[i].name, after, before);
            return false;
        }
    }
    return true;
}

static bool check_controller(const BDRVBatchflushState *s, const char *id,
                             Error **errp)
{
    const char *current = s->controller->id;

    if (g_strcmp0(id, current)) {
        error_setg(errp, "controller=%s cannot be set while the node is "
                   "open; allowed is %s", id ?: "(none)",
                   current ?: "(none)");
        return false;
    }
    return true;
}

static bool check_log(const BDRVBatchflushState *s, const char *filename,
                      Error **errp)
{
    const char *current = s->log ? batchflush_log_filename(s->log) : NULL;

    if (g_strcmp0(filename, current)) {
        error_setg(errp, "log=%s cannot be set while the node is open; "
                   "allowed is %s", filename ?: "(none)",
                   current ?: "(none)");
        return false;
    }
    return true;
}

static bool check_battery_file(const BDRVBatchflushState *s,
                               const char *filename, Error **errp)
{
    const char *current = s->battery_file
        ? batchflush_battery_file_name(s->battery_file) : NULL;

    if (g_strcmp0(filename, current)) {
        error_setg(errp, "battery-file=%s cannot be set while the node is "
                   "open; allowed is %s", filename ?: "(none)",
                   current ?: "(none)");
        return false;
    }
    return true;
}

/* A log is one medium's. */
static bool check_medium(const BDRVBatchflushState *s, QDict *options,
                         Error **errp)
{
    const char *name = qdict_get_try_str(options, "file");

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    if (s->log && name && bdrv_find_node(name) != s->bs->file->bs) {
        error_setg(errp, "file=%s cannot be set while the node has a log; "
                   "allowed is %s", name,
                   bdrv_get_node_name(s->bs->file->bs));
        return false;
    }
    return true;
}

static int batchflush_reopen_prepare(BDRVReopenState *state,
                                     BlockReopenQueue *queue, Error **errp)
{
    BDRVBatchflushState *s = state->bs->opaque;
    g_autofree BfParams *params = g_new(BfParams, 1);
    g_autofree char *controller = NULL;
    g_autofree char *log = NULL;
    g_autofree char *battery_file = NULL;

    GLOBAL_STATE_CODE();
    if (!batchflush_options_parse(state->options, params, &controller, &log,
                                  &battery_file, errp) ||
        !check_controller(s, controller, errp) ||
        !check_log(s, log, errp) ||
        !check_battery_file(s, battery_file, errp) ||
        !check_medium(s, state->options, errp) ||
        !check_immutable(&s->params, params, errp)) {
        return -EINVAL;
    }
    state->opaque = g_steal_pointer(&params);
    return 0;
}

static void batchflush_reopen_commit(BDRVReopenState *state)
{
    BDRVBatchflushState *s = state->bs->opaque;
    g_autofree BfParams *params = state->opaque;

    GLOBAL_STATE_CODE();
    take_zero_flags(state->bs);
    QEMU_LOCK_GUARD(&s->controller->lock);
    s->params = *params;
    bf_service_update(&s->service);
    s->pass_through = bf_params_pass_through(params);
    batchflush_controller_update(s);
}

static void batchflush_reopen_abort(BDRVReopenState *state)
{
    g_free(state->opaque);
}

/*
 * Called for the first of nested drains, and after the last.  Attaching
 * the child drains us before there is a controller, and we may be
 * opened while drained (loadvm): hence a state and no count.
 */
static void set_drained(BDRVBatchflushState *s, bool drained)
{
    BatchflushController *c = s->controller;

    if (!c) {
        return;
    }
    QEMU_LOCK_GUARD(&c->lock);
    if (s->drained != drained) {
        s->drained = drained;
        c->drained += drained ? 1 : -1;
        batchflush_update_serving(c);
        batchflush_kick_destage(c);
    }
}

static void batchflush_drain_begin(BlockDriverState *bs)
{
    set_drained(bs->opaque, true);
}

static void batchflush_drain_end(BlockDriverState *bs)
{
    set_drained(bs->opaque, false);
}

static void GRAPH_RDLOCK
batchflush_refresh_limits(BlockDriverState *bs, Error **errp)
{
    BDRVBatchflushState *s = bs->opaque;

    if (s->pass_through && !s->log) {
        return;
    }
    /* The store, the model and the log count in sectors. */
    bs->bl.request_alignment = MAX(bs->bl.request_alignment, BF_SECTOR_SIZE);
    if (s->log) {
        bs->bl.max_transfer = MIN_NON_ZERO(bs->bl.max_transfer, LOGGED_MAX);
    }
}

static int64_t coroutine_fn GRAPH_RDLOCK
batchflush_co_getlength(BlockDriverState *bs)
{
    return bdrv_co_getlength(bs->file->bs);
}

/*
 * What only the cache holds counts, perhaps twice.  Without it qcow2 on
 * top would find its clusters preallocated, and holes in them.
 */
static int64_t coroutine_fn GRAPH_RDLOCK
batchflush_co_get_allocated_file_size(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    int64_t size = bdrv_co_get_allocated_file_size(bs->file->bs);

    if (size >= 0 && s->store) {
        QEMU_LOCK_GUARD(&s->controller->lock);
        size += bf_store_used(s->store);
    }
    return size;
}

static int coroutine_fn GRAPH_RDLOCK
batchflush_co_get_info(BlockDriverState *bs, BlockDriverInfo *bdi)
{
    return bdrv_co_get_info(bs->file->bs, bdi);
}

/* Drained, a flush brings any kind of cache to the child. */
static int GRAPH_RDLOCK drain_and_flush(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;
    int ret;

    bdrv_drained_begin(bs);
    ret = bdrv_flush(bs);
    bdrv_drained_end(bs);
    if (ret == 0 && s->store && bf_store_dirty(s->store)) {
        ret = -EIO;
    }
    return ret;
}

static int GRAPH_RDLOCK batchflush_inactivate(BlockDriverState *bs)
{
    BDRVBatchflushState *s = bs->opaque;

    GLOBAL_STATE_CODE();
    if (qatomic_read(&s->controller->power.off)) {
        return -EIO;
    }
    return s->store && bf_store_dirty(s->store) ? drain_and_flush(bs) : 0;
}

/* Our child holds all we have once it is drained. */
static int GRAPH_RDLOCK
batchflush_snapshot_create(BlockDriverState *bs, QEMUSnapshotInfo *info)
{
    int ret = drain_and_flush(bs);

    GLOBAL_STATE_CODE();
    return ret < 0 ? ret : bdrv_snapshot_create(bs->file->bs, info);
}

/* For savevm, which believes that whoever has snapshots can do this. */
static int coroutine_fn GRAPH_RDLOCK
batchflush_co_save_vmstate(BlockDriverState *bs, QEMUIOVector *qiov,
                           int64_t pos)
{
    BlockDriverState *child = bs->file->bs;
    int ret = bdrv_co_writev_vmstate(child, qiov, pos);

    if (ret == -ENOTSUP) {
        error_report("batchflush: node '%s': its file takes no snapshots; "
                     "one of format qcow2 does", bdrv_get_node_name(bs));
    }
    return ret;
}

static BlockDriver bdrv_batchflush = {
    .format_name                = "batchflush",
    .instance_size              = sizeof(BDRVBatchflushState),
    .is_format                  = true,
    .supports_concurrent_flush  = true,

    .bdrv_open                  = batchflush_open,
    .bdrv_close                 = batchflush_close,
    .bdrv_reopen_prepare        = batchflush_reopen_prepare,
    .bdrv_reopen_commit         = batchflush_reopen_commit,
    .bdrv_reopen_abort          = batchflush_reopen_abort,
    .bdrv_child_perm            = bdrv_default_perms,
    .bdrv_refresh_limits        = batchflush_refresh_limits,
    .bdrv_inactivate            = batchflush_inactivate,
    .bdrv_snapshot_create       = batchflush_snapshot_create,
    .bdrv_co_save_vmstate       = batchflush_co_save_vmstate,
    .bdrv_get_specific_stats    = batchflush_get_specific_stats,

    .bdrv_drain_begin           = batchflush_drain_begin,
    .bdrv_drain_end             = batchflush_drain_end,

    .bdrv_co_getlength          = batchflush_co_getlength,
    .bdrv_co_get_allocated_file_size =
                                  batchflush_co_get_allocated_file_size,
    .bdrv_co_get_info           = batchflush_co_get_info,
    .bdrv_co_preadv_part        = batchflush_co_preadv_part,
    .bdrv_co_pwritev_part       = batchflush_logged_pwritev_part,
    .bdrv_co_pwrite_zeroes      = batchflush_logged_pwrite_zeroes,
    .bdrv_co_pdiscard           = batchflush_logged_pdiscard,
    .bdrv_co_flush              = batchflush_logged_flush,
    .bdrv_co_truncate           = batchflush_logged_truncate,
    .bdrv_co_block_status       = batchflush_co_block_status,
};

static void bdrv_batchflush_init(void)
{
    batchflush_options_init(&bdrv_batchflush);
    bdrv_register(&bdrv_batchflush);
}

block_init(bdrv_batchflush_init);
