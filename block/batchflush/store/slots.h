/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The slots: places for one block of data each
 *
 * A slot is named by its number.  What is known about its block stands
 * in a BfSlot, exactly one line of the processor's cache.
 */

#ifndef BF_SLOTS_H
#define BF_SLOTS_H

#include "memory.h"
#include "store.h"

#define BF_BLOCK_SECTORS (BF_BLOCK_SIZE / BF_SECTOR_SIZE)
#define BF_NO_SLOT UINT32_MAX
#define BF_MAX_SLOTS (1u << 31)

typedef struct BfSlot {
    uint64_t block;
    uint64_t newest;        /* number of the last write to the block */
    uint64_t sweep:56;      /* the sweep that claimed it last, 0: none */
    uint64_t dirty:8;       /* sectors that are cached; 0: slot is free */
    uint32_t next;          /* in a list of the order, or of free slots */
    uint32_t prev;
    /* Per sector: @newest less the number of its own last write. */
    uint32_t age[BF_BLOCK_SECTORS];
} BfSlot;

typedef struct BfSlots {
    BfMemory data;
    BfMemory about;     /* array of BfSlot */
    uint32_t count;
    uint32_t used;
    uint32_t begun;     /* slots from here on have not been used yet */
    uint32_t touched;   /* and from here on their data costs no memory */
    uint32_t free;      /* list of free slots below @begun */
    bool preallocated;
} BfSlots;

/* Returns false and sets errno if there is not enough memory. */
bool bf_slots_init(BfSlots *slots, uint32_t count);
void bf_slots_release(BfSlots *slots);

/*
 * Take a free slot; there must be one.  Without preallocation it may
 * need memory, and ends the process, as g_malloc() does, if the host
 * refuses it.
 */
uint32_t bf_slots_take(BfSlots *slots, uint64_t block);

/* Give back a slot of which nothing is dirty any more. */
void bf_slots_put(BfSlots *slots, uint32_t number);

void bf_slots_clear(BfSlots *slots);
void bf_slots_trim(BfSlots *slots);

/* Note that @sectors (a bit each) are written by write @number. */
void bf_slot_stamp(BfSlot *slot, uint8_t sectors, uint64_t number);

/* The sectors whose last write is not after @up_to. */
uint8_t bf_slot_written_by(const BfSlot *slot, uint64_t up_to);

/* The number of a sector's last write. */
static inline uint64_t bf_slot_number(const BfSlot *slot, unsigned sector)
{
    return slot->newest - slot->age[sector];
}

static inline BfSlot *bf_slot(const BfSlots *slots, uint32_t number)
{
    return (BfSlot *)slots->about.base + number;
}

static inline uint8_t *bf_slot_data(const BfSlots *slots, uint32_t number)
{
    return slots->data.base + (size_t)number * BF_BLOCK_SIZE;
}

#endif
