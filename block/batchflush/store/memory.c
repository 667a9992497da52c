/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory from the host, in large pieces
 */

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <glib.h>

#include "memory.h"

#define GROW_STEP (32 * 1024 * 1024)

/*
 * Linux counts private memory as committed when it becomes writable, so
 * PROT_NONE is free even with vm.overcommit_memory=2.
 */
bool bf_memory_reserve(BfMemory *memory, size_t size)
{
    void *base = mmap(NULL, size, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    *memory = (BfMemory) { 0 };
    if (base == MAP_FAILED) {
        return false;
    }
    memory->base = base;
    memory->size = size;
    return true;
}

void bf_memory_release(BfMemory *memory)
{
    if (memory->base) {
        munmap(memory->base, memory->size);
        memory->base = NULL;
    }
}

bool bf_memory_grow(BfMemory *memory, size_t bytes)
{
    size_t usable;

    assert(bytes <= memory->size);
    if (bytes <= memory->usable) {
        return true;
    }
    usable = (bytes + GROW_STEP - 1) / GROW_STEP * GROW_STEP;
    usable = MIN(usable, memory->size);
    if (mprotect(memory->base, usable, PROT_READ | PROT_WRITE) < 0) {
        return false;
    }
    memory->usable = usable;
    return true;
}

bool bf_memory_populate(BfMemory *memory)
{
    if (!bf_memory_grow(memory, memory->size)) {
        return false;
    }
    /* Only faster: a host without huge pages refuses it. */
    madvise(memory->base, memory->size, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_WRITE
    if (madvise(memory->base, memory->size, MADV_POPULATE_WRITE) == 0) {
        return true;
    }
    if (errno != EINVAL) {
        return false;
    }
#endif
    memset(memory->base, 0, memory->size); /* Linux before 5.14 */
    return true;
}

void bf_memory_discard(BfMemory *memory, size_t from, size_t bytes)
{
    assert(from + bytes <= memory->size);
    if (madvise(memory->base + from, bytes, MADV_DONTNEED) < 0) {
        /* Refused for locked memory (mlockall): keep it, but as zeroes. */
        memset(memory->base + from, 0, bytes);
    }
}

static uint64_t host_available(void)
{
    g_autofree char *text = NULL;
    const char *line;

    if (!g_file_get_contents("/proc/meminfo", &text, NULL, NULL)) {
        return UINT64_MAX;
    }
    line = strstr(text, "\nMemAvailable:");
    if (!line) {
        return UINT64_MAX;
    }
    line += strlen("\nMemAvailable:");
    return g_ascii_strtoull(line, NULL, 10) * 1024;
}

static bool read_number(const char *dir, const char *name, uint64_t *value)
{
    g_autofree char *path = g_build_filename(dir, name, NULL);
    g_autofree char *text = NULL;

    /* A group without a limit says "max". */
    if (!g_file_get_contents(path, &text, NULL, NULL) ||
        !g_ascii_isdigit(text[0])) {
        return false;
    }
    *value = g_ascii_strtoull(text, NULL, 10);
    return true;
}

/* The smallest headroom among our control group (v2) and its parents. */
static uint64_t group_available(void)
{
    g_autofree char *text = NULL;
    g_autofree char *group = NULL;
    uint64_t least = UINT64_MAX;

    if (!g_file_get_contents("/proc/self/cgroup", &text, NULL, NULL) ||
        !g_str_has_prefix(text, "0::/")) {
        return UINT64_MAX;
    }
    group = g_strdup(text + strlen("0::"));
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        g_autofree char *dir = g_build_filename("/sys/fs/cgroup", group, NULL);
        uint64_t limit, current;

        if (read_number(dir, "memory.max", &limit) &&
            read_number(dir, "memory.current", &current)) {
            least = MIN(least, limit > current ? limit - current : 0);
        }
        if (strlen(group) <= 1) {
            return least;
        }
        group[MAX(strrchr(group, '/') - group, 1)] = '\0';
    }
}

uint64_t bf_memory_available(void)
{
    return MIN(host_available(), group_available());
}
