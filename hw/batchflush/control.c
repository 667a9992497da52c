/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The batchflush control device
 *
 * A PCI function through which a guest reads what its emulated disks
 * know about themselves, and cuts their power;
 * docs/specs/batchflush-control.rst.  It knows the nodes by name only
 * and keeps nothing of them in use.
 */

#include "qemu/osdep.h"
#include "qemu/bitops.h"
#include "qemu/log.h"
#include "qemu/module.h"
#include "qapi/error.h"
#include "hw/pci/pci_device.h"
#include "hw/qdev-properties.h"
#include "migration/vmstate.h"
#include "qom/object.h"

#include "block/batchflush/compat.h"
#include "block/batchflush/snapshot.h"
#include "doorbell.h"
#include "latch.h"
#include "trace.h"

#define TYPE_BATCHFLUSH_CONTROL "batchflush-control"
OBJECT_DECLARE_SIMPLE_TYPE(BatchflushControl, BATCHFLUSH_CONTROL)

/* Of Red Hat's range for QEMU, which has it unassigned. */
#define PCI_DEVICE_ID_REDHAT_BATCHFLUSH 0x00bf

#define NODES_ALLOWED "allowed are names of batchflush nodes, each once, " \
                      "separated by colons"

struct BatchflushControl {
    PCIDevice parent;
    MemoryRegion registers;

    char *nodes;                /* the property */
    char **names;
    uint64_t disks;

    uint64_t selector;
    BatchflushLatch latch;
    BatchflushDoorbell doorbell;
};

static void select_disk(BatchflushControl *s, uint64_t selector)
{
    s->selector = selector;
    batchflush_latch(&s->latch, s->names, selector);
}

static uint64_t register_value(const BatchflushControl *s, hwaddr offset)
{
    switch (offset) {
    case BFC_MAGIC:
        return BFC_MAGIC_VALUE;
    case BFC_VERSION:
        return BFC_VERSION_VALUE;
    case BFC_DISKS:
        return s->disks;
    case BFC_SELECTOR:
        return s->selector;
    case BFC_SLOWEST_NS:
        return s->latch.slowest_ns;
    case BFC_DISK ... BFC_DISK_END - 1:
        return s->latch.disk[(offset - BFC_DISK) / sizeof(uint64_t)];
    case BFC_DOORBELL ... BFC_DOORBELL_END - 1:
        return batchflush_doorbell_read(&s->doorbell, offset);
    default:
        return 0;
    }
}

static uint64_t control_read(void *opaque, hwaddr addr, unsigned size)
{
    hwaddr in_register = addr % sizeof(uint64_t);
    uint64_t value = register_value(opaque, addr - in_register);

    value = extract64(value, in_register * 8, size * 8);
    trace_batchflush_control_read(addr, value, size);
    return value;
}

static const char *selected_name(const BatchflushControl *s)
{
    return s->selector < s->disks ? s->names[s->selector] : NULL;
}

static void control_write(void *opaque, hwaddr addr, uint64_t value,
                          unsigned size)
{
    BatchflushControl *s = opaque;

    trace_batchflush_control_write(addr, value, size);
    if (addr == BFC_SELECTOR) {
        select_disk(s, value);
        return;
    }
    if (batchflush_doorbell_write(&s->doorbell, addr, value, size,
                                  selected_name(s))) {
        return;
    }
    qemu_log_mask(LOG_GUEST_ERROR, "batchflush-control: 0x%" PRIx64
                  " was written to offset 0x%" HWADDR_PRIx
                  ", which is read-only\n", value, addr);
}

static const MemoryRegionOps control_ops = {
    .read = control_read,
    .write = control_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid.min_access_size = 4,
    .valid.max_access_size = 8,
    .impl.min_access_size = 4,
    .impl.max_access_size = 8,
};

static bool check_name(const BatchflushControl *s, char **names, unsigned i,
                       Error **errp)
{
    BlockDriverState *bs = bdrv_find_node(names[i]);
    BatchflushSnapshot snapshot;

    if (!bs) {
        error_setg(errp, "nodes=%s: there is no node '%s'; " NODES_ALLOWED,
                   s->nodes, names[i]);
        return false;
    }
    if (!batchflush_snapshot(bs, &snapshot)) {
        error_setg(errp, "nodes=%s: '%s' is not a batchflush node; "
                   NODES_ALLOWED, s->nodes, names[i]);
        return false;
    }
    for (unsigned j = 0; j < i; j++) {
        if (g_str_equal(names[i], names[j])) {
            error_setg(errp, "nodes=%s: '%s' is there twice; "
                       NODES_ALLOWED, s->nodes, names[i]);
            return false;
        }
    }
    return true;
}

static void control_realize(PCIDevice *pci, Error **errp)
{
    BatchflushControl *s = BATCHFLUSH_CONTROL(pci);
    g_auto(GStrv) names = NULL;

    if (!s->nodes || !*s->nodes) {
        error_setg(errp, "nodes is missing; " NODES_ALLOWED);
        return;
    }
    names = g_strsplit(s->nodes, ":", 0);
    s->disks = g_strv_length(names);
    for (unsigned i = 0; i < s->disks; i++) {
        if (!check_name(s, names, i, errp)) {
            return;
        }
    }
    s->names = g_steal_pointer(&names);

    memory_region_init_io(&s->registers, OBJECT(s), &control_ops, s,
                          TYPE_BATCHFLUSH_CONTROL, BFC_SIZE);
    pci_register_bar(pci, 0, PCI_BASE_ADDRESS_SPACE_MEMORY, &s->registers);
}

static void control_exit(PCIDevice *pci)
{
    BatchflushControl *s = BATCHFLUSH_CONTROL(pci);

    g_clear_pointer(&s->names, g_strfreev);
}

static void control_reset_hold(Object *obj, ResetType type)
{
    BatchflushControl *s = BATCHFLUSH_CONTROL(obj);

    select_disk(s, 0);
    batchflush_doorbell_reset(&s->doorbell);
}

/*
 * The latch moves too: the guest may be in the middle of reading it,
 * and the nodes at the destination count from 0.
 */
static const VMStateDescription control_vmstate = {
    .name = TYPE_BATCHFLUSH_CONTROL,
    .version_id = 2,
    .minimum_version_id = 1,
    .fields = (const VMStateField[]) {
        VMSTATE_PCI_DEVICE(parent, BatchflushControl),
        VMSTATE_UINT64_EQUAL(disks, BatchflushControl,
                             "nodes lists another number of disks"),
        VMSTATE_UINT64(selector, BatchflushControl),
        VMSTATE_UINT64(latch.slowest_ns, BatchflushControl),
        VMSTATE_UINT64_ARRAY(latch.disk, BatchflushControl, BFC_DISK_WORDS),
        VMSTATE_UINT64_V(doorbell.policy, BatchflushControl, 2),
        VMSTATE_UINT64_V(doorbell.seed, BatchflushControl, 2),
        VMSTATE_UINT64_V(doorbell.guest, BatchflushControl, 2),
        VMSTATE_UINT64_V(doorbell.scope, BatchflushControl, 2),
        VMSTATE_UINT64_V(doorbell.result, BatchflushControl, 2),
        VMSTATE_END_OF_LIST()
    }
};

static const Property control_properties[] = {
    DEFINE_PROP_STRING("nodes", BatchflushControl, nodes),
};

static void control_class_init(ObjectClass *klass,
                               BATCHFLUSH_CLASS_DATA *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(klass);
    ResettableClass *rc = RESETTABLE_CLASS(klass);

    pc->realize = control_realize;
    pc->exit = control_exit;
    pc->vendor_id = PCI_VENDOR_ID_REDHAT;
    pc->device_id = PCI_DEVICE_ID_REDHAT_BATCHFLUSH;
    pc->revision = 1;
    pc->class_id = PCI_CLASS_SYSTEM_OTHER;
    rc->phases.hold = control_reset_hold;
    dc->desc = "what batchflush disks tell the guest about themselves";
    dc->vmsd = &control_vmstate;
    device_class_set_props(dc, control_properties);
    set_bit(DEVICE_CATEGORY_STORAGE, dc->categories);
}

static const TypeInfo control_types[] = {
    {
        .name = TYPE_BATCHFLUSH_CONTROL,
        .parent = TYPE_PCI_DEVICE,
        .instance_size = sizeof(BatchflushControl),
        .class_init = control_class_init,
        .interfaces = (InterfaceInfo[]) {
            { INTERFACE_CONVENTIONAL_PCI_DEVICE },
            { }
        },
    },
};

DEFINE_TYPES(control_types)
