/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The write log's file
 *
 * Records go into a buffer, and from there to the file when it has
 * grown large and when a flush ends: a QEMU that is killed leaves a log
 * with every flush that it has completed.
 */

#include "qemu/osdep.h"
#include <zlib.h>
#include "qapi/error.h"
#include "qapi/qapi-events-batchflush.h"
#include "qemu/error-report.h"
#include "qemu/iov.h"
#include "qemu/units.h"
#include "system/runstate.h"

#include "log.h"
#include "log-format.h"

#define BUFFER_SIZE (1 * MiB)

struct BatchflushLog {
    char *filename;
    char *node_name;
    int fd;

    QemuMutex lock;             /* protects what follows */
    GByteArray *buffer;
    uint64_t written;           /* bytes in the file */
    uint64_t position;          /* of the next record */
    uint64_t position_written;  /* of the first record in the buffer */
    int error;                  /* errno of the write that ended the log */
    uint64_t last_flush;        /* where it is in the file */
    uint64_t last_index;
    uint64_t flushes_indexed;
    unsigned n_flushes;         /* since the last index */
    BfLogIndexEntry flushes[BF_LOG_FLUSHES_PER_INDEX];
};

static uint32_t crc_of(const void *data, size_t bytes)
{
    return crc32(0, data, bytes);
}

/*
 * End the log with the last record that is in the file as a whole.  If
 * even that fails, a reader stops at half a record all the same.
 */
static void fail(BatchflushLog *log)
{
    log->error = errno;
    if (ftruncate(log->fd, log->written) < 0) {
        warn_report("batchflush: log=%s cannot be cut after its last whole "
                    "record: %s", log->filename, strerror(errno));
    }
}

static void write_out(BatchflushLog *log)
{
    size_t bytes = log->buffer->len;

    if (log->error) {
        return;
    }
    if (qemu_write_full(log->fd, log->buffer->data, bytes) != bytes) {
        fail(log);
        return;
    }
    log->written += bytes;
    log->position_written = log->position;
    g_byte_array_set_size(log->buffer, 0);
}

/* Returns where in the file @record, in the host's byte order, will be. */
static uint64_t append(BatchflushLog *log, BfLogRecord record,
                       const QEMUIOVector *qiov, size_t skip, size_t bytes)
{
    GByteArray *buffer = log->buffer;
    uint64_t start = buffer->len;
    uint8_t *data;

    QEMU_BUILD_BUG_ON(sizeof(record) != BF_LOG_ALIGN);
    g_byte_array_set_size(buffer, start + sizeof(record) +
                          ROUND_UP(bytes, BF_LOG_ALIGN));
    data = buffer->data + start + sizeof(record);
    memset(data, 0, buffer->len - start - sizeof(record));
    if (bytes) {
        qemu_iovec_to_buf((QEMUIOVector *)qiov, skip, data, bytes);
    }

    record.magic = cpu_to_le32(BF_LOG_RECORD_MAGIC);
    record.kind = cpu_to_le16(record.kind);
    record.flags = cpu_to_le16(record.flags);
    record.position = cpu_to_le64(log->position);
    record.time_ns = cpu_to_le64(record.time_ns);
    record.offset = cpu_to_le64(record.offset);
    record.length = cpu_to_le64(record.length);
    record.data_length = cpu_to_le32(bytes);
    record.data_crc = cpu_to_le32(crc_of(data, bytes));
    record.flush = cpu_to_le64(log->last_flush);
    record.crc = cpu_to_le32(crc_of(&record, offsetof(BfLogRecord, crc)));
    memcpy(buffer->data + start, &record, sizeof(record));
    return log->written + start;
}

/* Tell in the header where the last index is. */
static void write_index_place(BatchflushLog *log)
{
    BfLogHeader header = { .index = cpu_to_le64(log->last_index) };
    const size_t start = offsetof(BfLogHeader, index);
    const size_t bytes = sizeof(header) - start;

    header.index_crc = cpu_to_le32(crc_of(&header.index,
                                          sizeof(header.index)));
    if (pwrite(log->fd, (uint8_t *)&header + start, bytes, start) != bytes) {
        fail(log);
    }
}

/* The index is in the file before the header names it. */
static void append_index(BatchflushLog *log)
{
    BfLogRecord record = {
        .kind = BF_LOG_INDEX,
        .offset = log->last_index,
        .length = log->flushes_indexed,
    };
    QEMUIOVector qiov;

    if (!log->n_flushes) {
        return;
    }
    qemu_iovec_init_buf(&qiov, log->flushes,
                        log->n_flushes * sizeof(log->flushes[0]));
    log->last_index = append(log, record, &qiov, 0, qiov.size);
    log->flushes_indexed += log->n_flushes;
    log->n_flushes = 0;
    write_out(log);
    if (!log->error) {
        write_index_place(log);
    }
}

static void index_flush(BatchflushLog *log, uint64_t place)
{
    log->flushes[log->n_flushes++] = (BfLogIndexEntry) {
        .position = cpu_to_le64(log->position),
        .place = cpu_to_le64(place),
    };
    log->last_flush = place;
}

/* Called once, without the lock. */
static void report(BatchflushLog *log)
{
    const char *reason = strerror(log->error);
    bool running = runstate_check(RUN_STATE_RUNNING);   /* not in a tool */

    error_report("batchflush: node '%s': log=%s cannot be written: %s; it "
                 "ends after %" PRIu64 " records%s",
                 log->node_name, log->filename, reason,
                 log->position_written,
                 running ? ", and the machine is stopped" : "");
    qapi_event_send_batchflush_log_error(log->node_name, log->filename,
                                         log->position_written, reason);
    if (running) {
        qemu_system_vmstop_request_prepare();
        qemu_system_vmstop_request(RUN_STATE_IO_ERROR);
    }
}

uint64_t batchflush_log_append(BatchflushLog *log, const BfLogRecord *record,
                               const QEMUIOVector *qiov, size_t skip,
                               bool sync)
{
    uint64_t position;

    WITH_QEMU_LOCK_GUARD(&log->lock) {
        size_t bytes = qiov ? record->length : 0;
        uint64_t place;

        position = log->position;
        if (log->error) {
            return position;
        }
        if (record->kind == BF_LOG_FLUSH &&
            log->n_flushes == BF_LOG_FLUSHES_PER_INDEX) {
            append_index(log);
        }
        place = append(log, *record, qiov, skip, bytes);
        if (record->kind == BF_LOG_FLUSH) {
            index_flush(log, place);
        }
        log->position++;
        if (sync || log->buffer->len >= BUFFER_SIZE) {
            write_out(log);
        }
        if (!log->error) {
            return position;
        }
    }
    report(log);
    return position;
}

uint64_t batchflush_log_position(BatchflushLog *log)
{
    QEMU_LOCK_GUARD(&log->lock);
    return log->position;
}

const char *batchflush_log_filename(const BatchflushLog *log)
{
    return log->filename;
}

/* An earlier log, or anything else, is never overwritten. */
static int open_file(const char *filename, Error **errp)
{
    int fd;

    if (access(filename, F_OK) == 0) {
        error_setg(errp, "log=%s exists; allowed is a file that does not",
                   filename);
        return -1;
    }
    fd = qemu_create(filename, O_WRONLY | O_EXCL, 0644, NULL);
    if (fd < 0) {
        error_setg_errno(errp, errno, "log=%s cannot be created", filename);
    }
    return fd;
}

static bool write_header(int fd, uint64_t disk_size, BfWriteCache write_cache)
{
    g_autofree uint8_t *block = g_malloc0(BF_LOG_HEADER_SIZE);
    BfLogHeader header = {
        .magic = BF_LOG_MAGIC,
        .version = cpu_to_le32(BF_LOG_VERSION),
        .sector_size = cpu_to_le32(BDRV_SECTOR_SIZE),
        .disk_size = cpu_to_le64(disk_size),
        .write_cache = cpu_to_le32(write_cache),
    };

    header.crc = cpu_to_le32(crc_of(&header, offsetof(BfLogHeader, crc)));
    header.index_crc = cpu_to_le32(crc_of(&header.index,
                                          sizeof(header.index)));
    memcpy(block, &header, sizeof(header));
    return qemu_write_full(fd, block, BF_LOG_HEADER_SIZE) ==
           BF_LOG_HEADER_SIZE;
}

BatchflushLog *batchflush_log_new(const char *filename,
                                  const char *node_name,
                                  uint64_t disk_size,
                                  BfWriteCache write_cache, Error **errp)
{
    BatchflushLog *log;
    int fd = open_file(filename, errp);

    if (fd < 0) {
        return NULL;
    }
    if (!write_header(fd, disk_size, write_cache)) {
        error_setg_errno(errp, errno, "log=%s cannot be written", filename);
        close(fd);
        unlink(filename);
        return NULL;
    }
    log = g_new0(BatchflushLog, 1);
    log->filename = g_strdup(filename);
    log->node_name = g_strdup(node_name);
    log->fd = fd;
    log->buffer = g_byte_array_new();
    log->written = BF_LOG_HEADER_SIZE;
    qemu_mutex_init(&log->lock);
    return log;
}

/* A closed log tells so, and how long it is. */
static void append_end(BatchflushLog *log)
{
    BfLogRecord record = { .kind = BF_LOG_END, .offset = log->last_index };

    append(log, record, NULL, 0, 0);
    write_out(log);
}

void batchflush_log_free(BatchflushLog *log)
{
    if (!log) {
        return;
    }
    if (!log->error) {
        append_index(log);
        append_end(log);
        if (log->error) {
            report(log);
        }
    }
    close(log->fd);
    qemu_mutex_destroy(&log->lock);
    g_byte_array_free(log->buffer, true);
    g_free(log->filename);
    g_free(log->node_name);
    g_free(log);
}
