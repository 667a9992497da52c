/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shows a crash state to an unmodified program, as the contents of a file
 *
 * Preloaded into a program, it answers for one file, OVERLAY_PATH.  What
 * is read comes page by page from one of two files: the overlay where
 * OVERLAY_PAGES has a 1 for the page, else the base.  What is written
 * goes to the overlay.  So a state costs its own pages and nothing else,
 * and the base is never written to: it is opened for reading only, and
 * so is OVERLAY_PATH, whatever the program asks for.
 *
 * OVERLAY_PATH is an empty file of the disk's size, so that size and
 * seeking need no answer of ours.  A program that does not go through
 * the C library sees zeroes, which no checker takes for a file system.
 *
 * Several programs may look at a state one after the other: a second one
 * sees what the first one has repaired.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define MAX_FD 1024
#define INHERITED_FD 64         /* where one from our parent may be */

static struct {
    int base, overlay;
    uint8_t *pages;             /* one byte each */
    off_t size;
    dev_t device;
    ino_t inode;
    bool ready;
} state;

static bool ours[MAX_FD];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *next(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    if (!function) {
        abort();
    }
    return function;
}

/* The function that ours stands before. */
#define NEXT(name) \
    static __typeof__(name) *next_##name; \
    if (!next_##name) { \
        next_##name = next(#name); \
    }

static int open_natively(const char *path, int flags)
{
    NEXT(open64);
    return next_open64(path, flags | O_CLOEXEC);
}

/* Remember whether a descriptor is of our file; returns it. */
static int opened(int fd)
{
    struct stat st;

    if (fd < 0 || !state.ready) {
        return fd;
    }
    if (fstat(fd, &st) == 0 && st.st_dev == state.device &&
        st.st_ino == state.inode) {
        if (fd >= MAX_FD) {
            close(fd);
            errno = EMFILE;
            return -1;
        }
        ours[fd] = true;
    } else if (fd < MAX_FD) {
        ours[fd] = false;
    }
    return fd;
}

static void __attribute__((constructor)) begin(void)
{
    const char *path = getenv("OVERLAY_PATH");
    const char *base = getenv("OVERLAY_BASE");
    const char *overlay = getenv("OVERLAY_DATA");
    const char *pages = getenv("OVERLAY_PAGES");
    const char *worker = getenv("OVERLAY_WORKER");
    struct stat st;
    int fd;

    if (!path || !base || !overlay || !pages) {
        return;
    }
    /* The program that a worker has started ends with the worker. */
    if (worker && atoi(worker) == getppid()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    state.base = open_natively(base, O_RDONLY);
    state.overlay = open_natively(overlay, O_RDWR);
    fd = open_natively(pages, O_RDWR);
    if (state.base < 0 || state.overlay < 0 || fd < 0 || stat(path, &st)) {
        abort();
    }
    state.size = st.st_size;
    state.device = st.st_dev;
    state.inode = st.st_ino;
    state.pages = mmap(NULL, (state.size + PAGE - 1) / PAGE,
                       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state.pages == MAP_FAILED) {
        abort();
    }
    close(fd);
    state.ready = true;
    for (fd = 0; fd < INHERITED_FD; fd++) {
        opened(fd);
    }
}

static bool is_ours(int fd)
{
    return fd >= 0 && fd < MAX_FD && ours[fd];
}

/* The file itself is never open for writing. */
static int read_only(const char *path, int flags)
{
    struct stat st;

    if (state.ready && stat(path, &st) == 0 && st.st_dev == state.device &&
        st.st_ino == state.inode) {
        flags = (flags & ~(O_ACCMODE | O_TRUNC | O_DIRECT)) | O_RDONLY;
    }
    return flags;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list args; \
        mode_t mode; \
        NEXT(name); \
        va_start(args, flags); \
        mode = mode_of(flags, args); \
        va_end(args); \
        return opened(next_##name(path, read_only(path, flags), mode)); \
    }

OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int dir, const char *path, int flags, ...) \
    { \
        va_list args; \
        mode_t mode; \
        NEXT(name); \
        va_start(args, flags); \
        mode = mode_of(flags, args); \
        va_end(args); \
        if (path[0] == '/' || dir == AT_FDCWD) { \
            flags = read_only(path, flags); \
        } \
        return opened(next_##name(dir, path, flags, mode)); \
    }

OPENAT(openat)
OPENAT(openat64)

/* What a fortified program calls. */
int __open_2(const char *path, int flags)
{
    return open64(path, flags);
}

int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

int __openat_2(int dir, const char *path, int flags)
{
    return openat64(dir, path, flags);
}

int __openat64_2(int dir, const char *path, int flags)
{
    return openat64(dir, path, flags);
}

int close(int fd)
{
    NEXT(close);
    if (is_ours(fd)) {
        ours[fd] = false;
    }
    return next_close(fd);
}

int dup(int fd)
{
    NEXT(dup);
    return opened(next_dup(fd));
}

int dup2(int fd, int copy)
{
    NEXT(dup2);
    return opened(next_dup2(fd, copy));
}

int dup3(int fd, int copy, int flags)
{
    NEXT(dup3);
    return opened(next_dup3(fd, copy, flags));
}

#define FCNTL(name) \
    int name(int fd, int command, ...) \
    { \
        va_list args; \
        void *argument; \
        int result; \
        NEXT(name); \
        va_start(args, command); \
        argument = va_arg(args, void *); \
        va_end(args); \
        result = next_##name(fd, command, argument); \
        return command == F_DUPFD || command == F_DUPFD_CLOEXEC \
            ? opened(result) : result; \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

/* The empty file is one hole; ours has none that we would tell of. */
#define LSEEK(name, type) \
    type name(int fd, type offset, int whence) \
    { \
        NEXT(name); \
        if (is_ours(fd) && (whence == SEEK_DATA || whence == SEEK_HOLE)) { \
            errno = EINVAL; \
            return -1; \
        } \
        return next_##name(fd, offset, whence); \
    }

LSEEK(lseek, off_t)
LSEEK(lseek64, off64_t)

static ssize_t native_read(int fd, void *data, size_t bytes, off_t offset)
{
    NEXT(pread64);
    return next_pread64(fd, data, bytes, offset);
}

static ssize_t native_write(const void *data, size_t bytes, off_t offset)
{
    NEXT(pwrite64);
    return next_pwrite64(state.overlay, data, bytes, offset);
}

/* How many bytes from @offset on come from the same place. */
static size_t run_of(off_t offset, size_t bytes)
{
    uint8_t where = state.pages[offset / PAGE];
    size_t run = PAGE - offset % PAGE;

    while (run < bytes && state.pages[(offset + run) / PAGE] == where) {
        run += PAGE;
    }
    return run < bytes ? run : bytes;
}

static ssize_t read_state(char *data, size_t bytes, off_t offset)
{
    size_t done = 0;

    if (offset < 0) {
        errno = EINVAL;
        return -1;
    }
    if (offset >= state.size) {
        return 0;
    }
    if ((off_t)bytes > state.size - offset) {
        bytes = state.size - offset;
    }
    while (done < bytes) {
        off_t from = offset + done;
        size_t run = run_of(from, bytes - done);
        int fd = state.pages[from / PAGE] ? state.overlay : state.base;
        ssize_t got = native_read(fd, data + done, run, from);

        if (got <= 0) {
            errno = got ? errno : EIO;
            return -1;
        }
        done += got;
    }
    return bytes;
}

/* A page that is written in part is copied first. */
static int own_page(off_t page)
{
    char data[PAGE];
    ssize_t got;

    if (state.pages[page]) {
        return 0;
    }
    got = native_read(state.base, data, PAGE, page * PAGE);
    if (got <= 0 || native_write(data, got, page * PAGE) != got) {
        return -1;
    }
    state.pages[page] = 1;
    return 0;
}

static ssize_t write_state(const char *data, size_t bytes, off_t offset)
{
    ssize_t written = -1;
    off_t first = offset / PAGE;
    off_t last = (offset + bytes - 1) / PAGE;

    if (!bytes) {
        return 0;
    }
    if (offset < 0 || offset >= state.size ||
        (off_t)bytes > state.size - offset) {
        errno = ENOSPC;
        return -1;
    }
    pthread_mutex_lock(&lock);
    if (own_page(first) == 0 && own_page(last) == 0) {
        written = native_write(data, bytes, offset);
        if (written == (ssize_t)bytes) {
            memset(state.pages + first, 1, last - first + 1);
        }
    }
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    return is_ours(fd) ? read_state(data, bytes, offset)
                       : native_read(fd, data, bytes, offset);
}

ssize_t pread64(int fd, void *data, size_t bytes, off64_t offset)
{
    return is_ours(fd) ? read_state(data, bytes, offset)
                       : native_read(fd, data, bytes, offset);
}

/* The fortified forms; a program that overruns its buffer ends there. */
ssize_t __pread64_chk(int fd, void *data, size_t bytes, off64_t offset,
                      size_t room)
{
    if (bytes > room) {
        abort();
    }
    return pread64(fd, data, bytes, offset);
}

ssize_t __pread_chk(int fd, void *data, size_t bytes, off_t offset,
                    size_t room)
{
    return __pread64_chk(fd, data, bytes, offset, room);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    NEXT(pwrite64);
    return is_ours(fd) ? write_state(data, bytes, offset)
                       : next_pwrite64(fd, data, bytes, offset);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return pwrite64(fd, data, bytes, offset);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    NEXT(read);
    if (is_ours(fd)) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        ssize_t got = read_state(data, bytes, at);

        if (got > 0) {
            lseek(fd, at + got, SEEK_SET);
        }
        return got;
    }
    return next_read(fd, data, bytes);
}

ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room)
{
    if (bytes > room) {
        abort();
    }
    return read(fd, data, bytes);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    NEXT(write);
    if (is_ours(fd)) {
        off_t at = lseek(fd, 0, SEEK_CUR);
        ssize_t got = write_state(data, bytes, at);

        if (got > 0) {
            lseek(fd, at + got, SEEK_SET);
        }
        return got;
    }
    return next_write(fd, data, bytes);
}

/* A stream of the C library does not come by here; it gets one that does. */

static ssize_t cookie_read(void *cookie, char *data, size_t bytes)
{
    return read((int)(intptr_t)cookie, data, bytes);
}

static ssize_t cookie_write(void *cookie, const char *data, size_t bytes)
{
    ssize_t written = write((int)(intptr_t)cookie, data, bytes);

    return written < 0 ? 0 : written;
}

static int cookie_seek(void *cookie, off64_t *offset, int whence)
{
    *offset = lseek((int)(intptr_t)cookie, *offset, whence);
    return *offset < 0 ? -1 : 0;
}

static int cookie_close(void *cookie)
{
    return close((int)(intptr_t)cookie);
}

FILE *fopen64(const char *path, const char *mode)
{
    static const cookie_io_functions_t functions = {
        cookie_read, cookie_write, cookie_seek, cookie_close,
    };
    int fd;

    NEXT(fopen64);
    fd = state.ready ? open64(path, O_RDONLY) : -1;
    if (is_ours(fd)) {
        return fopencookie((void *)(intptr_t)fd, mode, functions);
    }
    if (fd >= 0) {
        close(fd);
    }
    return next_fopen64(path, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    return fopen64(path, mode);
}

/* What would look at the file itself is not there. */

#define REFUSE(type, name, error, parameters, arguments) \
    type name parameters \
    { \
        NEXT(name); \
        if (is_ours(fd)) { \
            errno = error; \
            return (type)-1; \
        } \
        return next_##name arguments; \
    }

REFUSE(void *, mmap, ENODEV,
       (void *at, size_t size, int protection, int flags, int fd, off_t from),
       (at, size, protection, flags, fd, from))
REFUSE(void *, mmap64, ENODEV,
       (void *at, size_t size, int protection, int flags, int fd,
        off64_t from), (at, size, protection, flags, fd, from))
REFUSE(ssize_t, preadv, ENOSYS,
       (int fd, const struct iovec *iov, int count, off_t offset),
       (fd, iov, count, offset))
REFUSE(ssize_t, pwritev, ENOSYS,
       (int fd, const struct iovec *iov, int count, off_t offset),
       (fd, iov, count, offset))
REFUSE(ssize_t, readv, ENOSYS, (int fd, const struct iovec *iov, int count),
       (fd, iov, count))
REFUSE(ssize_t, writev, ENOSYS, (int fd, const struct iovec *iov, int count),
       (fd, iov, count))
REFUSE(ssize_t, copy_file_range, EXDEV,
       (int fd, off64_t *from, int to_fd, off64_t *to, size_t bytes,
        unsigned flags), (fd, from, to_fd, to, bytes, flags))
REFUSE(int, fallocate, EOPNOTSUPP,
       (int fd, int mode, off_t offset, off_t bytes),
       (fd, mode, offset, bytes))
REFUSE(int, fallocate64, EOPNOTSUPP,
       (int fd, int mode, off64_t offset, off64_t bytes),
       (fd, mode, offset, bytes))
