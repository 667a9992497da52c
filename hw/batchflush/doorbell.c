/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The doorbell: a guest cuts its own power */

#include "qemu/osdep.h"
#include "qemu/bitops.h"
#include "qemu/log.h"
#include "qapi/error.h"

#include "block/batchflush/outage.h"
#include "doorbell.h"
#include "trace.h"

void batchflush_doorbell_reset(BatchflushDoorbell *bell)
{
    *bell = (BatchflushDoorbell) {
        .policy = BFC_POLICY_OF_NODE,
        .seed = BFC_SEED_DRAWN,
    };
}

static uint64_t *bell_register(BatchflushDoorbell *bell, uint64_t offset)
{
    switch (offset) {
    case BFC_CUT_POLICY:
        return &bell->policy;
    case BFC_CUT_SEED:
        return &bell->seed;
    case BFC_CUT_GUEST:
        return &bell->guest;
    case BFC_CUT_SCOPE:
        return &bell->scope;
    default:
        return NULL;
    }
}

uint64_t batchflush_doorbell_read(const BatchflushDoorbell *bell,
                                  uint64_t offset)
{
    const uint64_t *value = bell_register((BatchflushDoorbell *)bell,
                                          offset);

    if (value) {
        return *value;
    }
    return offset == BFC_CUT_RESULT ? bell->result : 0;
}

static bool check_register(const char *name, uint64_t value, uint64_t limit,
                           Error **errp)
{
    if (value >= limit) {
        error_setg(errp, "%s=%" PRIu64 " is out of range; allowed are 0 to "
                   "%" PRIu64, name, value, limit - 1);
        return false;
    }
    return true;
}

static bool check_scope(const BatchflushDoorbell *bell,
                        const char *node_name, Error **errp)
{
    if (!check_register("CUT_SCOPE", bell->scope, BFC_SCOPE__MAX, errp)) {
        return false;
    }
    if (bell->scope == BFC_SCOPE_SELECTED && !node_name) {
        error_setg(errp, "CUT_SCOPE=%u needs a disk that SELECTOR selects",
                   BFC_SCOPE_SELECTED);
        return false;
    }
    return true;
}

static bool cut(const BatchflushDoorbell *bell, const char *node_name,
                Error **errp)
{
    BatchflushCutOrder order;

    if (!check_scope(bell, node_name, errp) ||
        !check_register("CUT_GUEST", bell->guest,
                        BATCHFLUSH_CUT_GUEST__MAX, errp) ||
        (bell->policy != BFC_POLICY_OF_NODE &&
         !check_register("CUT_POLICY", bell->policy,
                         BATCHFLUSH_POWER_CUT_POLICY__MAX, errp))) {
        return false;
    }
    batchflush_cut_order_init(&order);
    order.node_name = bell->scope == BFC_SCOPE_SELECTED ? node_name : NULL;
    order.guest = bell->guest;
    order.has_policy = bell->policy != BFC_POLICY_OF_NODE;
    order.policy = bell->policy;
    order.has_seed = bell->seed != BFC_SEED_DRAWN;
    order.seed = bell->seed;
    return batchflush_cut(&order, errp);
}

static bool restore(const BatchflushDoorbell *bell, const char *node_name,
                    Error **errp)
{
    return check_scope(bell, node_name, errp) &&
           batchflush_restore(bell->scope == BFC_SCOPE_SELECTED
                              ? node_name : NULL, NULL, errp);
}

static void ring(BatchflushDoorbell *bell, uint64_t offset,
                 const char *node_name)
{
    Error *error = NULL;
    bool ok = offset == BFC_CUT ? cut(bell, node_name, &error)
                                : restore(bell, node_name, &error);

    bell->result = ok ? BFC_RESULT_DONE : BFC_RESULT_REFUSED;
    trace_batchflush_control_ring(offset, bell->policy, bell->seed,
                                  bell->result);
    if (error) {
        qemu_log_mask(LOG_GUEST_ERROR, "batchflush-control: %s\n",
                      error_get_pretty(error));
        error_free(error);
    }
}

bool batchflush_doorbell_write(BatchflushDoorbell *bell, uint64_t offset,
                               uint64_t value, unsigned size,
                               const char *node_name)
{
    unsigned half = offset % sizeof(value);
    uint64_t *number = bell_register(bell, offset - half);

    if (number) {
        *number = deposit64(*number, half * 8, size * 8, value);
        return true;
    }
    if (offset == BFC_CUT || offset == BFC_RESTORE) {
        ring(bell, offset, node_name);
        return true;
    }
    return false;
}
