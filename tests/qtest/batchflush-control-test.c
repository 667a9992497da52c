/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The batchflush control device, as a guest sees it, on a stepped clock
 *
 * Offsets and values are written here as docs/specs/batchflush-control.rst
 * gives them, not taken from the device's header: they are what a guest
 * relies on.
 */

#include "qemu/osdep.h"
#include "libqtest.h"
#include "libqos/libqos-malloc.h"
#include "libqos/malloc-pc.h"
#include "libqos/pci-pc.h"
#include "libqos/virtio.h"
#include "libqos/virtio-pci.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "qemu/bswap.h"
#include "hw/pci/pci_regs.h"
#include "standard-headers/linux/virtio_blk.h"
#include "standard-headers/linux/virtio_ring.h"

#define CONTROL_SLOT 5
#define DISK_SLOT 4
#define BLOCK 4096

#define FLUSH_NS 8000000
#define SLOW_FLUSH_NS 5000000123        /* more than 32 bits hold */
#define LONG_NS 1000000000
#define CACHE_SIZE (64 * 1024)

#define MAGIC           0x000
#define VERSION         0x008
#define DISKS           0x010
#define SELECTOR        0x018
#define SLOWEST_NS      0x020
#define STATUS          0x100
#define WRITE_CACHE     0x108
#define POWER_OFF       0x110
#define FLUSH_AVERAGE   0x118
#define FLUSH_ARRIVALS  0x120
#define CACHE_BYTES     0x148
#define POWER_CUTS      0x178
#define NODE_NAME       0x180
#define BATTERY         0x1a0
#define HOLD_UP_NS      0x1a8
#define CUT_POLICY      0x200
#define CUT_SEED        0x208
#define CUT_GUEST       0x210
#define CUT_SCOPE       0x218
#define CUT             0x220
#define RESTORE         0x228
#define CUT_RESULT      0x230

enum { STATUS_NONE, STATUS_PRESENT, STATUS_GONE };
enum { GUEST_RESET, GUEST_PAUSE, GUEST_RUN };
enum { RESULT_NONE, RESULT_DONE, RESULT_REFUSED };

/*
 * A machine with two batchflush nodes behind the control device.  The
 * first one, which has a volatile cache, is a disk of the guest.  The
 * second one, slow and with a battery, is nobody's, so that it can be
 * deleted.
 */
typedef struct Machine {
    QTestState *qts;
    QGuestAllocator alloc;
    QPCIBus *bus;
    QPCIDevice *control;
    QPCIBar bar;
    QVirtioPCIDevice *disk;
    QVirtQueue *vq;
} Machine;

/* A node's options, so that a deleted one can be added again. */
#define SLOW_NODE "'driver': 'batchflush', 'node-name': 'slow', " \
                  "'file': 'medium1', 'write-cache': 'battery', " \
                  "'flush-latency-ns': 5000000123"

static char *command_line(const char *more)
{
    return g_strdup_printf(
        "-machine pc -nodefaults "
        "-blockdev driver=batchflush-memory,node-name=medium0,size=16M "
        "-blockdev driver=batchflush-memory,node-name=medium1,size=16M "
        /* Two blocks that cannot be written, the second of them once. */
        "-blockdev driver=blkdebug,node-name=bad,image=medium0,"
        "inject-error.0.event=none,inject-error.0.iotype=write,"
        "inject-error.0.sector=8000,inject-error.0.once=on,"
        "inject-error.1.event=none,inject-error.1.iotype=write,"
        "inject-error.1.sector=16000,inject-error.1.once=on "
        "-blockdev driver=batchflush,node-name=disk0,file=bad,"
        "write-cache=volatile,cache-size=64k,write-latency-ns=10000,"
        "flush-latency-ns=8000000,destage-latency-ns=3000000,"
        "queue-depth=1,coalesce=auto "
        "-blockdev driver=batchflush,node-name=slow,file=medium1,"
        "write-cache=battery,flush-latency-ns=5000000123 "
        "-device virtio-blk-pci,drive=disk0,addr=%x,ioeventfd=off "
        "-device batchflush-control,nodes=disk0:slow,addr=%x %s",
        DISK_SLOT, CONTROL_SLOT, more);
}

static void control_start(Machine *m)
{
    m->control = qpci_device_find(m->bus, QPCI_DEVFN(CONTROL_SLOT, 0));
    g_assert_nonnull(m->control);
    qpci_device_enable(m->control);
    m->bar = qpci_iomap(m->control, 0, NULL);
}

static void disk_start(Machine *m)
{
    QPCIAddress address = { .devfn = QPCI_DEVFN(DISK_SLOT, 0) };
    uint64_t features;

    m->disk = virtio_pci_new(m->bus, &address);
    g_assert_nonnull(m->disk);
    qvirtio_pci_device_enable(m->disk);
    qvirtio_start_device(&m->disk->vdev);
    features = qvirtio_get_features(&m->disk->vdev);
    features &= ~(QVIRTIO_F_BAD_FEATURE |
                  (1ull << VIRTIO_RING_F_INDIRECT_DESC) |
                  (1ull << VIRTIO_RING_F_EVENT_IDX));
    qvirtio_set_features(&m->disk->vdev, features);
    m->vq = qvirtqueue_setup(&m->disk->vdev, &m->alloc, 0);
    qvirtio_set_driver_ok(&m->disk->vdev);
}

static void machine_start(Machine *m, const char *more)
{
    g_autofree char *line = command_line(more);

    m->qts = qtest_init(line);
    pc_alloc_init(&m->alloc, m->qts, 0);
    m->bus = qpci_new_pc(m->qts, &m->alloc);
    control_start(m);
    disk_start(m);
}

static void machine_end(Machine *m)
{
    qvirtqueue_cleanup(m->disk->vdev.bus, m->vq, &m->alloc);
    qvirtio_pci_device_disable(m->disk);
    g_free(m->disk->pdev);
    g_free(m->disk);
    g_free(m->control);
    qpci_free_pc(m->bus);
    alloc_destroy(&m->alloc);
    qtest_quit(m->qts);
}

/* The disk: requests are submitted here and end when the clock is stepped. */

static void submit(Machine *m, uint32_t type, uint64_t offset,
                   uint32_t bytes)
{
    uint64_t address = guest_alloc(&m->alloc, 16 + bytes + 1);
    uint32_t head;

    qtest_writel(m->qts, address, type);
    qtest_writel(m->qts, address + 4, 0);
    qtest_writeq(m->qts, address + 8, offset / 512);
    head = qvirtqueue_add(m->qts, m->vq, address, 16, false, true);
    if (bytes) {
        qvirtqueue_add(m->qts, m->vq, address + 16, bytes, false, true);
    }
    qvirtqueue_add(m->qts, m->vq, address + 16 + bytes, 1, true, false);
    qvirtqueue_kick(m->qts, &m->disk->vdev, m->vq, head);
}

static void submit_write(Machine *m, uint64_t offset)
{
    submit(m, VIRTIO_BLK_T_OUT, offset, BLOCK);
}

static void submit_flush(Machine *m)
{
    submit(m, VIRTIO_BLK_T_FLUSH, 0, 0);
}

static void step(Machine *m)
{
    qtest_clock_step(m->qts, LONG_NS);
}

static void write_and_flush(Machine *m, uint64_t offset)
{
    submit_write(m, offset);
    step(m);
    submit_flush(m);
    step(m);
}

static void cut(Machine *m)
{
    qtest_qmp_assert_success(m->qts,
                             "{'execute': 'batchflush-power-cut', "
                             "'arguments': {'node-name': 'disk0', "
                             "'guest': 'run'}}");
}

static void restore(Machine *m)
{
    qtest_qmp_assert_success(m->qts,
                             "{'execute': 'batchflush-power-restore', "
                             "'arguments': {'node-name': 'disk0'}}");
}

/* What the host knows about the disk. */
static uint64_t statistic(Machine *m, const char *name)
{
    g_autoptr(QDict) answer = qtest_qmp(
        m->qts, "{'execute': 'query-blockstats',"
        " 'arguments': {'query-nodes': true}}");
    QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(answer, "return"), entry) {
        QDict *node = qobject_to(QDict, qlist_entry_obj(entry));

        if (g_str_equal(qdict_get_str(node, "node-name"), "disk0")) {
            return qdict_get_int(qdict_get_qdict(node, "driver-specific"),
                                 name);
        }
    }
    g_assert_not_reached();
}

/* The control device */

static uint64_t get(Machine *m, uint64_t offset)
{
    return qpci_io_readq(m->control, m->bar, offset);
}

static uint32_t get_half(Machine *m, uint64_t offset)
{
    return qpci_io_readl(m->control, m->bar, offset);
}

static void choose(Machine *m, uint64_t disk)
{
    qpci_io_writeq(m->control, m->bar, SELECTOR, disk);
}

static void assert_name(Machine *m, const char *name)
{
    char bytes[32], expected[32] = {};

    for (int i = 0; i < sizeof(bytes); i += 4) {
        stl_le_p(bytes + i, get_half(m, NODE_NAME + i));
    }
    memcpy(expected, name, strlen(name));
    g_assert_cmpmem(bytes, sizeof(bytes), expected, sizeof(expected));
}

static void test_identity(void)
{
    Machine m = {};

    machine_start(&m, "");
    g_assert_cmphex(qpci_config_readw(m.control, PCI_VENDOR_ID), ==, 0x1b36);
    g_assert_cmphex(qpci_config_readw(m.control, PCI_DEVICE_ID), ==, 0x00bf);
    g_assert_cmphex(qpci_config_readb(m.control, PCI_REVISION_ID), ==, 1);
    g_assert_cmphex(qpci_config_readw(m.control, PCI_CLASS_DEVICE), ==,
                    0x0880);
    g_assert_cmphex(get(&m, MAGIC), ==, 0x6c7274632d6c6662);
    g_assert_cmpuint(get(&m, VERSION), ==, 2);
    g_assert_cmpuint(get(&m, DISKS), ==, 2);
    machine_end(&m);
}

/* What the node counts, where the guest reads it. */
static const struct {
    uint64_t offset;
    const char *statistic;
} counted[] = {
    { FLUSH_AVERAGE, "flush-average-ns" },
    { FLUSH_ARRIVALS, "flush-arrivals" },
    { 0x128, "flushes-issued" },
    { 0x130, "flushes-joined" },
    { 0x138, "flushes-alone" },
    { 0x140, "flushes-failed" },
    { 0x150, "dirty-bytes" },
    { 0x158, "destaged-bytes" },
    { 0x160, "destage-failures" },
    { 0x168, "stalls" },
    { 0x170, "stall-ns" },
    { POWER_CUTS, "power-cuts" },
};

/* Give every statistic a value of its own. */
static void live_through_all(Machine *m)
{
    /* A cache of 16 blocks is full, and 9 writes stall. */
    for (int i = 0; i < 25; i++) {
        submit_write(m, 2 * i * BLOCK);
    }
    step(m);
    /* 8 flushes, of which 7 share the second. */
    for (int i = 0; i < 8; i++) {
        submit_flush(m);
    }
    step(m);
    /* Two destages fail, and the flushes that wanted them. */
    write_and_flush(m, 8000 * 512);
    write_and_flush(m, 16000 * 512);
    /* One more fails, by the first of many power cuts. */
    submit_flush(m);
    for (int i = 0; i < 20; i++) {
        cut(m);
        step(m);
        restore(m);
    }
    submit_write(m, 0);
    step(m);
}

static void test_registers(void)
{
    Machine m = {};
    uint64_t values[ARRAY_SIZE(counted)];

    machine_start(&m, "");
    live_through_all(&m);
    choose(&m, 0);
    for (int i = 0; i < ARRAY_SIZE(counted); i++) {
        values[i] = statistic(&m, counted[i].statistic);
        g_test_message("%s is %" PRIu64, counted[i].statistic, values[i]);
        g_assert_cmpuint(get(&m, counted[i].offset), ==, values[i]);

        /* Else one register could stand in for another. */
        g_assert_cmpuint(values[i], !=, 0);
        for (int j = 0; j < i; j++) {
            g_assert_cmpuint(values[i], !=, values[j]);
        }
    }
    machine_end(&m);
}

static void test_options(void)
{
    Machine m = {};

    machine_start(&m, "");
    g_assert_cmpuint(get(&m, STATUS), ==, STATUS_PRESENT);
    g_assert_cmpuint(get(&m, WRITE_CACHE), ==, 1);
    g_assert_cmpuint(get(&m, CACHE_BYTES), ==, CACHE_SIZE);
    assert_name(&m, "disk0");

    choose(&m, 1);
    g_assert_cmpuint(get(&m, STATUS), ==, STATUS_PRESENT);
    g_assert_cmpuint(get(&m, WRITE_CACHE), ==, 2);
    g_assert_cmpuint(get(&m, CACHE_BYTES), ==, 64 * 1024 * 1024);
    g_assert_cmpuint(get(&m, POWER_OFF), ==, 0);
    assert_name(&m, "slow");
    machine_end(&m);
}

static void set(Machine *m, uint64_t offset, uint64_t value)
{
    qpci_io_writeq(m->control, m->bar, offset, value);
}

static bool is_off(Machine *m, uint64_t disk)
{
    choose(m, disk);
    return get(m, POWER_OFF);
}

/* The event of a cut by the guest; its seed and policy are the guest's. */
static void assert_cut_event(Machine *m, const char *guest, int nodes)
{
    g_autoptr(QDict) event = qtest_qmp_eventwait_ref(m->qts,
                                                     "BATCHFLUSH_POWER_CUT");
    QDict *data = qdict_get_qdict(event, "data");

    g_assert_cmpstr(qdict_get_str(data, "guest"), ==, guest);
    g_assert_cmpstr(qdict_get_str(data, "policy"), ==, "subset");
    g_assert_cmpint(qdict_get_int(data, "seed"), ==, 0x123456789abcdef);
    g_assert_cmpuint(qlist_size(qdict_get_qlist(data, "nodes")), ==, nodes);
}

/* A guest cuts the power of all its disks with one write, and runs on. */
static void test_doorbell(void)
{
    Machine m = {};

    machine_start(&m, "");
    g_assert_cmphex(get(&m, CUT_POLICY), ==, UINT64_MAX);
    g_assert_cmphex(get(&m, CUT_SEED), ==, UINT64_MAX);
    g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_NONE);
    set(&m, CUT_POLICY, 2);
    /* A register may be written in halves; the bell rings once. */
    qpci_io_writel(m.control, m.bar, CUT_SEED, 0x89abcdef);
    qpci_io_writel(m.control, m.bar, CUT_SEED + 4, 0x1234567);
    set(&m, CUT_GUEST, GUEST_RUN);
    set(&m, CUT, 1);
    g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_DONE);
    assert_cut_event(&m, "run", 2);
    g_assert_true(is_off(&m, 0) && is_off(&m, 1));

    set(&m, CUT, 1);
    g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_REFUSED);
    set(&m, RESTORE, 1);
    g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_DONE);
    g_assert_false(is_off(&m, 0) || is_off(&m, 1));
    set(&m, RESTORE, 1);
    g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_REFUSED);
    machine_end(&m);
}

static void test_doorbell_of_one_disk(void)
{
    Machine m = {};

    machine_start(&m, "");
    set(&m, CUT_POLICY, 2);
    set(&m, CUT_SEED, 0x123456789abcdef);
    set(&m, CUT_GUEST, GUEST_RUN);
    set(&m, CUT_SCOPE, 1);
    choose(&m, 1);
    set(&m, CUT, 1);
    assert_cut_event(&m, "run", 1);
    g_assert_true(is_off(&m, 1));
    g_assert_false(is_off(&m, 0));
    choose(&m, 2);
    set(&m, RESTORE, 1);
    g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_REFUSED);
    choose(&m, 1);
    set(&m, RESTORE, 1);
    g_assert_false(is_off(&m, 1));
    machine_end(&m);
}

/* The reset that follows restores the power for the boot. */
static void test_doorbell_resets(void)
{
    Machine m = {};

    machine_start(&m, "");
    set(&m, CUT_POLICY, 2);
    set(&m, CUT_SEED, 0x123456789abcdef);
    set(&m, CUT, 1);
    assert_cut_event(&m, "reset", 2);
    qtest_qmp_eventwait(m.qts, "RESET");
    g_free(m.control);
    qpci_device_enable((m.control = qpci_device_find(
        m.bus, QPCI_DEVFN(CONTROL_SLOT, 0))));
    m.bar = qpci_iomap(m.control, 0, NULL);
    g_assert_false(is_off(&m, 0) || is_off(&m, 1));
    g_assert_cmpuint(get(&m, POWER_CUTS), ==, 1);
    g_assert_cmphex(get(&m, CUT_POLICY), ==, UINT64_MAX);
    machine_end(&m);
}

static void test_doorbell_refuses(void)
{
    const struct {
        uint64_t offset, value;
    } bad[] = {
        { CUT_POLICY, 4 },
        { CUT_GUEST, 3 },
        { CUT_SCOPE, 2 },
        { CUT_SEED, 1ull << 63 },
    };
    Machine m = {};

    machine_start(&m, "");
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t before = get(&m, bad[i].offset);

        set(&m, bad[i].offset, bad[i].value);
        set(&m, CUT, 1);
        g_assert_cmpuint(get(&m, CUT_RESULT), ==, RESULT_REFUSED);
        g_assert_false(is_off(&m, 0) || is_off(&m, 1));
        set(&m, bad[i].offset, before);
    }
    machine_end(&m);
}

static void test_battery_register(void)
{
    Machine m = {};

    machine_start(&m, "");
    choose(&m, 0);
    g_assert_cmpuint(get(&m, BATTERY), ==, 0);
    choose(&m, 1);
    g_assert_cmpuint(get(&m, BATTERY), ==, 1);
    g_assert_cmpuint(get(&m, HOLD_UP_NS), ==, 0);
    qtest_qmp_assert_success(m.qts, "{'execute': 'batchflush-battery', "
                             "'arguments': {'node-name': 'slow', "
                             "'state': 'learning', 'hold-up-ns': 77}}");
    choose(&m, 1);
    g_assert_cmpuint(get(&m, BATTERY), ==, 2);
    g_assert_cmpuint(get(&m, HOLD_UP_NS), ==, 77);
    machine_end(&m);
}

static void test_power(void)
{
    Machine m = {};

    machine_start(&m, "");
    cut(&m);
    choose(&m, 0);
    g_assert_cmpuint(get(&m, POWER_OFF), ==, 1);
    g_assert_cmpuint(get(&m, POWER_CUTS), ==, 1);
    restore(&m);
    choose(&m, 0);
    g_assert_cmpuint(get(&m, POWER_OFF), ==, 0);
    g_assert_cmpuint(get(&m, POWER_CUTS), ==, 1);
    machine_end(&m);
}

/* The time of a flush that has not been measured is the one expected. */
static void test_flush_times(void)
{
    Machine m = {};

    machine_start(&m, "");
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, FLUSH_NS);
    write_and_flush(&m, 0);
    choose(&m, 0);
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, FLUSH_NS + 3000000);
    g_assert_cmpuint(get(&m, SLOWEST_NS), ==, SLOW_FLUSH_NS);
    choose(&m, 1);
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, SLOW_FLUSH_NS);
    g_assert_cmpuint(get(&m, SLOWEST_NS), ==, SLOW_FLUSH_NS);

    /* It is the largest of all that are there. */
    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-del', "
                             "'arguments': {'node-name': 'slow'}}");
    choose(&m, 1);
    g_assert_cmpuint(get(&m, SLOWEST_NS), ==, FLUSH_NS + 3000000);
    machine_end(&m);
}

/* Until a disk is selected again, everything stays as it was then. */
static void test_latch(void)
{
    Machine m = {};

    machine_start(&m, "");
    choose(&m, 0);
    write_and_flush(&m, 0);
    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-del', "
                             "'arguments': {'node-name': 'slow'}}");
    g_assert_cmpuint(statistic(&m, "flush-arrivals"), ==, 1);
    g_assert_cmpuint(get(&m, FLUSH_ARRIVALS), ==, 0);
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, FLUSH_NS);
    g_assert_cmpuint(get(&m, SLOWEST_NS), ==, SLOW_FLUSH_NS);

    choose(&m, 0);
    g_assert_cmpuint(get(&m, FLUSH_ARRIVALS), ==, 1);
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, FLUSH_NS + 3000000);
    g_assert_cmpuint(get(&m, SLOWEST_NS), ==, FLUSH_NS + 3000000);
    machine_end(&m);
}

/* Two 32-bit reads give what one 64-bit read gives, everywhere. */
static void test_halves(void)
{
    Machine m = {};
    int upper = 0;

    machine_start(&m, "");
    /* A 32-bit write selects too. */
    qpci_io_writel(m.control, m.bar, SELECTOR, 1);
    g_assert_cmpuint(get(&m, SELECTOR), ==, 1);
    for (uint64_t offset = 0; offset < 0x1000; offset += 8) {
        uint64_t value = get(&m, offset);

        g_assert_cmphex(get_half(&m, offset), ==, (uint32_t)value);
        g_assert_cmphex(get_half(&m, offset + 4), ==, value >> 32);
        upper += value >> 32 != 0;
    }
    /* At least the magic, the slow disk's time, and the slowest's. */
    g_assert_cmpint(upper, >=, 3);
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, SLOW_FLUSH_NS);
    machine_end(&m);
}

static int lines_with(const char *file, const char *text)
{
    g_autofree char *content = NULL;
    g_auto(GStrv) lines = NULL;
    int count = 0;

    g_assert_true(g_file_get_contents(file, &content, NULL, NULL));
    lines = g_strsplit(content, "\n", 0);
    for (int i = 0; lines[i]; i++) {
        count += strstr(lines[i], text) != NULL;
    }
    return count;
}

static bool is_writable(uint64_t offset)
{
    return offset == SELECTOR || (offset >= CUT_POLICY && offset <= RESTORE);
}

/* Whatever is written elsewhere changes nothing and is logged. */
static void test_read_only(void)
{
    g_autofree char *log = NULL;
    g_autofree char *more = NULL;
    uint64_t before[0x1000 / 8];
    int writable = 0;
    Machine m = {};
    int file = g_file_open_tmp("batchflush-control-XXXXXX", &log, NULL);

    g_assert_cmpint(file, >=, 0);
    close(file);
    more = g_strdup_printf("-d guest_errors -D %s", log);
    machine_start(&m, more);
    for (int i = 0; i < ARRAY_SIZE(before); i++) {
        before[i] = get(&m, i * 8);
    }
    g_assert_cmpint(lines_with(log, "batchflush-control"), ==, 0);

    for (int i = 0; i < ARRAY_SIZE(before); i++) {
        if (is_writable(i * 8)) {
            writable++;
        } else {
            qpci_io_writeq(m.control, m.bar, i * 8, ~before[i]);
        }
    }
    /* Half of a selector selects nothing. */
    qpci_io_writel(m.control, m.bar, SELECTOR + 4, 1);
    for (int i = 0; i < ARRAY_SIZE(before); i++) {
        g_assert_cmphex(get(&m, i * 8), ==, before[i]);
    }
    g_assert_cmpint(lines_with(log, "batchflush-control"), ==,
                    ARRAY_SIZE(before) - writable + 1);
    machine_end(&m);
    unlink(log);
}

static void test_unassigned(void)
{
    Machine m = {};

    machine_start(&m, "");
    for (uint64_t offset = 0x028; offset < 0x100; offset += 8) {
        g_assert_cmphex(get(&m, offset), ==, 0);
    }
    for (uint64_t offset = 0x1b0; offset < 0x200; offset += 8) {
        g_assert_cmphex(get(&m, offset), ==, 0);
    }
    for (uint64_t offset = 0x238; offset < 0x1000; offset += 8) {
        g_assert_cmphex(get(&m, offset), ==, 0);
    }
    machine_end(&m);
}

/* All that a disk says is 0, but for its status and name. */
static void assert_silent(Machine *m, int status)
{
    g_assert_cmpuint(get(m, STATUS), ==, status);
    for (uint64_t offset = WRITE_CACHE; offset < NODE_NAME; offset += 8) {
        g_assert_cmphex(get(m, offset), ==, 0);
    }
}

static void test_no_disk(void)
{
    const uint64_t beyond[] = { 2, 1ull << 32, UINT64_MAX };
    Machine m = {};

    machine_start(&m, "");
    for (int i = 0; i < ARRAY_SIZE(beyond); i++) {
        choose(&m, beyond[i]);
        g_assert_cmphex(get(&m, SELECTOR), ==, beyond[i]);
        assert_silent(&m, STATUS_NONE);
        assert_name(&m, "");
        g_assert_cmpuint(get(&m, SLOWEST_NS), ==, SLOW_FLUSH_NS);
    }
    machine_end(&m);
}

/* The device keeps no node in use: it may go, and come back. */
static void test_gone(void)
{
    Machine m = {};

    machine_start(&m, "");
    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-del', "
                             "'arguments': {'node-name': 'slow'}}");
    choose(&m, 1);
    assert_silent(&m, STATUS_GONE);
    assert_name(&m, "slow");
    g_assert_cmpuint(get(&m, DISKS), ==, 2);

    /* Another driver's node is not the disk. */
    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-add', 'arguments':"
                             " {'driver': 'raw', 'node-name': 'slow', "
                             "'file': 'medium1'}}");
    choose(&m, 1);
    assert_silent(&m, STATUS_GONE);
    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-del', "
                             "'arguments': {'node-name': 'slow'}}");

    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-add', "
                             "'arguments': {" SLOW_NODE "}}");
    choose(&m, 1);
    g_assert_cmpuint(get(&m, STATUS), ==, STATUS_PRESENT);
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, SLOW_FLUSH_NS);
    machine_end(&m);
}

static void test_reset(void)
{
    Machine m = {};

    machine_start(&m, "");
    choose(&m, 1);
    write_and_flush(&m, 0);
    qtest_system_reset(m.qts);
    g_free(m.control);
    control_start(&m);
    g_assert_cmpuint(get(&m, SELECTOR), ==, 0);
    assert_name(&m, "disk0");
    /* It was latched anew. */
    g_assert_cmpuint(get(&m, FLUSH_AVERAGE), ==, FLUSH_NS + 3000000);
    machine_end(&m);
}

/* In the middle of reading, the guest finds itself elsewhere. */
static void test_migration(void)
{
    g_autofree char *state = NULL;
    g_autofree char *uri = NULL;
    g_autofree char *line = NULL;
    uint64_t before[0x1000 / 8];
    Machine m = {}, there = {};
    int file = g_file_open_tmp("batchflush-control-XXXXXX", &state, NULL);

    g_assert_cmpint(file, >=, 0);
    close(file);
    uri = g_strdup_printf("file:%s", state);
    machine_start(&m, "");
    /* Nothing of this is so at the destination, where all begins anew. */
    write_and_flush(&m, 0);
    qtest_qmp_assert_success(m.qts, "{'execute': 'blockdev-del', "
                             "'arguments': {'node-name': 'slow'}}");
    choose(&m, 1);
    for (int i = 0; i < ARRAY_SIZE(before); i++) {
        before[i] = get(&m, i * 8);
    }
    qtest_qmp_assert_success(m.qts, "{'execute': 'migrate', "
                             "'arguments': {'uri': %s}}", uri);
    qtest_qmp_eventwait(m.qts, "STOP");
    for (;;) {
        g_autoptr(QDict) info = qtest_qmp_assert_success_ref(
            m.qts, "{'execute': 'query-migrate'}");
        const char *status = qdict_get_str(info, "status");

        g_assert_cmpstr(status, !=, "failed");
        if (g_str_equal(status, "completed")) {
            break;
        }
    }

    line = command_line("-incoming defer");
    there.qts = qtest_init(line);
    qtest_qmp_assert_success(there.qts, "{'execute': 'migrate-incoming', "
                             "'arguments': {'uri': %s}}", uri);
    qtest_qmp_eventwait(there.qts, "RESUME");
    there.bus = qpci_new_pc(there.qts, NULL);
    there.control = qpci_device_find(there.bus, QPCI_DEVFN(CONTROL_SLOT, 0));
    there.bar = m.bar;
    for (int i = 0; i < ARRAY_SIZE(before); i++) {
        g_assert_cmphex(get(&there, i * 8), ==, before[i]);
    }
    choose(&there, 1);
    g_assert_cmpuint(get(&there, STATUS), ==, STATUS_PRESENT);
    choose(&there, 0);
    g_assert_cmpuint(get(&there, FLUSH_ARRIVALS), ==, 0);
    g_free(there.control);
    qpci_free_pc(there.bus);
    qtest_quit(there.qts);
    unlink(state);
    qtest_quit(m.qts);
}

static void test_bad_nodes(void)
{
    const struct {
        const char *nodes;
        const char *why;
    } bad[] = {
        { "", "nodes is missing" },
        { "disk1", "nodes=disk1: there is no node 'disk1'" },
        { "disk0:", "nodes=disk0:: there is no node ''" },
        { ":", "nodes=:: there is no node ''" },
        { "disk0,slow", "there is no node 'disk0,slow'" },
        { "disk0:medium0", "'medium0' is not a batchflush node" },
        { "disk0:slow:disk0", "'disk0' is there twice" },
    };
    Machine m = {};

    machine_start(&m, "");
    for (int i = 0; i < ARRAY_SIZE(bad); i++) {
        g_autoptr(QDict) answer = qtest_qmp(
            m.qts, "{'execute': 'device_add', 'arguments': "
            "{'driver': 'batchflush-control', 'id': 'other', 'nodes': %s}}",
            bad[i].nodes);
        const char *error;

        g_assert_true(qdict_haskey(answer, "error"));
        error = qdict_get_str(qdict_get_qdict(answer, "error"), "desc");
        g_assert_nonnull(strstr(error, bad[i].why));
        g_assert_nonnull(strstr(error, "allowed are names of batchflush "
                                "nodes, each once, separated by colons"));
    }
    qtest_qmp_assert_success(m.qts, "{'execute': 'device_add', 'arguments': "
                             "{'driver': 'batchflush-control', "
                             "'id': 'other', 'nodes': 'slow'}}");
    machine_end(&m);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    qtest_add_func("batchflush-control/identity", test_identity);
    qtest_add_func("batchflush-control/registers", test_registers);
    qtest_add_func("batchflush-control/options", test_options);
    qtest_add_func("batchflush-control/power", test_power);
    qtest_add_func("batchflush-control/battery", test_battery_register);
    qtest_add_func("batchflush-control/doorbell/all", test_doorbell);
    qtest_add_func("batchflush-control/doorbell/one-disk",
                   test_doorbell_of_one_disk);
    qtest_add_func("batchflush-control/doorbell/resets",
                   test_doorbell_resets);
    qtest_add_func("batchflush-control/doorbell/refuses",
                   test_doorbell_refuses);
    qtest_add_func("batchflush-control/flush-times", test_flush_times);
    qtest_add_func("batchflush-control/latch", test_latch);
    qtest_add_func("batchflush-control/halves", test_halves);
    qtest_add_func("batchflush-control/read-only", test_read_only);
    qtest_add_func("batchflush-control/unassigned", test_unassigned);
    qtest_add_func("batchflush-control/no-disk", test_no_disk);
    qtest_add_func("batchflush-control/gone", test_gone);
    qtest_add_func("batchflush-control/reset", test_reset);
    qtest_add_func("batchflush-control/migration", test_migration);
    qtest_add_func("batchflush-control/bad-nodes", test_bad_nodes);
    return g_test_run();
}
