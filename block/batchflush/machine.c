/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a power cut does to the guest: only where there is one */

#include "qemu/osdep.h"
#include "qemu/module.h"
#include "qom/object.h"
#include "system/block-backend.h"
#include "system/reset.h"
#include "system/runstate.h"

#include "outage.h"

static void machine_reset(void *opaque)
{
    batchflush_restore_at_reset();
}

static void prepare_reset(void)
{
    static bool registered;

    if (!registered) {
        qemu_register_reset(machine_reset, NULL);
        registered = true;
    }
}

static void act(BatchflushCutGuest guest)
{
    switch (guest) {
    case BATCHFLUSH_CUT_GUEST_RESET:
        qemu_system_reset_request(SHUTDOWN_CAUSE_HOST_QMP_SYSTEM_RESET);
        break;
    case BATCHFLUSH_CUT_GUEST_PAUSE:
        qemu_system_vmstop_request_prepare();
        qemu_system_vmstop_request(RUN_STATE_PAUSED);
        break;
    default:
        break;
    }
}

static bool GRAPH_RDLOCK is_below(BlockDriverState *top,
                                  const BlockDriverState *bs)
{
    BdrvChild *child;

    if (top == bs) {
        return true;
    }
    QLIST_FOREACH(child, &top->children, next) {
        if (is_below(child->bs, bs)) {
            return true;
        }
    }
    return false;
}

/* QEMU's nvme never looks at the bit. */
static bool loses_fua(BlockDriverState *bs)
{
    BlockBackend *blk = NULL;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    while ((blk = blk_all_next(blk))) {
        Object *device = OBJECT(blk_get_attached_dev(blk));

        if (device && blk_bs(blk) && is_below(blk_bs(blk), bs) &&
            (object_dynamic_cast(device, "nvme") ||
             object_dynamic_cast(device, "nvme-ns"))) {
            return true;
        }
    }
    return false;
}

static const BatchflushMachine machine = {
    .prepare_reset = prepare_reset,
    .act = act,
    .loses_fua = loses_fua,
};

static void there_is_a_machine(void)
{
    batchflush_machine = &machine;
}

block_init(there_is_a_machine);
