/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations on files and directories, after the manner of fsstress
 *
 *     stress DIR SEED
 *
 * It runs until an operation fails with an error of the disk's, and makes
 * no promises: it gives the file system's journal something to do beside
 * the witness's files.  Few names, so that operations meet.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NAMES 24
#define DIRECTORIES 4
#define NAME_BYTES 32
#define DATA_BYTES 16384
#define FILE_BYTES 65536
#define SYNC_ONE_IN 400

static uint64_t x;

/* A number below @limit; splitmix64. */
static unsigned draw(unsigned limit)
{
    uint64_t z = x += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (z ^ z >> 31) % limit;
}

static void any_directory(char *name)
{
    snprintf(name, NAME_BYTES, "d%u", draw(DIRECTORIES));
}

/* In the top directory or in one of the others, which may not be there. */
static void any_name(char *name)
{
    unsigned directory = draw(DIRECTORIES + 1);

    if (directory < DIRECTORIES) {
        snprintf(name, NAME_BYTES, "d%u/f%u", directory, draw(NAMES));
    } else {
        snprintf(name, NAME_BYTES, "f%u", draw(NAMES));
    }
}

static int change(int fd)
{
    static const int modes[] = {
        0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
        FALLOC_FL_ZERO_RANGE,
    };
    static char data[DATA_BYTES];
    off_t offset = draw(FILE_BYTES);

    switch (draw(5)) {
    case 0:
        return ftruncate(fd, offset);
    case 1:
        return fallocate(fd, modes[draw(4)], offset, 1 + draw(DATA_BYTES));
    case 2:
        return fsetxattr(fd, "user.stress", data, 1 + draw(200), 0);
    default:
        memset(data, draw(256), sizeof(data));
        return pwrite(fd, data, 1 + draw(DATA_BYTES), offset) < 0 ? -1 : 0;
    }
}

static int change_file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    int result = fd;

    for (unsigned i = draw(4); result >= 0 && i > 0; i--) {
        result = change(fd);
    }
    if (result >= 0 && draw(3) == 0) {
        result = draw(2) ? fsync(fd) : fdatasync(fd);
    }
    if (fd >= 0) {
        int error = errno;

        close(fd);
        errno = error;
    }
    return result;
}

static int sync_directory(void)
{
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    int result = fd < 0 ? -1 : draw(SYNC_ONE_IN) ? fsync(fd) : syncfs(fd);

    if (fd >= 0) {
        close(fd);
    }
    return result;
}

static int step(void)
{
    char name[NAME_BYTES], other[NAME_BYTES];

    any_name(name);
    any_name(other);
    switch (draw(16)) {
    case 0:
        return rename(name, other);
    case 1:
        return link(name, other);
    case 2:
        return symlink(other, name);
    case 3:
    case 4:
        return unlink(name);
    case 5:
        any_directory(name);
        return mkdir(name, 0755);
    case 6:
        any_directory(name);
        return rmdir(name);
    case 7:
        any_directory(name);
        any_directory(other);
        return rename(name, other);
    case 8:
        return sync_directory();
    default:
        return change_file(name);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3 || chdir(argv[1])) {
        fprintf(stderr, "stress: see its source for how to use it\n");
        return 2;
    }
    x = atoll(argv[2]);
    while (step() >= 0 || (errno != EIO && errno != EROFS)) {
        /* that a name is there, or not, is no error here */
    }
    return 0;
}
