/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * cut-power: rings the doorbell of the batchflush control device
 *
 * Runs in a guest, as root.  The registers are described in
 * docs/specs/batchflush-control.rst.  Linked statically, so that any
 * guest runs it.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 0x1000
#define MAGIC_VALUE 0x6c7274632d6c6662ull
#define NAME_SIZE 32

enum {
    MAGIC = 0x000, VERSION = 0x008, DISKS = 0x010, SELECTOR = 0x018,
    NODE_NAME = 0x180,
    CUT_POLICY = 0x200, CUT_SEED = 0x208, CUT_GUEST = 0x210,
    CUT_SCOPE = 0x218, CUT = 0x220, RESTORE = 0x228, CUT_RESULT = 0x230,
};

static const char usage[] =
    "usage: cut-power [--policy drop-all|prefix|subset|torn] [--seed N]\n"
    "                 [--guest reset|pause|run] [--disk NAME] [--restore]\n";

/* Volatile: the device sees every access. */
static volatile uint64_t *registers;

static uint64_t get(unsigned offset)
{
    return registers[offset / sizeof(*registers)];
}

static void set(unsigned offset, uint64_t value)
{
    registers[offset / sizeof(*registers)] = value;
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "cut-power: %s: %s\n", what, why);
    exit(1);
}

static bool file_says(const char *device, const char *name, const char *text)
{
    char path[256], line[32] = "";
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", device, name);
    file = fopen(path, "r");
    if (file) {
        if (!fgets(line, sizeof(line), file)) {
            line[0] = '\0';
        }
        fclose(file);
    }
    return strncmp(line, text, strlen(text)) == 0;
}

static void map_registers(const char *device)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/enable", device);
    fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, "1", 1) != 1) {
        fail(path, strerror(errno));
    }
    close(fd);

    snprintf(path, sizeof(path), "%s/resource0", device);
    fd = open(path, O_RDWR | O_SYNC);
    if (fd < 0) {
        fail(path, strerror(errno));
    }
    registers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (registers == MAP_FAILED) {
        fail(path, strerror(errno));
    }
    close(fd);
}

static void find_device(void)
{
    glob_t devices;

    if (glob("/sys/bus/pci/devices/*", 0, NULL, &devices) == 0) {
        for (size_t i = 0; i < devices.gl_pathc; i++) {
            const char *device = devices.gl_pathv[i];

            if (file_says(device, "vendor", "0x1b36") &&
                file_says(device, "device", "0x00bf")) {
                map_registers(device);
                globfree(&devices);
                return;
            }
        }
    }
    fail("device", "there is no batchflush control device");
}

static bool is_selected(const char *name)
{
    char bytes[NAME_SIZE + 1] = "";

    for (unsigned i = 0; i < NAME_SIZE; i += sizeof(uint64_t)) {
        uint64_t word = get(NODE_NAME + i);

        memcpy(bytes + i, &word, sizeof(word));
    }
    return strcmp(bytes, name) == 0;
}

static void select_disk(const char *name)
{
    for (uint64_t i = 0; i < get(DISKS); i++) {
        set(SELECTOR, i);
        if (is_selected(name)) {
            set(CUT_SCOPE, 1);
            return;
        }
    }
    fail(name, "the control device lists no disk of that name");
}

static uint64_t choice(const char *option, const char *value,
                       const char *const *allowed)
{
    for (uint64_t i = 0; allowed[i]; i++) {
        if (strcmp(allowed[i], value) == 0) {
            return i;
        }
    }
    fail(option, "unknown value");
    return 0;
}

static uint64_t number(const char *option, const char *value)
{
    char *end;
    uint64_t result;

    errno = 0;
    result = strtoull(value, &end, 0);
    if (errno || end == value || *end || result >> 63) {
        fail(option, "not a number from 0 to 2^63 - 1");
    }
    return result;
}

static const char *const policies[] = {
    "drop-all", "prefix", "subset", "torn", NULL
};
static const char *const guests[] = { "reset", "pause", "run", NULL };
static const struct option options[] = {
    { "policy", required_argument, NULL, 'p' },
    { "seed", required_argument, NULL, 's' },
    { "guest", required_argument, NULL, 'g' },
    { "disk", required_argument, NULL, 'd' },
    { "restore", no_argument, NULL, 'r' },
    { "help", no_argument, NULL, 'h' },
    { NULL, 0, NULL, 0 }
};

int main(int argc, char **argv)
{
    uint64_t policy = UINT64_MAX;
    uint64_t seed = UINT64_MAX;
    uint64_t guest = 0;
    const char *disk = NULL;
    unsigned bell = CUT;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p':
            policy = choice("--policy", optarg, policies);
            break;
        case 's':
            seed = number("--seed", optarg);
            break;
        case 'g':
            guest = choice("--guest", optarg, guests);
            break;
        case 'd':
            disk = optarg;
            break;
        case 'r':
            bell = RESTORE;
            break;
        default:
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : 2;
        }
    }
    if (optind < argc) {
        fputs(usage, stderr);
        return 2;
    }
    find_device();
    if (get(MAGIC) != MAGIC_VALUE || get(VERSION) < 2) {
        fail("device", "its control device has no doorbell");
    }
    set(CUT_POLICY, policy);
    set(CUT_SEED, seed);
    set(CUT_GUEST, guest);
    set(CUT_SCOPE, 0);
    if (disk) {
        select_disk(disk);
    }
    set(bell, 1);
    if (get(CUT_RESULT) != 1) {
        fail(bell == CUT ? "cut" : "restore", "refused; QEMU's -d "
             "guest_errors says why");
    }
    return 0;
}
