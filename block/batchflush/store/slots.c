/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The slots: places for one block of data each
 */

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <glib.h>

#include "slots.h"

G_STATIC_ASSERT(sizeof(BfSlot) == 64);

bool bf_slots_init(BfSlots *slots, uint32_t count)
{
    *slots = (BfSlots) { .count = count, .free = BF_NO_SLOT };
    return bf_memory_reserve(&slots->data, (size_t)count * BF_BLOCK_SIZE) &&
           bf_memory_reserve(&slots->about, (size_t)count * sizeof(BfSlot));
}

void bf_slots_release(BfSlots *slots)
{
    bf_memory_release(&slots->data);
    bf_memory_release(&slots->about);
}

static uint32_t begin_slot(BfSlots *slots)
{
    uint32_t number = slots->begun;
    size_t count = (size_t)number + 1;

    assert(number < slots->count);
    if (!bf_memory_grow(&slots->data, count * BF_BLOCK_SIZE) ||
        !bf_memory_grow(&slots->about, count * sizeof(BfSlot))) {
        g_error("write cache: the host refuses memory for %zu blocks: %s",
                count, strerror(errno));
    }
    slots->begun++;
    slots->touched = MAX(slots->touched, slots->begun);
    return number;
}

uint32_t bf_slots_take(BfSlots *slots, uint64_t block)
{
    uint32_t number = slots->free;
    BfSlot *slot;

    if (number != BF_NO_SLOT) {
        slots->free = bf_slot(slots, number)->next;
    } else {
        number = begin_slot(slots);
    }
    slots->used++;
    slot = bf_slot(slots, number);
    slot->block = block;
    slot->dirty = 0;
    slot->newest = 0;
    slot->sweep = 0;
    slot->next = slot->prev = BF_NO_SLOT;
    return number;
}

void bf_slots_put(BfSlots *slots, uint32_t number)
{
    BfSlot *slot = bf_slot(slots, number);

    assert(!slot->dirty);
    slot->next = slots->free;
    slots->free = number;
    slots->used--;
}

void bf_slots_clear(BfSlots *slots)
{
    memset(slots->about.base, 0, (size_t)slots->begun * sizeof(BfSlot));
    slots->begun = 0;
    slots->used = 0;
    slots->free = BF_NO_SLOT;
}

static void discard_data(BfSlots *slots, uint32_t from, uint32_t to)
{
    if (from < to) {
        bf_memory_discard(&slots->data, (size_t)from * BF_BLOCK_SIZE,
                          (size_t)(to - from) * BF_BLOCK_SIZE);
    }
}

/* Leaves the free slots in a list that begins with the lowest. */
void bf_slots_trim(BfSlots *slots)
{
    uint32_t end = slots->touched;

    if (slots->preallocated || slots->used == slots->touched) {
        return;
    }
    while (slots->begun && !bf_slot(slots, slots->begun - 1)->dirty) {
        slots->begun--;
    }
    slots->touched = slots->begun;
    slots->free = BF_NO_SLOT;
    for (uint32_t i = slots->begun; i-- > 0;) {
        BfSlot *slot = bf_slot(slots, i);

        if (slot->dirty) {
            discard_data(slots, i + 1, end);
            end = i;
        } else {
            slot->next = slots->free;
            slots->free = i;
        }
    }
    discard_data(slots, 0, end);
}

/*
 * Ages stop at UINT32_MAX.  The sector then seems younger than it is,
 * but still 2^32 writes older than the newest: nothing that asks with
 * bf_slot_written_by() has been under way for so long.
 */
void bf_slot_stamp(BfSlot *slot, uint8_t sectors, uint64_t number)
{
    uint64_t gone = MIN(number - slot->newest, UINT32_MAX);

    for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
        uint64_t age = MIN(slot->age[i] + gone, UINT32_MAX);

        slot->age[i] = sectors & (1u << i) ? 0 : age;
    }
    slot->newest = number;
}

uint8_t bf_slot_written_by(const BfSlot *slot, uint64_t up_to)
{
    uint8_t sectors = 0;

    for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
        if (bf_slot_number(slot, i) <= up_to) {
            sectors |= 1u << i;
        }
    }
    return sectors & slot->dirty;
}
