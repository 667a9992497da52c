/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The index: which slot holds a block
 *
 * A hash table with linear probing, made for all the slots there will
 * be, so that it never grows.
 */

#ifndef BF_INDEX_H
#define BF_INDEX_H

#include "slots.h"

typedef struct BfIndex {
    /* Per bucket: tag << 32 | slot + 1; 0: empty. */
    BfMemory buckets;
    uint64_t lines;     /* of the processor's cache */
    const BfSlots *slots;
} BfIndex;

/* Returns false and sets errno if there is not enough memory. */
bool bf_index_init(BfIndex *index, const BfSlots *slots);
void bf_index_release(BfIndex *index);

/* The slot that holds @block, or BF_NO_SLOT. */
uint32_t bf_index_find(const BfIndex *index, uint64_t block);

/* @block must not be there yet. */
void bf_index_add(BfIndex *index, uint64_t block, uint32_t slot);
/* @block must be there. */
void bf_index_remove(BfIndex *index, uint64_t block);

void bf_index_clear(BfIndex *index);

#endif
