/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a power cut does to the guest: only where there is one */

#include "qemu/osdep.h"
#include "qemu/module.h"
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

static const BatchflushMachine machine = {
    .prepare_reset = prepare_reset,
    .act = act,
};

static void there_is_a_machine(void)
{
    batchflush_machine = &machine;
}

block_init(there_is_a_machine);
