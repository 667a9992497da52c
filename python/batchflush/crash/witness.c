/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest's part of the crash explorer: files that tell what they must
 * hold, and marks that tell the write log what was acknowledged
 *
 *     witness mark DEVICE OFFSET TEXT
 *     witness run DIR DEVICE OFFSET THREADS ROUNDS
 *     witness fill DIR BYTES
 *     witness tell DIR
 *     witness relay DEVICE
 *
 * A mark is a direct write of 4096 bytes to the disk itself, beyond the
 * file system: it begins when the system call before it has returned, so
 * whatever position the log gives it, that call was acknowledged before.
 * It holds MARK, a serial number and a text, and a slot of its own for
 * each thread.  With the device "-" marks are lines of JSON on standard
 * output, {"type": "mark", "text": TEXT}, each written at once.  `relay`
 * passes lines on while the disk answers a direct read after each.  What
 * a system call returns once the disk is dead acknowledges nothing: XFS's
 * fsync of a directory succeeds when its log has been given up.
 *
 * Each thread of `run` works on files of its own and syncs all it does.
 * Its marks say what the file system owes it from there on:
 *
 *     append NAME N       the first N records of NAME are whole
 *     replace NAME V      NAME is there, as a whole, in version V or later
 *     drop NAME           no longer anything
 *     gone NAME           NAME is not there
 *
 * python/batchflush/crash/witness.py holds a file system to that.  `tell`
 * says what the files in a directory hold, a line of JSON each: a number
 * of good records from the beginning on, and the version if it is whole,
 * else -1.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK "batchflush mark"
#define MARK_BYTES 4096
#define RECORD_BYTES 1000
#define RECORDS 16              /* in a file before the next one begins */
#define REPLACED_BYTES 6000
#define REPLACED_FILES 4
#define SMALL_BYTES 3000
#define SMALL_FILES 6           /* that are kept */
#define NAME_BYTES 64
#define TEXT_BYTES 256
#define LONGEST_BYTES (RECORDS * RECORD_BYTES)  /* of our files */

typedef struct Marker {
    int fd;
    bool lines;                 /* of JSON, in place of blocks */
    off_t offset;
    unsigned long serial;
    char *block;
} Marker;

typedef struct Worker {
    pthread_t thread;
    unsigned index;
    unsigned rounds;
    int dir;
    Marker marker;
} Worker;

static void __attribute__((format(printf, 1, 2), noreturn))
fail(const char *format, ...)
{
    int error = errno;
    va_list args;

    va_start(args, format);
    fprintf(stderr, "witness: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, ": %s\n", strerror(error));
    va_end(args);
    exit(1);
}

static void marker_open(Marker *marker, const char *device, off_t offset)
{
    marker->lines = !strcmp(device, "-");
    marker->fd = marker->lines ? STDOUT_FILENO
                               : open(device, O_WRONLY | O_DIRECT);
    if (marker->fd < 0) {
        fail("cannot open %s", device);
    }
    marker->offset = offset;
    marker->serial = 0;
    if (posix_memalign((void **)&marker->block, MARK_BYTES, MARK_BYTES)) {
        fail("no memory");
    }
}

static void write_line(Marker *marker, const char *text)
{
    int bytes = snprintf(marker->block, MARK_BYTES,
                         "{\"type\": \"mark\", \"text\": \"%s\"}\n", text);

    if (write(marker->fd, marker->block, bytes) != bytes) {
        fail("cannot write a mark");
    }
}

static void write_block(Marker *marker, const char *text)
{
    memset(marker->block, 0, MARK_BYTES);
    snprintf(marker->block, MARK_BYTES, "%s %lu %s", MARK, marker->serial++,
             text);
    if (pwrite(marker->fd, marker->block, MARK_BYTES, marker->offset) !=
        MARK_BYTES) {
        fail("cannot write a mark");
    }
}

static void __attribute__((format(printf, 2, 3)))
mark(Marker *marker, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (marker->lines) {
        write_line(marker, text);
    } else {
        write_block(marker, text);
    }
}

/* The bytes that a version of a file, or a record of it, consists of. */
static void content(char *out, size_t bytes, const char *name,
                    unsigned long version)
{
    uint64_t x = 0xcbf29ce484222325;
    int head;

    for (const char *c = name; *c; c++) {
        x = (x ^ (uint8_t)*c) * 0x100000001b3;
    }
    x ^= version * 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < bytes; i += 8) {
        x = x * 6364136223846793005 + 1442695040888963407;
        memcpy(out + i, &x, bytes - i < 8 ? bytes - i : 8);
    }
    head = snprintf(NULL, 0, "%s %lu\n", name, version);
    snprintf(out, head, "%s %lu\n", name, version);
    out[head - 1] = '\n';
}

static void write_synced(int dir, const char *name, int flags,
                         const char *data, size_t bytes)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | flags, 0644);

    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || fsync(fd)) {
        fail("cannot write %s", name);
    }
    close(fd);
}

static void sync_dir(int dir)
{
    if (fsync(dir)) {
        fail("cannot sync the directory");
    }
}

static void delete(Worker *w, const char *name)
{
    mark(&w->marker, "drop %s", name);
    if (unlinkat(w->dir, name, 0)) {
        fail("cannot delete %s", name);
    }
    sync_dir(w->dir);
    mark(&w->marker, "gone %s", name);
}

static void append(Worker *w, unsigned long count)
{
    unsigned long file = count / RECORDS;
    unsigned long record = count % RECORDS;
    char name[NAME_BYTES], data[RECORD_BYTES];

    snprintf(name, sizeof(name), "append.%u.%lu", w->index, file);
    content(data, sizeof(data), name, record);
    write_synced(w->dir, name, O_APPEND, data, sizeof(data));
    if (record == 0) {
        sync_dir(w->dir);
    }
    mark(&w->marker, "append %s %lu", name, record + 1);
    if (record == 0 && file >= 2) {
        snprintf(name, sizeof(name), "append.%u.%lu", w->index, file - 2);
        delete(w, name);
    }
}

static void replace(Worker *w, unsigned long count)
{
    char name[NAME_BYTES], temporary[NAME_BYTES], data[REPLACED_BYTES];

    snprintf(name, sizeof(name), "replace.%u.%lu", w->index,
             count % REPLACED_FILES);
    snprintf(temporary, sizeof(temporary), "new.%u", w->index);
    content(data, sizeof(data), name, count);
    write_synced(w->dir, temporary, O_TRUNC, data, sizeof(data));
    if (renameat(w->dir, temporary, w->dir, name)) {
        fail("cannot rename %s", temporary);
    }
    sync_dir(w->dir);
    mark(&w->marker, "replace %s %lu", name, count);
}

static void small(Worker *w, unsigned long count)
{
    char name[NAME_BYTES], data[SMALL_BYTES];

    snprintf(name, sizeof(name), "small.%u.%lu", w->index, count);
    content(data, sizeof(data), name, count);
    write_synced(w->dir, name, O_EXCL, data, sizeof(data));
    sync_dir(w->dir);
    mark(&w->marker, "replace %s %lu", name, count);
    if (count >= SMALL_FILES) {
        snprintf(name, sizeof(name), "small.%u.%lu", w->index,
                 count - SMALL_FILES);
        delete(w, name);
    }
}

static void *work(void *opaque)
{
    Worker *w = opaque;

    for (unsigned i = 0; i < w->rounds; i++) {
        append(w, 2 * (unsigned long)i);
        replace(w, i);
        append(w, 2 * (unsigned long)i + 1);
        small(w, i);
    }
    return NULL;
}

static int run(const char *path, const char *device, off_t offset,
               unsigned threads, unsigned rounds)
{
    Worker *workers = calloc(threads, sizeof(*workers));
    int dir = open(path, O_RDONLY | O_DIRECTORY);

    if (dir < 0) {
        fail("cannot open %s", path);
    }
    for (unsigned i = 0; i < threads; i++) {
        Worker *w = &workers[i];

        w->index = i;
        w->rounds = rounds;
        w->dir = dir;
        marker_open(&w->marker, device, offset + (i + 1) * MARK_BYTES);
        if (pthread_create(&w->thread, NULL, work, w)) {
            fail("cannot start a thread");
        }
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    return 0;
}

static int fill(const char *path, unsigned long bytes)
{
    const size_t part = 1 << 20;
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    char *data = malloc(part);

    for (unsigned long i = 0; i * part < bytes; i++) {
        char name[NAME_BYTES];

        snprintf(name, sizeof(name), "fill.%lu", i);
        content(data, part, name, i);
        write_synced(dir, name, O_TRUNC, data, part);
    }
    free(data);
    return 0;
}

static unsigned long good_records(const char *name, const char *data,
                                  size_t bytes)
{
    char expected[RECORD_BYTES];
    unsigned long i;

    for (i = 0; (i + 1) * RECORD_BYTES <= bytes; i++) {
        content(expected, RECORD_BYTES, name, i);
        if (memcmp(data + i * RECORD_BYTES, expected, RECORD_BYTES)) {
            break;
        }
    }
    return i;
}

/* The version that the file holds as a whole, else -1. */
static long whole_version(const char *name, const char *data, size_t bytes)
{
    char expected[REPLACED_BYTES], head[NAME_BYTES];
    size_t wanted = strncmp(name, "small", 5) ? REPLACED_BYTES : SMALL_BYTES;
    long version;
    int used = 0;

    if (bytes != wanted || sscanf(data, "%63s %ld%n", head, &version,
                                  &used) != 2 || strcmp(head, name)) {
        return -1;
    }
    content(expected, wanted, name, version);
    return memcmp(data, expected, wanted) ? -1 : version;
}

static void tell_file(int dir, const char *name)
{
    char data[LONGEST_BYTES + 1];
    int fd = openat(dir, name, O_RDONLY);
    ssize_t bytes = fd < 0 ? -1 : read(fd, data, LONGEST_BYTES);

    if (bytes < 0) {
        fail("cannot read %s", name);
    }
    close(fd);
    data[bytes] = 0;
    printf("{\"type\": \"file\", \"name\": \"%s\", \"records\": %lu, "
           "\"version\": %ld}\n", name, good_records(name, data, bytes),
           whole_version(name, data, bytes));
}

static int tell(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (!dir) {
        fail("cannot open %s", path);
    }
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            tell_file(dirfd(dir), entry->d_name);
        }
    }
    closedir(dir);
    return 0;
}

static int relay(const char *device)
{
    char line[TEXT_BYTES * 2];
    int fd = open(device, O_RDONLY | O_DIRECT);
    char *block;

    if (fd < 0 || posix_memalign((void **)&block, MARK_BYTES, MARK_BYTES)) {
        fail("cannot open %s", device);
    }
    while (fgets(line, sizeof(line), stdin)) {
        size_t bytes = strlen(line);

        if (pread(fd, block, MARK_BYTES, 0) != MARK_BYTES) {
            return 0;
        }
        if (write(STDOUT_FILENO, line, bytes) != (ssize_t)bytes) {
            fail("cannot write a line");
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "mark")) {
        Marker marker;

        marker_open(&marker, argv[2], atoll(argv[3]));
        mark(&marker, "%s", argv[4]);
        return 0;
    }
    if (argc == 7 && !strcmp(argv[1], "run")) {
        return run(argv[2], argv[3], atoll(argv[4]), atoi(argv[5]),
                   atoi(argv[6]));
    }
    if (argc == 4 && !strcmp(argv[1], "fill")) {
        return fill(argv[2], atol(argv[3]));
    }
    if (argc == 3 && !strcmp(argv[1], "tell")) {
        return tell(argv[2]);
    }
    if (argc == 3 && !strcmp(argv[1], "relay")) {
        return relay(argv[2]);
    }
    fprintf(stderr, "witness: see its source for how to use it\n");
    return 2;
}
