/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The reader of battery files on any file: refused in a sentence, or
 * brought to the medium, inside of it, and emptied
 *
 * Half of the inputs are files as they are.  The other half are records
 * of any kind under a header whose digest is right.  What the reader
 * wants of QEMU is here.
 */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/error.h"
#include "qemu/bswap.h"

#include "battery-file.h"
#include "fuzz.h"

#define DISK_SIZE (UINT64_C(1) << 20)

static int image = -1;          /* the file */
static bool refused;
static uint64_t moved;

/* What the reader wants of QEMU */

int qemu_create(const char *name, int flags, mode_t mode, Error **errp)
{
    return dup(image);
}

int qemu_close(int fd)
{
    return close(fd);
}

int qemu_lock_fd(int fd, int64_t start, int64_t len, bool exclusive)
{
    return 0;
}

int qemu_fdatasync(int fd)
{
    return 0;
}

static void refuse(const char *fmt, va_list ap)
{
    g_autofree char *why = g_strdup_vprintf(fmt, ap);

    g_assert_nonnull(strstr(why, "battery-file="));
    refused = true;
}

void error_setg_internal(Error **errp, const char *src, int line,
                         const char *func, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    refuse(fmt, ap);
    va_end(ap);
}

void error_setg_errno_internal(Error **errp, const char *src, int line,
                               const char *func, int os_errno,
                               const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    refuse(fmt, ap);
    va_end(ap);
}

static int move(int64_t offset, int64_t bytes)
{
    g_assert_cmpint(offset, >=, 0);
    g_assert_cmpint(bytes, >=, 0);
    g_assert_cmpint(offset, <=, DISK_SIZE - bytes);
    moved += bytes;
    return 0;
}

int coroutine_mixed_fn bdrv_pwrite(BdrvChild *child, int64_t offset,
                                   int64_t bytes, const void *buf,
                                   BdrvRequestFlags flags)
{
    return move(offset, bytes);
}

int coroutine_mixed_fn bdrv_pwrite_zeroes(BdrvChild *child, int64_t offset,
                                          int64_t bytes,
                                          BdrvRequestFlags flags)
{
    return move(offset, bytes);
}

int coroutine_mixed_fn bdrv_flush(BlockDriverState *bs)
{
    return 0;
}

/* The input */

/* Records of any kind, and a header to match. */
static GByteArray *sound_file(const uint8_t *data, size_t size)
{
    BatchflushBatteryHeader header = {
        .magic = BATCHFLUSH_BATTERY_MAGIC,
        .version = cpu_to_le64(BATCHFLUSH_BATTERY_VERSION),
        .disk_size = cpu_to_le64(DISK_SIZE),
    };
    g_autoptr(GChecksum) sum = g_checksum_new(G_CHECKSUM_SHA256);
    GByteArray *file = g_byte_array_new();
    gsize length = sizeof(header.digest);
    uint64_t records = 0;

    g_byte_array_append(file, (uint8_t *)&header, sizeof(header));
    while (size >= 8) {
        uint64_t any = ldq_le_p(data);
        /* Near the end of the disk, as of numbers, is where mistakes are. */
        BatchflushBatteryRecord record = {
            .offset = cpu_to_le64(any & 1 ? any >> 8 : any >> 40),
            .bytes = cpu_to_le64(any & 2 ? any >> 3 : any >> 8 & 0xfff),
            .zeroes = cpu_to_le64(any >> 2 & 1),
        };
        uint64_t bytes = le64_to_cpu(record.bytes);

        data += 8;
        size -= 8;
        g_byte_array_append(file, (uint8_t *)&record, sizeof(record));
        if (!record.zeroes && bytes <= 0xfff) {
            guint at = file->len;

            g_byte_array_set_size(file, at + bytes);
            memset(file->data + at, any, bytes);
        }
        records++;
    }
    header.records = cpu_to_le64(records + (size == 7));
    header.bytes = cpu_to_le64(file->len - sizeof(header) - (size == 6));
    g_checksum_update(sum, file->data + sizeof(header),
                      file->len - sizeof(header));
    g_checksum_update(sum, (uint8_t *)&header, sizeof(header));
    g_checksum_get_digest(sum, header.digest, &length);
    memcpy(file->data, &header, sizeof(header));
    return file;
}

static void put_file(const uint8_t *data, size_t size)
{
    g_assert_cmpint(ftruncate(image, 0), ==, 0);
    g_assert_cmpint(pwrite(image, data, size, 0), ==, size);
}

static void put_input(const uint8_t *data, size_t size)
{
    if (image < 0) {
        image = memfd_create("battery", 0);
    }
    if (size && data[0] & 1) {
        GByteArray *file = sound_file(data + 1, size - 1);

        put_file(file->data, file->len);
        g_byte_array_unref(file);
    } else if (size) {
        put_file(data + 1, size - 1);
    } else {
        put_file(NULL, 0);
    }
}

static BatchflushBatteryFile *open_file(void)
{
    Error *err = NULL;
    BatchflushBatteryFile *file;

    refused = false;
    file = batchflush_battery_file_open("any", DISK_SIZE, &err);
    g_assert_true(!file == refused);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    BlockDriverState bs = { 0 };
    BdrvChild child = { .bs = &bs };
    BatchflushBatteryFile *file;
    uint64_t held;

    put_input(data, size);
    file = open_file();
    if (!file) {
        return 0;
    }
    moved = 0;
    held = batchflush_battery_file_held(file);
    g_assert_cmpint(batchflush_battery_file_destage(file, &child), ==, 0);
    g_assert_cmpuint(moved, ==, held);
    g_assert_cmpuint(batchflush_battery_file_held(file), ==, 0);
    batchflush_battery_file_close(file);

    /* It has been emptied. */
    file = open_file();
    g_assert_nonnull(file);
    g_assert_cmpuint(batchflush_battery_file_held(file), ==, 0);
    batchflush_battery_file_close(file);
    return 0;
}
