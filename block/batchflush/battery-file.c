/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The battery file: see battery-file.h */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qemu/bswap.h"
#include "qemu/units.h"

#include "battery-file.h"

#define CHUNK (1 * MiB)

#define ALLOWED "allowed is a new file, or the one that this disk has left"

struct BatchflushBatteryFile {
    char *filename;
    int fd;
    BatchflushBatteryHeader header;     /* as in the file */
    uint64_t held;
};

/* What is being written. */
typedef struct Writer {
    BatchflushBatteryFile *file;
    GChecksum *sum;
    uint64_t at;
    uint64_t records;
    int ret;
} Writer;

static int write_at(int fd, const void *data, size_t bytes, uint64_t at)
{
    while (bytes) {
        ssize_t done = RETRY_ON_EINTR(pwrite(fd, data, bytes, at));

        if (done < 0) {
            return -errno;
        }
        data = (const uint8_t *)data + done;
        bytes -= done;
        at += done;
    }
    return 0;
}

/* A file that is too short is damaged. */
static int read_at(int fd, void *data, size_t bytes, uint64_t at)
{
    while (bytes) {
        ssize_t done = RETRY_ON_EINTR(pread(fd, data, bytes, at));

        if (done <= 0) {
            return done < 0 ? -errno : -EINVAL;
        }
        data = (uint8_t *)data + done;
        bytes -= done;
        at += done;
    }
    return 0;
}

static void put_digest(GChecksum *sum, BatchflushBatteryHeader *header)
{
    gsize length = sizeof(header->digest);

    memset(header->digest, 0, length);
    g_checksum_update(sum, (const uint8_t *)header, sizeof(*header));
    g_checksum_get_digest(sum, header->digest, &length);
}

/* The header comes last into the sum, when its numbers are known. */
static int write_header(BatchflushBatteryFile *file, GChecksum *sum,
                        uint64_t records, uint64_t bytes)
{
    BatchflushBatteryHeader header = {
        .magic = BATCHFLUSH_BATTERY_MAGIC,
        .version = cpu_to_le64(BATCHFLUSH_BATTERY_VERSION),
        .disk_size = file->header.disk_size,
        .records = cpu_to_le64(records),
        .bytes = cpu_to_le64(bytes),
    };
    int ret;

    put_digest(sum, &header);
    ret = write_at(file->fd, &header, sizeof(header), 0);
    if (ret == 0 && qemu_fdatasync(file->fd) < 0) {
        ret = -errno;
    }
    if (ret == 0) {
        file->header = header;
    }
    return ret;
}

int batchflush_battery_file_clear(BatchflushBatteryFile *file)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    int ret = write_header(file, sum, 0, 0);

    if (ret == 0) {
        file->held = 0;
        ret = ftruncate(file->fd, sizeof(file->header)) < 0 ? -errno : 0;
    }
    return ret;
}

static void put(Writer *w, const void *data, size_t bytes)
{
    if (w->ret == 0) {
        g_checksum_update(w->sum, data, bytes);
        w->ret = write_at(w->file->fd, data, bytes, w->at);
        w->at += bytes;
    }
}

/* @data: NULL for zeroes. */
static void put_record(Writer *w, uint64_t offset, uint64_t bytes,
                       const void *data)
{
    BatchflushBatteryRecord record = {
        .offset = cpu_to_le64(offset),
        .bytes = cpu_to_le64(bytes),
        .zeroes = cpu_to_le64(!data),
    };

    put(w, &record, sizeof(record));
    if (data) {
        put(w, data, bytes);
    }
    w->file->held += bytes;
    w->records++;
}

static void put_dirty(Writer *w, BfStore *store)
{
    g_autofree void *buffer = g_malloc(CHUNK);
    BfSweep *sweep = bf_store_sweep(store, 0, UINT64_MAX);
    uint64_t offset;
    size_t bytes;

    while (sweep && (bytes = bf_sweep_next(store, sweep, buffer, CHUNK,
                                           &offset))) {
        put_record(w, offset, bytes, buffer);
    }
    if (sweep) {
        bf_store_sweep_done(store, sweep, false);
    }
}

int batchflush_battery_file_save(BatchflushBatteryFile *file,
                                 const BfSurvivors *survivors,
                                 BfStore *store)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    GArray *patches = survivors->patches;
    Writer w = {
        .file = file, .sum = sum, .at = sizeof(BatchflushBatteryHeader),
    };

    w.ret = batchflush_battery_file_clear(file);
    for (guint i = 0; patches && i < patches->len; i++) {
        const BfPatch *it = &g_array_index(patches, BfPatch, i);

        put_record(&w, it->offset, it->bytes, it->data);
    }
    put_dirty(&w, store);
    if (w.ret == 0 && qemu_fdatasync(file->fd) < 0) {
        w.ret = -errno;
    }
    if (w.ret == 0) {
        w.ret = write_header(file, sum, w.records,
                             w.at - sizeof(BatchflushBatteryHeader));
    }
    if (w.ret < 0) {
        batchflush_battery_file_clear(file);
    }
    return w.ret;
}

static int GRAPH_RDLOCK
destage_data(BatchflushBatteryFile *file, BdrvChild *child, uint64_t at,
             uint64_t offset, uint64_t bytes)
{
    g_autofree void *buffer = g_malloc(CHUNK);

    while (bytes) {
        size_t part = MIN(bytes, CHUNK);
        int ret = read_at(file->fd, buffer, part, at);

        if (ret == 0) {
            ret = bdrv_pwrite(child, offset, part, buffer, 0);
        }
        if (ret < 0) {
            return ret;
        }
        at += part;
        offset += part;
        bytes -= part;
    }
    return 0;
}

int GRAPH_RDLOCK batchflush_battery_file_destage(BatchflushBatteryFile *file,
                                                 BdrvChild *child)
{
    uint64_t records = le64_to_cpu(file->header.records);
    uint64_t at = sizeof(file->header);
    int ret = 0;

    for (uint64_t i = 0; ret == 0 && i < records; i++) {
        BatchflushBatteryRecord record;
        uint64_t offset, bytes;

        ret = read_at(file->fd, &record, sizeof(record), at);
        if (ret < 0) {
            return ret;
        }
        at += sizeof(record);
        offset = le64_to_cpu(record.offset);
        bytes = le64_to_cpu(record.bytes);
        if (record.zeroes) {
            ret = bdrv_pwrite_zeroes(child, offset, bytes, 0);
        } else {
            ret = destage_data(file, child, at, offset, bytes);
            at += bytes;
        }
    }
    if (ret == 0) {
        ret = bdrv_flush(child->bs);
    }
    return ret < 0 ? ret : batchflush_battery_file_clear(file);
}

/* Add the records to @sum, and their data to file->held. */
static bool check_records(BatchflushBatteryFile *file, GChecksum *sum)
{
    uint64_t end = sizeof(file->header) + le64_to_cpu(file->header.bytes);
    uint64_t disk_size = le64_to_cpu(file->header.disk_size);
    uint64_t records = le64_to_cpu(file->header.records);
    g_autofree void *buffer = g_malloc(CHUNK);
    uint64_t at = sizeof(file->header);

    for (uint64_t i = 0; i < records; i++) {
        BatchflushBatteryRecord record;
        uint64_t bytes, offset, left;

        if (read_at(file->fd, &record, sizeof(record), at) < 0) {
            return false;
        }
        at += sizeof(record);
        g_checksum_update(sum, (const uint8_t *)&record, sizeof(record));
        offset = le64_to_cpu(record.offset);
        bytes = le64_to_cpu(record.bytes);
        if (at > end || offset > disk_size || bytes > disk_size - offset) {
            return false;
        }
        for (left = record.zeroes ? 0 : bytes; left;) {
            size_t part = MIN(left, CHUNK);

            if (read_at(file->fd, buffer, part, at) < 0) {
                return false;
            }
            g_checksum_update(sum, buffer, part);
            at += part;
            left -= part;
        }
        file->held += bytes;
    }
    return at == end;
}

static bool is_sound(BatchflushBatteryFile *file)
{
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    BatchflushBatteryHeader header = file->header;

    if (!check_records(file, sum)) {
        return false;
    }
    put_digest(sum, &header);
    return memcmp(header.digest, file->header.digest,
                  sizeof(header.digest)) == 0;
}

static bool check(BatchflushBatteryFile *file, uint64_t disk_size,
                  Error **errp)
{
    const BatchflushBatteryHeader *header = &file->header;
    int ret = read_at(file->fd, &file->header, sizeof(file->header), 0);

    if (ret < 0 || memcmp(header->magic, BATCHFLUSH_BATTERY_MAGIC,
                          sizeof(header->magic)) ||
        le64_to_cpu(header->version) != BATCHFLUSH_BATTERY_VERSION) {
        error_setg(errp, "battery-file=%s is no battery file of version %d; "
                   ALLOWED, file->filename, BATCHFLUSH_BATTERY_VERSION);
        return false;
    }
    if (le64_to_cpu(header->disk_size) != disk_size) {
        error_setg(errp, "battery-file=%s is of a disk of %" PRIu64
                   " bytes, and this one has %" PRIu64 "; " ALLOWED,
                   file->filename, le64_to_cpu(header->disk_size),
                   disk_size);
        return false;
    }
    if (!is_sound(file)) {
        error_setg(errp, "battery-file=%s is damaged: what it holds has "
                   "another digest; " ALLOWED, file->filename);
        return false;
    }
    return true;
}

static bool begin(BatchflushBatteryFile *file, uint64_t disk_size,
                  Error **errp)
{
    int ret;

    file->header.disk_size = cpu_to_le64(disk_size);
    ret = batchflush_battery_file_clear(file);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "battery-file=%s cannot be written",
                         file->filename);
    }
    return ret == 0;
}

static bool lock(BatchflushBatteryFile *file, Error **errp)
{
    int ret = qemu_lock_fd(file->fd, 0, 0, true);

    if (ret == -EAGAIN || ret == -EACCES) {
        error_setg(errp, "battery-file=%s is in use; allowed is a file of "
                   "one disk", file->filename);
        return false;
    }
    return true;
}

BatchflushBatteryFile *batchflush_battery_file_open(const char *filename,
                                                    uint64_t disk_size,
                                                    Error **errp)
{
    BatchflushBatteryFile *file = g_new0(BatchflushBatteryFile, 1);
    struct stat st;

    file->filename = g_strdup(filename);
    file->fd = qemu_create(filename, O_RDWR, 0644, NULL);
    if (file->fd < 0) {
        error_setg_errno(errp, errno, "battery-file=%s cannot be opened",
                         filename);
        goto fail;
    }
    if (fstat(file->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        error_setg(errp, "battery-file=%s is not a regular file", filename);
        goto fail;
    }
    if (!lock(file, errp) ||
        !(st.st_size ? check(file, disk_size, errp)
                     : begin(file, disk_size, errp))) {
        goto fail;
    }
    return file;

fail:
    batchflush_battery_file_close(file);
    return NULL;
}

void batchflush_battery_file_close(BatchflushBatteryFile *file)
{
    if (!file) {
        return;
    }
    if (file->fd >= 0) {
        qemu_close(file->fd);
    }
    g_free(file->filename);
    g_free(file);
}

const char *batchflush_battery_file_name(const BatchflushBatteryFile *file)
{
    return file->filename;
}

uint64_t batchflush_battery_file_held(const BatchflushBatteryFile *file)
{
    return file->held;
}
