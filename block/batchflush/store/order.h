/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The order: the dirty blocks that no sweep has claimed, by region
 *
 * The medium is divided into regions of equal size, and each has a list
 * of its blocks.  That costs a write the same however much is dirty,
 * and leaves little to sort for a sweep.  Regions double in size when a
 * block lies beyond the last.
 */

#ifndef BF_ORDER_H
#define BF_ORDER_H

#include "slots.h"

/* A list of slots in the order in which they came. */
typedef struct BfRegion {
    uint32_t first;
    uint32_t last;      /* so that the others need not be looked at */
} BfRegion;

/* Stands before the first and behind the last slot of a list. */
#define BF_LIST_END (BF_NO_SLOT - 1)

typedef struct BfOrder {
    BfMemory memory;
    BfRegion *region;
    uint64_t *occupied; /* bitmap of the regions that are not empty */
    uint32_t regions;   /* a power of two */
    unsigned shift;     /* a region has 1 << shift blocks */
    uint32_t count;     /* blocks in all lists */
    const BfSlots *slots;
} BfOrder;

/* Returns false and sets errno if there is not enough memory. */
bool bf_order_init(BfOrder *order, const BfSlots *slots);
void bf_order_release(BfOrder *order);

void bf_order_add(BfOrder *order, uint32_t number);
void bf_order_remove(BfOrder *order, uint32_t number);
void bf_order_clear(BfOrder *order);

/* Whether a used slot is in a list. */
static inline bool bf_order_has(const BfSlot *slot)
{
    return slot->next != BF_NO_SLOT;
}

/* The region of @block; the number of regions if it lies beyond. */
uint32_t bf_order_region(const BfOrder *order, uint64_t block);

/* The first region >= @from that is not empty, or the number of regions. */
uint32_t bf_order_occupied(const BfOrder *order, uint32_t from);

#endif
