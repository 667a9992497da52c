/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The batchflush node behind virtio-blk, on a stepped clock
 *
 * The medium is in memory and the node's clock is the guest's, which
 * only moves when a test steps it.  So "complete at its instant, and
 * not a nanosecond earlier" is a statement that can be tested.
 */

#include "qemu/osdep.h"
#include "libqtest.h"
#include "libqos/libqos-malloc.h"
#include "libqos/malloc-pc.h"
#include "libqos/pci-pc.h"
#include "libqos/virtio.h"
#include "libqos/virtio-pci.h"
#include "qapi/error.h"
#include "qobject/qdict.h"
#include "qobject/qjson.h"
#include "qobject/qlist.h"
#include "qemu/units.h"
#include <math.h>
#include "standard-headers/linux/virtio_blk.h"
#include "standard-headers/linux/virtio_config.h"
#include "standard-headers/linux/virtio_ring.h"

#define DISK_SLOT 4
#define OTHER_SLOT 5
#define BLOCK 4096
#define PENDING 0xff

#define WRITE_NS 10000
#define FLUSH_NS 8000000
#define DESTAGE_NS 3000000

static bool buffer_is(const uint8_t *data, size_t bytes, uint8_t pattern)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != pattern) {
            return false;
        }
    }
    return true;
}

/* What a guest's driver holds of one virtio-blk device. */
typedef struct Port {
    QVirtioPCIDevice *dev;
    QVirtQueue *vq;
} Port;

/*
 * A machine with one batchflush disk.  A second, read-only device lets
 * the guest look at the medium behind its back.
 */
typedef struct Disk {
    QTestState *qts;
    QGuestAllocator alloc;
    QPCIBus *bus;
    Port disk;
    Port other;                 /* the medium, or a second disk */
} Disk;

typedef struct Request {
    uint64_t address;
    uint32_t bytes;
} Request;

static void port_start(Disk *disk, Port *port, int slot)
{
    QPCIAddress address = { .devfn = QPCI_DEVFN(slot, 0) };
    uint64_t features;

    port->dev = virtio_pci_new(disk->bus, &address);
    g_assert_nonnull(port->dev);
    qvirtio_pci_device_enable(port->dev);
    qvirtio_start_device(&port->dev->vdev);
    features = qvirtio_get_features(&port->dev->vdev);
    features &= ~(QVIRTIO_F_BAD_FEATURE |
                  (1ull << VIRTIO_RING_F_INDIRECT_DESC) |
                  (1ull << VIRTIO_RING_F_EVENT_IDX));
    qvirtio_set_features(&port->dev->vdev, features);
    port->vq = qvirtqueue_setup(&port->dev->vdev, &disk->alloc, 0);
    qvirtio_set_driver_ok(&port->dev->vdev);
}

static void port_end(Disk *disk, Port *port)
{
    qvirtqueue_cleanup(port->dev->vdev.bus, port->vq, &disk->alloc);
    qvirtio_pci_device_disable(port->dev);
    g_free(port->dev->pdev);
    g_free(port->dev);
}

static void G_GNUC_PRINTF(2, 3)
start(Disk *disk, const char *format, ...)
{
    g_autofree char *nodes = NULL;
    va_list ap;

    va_start(ap, format);
    nodes = g_strdup_vprintf(format, ap);
    va_end(ap);
    disk->qts = qtest_initf(
        "-machine pc -nodefaults %s "
        "-device virtio-blk-pci,drive=disk,addr=%x,ioeventfd=off "
        "-device virtio-blk-pci,drive=other,addr=%x,ioeventfd=off,"
        "share-rw=on", nodes, DISK_SLOT, OTHER_SLOT);
    pc_alloc_init(&disk->alloc, disk->qts, 0);
    disk->bus = qpci_new_pc(disk->qts, &disk->alloc);
    port_start(disk, &disk->disk, DISK_SLOT);
    port_start(disk, &disk->other, OTHER_SLOT);
}

static void disk_start(Disk *disk, const char *options)
{
    start(disk,
          "-blockdev driver=batchflush-memory,node-name=medium,size=16M "
          "-blockdev driver=batchflush,node-name=disk,file=medium,%s "
          "-blockdev driver=raw,node-name=other,file=medium,read-only=on",
          options);
}

/* Two disks behind one controller. */
static void pair_start(Disk *disk, const char *shared, const char *first,
                       const char *second)
{
    start(disk,
          "-object batchflush-controller,id=array "
          "-blockdev driver=batchflush-memory,node-name=m0,size=16M "
          "-blockdev driver=batchflush-memory,node-name=m1,size=16M "
          "-blockdev driver=batchflush,node-name=disk,file=m0,"
          "controller=array,%s,%s "
          "-blockdev driver=batchflush,node-name=other,file=m1,"
          "controller=array,%s,%s", shared, first, shared, second);
}

static void disk_end(Disk *disk)
{
    port_end(disk, &disk->other);
    port_end(disk, &disk->disk);
    qpci_free_pc(disk->bus);
    alloc_destroy(&disk->alloc);
    qtest_quit(disk->qts);
}

/*
 * libqos never takes a descriptor back.  At the end of the ring begin
 * anew: whoever had those descriptors has been answered.
 */
static void ring_again(QVirtQueue *vq)
{
    if (vq->free_head + 3 > vq->size) {
        vq->free_head = 0;
        vq->num_free = vq->size;
    }
}

/*
 * Submit a request.  With ioeventfd off the device takes it up before
 * the call returns.
 */
static Request submit(Disk *disk, Port *port, uint32_t type,
                      uint64_t offset, uint32_t bytes, uint8_t pattern)
{
    QTestState *qts = disk->qts;
    Request req = {
        .address = guest_alloc(&disk->alloc, 16 + bytes + 1),
        .bytes = bytes,
    };
    uint32_t head;

    ring_again(port->vq);
    qtest_writel(qts, req.address, type);
    qtest_writel(qts, req.address + 4, 0);
    qtest_writeq(qts, req.address + 8, offset / 512);
    qtest_writeb(qts, req.address + 16 + bytes, PENDING);
    head = qvirtqueue_add(qts, port->vq, req.address, 16, false, true);
    if (bytes) {
        qtest_memset(qts, req.address + 16, pattern, bytes);
        qvirtqueue_add(qts, port->vq, req.address + 16, bytes,
                       type == VIRTIO_BLK_T_IN, true);
    }
    qvirtqueue_add(qts, port->vq, req.address + 16 + bytes, 1, true, false);
    qvirtqueue_kick(qts, &port->dev->vdev, port->vq, head);
    return req;
}

static Request submit_write(Disk *disk, uint64_t offset, uint8_t pattern)
{
    return submit(disk, &disk->disk, VIRTIO_BLK_T_OUT, offset, BLOCK,
                  pattern);
}

static Request submit_flush(Disk *disk)
{
    return submit(disk, &disk->disk, VIRTIO_BLK_T_FLUSH, 0, 0, 0);
}

static uint8_t status(Disk *disk, Request req)
{
    return qtest_readb(disk->qts, req.address + 16 + req.bytes);
}

static void step(Disk *disk, int64_t ns)
{
    qtest_clock_step(disk->qts, ns);
}

/* It is not complete a nanosecond before @ns from now, and is at @ns. */
static void assert_takes(Disk *disk, Request req, int64_t ns)
{
    g_assert_cmphex(status(disk, req), ==, PENDING);
    step(disk, ns - 1);
    g_assert_cmphex(status(disk, req), ==, PENDING);
    step(disk, 1);
    g_assert_cmphex(status(disk, req), ==, VIRTIO_BLK_S_OK);
}

static void write_block(Disk *disk, uint64_t offset, uint8_t pattern)
{
    assert_takes(disk, submit_write(disk, offset, pattern), WRITE_NS);
}

/*
 * A request that takes no time on the clock still completes in the main
 * loop, a moment after it was taken up.
 */
static uint8_t wait_status(Disk *disk, Request req)
{
    int64_t deadline = g_get_monotonic_time() + 30 * G_TIME_SPAN_SECOND;

    while (status(disk, req) == PENDING) {
        g_assert_cmpint(g_get_monotonic_time(), <, deadline);
    }
    return status(disk, req);
}

static bool request_holds(Disk *disk, Request req, uint8_t pattern)
{
    uint8_t data[BLOCK];

    g_assert_cmphex(wait_status(disk, req), ==, VIRTIO_BLK_S_OK);
    qtest_memread(disk->qts, req.address + 16, data, sizeof(data));
    return buffer_is(data, sizeof(data), pattern);
}

/* Whether the medium holds the pattern in a block. */
static bool medium_holds(Disk *disk, uint64_t offset, uint8_t pattern)
{
    Request req = submit(disk, &disk->other, VIRTIO_BLK_T_IN, offset, BLOCK,
                         ~pattern);

    return request_holds(disk, req, pattern);
}

/* Whether the guest reads it from the disk. */
static bool disk_holds(Disk *disk, uint64_t offset, uint8_t pattern)
{
    Request req = submit(disk, &disk->disk, VIRTIO_BLK_T_IN, offset, BLOCK,
                         ~pattern);

    step(disk, 100 * WRITE_NS);
    return request_holds(disk, req, pattern);
}

static int64_t node_statistic(Disk *disk, const char *node_name,
                              const char *name)
{
    g_autoptr(QDict) answer = qtest_qmp(
        disk->qts, "{'execute': 'query-blockstats',"
        " 'arguments': {'query-nodes': true}}");
    QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(answer, "return"), entry) {
        QDict *node = qobject_to(QDict, qlist_entry_obj(entry));

        if (g_str_equal(qdict_get_str(node, "node-name"), node_name)) {
            return qdict_get_int(qdict_get_qdict(node, "driver-specific"),
                                 name);
        }
    }
    g_assert_not_reached();
}

/* Of the disk's requests of an operation; how late the latest one was. */
static int64_t count_late(Disk *disk, const char *operation, int64_t *max)
{
    g_autoptr(QDict) answer = qtest_qmp(
        disk->qts, "{'execute': 'query-blockstats',"
        " 'arguments': {'query-nodes': true}}");
    QListEntry *entry, *late;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(answer, "return"), entry) {
        QDict *node = qobject_to(QDict, qlist_entry_obj(entry));
        QDict *told;

        if (!g_str_equal(qdict_get_str(node, "node-name"), "disk")) {
            continue;
        }
        told = qdict_get_qdict(node, "driver-specific");
        QLIST_FOREACH_ENTRY(qdict_get_qlist(told, "lateness"), late) {
            QDict *of = qobject_to(QDict, qlist_entry_obj(late));

            if (g_str_equal(qdict_get_str(of, "operation"), operation)) {
                *max = qdict_get_int(of, "max-ns");
                return qdict_get_int(of, "count");
            }
        }
    }
    return 0;
}

static int64_t statistic(Disk *disk, const char *name)
{
    return node_statistic(disk, "disk", name);
}

static int64_t controller_statistic(Disk *disk, const char *name)
{
    g_autoptr(QDict) answer = qtest_qmp(
        disk->qts, "{'execute': 'query-batchflush-controllers'}");
    const QListEntry *first = qlist_first(qdict_get_qlist(answer, "return"));

    return qdict_get_int(qobject_to(QDict, qlist_entry_obj(first)), name);
}

static void qmp_ok(Disk *disk, const char *command)
{
    qtest_qmp_assert_success(disk->qts, "{'execute': %s}", command);
}

static void cut(Disk *disk)
{
    qtest_qmp_assert_success(disk->qts,
                             "{'execute': 'batchflush-power-cut', "
                             "'arguments': {'node-name': 'disk', "
                             "'guest': 'run'}}");
}

static void restore(Disk *disk)
{
    qtest_qmp_assert_success(disk->qts,
                             "{'execute': 'batchflush-power-restore', "
                             "'arguments': {'node-name': 'disk'}}");
}

#define TIMES "write-latency-ns=10000,flush-latency-ns=8000000," \
              "destage-latency-ns=3000000,coalesce=off,queue-depth=1"

static void test_volatile(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=volatile,"
               "flush-clean-latency-ns=500000");
    write_block(&disk, 0, 0x11);
    g_assert_true(disk_holds(&disk, 0, 0x11));
    g_assert_false(medium_holds(&disk, 0, 0x11));
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, BLOCK);

    assert_takes(&disk, submit_flush(&disk), DESTAGE_NS + FLUSH_NS);
    g_assert_true(medium_holds(&disk, 0, 0x11));
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, 0);

    /* Nothing is dirty any more. */
    assert_takes(&disk, submit_flush(&disk), 500000);
    g_assert_cmpint(statistic(&disk, "flushes-issued"), ==, 2);
    disk_end(&disk);
}

static void test_drain_counts_runs(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=volatile");
    /* Two runs: blocks 1 and 2 are neighbours, block 7 is not. */
    write_block(&disk, 2 * BLOCK, 0x22);
    write_block(&disk, 7 * BLOCK, 0x77);
    write_block(&disk, 1 * BLOCK, 0x11);
    assert_takes(&disk, submit_flush(&disk), 2 * DESTAGE_NS + FLUSH_NS);
    disk_end(&disk);
}

static void test_battery(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=battery");
    write_block(&disk, 0, 0x11);
    assert_takes(&disk, submit_flush(&disk), FLUSH_NS);
    /* Acknowledged without draining. */
    g_assert_false(medium_holds(&disk, 0, 0x11));
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, BLOCK);

    /* A stopped machine leaves a complete image. */
    qmp_ok(&disk, "stop");
    qmp_ok(&disk, "cont");
    g_assert_true(medium_holds(&disk, 0, 0x11));
    disk_end(&disk);
}

static void test_none(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=none,"
               "flush-clean-latency-ns=500000");
    write_block(&disk, 0, 0x11);
    g_assert_true(medium_holds(&disk, 0, 0x11));
    assert_takes(&disk, submit_flush(&disk), 500000);
    disk_end(&disk);
}

/* What a cut leaves of a completed, never flushed write. */
static void check_power_cut(const char *write_cache, bool survives)
{
    g_autofree char *options = g_strdup_printf(TIMES ",write-cache=%s",
                                               write_cache);
    Disk disk = {};
    Request in_flight;

    disk_start(&disk, options);
    write_block(&disk, 0, 0x11);
    assert_takes(&disk, submit_flush(&disk),
                 g_str_equal(write_cache, "volatile")
                 ? DESTAGE_NS + FLUSH_NS : FLUSH_NS);
    write_block(&disk, 0, 0x22);
    in_flight = submit_write(&disk, BLOCK, 0x33);
    cut(&disk);

    /* It latches: requests in flight and new ones fail. */
    step(&disk, WRITE_NS);
    g_assert_cmphex(wait_status(&disk, in_flight), ==, VIRTIO_BLK_S_IOERR);
    g_assert_cmphex(wait_status(&disk, submit_flush(&disk)), ==,
                    VIRTIO_BLK_S_IOERR);
    g_assert_cmphex(wait_status(&disk, submit_write(&disk, 0, 0x44)), ==,
                    VIRTIO_BLK_S_IOERR);

    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, survives ? 0x22 : 0x11));
    g_assert_cmpint(statistic(&disk, "power-cuts"), ==, 1);
    disk_end(&disk);
}

static void test_power_cut_volatile(void)
{
    check_power_cut("volatile", false);
}

static void test_power_cut_battery(void)
{
    check_power_cut("battery", true);
}

static void test_power_cut_none(void)
{
    check_power_cut("none", true);
}

/* The machine stops with requests in flight: they complete at once. */
static void test_stop_and_continue(void)
{
    Disk disk = {};
    Request write, flush;

    disk_start(&disk, TIMES ",write-cache=volatile");
    write_block(&disk, 0, 0x11);
    write = submit_write(&disk, BLOCK, 0x22);
    flush = submit_flush(&disk);
    qmp_ok(&disk, "stop");
    g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_OK);
    g_assert_cmphex(wait_status(&disk, flush), ==, VIRTIO_BLK_S_OK);

    qmp_ok(&disk, "cont");
    g_assert_true(medium_holds(&disk, BLOCK, 0x22));
    step(&disk, FLUSH_NS * 4);
    write_block(&disk, 0, 0x33);
    assert_takes(&disk, submit_flush(&disk), DESTAGE_NS + FLUSH_NS);
    disk_end(&disk);
}

/*
 * The monitor reads and flushes in the main thread, which then polls:
 * the clock stands still, and the requests have to end all the same.
 */
static void test_synchronous_requests(void)
{
    Disk disk = {};
    Request flush;

    disk_start(&disk, TIMES ",write-cache=volatile");
    write_block(&disk, 0, 0x11);
    flush = submit_flush(&disk);
    g_assert_cmphex(status(&disk, flush), ==, PENDING);
    g_free(qtest_hmp(disk.qts, "qemu-io disk \"read 0 4096\""));
    g_free(qtest_hmp(disk.qts, "qemu-io disk \"write 4096 4096\""));
    g_free(qtest_hmp(disk.qts, "qemu-io disk flush"));
    g_assert_true(medium_holds(&disk, 0, 0x11));

    /* Ours begins while the guest's is under way, and waits for it. */
    submit_write(&disk, 0, 0x22);
    g_free(qtest_hmp(disk.qts, "qemu-io disk \"write 100 10\""));
    disk_end(&disk);
}

/* The same for a write that stalls while destage waits for the clock. */
static void test_synchronous_stall(void)
{
    Disk disk = {};
    Request write = {};

    disk_start(&disk, "write-cache=volatile,cache-size=64k,"
               "destage-latency-ns=3000000,queue-depth=1");
    for (int i = 0; i < 17; i++) {
        write = submit_write(&disk, 2 * i * BLOCK, 0x40 + i);
    }
    g_assert_cmphex(status(&disk, write), ==, PENDING);
    g_free(qtest_hmp(disk.qts, "qemu-io disk \"write 1M 4096\""));
    g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_OK);
    disk_end(&disk);
}

/* SIGTERM ends QEMU although a flush has a minute to go. */
static void test_quit_in_flight(void)
{
    Disk disk = {};
    Request flush;

    disk_start(&disk, "write-cache=volatile,coalesce=off,"
               "flush-latency-ns=60000000000");
    flush = submit_flush(&disk);
    g_assert_cmphex(status(&disk, flush), ==, PENDING);
    /* qtest_quit() sends SIGTERM and fails if QEMU does not end. */
    disk_end(&disk);
}

static void test_exclusive(void)
{
    Disk disk = {};
    Request flush, write;

    disk_start(&disk, TIMES ",write-cache=volatile,"
               "flush-concurrency=exclusive");
    flush = submit_flush(&disk);
    write = submit_write(&disk, 0, 0x11);
    /* The write has to wait for the flush, and then takes its time. */
    assert_takes(&disk, flush, FLUSH_NS);
    assert_takes(&disk, write, WRITE_NS);
    disk_end(&disk);
}

/* Two flushes at once: what the hardware does with them. */
static void test_serial_and_concurrent(void)
{
    Disk disk = {};
    Request first, second;

    disk_start(&disk, TIMES ",flush-concurrency=serial");
    first = submit_flush(&disk);
    second = submit_flush(&disk);
    assert_takes(&disk, first, FLUSH_NS);
    assert_takes(&disk, second, FLUSH_NS);
    disk_end(&disk);

    disk = (Disk) {};
    disk_start(&disk, TIMES ",flush-concurrency=concurrent");
    first = submit_flush(&disk);
    second = submit_flush(&disk);
    assert_takes(&disk, first, FLUSH_NS);
    g_assert_cmphex(status(&disk, second), ==, VIRTIO_BLK_S_OK);
    disk_end(&disk);
}

/* Flushes that arrive while one is under way share the next. */
static void test_coalesce(void)
{
    Disk disk = {};
    Request flush[4];

    disk_start(&disk, "flush-latency-ns=8000000,write-cache=volatile,"
               "coalesce=auto");
    for (int i = 0; i < 4; i++) {
        flush[i] = submit_flush(&disk);
    }
    assert_takes(&disk, flush[0], FLUSH_NS);
    assert_takes(&disk, flush[1], FLUSH_NS);
    g_assert_cmphex(status(&disk, flush[2]), ==, VIRTIO_BLK_S_OK);
    g_assert_cmphex(status(&disk, flush[3]), ==, VIRTIO_BLK_S_OK);
    g_assert_cmpint(statistic(&disk, "flush-arrivals"), ==, 4);
    g_assert_cmpint(statistic(&disk, "flushes-issued"), ==, 2);
    g_assert_cmpint(statistic(&disk, "flushes-joined"), ==, 2);
    disk_end(&disk);
}

/* Writers stall when the cache is full, and only then. */
static void test_stall(void)
{
    Disk disk = {};
    Request write = {};

    disk_start(&disk, "write-cache=volatile,cache-size=64k,"
               "destage-latency-ns=3000000,queue-depth=1");
    for (int i = 0; i < 16; i++) {
        write = submit_write(&disk, 2 * i * BLOCK, 0x40 + i);
        g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_OK);
    }
    g_assert_cmpint(statistic(&disk, "stalls"), ==, 0);
    write = submit_write(&disk, 100 * BLOCK, 0x77);
    /* One run makes room. */
    assert_takes(&disk, write, DESTAGE_NS);
    step(&disk, 16 * DESTAGE_NS);
    g_assert_cmpint(statistic(&disk, "stalls"), ==, 1);
    g_assert_cmpint(statistic(&disk, "stall-ns"), ==, DESTAGE_NS);
    g_assert_true(disk_holds(&disk, 0, 0x40));
    g_assert_true(disk_holds(&disk, 100 * BLOCK, 0x77));
    disk_end(&disk);
}

/* Above the high watermark the cache empties by itself to the low one. */
static void test_watermarks(void)
{
    Disk disk = {};

    disk_start(&disk, "write-cache=volatile,cache-size=64k,"
               "destage-latency-ns=3000000,queue-depth=1,"
               "destage-high-percent=50,destage-low-percent=25");
    for (int i = 0; i < 8; i++) {
        submit_write(&disk, 2 * i * BLOCK, 0x40 + i);
    }
    step(&disk, 100 * DESTAGE_NS);
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, 8 * BLOCK);
    submit_write(&disk, 16 * BLOCK, 0x50);
    step(&disk, 100 * DESTAGE_NS);
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, 4 * BLOCK);
    g_assert_cmpint(statistic(&disk, "stalls"), ==, 0);
    g_assert_true(disk_holds(&disk, 0, 0x40));
    disk_end(&disk);
}

/* A flush drains what the background has left, and no more. */
static void test_flush_overlaps_destage(void)
{
    Disk disk = {};

    disk_start(&disk, "write-cache=volatile,cache-size=64k,coalesce=off,"
               "destage-latency-ns=3000000,flush-latency-ns=8000000,"
               "queue-depth=1,"
               "destage-high-percent=50,destage-low-percent=25");
    for (int i = 0; i < 9; i++) {
        submit_write(&disk, 2 * i * BLOCK, 0x40 + i);
    }
    /* Two runs are out, the third is half way, six are left. */
    step(&disk, 2 * DESTAGE_NS + DESTAGE_NS / 2);
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, 7 * BLOCK);
    assert_takes(&disk, submit_flush(&disk),
                 DESTAGE_NS / 2 + 6 * DESTAGE_NS + FLUSH_NS);
    g_assert_cmpint(statistic(&disk, "dirty-bytes"), ==, 0);
    disk_end(&disk);
}

/* New times take effect at once; what cannot change is refused. */
static void test_reopen(void)
{
    Disk disk = {};
    QDict *answer;

    disk_start(&disk, "write-cache=volatile,coalesce=off,"
               "flush-latency-ns=8000000");
    assert_takes(&disk, submit_flush(&disk), FLUSH_NS);
    qtest_qmp_assert_success(disk.qts,
        "{'execute': 'blockdev-reopen', 'arguments': {'options': [{"
        "'driver': 'batchflush', 'node-name': 'disk', 'file': 'medium', "
        "'write-cache': 'volatile', 'coalesce': 'off', "
        "'flush-latency-ns': 3000000}]}}");
    assert_takes(&disk, submit_flush(&disk), 3000000);

    answer = qtest_qmp(disk.qts,
        "{'execute': 'blockdev-reopen', 'arguments': {'options': [{"
        "'driver': 'batchflush', 'node-name': 'disk', 'file': 'medium', "
        "'write-cache': 'battery'}]}}");
    g_assert_true(qdict_haskey(answer, "error"));
    g_assert_nonnull(strstr(qdict_get_str(qdict_get_qdict(answer, "error"),
                                          "desc"), "write-cache=battery"));
    qobject_unref(answer);
    assert_takes(&disk, submit_flush(&disk), 3000000);
    disk_end(&disk);
}

/* On the stepped clock nothing is late, and what is cut short not counted. */
static void test_lateness(void)
{
    Disk disk = {};
    Request write;
    int64_t max = -1;

    disk_start(&disk, TIMES ",write-cache=volatile");
    write_block(&disk, 0, 0x11);
    write_block(&disk, BLOCK, 0x11);
    assert_takes(&disk, submit_flush(&disk), DESTAGE_NS + FLUSH_NS);
    g_assert_true(disk_holds(&disk, 0, 0x11));
    g_assert_cmpint(count_late(&disk, "write", &max), ==, 2);
    g_assert_cmpint(max, ==, 0);
    g_assert_cmpint(count_late(&disk, "flush", &max), ==, 1);
    g_assert_cmpint(max, ==, 0);

    write = submit_write(&disk, 0, 0x22);
    submit_flush(&disk);
    qmp_ok(&disk, "stop");
    g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_OK);
    qmp_ok(&disk, "cont");
    g_assert_cmpint(count_late(&disk, "write", &max), ==, 2);
    g_assert_cmpint(count_late(&disk, "flush", &max), ==, 1);
    disk_end(&disk);
}

static QDict *lateness_event(Disk *disk)
{
    /* An answer comes after the events before it. */
    statistic(disk, "power-cuts");
    return qtest_qmp_event_ref(disk->qts, "BATCHFLUSH_LATENESS");
}

/* Writes of a disk whose medium takes 20 us longer than its model. */
static void write_late(Disk *disk, unsigned count, int64_t distance)
{
    for (unsigned i = 0; i < count; i++) {
        assert_takes(disk, submit_write(disk, 0, i), 30000);
        step(disk, distance - 30000);
    }
}

static void late_start(Disk *disk, int64_t budget)
{
    start(disk,
          "-blockdev driver=batchflush-memory,node-name=memory,size=16M "
          "-blockdev driver=batchflush,node-name=medium,file=memory,"
          "write-latency-ns=30000 "
          "-blockdev driver=batchflush,node-name=disk,file=medium,"
          "write-latency-ns=10000,max-lateness-ns=%" PRId64 " "
          "-blockdev driver=raw,node-name=other,file=memory,read-only=on",
          budget);
}

static void test_lateness_budget(void)
{
    Disk disk = {};
    QDict *event, *data;

    late_start(&disk, 19999);
    write_late(&disk, 100, 10000000);
    g_assert_null(lateness_event(&disk));
    write_late(&disk, 1, 10000000);
    event = lateness_event(&disk);
    g_assert_nonnull(event);
    data = qdict_get_qdict(event, "data");
    g_assert_cmpstr(qdict_get_str(data, "node-name"), ==, "disk");
    g_assert_cmpstr(qdict_get_str(data, "operation"), ==, "write");
    g_assert_cmpint(qdict_get_int(data, "p99-ns"), ==, 20000);
    g_assert_cmpint(qdict_get_int(data, "max-lateness-ns"), ==, 19999);
    g_assert_cmpint(qdict_get_int(data, "count"), ==, 101);
    qobject_unref(event);
    /* The next window has not lasted a second. */
    write_late(&disk, 100, 10000000);
    g_assert_null(lateness_event(&disk));
    disk_end(&disk);
}

static void test_lateness_within_budget(void)
{
    Disk disk = {};
    int64_t max = -1;

    late_start(&disk, 20000);
    write_late(&disk, 201, 10000000);
    g_assert_null(lateness_event(&disk));
    g_assert_cmpint(count_late(&disk, "write", &max), ==, 201);
    g_assert_cmpint(max, ==, 20000);
    disk_end(&disk);
}

/*
 * Flushes of two disks share one, which takes as long as the slower of
 * them; each disk and the controller count for themselves.
 */
static void test_controller_flush(void)
{
    Disk disk = {};
    Request first, second, third;

    pair_start(&disk, "write-cache=volatile,coalesce=auto",
               "flush-latency-ns=8000000", "flush-latency-ns=20000000");
    first = submit_flush(&disk);
    second = submit(&disk, &disk.other, VIRTIO_BLK_T_FLUSH, 0, 0, 0);
    third = submit_flush(&disk);
    assert_takes(&disk, first, 8000000);
    /* The second and third arrived meanwhile and share the next. */
    assert_takes(&disk, second, 20000000);
    g_assert_cmphex(status(&disk, third), ==, VIRTIO_BLK_S_OK);

    g_assert_cmpint(statistic(&disk, "flush-arrivals"), ==, 2);
    g_assert_cmpint(statistic(&disk, "flushes-issued"), ==, 2);
    g_assert_cmpint(node_statistic(&disk, "other", "flush-arrivals"), ==, 1);
    g_assert_cmpint(node_statistic(&disk, "other", "flushes-issued"), ==, 1);
    g_assert_cmpint(controller_statistic(&disk, "flush-arrivals"), ==, 3);
    g_assert_cmpint(controller_statistic(&disk, "flushes-issued"), ==, 2);
    g_assert_cmpint(controller_statistic(&disk, "flushes-joined"), ==, 1);
    g_assert_cmpint(controller_statistic(&disk, "flush-average-ns"), ==,
                    20000000);
    disk_end(&disk);
}

/* The cache is one: what one disk keeps in it, the other cannot have. */
static void test_controller_cache(void)
{
    Disk disk = {};
    Request write;

    pair_start(&disk, "write-cache=volatile,cache-size=64k",
               "destage-latency-ns=3000000", "destage-latency-ns=3000000");
    for (int i = 0; i < 16; i++) {
        write = submit_write(&disk, 2 * i * BLOCK, 0x40 + i);
        g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_OK);
    }
    write = submit(&disk, &disk.other, VIRTIO_BLK_T_OUT, 0, BLOCK, 0x77);
    g_assert_cmphex(status(&disk, write), ==, PENDING);
    step(&disk, 16 * DESTAGE_NS);
    g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_OK);
    g_assert_cmpint(node_statistic(&disk, "other", "stalls"), ==, 1);
    g_assert_cmpint(statistic(&disk, "stalls"), ==, 0);
    g_assert_cmpint(controller_statistic(&disk, "stalls"), ==, 1);
    disk_end(&disk);
}

/* So is the power. */
static void test_controller_power(void)
{
    Disk disk = {};
    Request write;

    pair_start(&disk, "write-cache=volatile", "write-latency-ns=10000",
               "write-latency-ns=10000");
    write_block(&disk, 0, 0x11);
    write = submit(&disk, &disk.other, VIRTIO_BLK_T_OUT, 0, BLOCK, 0x77);
    cut(&disk);
    g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_IOERR);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0));
    g_assert_cmpint(node_statistic(&disk, "other", "dirty-bytes"), ==, 0);
    disk_end(&disk);
}

static void assert_refused(QTestState *qts, const char *command,
                           const char *words)
{
    g_autoptr(QDict) answer = qtest_qmp(qts, "%p",
                                        qobject_from_json(command,
                                                          &error_abort));

    g_assert_true(qdict_haskey(answer, "error"));
    g_assert_nonnull(strstr(qdict_get_str(qdict_get_qdict(answer, "error"),
                                          "desc"), words));
}

static void test_controller_refusals(void)
{
    QTestState *qts = qtest_init(
        "-machine pc -nodefaults -object batchflush-controller,id=array "
        "-blockdev driver=batchflush-memory,node-name=m0,size=16M "
        "-blockdev driver=batchflush-memory,node-name=m1,size=16M "
        "-blockdev driver=batchflush,node-name=disk,file=m0,"
        "controller=array,write-cache=volatile");

    assert_refused(qts, "{'execute': 'blockdev-add', 'arguments': {"
                   "'driver': 'batchflush', 'node-name': 'other', "
                   "'file': 'm1', 'controller': 'arry'}}",
                   "controller=arry is not known");
    assert_refused(qts, "{'execute': 'blockdev-add', 'arguments': {"
                   "'driver': 'batchflush', 'node-name': 'other', "
                   "'file': 'm1', 'controller': 'array', "
                   "'write-cache': 'battery'}}",
                   "write-cache=battery contradicts node 'disk'");
    assert_refused(qts, "{'execute': 'object-del', 'arguments': {"
                   "'id': 'array'}}", "in use");
    qtest_qmp_assert_success(qts, "{'execute': 'blockdev-del', "
                             "'arguments': {'node-name': 'disk'}}");
    qtest_qmp_assert_success(qts, "{'execute': 'object-del', "
                             "'arguments': {'id': 'array'}}");
    qtest_quit(qts);
}

/*
 * A disk with a head on the 16 MiB medium: a turn takes 10 ms, a track
 * holds 1 MiB and is a cylinder, so there are 16 of them.
 */
#define TURN_NS 10000000
#define TRACK (1 * MiB)
#define SETTLE_NS 1000000
#define AVERAGE_NS 2000000
#define FULL_NS 4000000
#define READ_NS 20000
#define BLOCK_NS (TURN_NS * INT64_C(4096) / TRACK)
#define HEAD "rpm=6000,bandwidth=100M,tracks-per-cylinder=1," \
             "seek-settle-ns=1000000,seek-average-ns=2000000," \
             "seek-full-ns=4000000,read-latency-ns=20000," \
             "write-latency-ns=10000,coalesce=off"

static Request submit_read(Disk *disk, uint64_t offset)
{
    return submit(disk, &disk->disk, VIRTIO_BLK_T_IN, offset, BLOCK, 0xaa);
}

/* Let the clock be at the beginning of a turn. */
static int64_t step_to_turn(Disk *disk)
{
    int64_t now = qtest_clock_step(disk->qts, 1);

    return qtest_clock_step(disk->qts, TURN_NS - now % TURN_NS);
}

/*
 * When the first block of a cylinder has been served by a head that
 * can leave cylinder @from at @start: each cylinder is turned by a settle
 * against the one before.
 */
static int64_t served(int64_t start, int from, int cylinder)
{
    double x = (ABS(cylinder - from) - 1) / 14.0;
    int64_t there = start +
        (cylinder == from ? 0 : x < 1.0 / 3
         ? SETTLE_NS + (AVERAGE_NS - SETTLE_NS) * sqrt(3 * x)
         : AVERAGE_NS + (FULL_NS - AVERAGE_NS) * (x - 1.0 / 3) * 1.5);
    int64_t wait = cylinder * SETTLE_NS % TURN_NS - there % TURN_NS;

    return there + (wait < 0 ? wait + TURN_NS : wait) + BLOCK_NS;
}

static void test_head(void)
{
    Disk disk = {};
    int64_t now;

    disk_start(&disk, HEAD);
    now = step_to_turn(&disk);
    /* The first block has gone by while the electronics were at work. */
    assert_takes(&disk, submit_read(&disk, 0), TURN_NS + BLOCK_NS);
    /* A stream is read at the rate of the medium. */
    for (int i = 1; i < 8; i++) {
        int64_t next = TURN_NS * INT64_C(4096) * (i + 1) / TRACK -
                       TURN_NS * INT64_C(4096) * i / TRACK;

        assert_takes(&disk, submit_read(&disk, i * BLOCK), next);
    }
    /* Elsewhere it takes a seek and what is left of a turn. */
    for (int i = 0; i < 4; i++) {
        static const int cylinders[] = { 0, 8, 15, 14, 0 };

        now = qtest_clock_step(disk.qts, 12345);
        assert_takes(&disk, submit_read(&disk, cylinders[i + 1] * TRACK),
                     served(now + READ_NS, cylinders[i], cylinders[i + 1]) -
                     now);
    }
    disk_end(&disk);
}

static void test_queue_order(void)
{
    Request first, far, near, middle;
    int64_t now, first_at, near_at, middle_at, far_at;
    Disk disk = {};

    disk_start(&disk, HEAD ",queue-order=nearest");
    now = step_to_turn(&disk);
    first = submit_read(&disk, 0);
    far = submit_read(&disk, 15 * TRACK);
    middle = submit_read(&disk, 7 * TRACK);
    near = submit_read(&disk, 2 * TRACK);

    first_at = now + TURN_NS + BLOCK_NS;
    near_at = served(first_at, 0, 2);
    middle_at = served(near_at, 2, 7);
    far_at = served(middle_at, 7, 15);
    assert_takes(&disk, first, first_at - now);
    assert_takes(&disk, near, near_at - first_at);
    assert_takes(&disk, middle, middle_at - near_at);
    assert_takes(&disk, far, far_at - middle_at);
    disk_end(&disk);
}

/* Many at once: each is done, whoever of them waits for decisions. */
static void test_queue_of_many(void)
{
    static const char *const orders[] = { "fifo", "nearest", "deadline" };

    for (size_t order = 0; order < G_N_ELEMENTS(orders); order++) {
        g_autofree char *options = g_strdup_printf(
            HEAD ",write-cache=volatile,queue-order=%s,queue-depth=8,"
            "queue-deadline-ns=30000000,idle-window-ns=3000000",
            orders[order]);
        Request requests[40];
        Disk disk = {};

        disk_start(&disk, options);
        for (int i = 0; i < 40; i++) {
            uint64_t offset = i * 7919 % 16 * TRACK + i * BLOCK;

            requests[i] = i % 10 == 9 ? submit_flush(&disk)
                : i % 3 ? submit_read(&disk, offset)
                        : submit_write(&disk, offset, i);
            step(&disk, 1 + i % 2 * SETTLE_NS);
        }
        for (int i = 0; i < 60; i++) {
            step(&disk, TURN_NS);
        }
        for (int i = 0; i < 40; i++) {
            g_assert_cmphex(status(&disk, requests[i]), ==,
                            VIRTIO_BLK_S_OK);
        }
        disk_end(&disk);
    }
}

/* A machine that stops, quits or cuts its power has no use for a queue. */
static void test_queue_is_cut_short(void)
{
    Request requests[6];
    Disk disk = {};

    disk_start(&disk, HEAD ",queue-order=nearest,write-cache=volatile,"
               "flush-concurrency=exclusive");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 6; i++) {
            requests[i] = i == 4 ? submit_flush(&disk)
                                 : submit_read(&disk, i * 3 * TRACK);
        }
        if (round == 0) {
            qmp_ok(&disk, "stop");
            qmp_ok(&disk, "cont");
        } else if (round == 1) {
            cut(&disk);
            restore(&disk);
        }
        for (int i = 0; round < 2 && i < 6; i++) {
            g_assert_cmphex(wait_status(&disk, requests[i]), ==, round == 0
                            ? VIRTIO_BLK_S_OK : VIRTIO_BLK_S_IOERR);
        }
    }
    disk_end(&disk);
}

/* The head waits for its reader, but not while a flush waits. */
static void test_idle_window(void)
{
    const int64_t window = 50000000;
    Request other, flush;
    int64_t now, flush_at, other_at;
    Disk disk = {};

    disk_start(&disk, HEAD ",write-cache=volatile,flush-latency-ns=8000000,"
               "idle-window-ns=50000000");
    write_block(&disk, 3 * TRACK, 0x33);
    now = step_to_turn(&disk);
    assert_takes(&disk, submit_read(&disk, 0), TURN_NS + BLOCK_NS);
    assert_takes(&disk, submit_read(&disk, BLOCK), BLOCK_NS + 1);
    now += TURN_NS + 2 * BLOCK_NS + 1;
    other = submit_read(&disk, 8 * TRACK);
    assert_takes(&disk, other, served(now + window, 0, 8) - now);

    /* The stream goes on, two blocks behind the beginning of the track. */
    now = qtest_clock_step(disk.qts, 1);
    assert_takes(&disk, submit_read(&disk, 2 * BLOCK),
                 served(now + READ_NS, 8, 0) + 2 * BLOCK_NS + 1 - now);
    other = submit_read(&disk, 8 * TRACK);
    now = qtest_clock_step(disk.qts, window / 2);
    g_assert_cmphex(status(&disk, other), ==, PENDING);
    flush = submit_flush(&disk);
    /* In order of arrival: the other one, then what the flush drains. */
    other_at = served(now, 0, 8);
    flush_at = served(other_at, 8, 3) + FLUSH_NS;
    assert_takes(&disk, other, other_at - now);
    assert_takes(&disk, flush, flush_at - other_at);
    disk_end(&disk);
}

/* SplitMix64, as the model's generator. */
static double next_unit(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (((z ^ (z >> 31)) >> 12) + 0.5) / (UINT64_C(1) << 52);
}

static void test_spread(void)
{
    uint64_t state = 42;
    Disk disk = {};

    disk_start(&disk, "read-latency-ns=1000000,flush-latency-ns=2000000,"
               "latency-spread=uniform:50,flush-spread=pareto:2,seed=42,"
               "coalesce=off");
    for (int i = 0; i < 10; i++) {
        assert_takes(&disk, submit_read(&disk, i * BLOCK),
                     1000000 * (0.5 + next_unit(&state)) + 0.5);
        assert_takes(&disk, submit_flush(&disk),
                     2000000 * (0.5 * pow(next_unit(&state), -0.5)) + 0.5);
    }
    disk_end(&disk);
}

/* A discard or a write of zeroes of one block. */
static Request submit_range(Disk *disk, uint32_t type, uint64_t offset)
{
    QTestState *qts = disk->qts;
    Request req = {
        .address = guest_alloc(&disk->alloc, 16 + 16 + 1), .bytes = 16,
    };
    uint32_t head;

    qtest_writel(qts, req.address, type);
    qtest_writel(qts, req.address + 4, 0);
    qtest_writeq(qts, req.address + 8, 0);
    qtest_writeq(qts, req.address + 16, offset / 512);
    qtest_writel(qts, req.address + 24, BLOCK / 512);
    qtest_writel(qts, req.address + 28, 0);
    qtest_writeb(qts, req.address + 32, PENDING);
    head = qvirtqueue_add(qts, disk->disk.vq, req.address, 32, false, true);
    qvirtqueue_add(qts, disk->disk.vq, req.address + 32, 1, true, false);
    qvirtqueue_kick(qts, &disk->disk.dev->vdev, disk->disk.vq, head);
    return req;
}

static void check_costs(const char *options, int64_t discard, int64_t zero,
                        int64_t fua)
{
    Disk disk = {};

    /* The device has no write cache of its own: each write has FUA. */
    start(&disk, "-global virtio-blk-device.write-cache=off "
          "-blockdev driver=batchflush-memory,node-name=medium,size=16M,"
          "discard=unmap "
          "-blockdev driver=batchflush,node-name=disk,file=medium,"
          "discard=unmap," TIMES ",write-cache=volatile%s "
          "-blockdev driver=raw,node-name=other,file=medium,read-only=on",
          options);
    assert_takes(&disk, submit_range(&disk, VIRTIO_BLK_T_DISCARD, 0),
                 discard);
    assert_takes(&disk, submit_range(&disk, VIRTIO_BLK_T_WRITE_ZEROES, 0),
                 zero);
    assert_takes(&disk, submit_write(&disk, 0, 0x11), fua);
    g_assert_true(medium_holds(&disk, 0, 0x11));
    disk_end(&disk);
}

static void test_costs(void)
{
    const int64_t past = WRITE_NS + DESTAGE_NS;

    check_costs("", past, past, past);
    check_costs(",discard-latency-ns=1000,zero-latency-ns=2000,"
                "fua-latency-ns=3000", 1000, 2000, 3000);
}

/*
 * Power cuts: the commands, what they say, and what is left.  A cut is
 * ordered in the words of QMP; the guest runs on unless it says more.
 */

static void order_cut(Disk *disk, const char *arguments)
{
    g_autofree char *command = g_strdup_printf(
        "{'execute': 'batchflush-power-cut', 'arguments': {%s}}", arguments);

    qtest_qmp_assert_success(disk->qts, "%p",
                             qobject_from_json(command, &error_abort));
}

static QDict *cut_event(Disk *disk)
{
    g_autoptr(QDict) event = qtest_qmp_eventwait_ref(disk->qts,
                                                     "BATCHFLUSH_POWER_CUT");

    return qobject_ref(qdict_get_qdict(event, "data"));
}

static int nodes_in(const QDict *data)
{
    return qlist_size(qdict_get_qlist(data, "nodes"));
}

static const QDict *first_in(const QDict *data)
{
    const QListEntry *first = qlist_first(qdict_get_qlist(data, "nodes"));

    return qobject_to(QDict, qlist_entry_obj(first));
}

/* What query-batchflush says of the disk. */
static QDict *node_info(Disk *disk)
{
    g_autoptr(QDict) answer = qtest_qmp(disk->qts,
                                        "{'execute': 'query-batchflush'}");
    QListEntry *entry;

    QLIST_FOREACH_ENTRY(qdict_get_qlist(answer, "return"), entry) {
        QDict *node = qobject_to(QDict, qlist_entry_obj(entry));

        if (g_str_equal(qdict_get_str(node, "node-name"), "disk")) {
            return qobject_ref(node);
        }
    }
    g_assert_not_reached();
}

/* It fails at @ns from now, and not a nanosecond earlier. */
static void assert_cut_at(Disk *disk, Request req, int64_t ns)
{
    g_assert_cmphex(status(disk, req), ==, PENDING);
    step(disk, ns - 1);
    g_assert_cmphex(status(disk, req), ==, PENDING);
    step(disk, 1);
    g_assert_cmphex(wait_status(disk, req), ==, VIRTIO_BLK_S_IOERR);
}

static void assert_pending(Disk *disk, const char *when, int count)
{
    g_autoptr(QDict) info = node_info(disk);
    const QDict *pending = qdict_get_qdict(info, "pending-cut");

    g_assert_true(qdict_get_bool(info, "powered"));
    g_assert_cmpstr(qdict_get_str(pending, "when"), ==, when);
    g_assert_cmpint(qdict_get_int(pending, "count"), ==, count);
}

static void assert_event(Disk *disk, const char *policy, int64_t seed,
                         int writes, int flushes)
{
    g_autoptr(QDict) data = cut_event(disk);
    const QDict *node = first_in(data);

    g_assert_cmpstr(qdict_get_str(data, "guest"), ==, "run");
    g_assert_cmpstr(qdict_get_str(data, "policy"), ==, policy);
    g_assert_cmpint(qdict_get_int(data, "seed"), ==, seed);
    g_assert_cmpint(qdict_get_int(node, "writes"), ==, writes);
    g_assert_cmpint(qdict_get_int(node, "flushes"), ==, flushes);
    g_assert_cmpint(qdict_get_int(node, "position"), ==, writes + flushes);
}

static void test_cut_moments(void)
{
    Disk disk = {};
    Request req;

    disk_start(&disk, TIMES ",write-cache=volatile");
    order_cut(&disk, "'guest': 'run', 'when': 'write', 'count': 2, "
              "'policy': 'subset', 'seed': 7");
    assert_pending(&disk, "write", 2);
    write_block(&disk, 0, 0x11);
    assert_pending(&disk, "write", 1);
    req = submit_write(&disk, BLOCK, 0x22);
    g_assert_cmphex(wait_status(&disk, req), ==, VIRTIO_BLK_S_IOERR);
    assert_event(&disk, "subset", 7, 2, 0);
    restore(&disk);

    order_cut(&disk, "'guest': 'run', 'when': 'flush', 'count': 2, "
              "'policy': 'torn', 'seed': 8");
    write_block(&disk, 2 * BLOCK, 0x33);
    assert_takes(&disk, submit_flush(&disk), DESTAGE_NS + FLUSH_NS);
    req = submit_flush(&disk);
    g_assert_cmphex(wait_status(&disk, req), ==, VIRTIO_BLK_S_IOERR);
    assert_event(&disk, "torn", 8, 3, 2);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 2 * BLOCK, 0x33));

    /* Half way, where it does not say. */
    order_cut(&disk, "'guest': 'run', 'when': 'in-flush', 'seed': 9, "
              "'policy': 'drop-all'");
    write_block(&disk, 3 * BLOCK, 0x44);
    assert_cut_at(&disk, submit_flush(&disk), (DESTAGE_NS + FLUSH_NS) / 2);
    assert_event(&disk, "drop-all", 9, 4, 3);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 3 * BLOCK, 0));

    order_cut(&disk, "'guest': 'run', 'when': 'in-flush', 'ns': 1234");
    write_block(&disk, 3 * BLOCK, 0x44);
    assert_cut_at(&disk, submit_flush(&disk), 1234);
    qobject_unref(cut_event(&disk));
    restore(&disk);

    order_cut(&disk, "'guest': 'run', 'when': 'time', 'ns': 5000");
    assert_cut_at(&disk, submit_write(&disk, 0, 0x55), 5000);
    qobject_unref(cut_event(&disk));
    restore(&disk);

    /* One that waits in vain is withdrawn. */
    order_cut(&disk, "'guest': 'run', 'when': 'time', 'ns': 5000");
    restore(&disk);
    write_block(&disk, 0, 0x66);
    g_assert_cmpint(statistic(&disk, "power-cuts"), ==, 5);
    disk_end(&disk);
}

/* Which of blocks 0 and 1, written in this order, are there: bits. */
static unsigned survivors_of_two(Disk *disk, const char *policy, int seed)
{
    g_autofree char *arguments = g_strdup_printf(
        "'guest': 'run', 'policy': '%s', 'seed': %d", policy, seed);
    unsigned there;

    write_block(disk, 0, 0);
    write_block(disk, BLOCK, 0);
    assert_takes(disk, submit_flush(disk), DESTAGE_NS + FLUSH_NS);
    write_block(disk, 0, 0x11);
    write_block(disk, BLOCK, 0x22);
    order_cut(disk, arguments);
    qobject_unref(cut_event(disk));
    restore(disk);
    there = disk_holds(disk, 0, 0x11) | disk_holds(disk, BLOCK, 0x22) << 1;
    if (!g_str_equal(policy, "torn")) {
        g_assert_true((there & 1) || disk_holds(disk, 0, 0));
        g_assert_true((there & 2) || disk_holds(disk, BLOCK, 0));
    }
    return there;
}

/* The queue of libqos's driver is used up after some requests. */
static unsigned outcomes_of_two(const char *policy)
{
    unsigned outcomes = 0;

    for (int seed = 0; seed < 24; seed += 6) {
        Disk disk = {};

        disk_start(&disk, TIMES ",write-cache=volatile");
        for (int i = 0; i < 6; i++) {
            outcomes |= 1u << survivors_of_two(&disk, policy, seed + i);
        }
        disk_end(&disk);
    }
    return outcomes;
}

static void test_cut_policies(void)
{
    g_assert_cmphex(outcomes_of_two("drop-all"), ==, 1 << 0);
    g_assert_cmphex(outcomes_of_two("prefix"), ==, 1 << 0 | 1 << 1 | 1 << 3);
    g_assert_cmphex(outcomes_of_two("subset"), ==,
                    1 << 0 | 1 << 1 | 1 << 2 | 1 << 3);
    /* Hardly ever is a block of eight sectors whole. */
    g_assert_cmphex(outcomes_of_two("torn") & 1 << 0, ==, 1 << 0);
}

static char *hash_of_a_cut(const char *arguments)
{
    g_autoptr(QDict) data = NULL;
    Disk disk = {};
    char *hash;

    disk_start(&disk, TIMES ",write-cache=volatile,seed=5,"
               "power-cut-policy=torn");
    for (int i = 0; i < 4; i++) {
        write_block(&disk, i * BLOCK, 0x11 * (i + 1));
    }
    order_cut(&disk, arguments);
    data = cut_event(&disk);
    g_assert_cmpstr(qdict_get_str(data, "policy"), ==, "torn");
    g_assert_cmpint(qdict_get_int(first_in(data), "kept-bytes") +
                    qdict_get_int(first_in(data), "lost-bytes"), ==,
                    4 * BLOCK);
    hash = g_strdup(qdict_get_str(first_in(data), "hash"));
    disk_end(&disk);
    return hash;
}

/* The same requests and the same seed have the same survivors. */
static void test_cut_repeats(void)
{
    const char *const orders[] = {
        "'guest': 'run'", "'guest': 'run', 'seed': 1",
    };
    g_autofree char *hashes[G_N_ELEMENTS(orders)];

    for (size_t i = 0; i < G_N_ELEMENTS(orders); i++) {
        g_autofree char *again = hash_of_a_cut(orders[i]);

        hashes[i] = hash_of_a_cut(orders[i]);
        g_assert_cmpstr(hashes[i], ==, again);
    }
    g_assert_cmpstr(hashes[0], !=, hashes[1]);
    g_free(g_steal_pointer(&hashes[1]));
}

/* Without a name it is all disks of the machine, at one instant. */
static void test_cut_everything(void)
{
    g_autoptr(QDict) data = NULL;
    Disk disk = {};
    Request write;

    start(&disk,
          "-blockdev driver=batchflush-memory,node-name=m0,size=16M "
          "-blockdev driver=batchflush-memory,node-name=m1,size=16M "
          "-blockdev driver=batchflush,node-name=disk,file=m0," TIMES
          ",write-cache=volatile "
          "-blockdev driver=batchflush,node-name=other,file=m1," TIMES
          ",write-cache=volatile");
    order_cut(&disk, "'guest': 'run', 'when': 'write'");
    write = submit(&disk, &disk.other, VIRTIO_BLK_T_OUT, 0, BLOCK, 0x77);
    g_assert_cmphex(wait_status(&disk, write), ==, VIRTIO_BLK_S_IOERR);
    g_assert_cmphex(wait_status(&disk, submit_write(&disk, 0, 0x11)), ==,
                    VIRTIO_BLK_S_IOERR);
    data = cut_event(&disk);
    g_assert_cmpint(nodes_in(data), ==, 2);
    qmp_ok(&disk, "batchflush-power-restore");
    write_block(&disk, 0, 0x11);
    disk_end(&disk);
}

static void test_cut_and_the_guest(void)
{
    g_autoptr(QDict) info = NULL;
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=volatile");
    write_block(&disk, 0, 0x11);
    order_cut(&disk, "'guest': 'pause'");
    qtest_qmp_eventwait(disk.qts, "STOP");
    qmp_ok(&disk, "cont");
    restore(&disk);
    qtest_qmp_eventwait(disk.qts, "BATCHFLUSH_POWER_RESTORE");
    g_assert_true(disk_holds(&disk, 0, 0));

    /* A reset restores the power for the boot. */
    order_cut(&disk, "'node-name': 'disk'");
    qtest_qmp_eventwait(disk.qts, "BATCHFLUSH_POWER_RESTORE");
    qtest_qmp_eventwait(disk.qts, "RESET");
    g_assert_cmpint(statistic(&disk, "power-cuts"), ==, 2);
    info = node_info(&disk);
    g_assert_true(qdict_get_bool(info, "powered"));
    qtest_quit(disk.qts);
}

/* QEMU's own flushes bring nothing to the medium while it is cut. */
static void test_cut_latches(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=battery");
    write_block(&disk, 0, 0x11);
    cut(&disk);
    for (int i = 0; i < 2; i++) {
        qmp_ok(&disk, "stop");
        qmp_ok(&disk, "cont");
    }
    g_assert_true(medium_holds(&disk, 0, 0));
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0x11));
    disk_end(&disk);
}

/* What others have claimed is not durable when a flush finds nothing. */
static void test_flush_waits_for_destage(void)
{
    Disk disk = {};

    disk_start(&disk, "write-latency-ns=10000,destage-latency-ns=3000000,"
               "flush-latency-ns=100000,coalesce=off,write-cache=volatile,"
               "cache-size=64k,destage-high-percent=10");
    for (int i = 0; i < 2; i++) {
        submit_write(&disk, i * BLOCK, 0x11);
    }
    step(&disk, WRITE_NS);
    assert_takes(&disk, submit_flush(&disk),
                 DESTAGE_NS - WRITE_NS + 100000);
    cut(&disk);
    restore(&disk);
    for (int i = 0; i < 2; i++) {
        g_assert_true(disk_holds(&disk, i * BLOCK, 0x11));
    }
    disk_end(&disk);
}

static void order_battery(Disk *disk, const char *arguments,
                          const char *state, int64_t hold_up_ns)
{
    g_autofree char *command = g_strdup_printf(
        "{'execute': 'batchflush-battery', 'arguments': {%s}}", arguments);
    g_autoptr(QDict) event = NULL;
    g_autoptr(QDict) info = NULL;
    const QDict *data;

    qtest_qmp_assert_success(disk->qts, "%p",
                             qobject_from_json(command, &error_abort));
    event = qtest_qmp_eventwait_ref(disk->qts, "BATCHFLUSH_BATTERY");
    data = qdict_get_qdict(event, "data");
    g_assert_cmpstr(qdict_get_str(data, "state"), ==, state);
    g_assert_cmpint(qdict_get_int(data, "hold-up-ns"), ==, hold_up_ns);
    info = node_info(disk);
    g_assert_cmpstr(qdict_get_str(info, "battery"), ==, state);
    g_assert_cmpint(qdict_get_int(info, "hold-up-ns"), ==, hold_up_ns);
}

static int64_t hold_up_left(Disk *disk)
{
    g_autoptr(QDict) info = node_info(disk);

    return qdict_get_int(info, "hold-up-left-ns");
}

static int64_t dirty_bytes(Disk *disk)
{
    g_autoptr(QDict) info = node_info(disk);

    return qdict_get_int(info, "dirty-bytes");
}

static void assert_hold_up_over(Disk *disk, int64_t lost)
{
    g_autoptr(QDict) event = qtest_qmp_eventwait_ref(
        disk->qts, "BATCHFLUSH_HOLD_UP_OVER");
    const QDict *data = qdict_get_qdict(event, "data");

    g_assert_cmpint(qdict_get_int(first_in(data), "lost-bytes"), ==, lost);
}

static void test_hold_up(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=battery,battery-hold-up-ns=1000");
    write_block(&disk, 0, 0x11);
    cut(&disk);
    g_assert_cmpint(hold_up_left(&disk), ==, 1000);
    step(&disk, 999);
    g_assert_cmpint(hold_up_left(&disk), ==, 1);
    g_assert_cmpint(dirty_bytes(&disk), ==, BLOCK);
    /* In time: nothing is lost. */
    restore(&disk);
    step(&disk, 1000);
    g_assert_true(disk_holds(&disk, 0, 0x11));

    cut(&disk);
    step(&disk, 1000);
    assert_hold_up_over(&disk, BLOCK);
    g_assert_cmpint(dirty_bytes(&disk), ==, 0);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0));

    /* A longer hold-up, while it lasts. */
    write_block(&disk, 0, 0x22);
    cut(&disk);
    step(&disk, 500);
    order_battery(&disk, "'hold-up-ns': 2000", "charged", 2000);
    g_assert_cmpint(hold_up_left(&disk), ==, 1500);
    step(&disk, 1499);
    g_assert_cmpint(dirty_bytes(&disk), ==, BLOCK);
    order_battery(&disk, "'node-name': 'disk', 'state': 'failed'", "failed",
                  2000);
    assert_hold_up_over(&disk, BLOCK);
    restore(&disk);
    disk_end(&disk);
}

/* Without its battery the cache is as good as none. */
static void check_no_battery(const char *state)
{
    g_autofree char *arguments = g_strdup_printf("'state': '%s'", state);
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=battery");
    write_block(&disk, 0, 0x11);
    order_battery(&disk, arguments, state, 0);

    /* A write is done when it is on the medium; what was dirty stays. */
    assert_takes(&disk, submit_write(&disk, BLOCK, 0x22),
                 WRITE_NS + DESTAGE_NS);
    g_assert_true(medium_holds(&disk, BLOCK, 0x22));
    g_assert_cmpint(dirty_bytes(&disk), ==, BLOCK);

    /* The first flush destages all of it. */
    assert_takes(&disk, submit_flush(&disk), DESTAGE_NS + FLUSH_NS);
    g_assert_true(medium_holds(&disk, 0, 0x11));
    cut(&disk);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0x11));
    g_assert_true(disk_holds(&disk, BLOCK, 0x22));

    order_battery(&disk, "'state': 'charged'", "charged", 0);
    write_block(&disk, 0, 0x33);
    /* Before that flush, acknowledged data may go. */
    assert_takes(&disk, submit_flush(&disk), FLUSH_NS);
    order_battery(&disk, arguments, state, 0);
    cut(&disk);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0x11));
    disk_end(&disk);
}

static void test_battery_learning(void)
{
    check_no_battery("learning");
}

static void test_battery_failed(void)
{
    check_no_battery("failed");
}

static void test_lie_flush(void)
{
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=volatile,lie=flush");
    write_block(&disk, 0, 0x11);
    assert_takes(&disk, submit_flush(&disk), FLUSH_NS);
    cut(&disk);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0));

    /* At the machine's stop no device lies. */
    write_block(&disk, 0, 0x22);
    qmp_ok(&disk, "stop");
    qmp_ok(&disk, "cont");
    g_assert_true(medium_holds(&disk, 0, 0x22));
    disk_end(&disk);
}

static void test_lie_delayed(void)
{
    const int64_t delay = 50000000;
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=volatile,lie=delayed,"
               "lie-delay-ns=50000000");
    write_block(&disk, 0, 0x11);
    assert_takes(&disk, submit_flush(&disk), FLUSH_NS);
    step(&disk, delay - 1);
    g_assert_true(medium_holds(&disk, 0, 0));
    cut(&disk);
    restore(&disk);
    step(&disk, 2 * delay);
    g_assert_true(disk_holds(&disk, 0, 0));

    write_block(&disk, 0, 0x22);
    assert_takes(&disk, submit_flush(&disk), FLUSH_NS);
    step(&disk, delay + DESTAGE_NS);
    cut(&disk);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, 0x22));
    disk_end(&disk);
}

static void check_fua_lies(const char *lie, bool survives)
{
    Disk disk = {};

    /* The device has no write cache of its own: each write has FUA. */
    start(&disk, "-global virtio-blk-device.write-cache=off "
          "-blockdev driver=batchflush-memory,node-name=medium,size=16M "
          "-blockdev driver=batchflush,node-name=disk,file=medium,"
          TIMES ",write-cache=volatile,lie=%s "
          "-blockdev driver=raw,node-name=other,file=medium,read-only=on",
          lie);
    assert_takes(&disk, submit_write(&disk, 0, 0x11),
                 survives ? WRITE_NS + DESTAGE_NS : WRITE_NS);
    cut(&disk);
    restore(&disk);
    g_assert_true(disk_holds(&disk, 0, survives ? 0x11 : 0));
    disk_end(&disk);
}

static void test_lie_fua(void)
{
    check_fua_lies("none", true);
    check_fua_lies("flush", true);
    check_fua_lies("fua", false);
    check_fua_lies("delayed", false);
}

static void test_power_refusals(void)
{
    static const char *const refusals[][3] = {
        { "power-cut", "'node-name': 'dsk'", "node-name=dsk is not known" },
        { "power-cut", "'node-name': 'medium'",
          "node-name=medium is a batchflush-memory node; allowed is a "
          "batchflush node" },
        { "power-cut", "'controller': 'array'", "controller=array is not" },
        { "power-cut", "'node-name': 'disk', 'controller': 'array'",
          "node-name=disk and controller=array are both given" },
        { "power-cut", "'when': 'flush', 'count': 0",
          "count=0 is not allowed with when=flush; allowed is 1 or more" },
        { "power-cut", "'count': 2",
          "count=2 is not allowed with when=now; allowed is none" },
        { "power-cut", "'when': 'time'", "when=time needs ns" },
        { "power-cut", "'when': 'time', 'ns': -1",
          "ns=-1 is out of range; allowed are 0 to" },
        { "power-cut", "'seed': -1",
          "seed=-1 is out of range; allowed are 0 to" },
        { "power-cut", "'policy': 'drop'", "drop" },
        { "power-cut", "'when': 'soon'", "soon" },
        { "power-cut", "'guest': 'kill'", "kill" },
        { "power-cut", "'node-name': 'safe'",
          "power-cuts=off of node 'safe' refuses power cuts" },
        { "power-cut", "'node-name': 'unsafe'",
          "cache=unsafe of node 'unsafe' loses FUA" },
        { "power-cut", "'node-name': 'behind'",
          "node 'behind' is behind nvme, which loses FUA" },
        { "power-restore", "'node-name': 'disk'",
          "the power of node 'disk' is on" },
        { "battery", "'node-name': 'disk', 'state': 'failed'",
          "node 'disk' has no battery; allowed is a node with "
          "write-cache=battery" },
        { "battery", "'node-name': 'backed', 'hold-up-ns': -1",
          "battery-hold-up-ns=-1" },
        { "battery", "'node-name': 'backed', 'state': 'flat'", "flat" },
    };
    QTestState *qts = qtest_init(
        "-machine pc -nodefaults "
        "-blockdev driver=batchflush-memory,node-name=medium,size=16M "
        "-blockdev driver=batchflush,node-name=disk,file=medium,"
        "write-cache=volatile "
        "-blockdev driver=batchflush,node-name=safe,power-cuts=off,"
        "file.driver=batchflush-memory,file.size=1M "
        "-blockdev driver=batchflush,node-name=unsafe,cache.no-flush=on,"
        "file.driver=batchflush-memory,file.size=1M "
        "-blockdev driver=batchflush,node-name=backed,write-cache=battery,"
        "file.driver=batchflush-memory,file.size=1M "
        "-blockdev driver=batchflush,node-name=behind,write-cache=volatile,"
        "file.driver=batchflush-memory,file.size=1M "
        "-device nvme,drive=behind,serial=behind");

    for (size_t i = 0; i < G_N_ELEMENTS(refusals); i++) {
        g_autofree char *command = g_strdup_printf(
            "{'execute': 'batchflush-%s', 'arguments': {%s}}",
            refusals[i][0], refusals[i][1]);

        assert_refused(qts, command, refusals[i][2]);
    }
    qtest_qmp_assert_success(qts, "{'execute': 'batchflush-power-cut', "
                             "'arguments': {'node-name': 'disk', "
                             "'guest': 'run'}}");
    assert_refused(qts, "{'execute': 'batchflush-power-cut', 'arguments': "
                   "{'node-name': 'disk'}}",
                   "the power of node 'disk' is already cut");
    qtest_qmp_assert_success(qts, "{'execute': 'batchflush-power-restore'}");
    qtest_qmp_assert_success(qts, "{'execute': 'batchflush-power-cut', "
                             "'arguments': {'node-name': 'disk', "
                             "'when': 'flush', 'guest': 'run'}}");
    assert_refused(qts, "{'execute': 'batchflush-power-cut', 'arguments': "
                   "{'node-name': 'disk'}}",
                   "a power cut of node 'disk' is waiting for its moment");
    qtest_quit(qts);
}

/* Which sectors of a block hold the pattern: bits. */
static unsigned sectors_that_hold(Disk *disk, uint64_t offset,
                                  uint8_t pattern)
{
    Request req = submit(disk, &disk->disk, VIRTIO_BLK_T_IN, offset, BLOCK,
                         ~pattern);
    uint8_t data[BLOCK];
    unsigned sectors = 0;

    step(disk, 100 * WRITE_NS);
    g_assert_cmphex(wait_status(disk, req), ==, VIRTIO_BLK_S_OK);
    qtest_memread(disk->qts, req.address + 16, data, sizeof(data));
    for (int i = 0; i < 8; i++) {
        sectors |= buffer_is(data + i * 512, 512, pattern) << i;
    }
    return sectors;
}

/* The trace of docs/contract.rst: what is left of W2', W3 and W4. */
static void run_trace(const char *policy, int seed, uint8_t left[3])
{
    g_autofree char *arguments = g_strdup_printf(
        "'guest': 'run', 'policy': '%s', 'seed': %d", policy, seed);
    Request flush;
    Disk disk = {};

    disk_start(&disk, TIMES ",write-cache=volatile");
    submit_write(&disk, 1 * BLOCK, 0x11);
    submit_write(&disk, 2 * BLOCK, 0x22);
    step(&disk, WRITE_NS);
    flush = submit_flush(&disk);
    step(&disk, WRITE_NS / 2);
    submit_write(&disk, 2 * BLOCK, 0x2a);
    submit_write(&disk, 3 * BLOCK, 0x33);
    step(&disk, DESTAGE_NS + FLUSH_NS - WRITE_NS / 2);
    g_assert_cmphex(status(&disk, flush), ==, VIRTIO_BLK_S_OK);
    submit_write(&disk, 4 * BLOCK, 0x44);
    step(&disk, WRITE_NS / 2);
    order_cut(&disk, arguments);
    restore(&disk);

    g_assert_cmphex(sectors_that_hold(&disk, BLOCK, 0x11), ==, 0xff);
    left[0] = sectors_that_hold(&disk, 2 * BLOCK, 0x2a);
    left[1] = sectors_that_hold(&disk, 3 * BLOCK, 0x33);
    left[2] = sectors_that_hold(&disk, 4 * BLOCK, 0x44);
    g_assert_cmphex(sectors_that_hold(&disk, 2 * BLOCK, 0x22) | left[0], ==,
                    0xff);
    g_assert_cmphex(sectors_that_hold(&disk, 3 * BLOCK, 0) | left[1], ==,
                    0xff);
    g_assert_cmphex(sectors_that_hold(&disk, 4 * BLOCK, 0) | left[2], ==,
                    0xff);
    disk_end(&disk);
}

static void test_worked_trace(void)
{
    static const struct {
        const char *policy;
        int seed;
        uint8_t left[3];
    } rows[] = {
        { "drop-all", 1, { 0x00, 0x00, 0x00 } },
        { "prefix", 1, { 0xff, 0x00, 0x00 } },
        { "prefix", 6, { 0xff, 0xff, 0x00 } },
        { "prefix", 3, { 0xff, 0xff, 0xff } },
        { "subset", 2, { 0xff, 0x00, 0x00 } },
        { "subset", 7, { 0x00, 0xff, 0x00 } },
        { "subset", 1, { 0x00, 0x00, 0xff } },
        { "torn", 1, { 0xc3, 0xe6, 0xe2 } },
    };

    for (size_t i = 0; i < G_N_ELEMENTS(rows); i++) {
        uint8_t left[3];

        run_trace(rows[i].policy, rows[i].seed, left);
        g_test_message("%s, seed %d: %02x %02x %02x", rows[i].policy,
                       rows[i].seed, left[0], left[1], left[2]);
        for (int j = 0; j < 3; j++) {
            g_assert_cmphex(left[j], ==, rows[i].left[j]);
        }
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);

    qtest_add_func("batchflush/volatile", test_volatile);
    qtest_add_func("batchflush/battery", test_battery);
    qtest_add_func("batchflush/none", test_none);
    qtest_add_func("batchflush/drain-counts-runs", test_drain_counts_runs);
    qtest_add_func("batchflush/power-cut/volatile", test_power_cut_volatile);
    qtest_add_func("batchflush/power-cut/battery", test_power_cut_battery);
    qtest_add_func("batchflush/power-cut/none", test_power_cut_none);
    qtest_add_func("batchflush/stop-and-continue", test_stop_and_continue);
    qtest_add_func("batchflush/quit-in-flight", test_quit_in_flight);
    qtest_add_func("batchflush/synchronous-requests",
                   test_synchronous_requests);
    qtest_add_func("batchflush/synchronous-stall", test_synchronous_stall);
    qtest_add_func("batchflush/exclusive", test_exclusive);
    qtest_add_func("batchflush/serial-and-concurrent",
                   test_serial_and_concurrent);
    qtest_add_func("batchflush/coalesce", test_coalesce);
    qtest_add_func("batchflush/stall", test_stall);
    qtest_add_func("batchflush/watermarks", test_watermarks);
    qtest_add_func("batchflush/flush-overlaps-destage",
                   test_flush_overlaps_destage);
    qtest_add_func("batchflush/reopen", test_reopen);
    qtest_add_func("batchflush/lateness/none-on-a-stepped-clock",
                   test_lateness);
    qtest_add_func("batchflush/lateness/budget", test_lateness_budget);
    qtest_add_func("batchflush/lateness/within-budget",
                   test_lateness_within_budget);
    qtest_add_func("batchflush/controller/flush", test_controller_flush);
    qtest_add_func("batchflush/controller/cache", test_controller_cache);
    qtest_add_func("batchflush/controller/power", test_controller_power);
    qtest_add_func("batchflush/controller/refusals",
                   test_controller_refusals);
    qtest_add_func("batchflush/model/head", test_head);
    qtest_add_func("batchflush/model/queue-order", test_queue_order);
    qtest_add_func("batchflush/model/queue-of-many", test_queue_of_many);
    qtest_add_func("batchflush/model/queue-is-cut-short",
                   test_queue_is_cut_short);
    qtest_add_func("batchflush/model/idle-window", test_idle_window);
    qtest_add_func("batchflush/model/spread", test_spread);
    qtest_add_func("batchflush/model/costs", test_costs);
    qtest_add_func("batchflush/power-cut/moments", test_cut_moments);
    qtest_add_func("batchflush/power-cut/policies", test_cut_policies);
    qtest_add_func("batchflush/power-cut/repeats", test_cut_repeats);
    qtest_add_func("batchflush/power-cut/everything", test_cut_everything);
    qtest_add_func("batchflush/power-cut/guest", test_cut_and_the_guest);
    qtest_add_func("batchflush/power-cut/latches", test_cut_latches);
    qtest_add_func("batchflush/power-cut/flush-waits-for-destage",
                   test_flush_waits_for_destage);
    qtest_add_func("batchflush/power/hold-up", test_hold_up);
    qtest_add_func("batchflush/power/battery-learning", test_battery_learning);
    qtest_add_func("batchflush/power/battery-failed", test_battery_failed);
    qtest_add_func("batchflush/power/lie-flush", test_lie_flush);
    qtest_add_func("batchflush/power/lie-delayed", test_lie_delayed);
    qtest_add_func("batchflush/power/lie-fua", test_lie_fua);
    qtest_add_func("batchflush/power/refusals", test_power_refusals);
    qtest_add_func("batchflush/power-cut/worked-trace", test_worked_trace);
    return g_test_run();
}
