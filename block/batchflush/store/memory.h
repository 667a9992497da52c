/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory from the host, in large pieces
 *
 * A piece is reserved as address space, which costs nothing however
 * strictly the host counts commitments, and made usable from its
 * beginning as it is needed.  All of it reads as zeroes at first.
 *
 * Functions that return bool set errno when they return false.
 */

#ifndef BF_MEMORY_H
#define BF_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct BfMemory {
    uint8_t *base;
    size_t size;
    size_t usable;  /* bytes from @base that may be touched */
} BfMemory;

bool bf_memory_reserve(BfMemory *memory, size_t size);
void bf_memory_release(BfMemory *memory);

/* Make the first @bytes usable, and some more to save calls. */
bool bf_memory_grow(BfMemory *memory, size_t bytes);

/* Take all of it from the host now, in huge pages if there are any. */
bool bf_memory_populate(BfMemory *memory);

/* Give a part back to the host; it reads as zeroes again. */
void bf_memory_discard(BfMemory *memory, size_t from, size_t bytes);

/*
 * Bytes that can be taken now without driving the host, or the control
 * group of this process, out of memory; UINT64_MAX if nobody tells.
 */
uint64_t bf_memory_available(void);

#endif
