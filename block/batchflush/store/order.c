/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The order: the dirty blocks that no sweep has claimed, by region
 */

#include <string.h>
#include <glib.h>

#include "order.h"

#define WORD_BITS 64
#define MIN_REGIONS WORD_BITS
#define MAX_REGIONS 65536   /* a region of a 1 TiB medium: 16 MiB */
#define SLOTS_PER_REGION 16 /* when full; more would waste memory */

bool bf_order_init(BfOrder *order, const BfSlots *slots)
{
    uint32_t regions = MIN_REGIONS;
    size_t size;

    while (regions < MAX_REGIONS &&
           regions < slots->count / SLOTS_PER_REGION) {
        regions *= 2;
    }
    size = regions * sizeof(BfRegion) + regions / 8;
    *order = (BfOrder) { .regions = regions, .slots = slots };
    if (!bf_memory_reserve(&order->memory, size) ||
        !bf_memory_grow(&order->memory, size)) {
        return false;
    }
    order->occupied = (uint64_t *)order->memory.base;
    order->region = (BfRegion *)(order->memory.base + regions / 8);
    return true;
}

void bf_order_release(BfOrder *order)
{
    bf_memory_release(&order->memory);
}

uint32_t bf_order_region(const BfOrder *order, uint64_t block)
{
    return MIN(block >> order->shift, order->regions);
}

uint32_t bf_order_occupied(const BfOrder *order, uint32_t from)
{
    for (uint32_t i = from; i < order->regions;
         i = (i / WORD_BITS + 1) * WORD_BITS) {
        uint64_t word = order->occupied[i / WORD_BITS] >> (i % WORD_BITS);

        if (word) {
            return i + __builtin_ctzll(word);
        }
    }
    return order->regions;
}

static void append(BfOrder *order, uint32_t i, BfRegion list)
{
    BfRegion *region = &order->region[i];
    uint64_t bit = 1ull << (i % WORD_BITS);

    if (order->occupied[i / WORD_BITS] & bit) {
        bf_slot(order->slots, region->last)->next = list.first;
        bf_slot(order->slots, list.first)->prev = region->last;
        region->last = list.last;
    } else {
        order->occupied[i / WORD_BITS] |= bit;
        *region = list;
    }
}

static void empty(BfOrder *order, uint32_t i)
{
    order->occupied[i / WORD_BITS] &= ~(1ull << (i % WORD_BITS));
}

static void widen(BfOrder *order, uint64_t block)
{
    unsigned by = 0;

    while (block >> (order->shift + by) >= order->regions) {
        by++;
    }
    for (uint32_t i = bf_order_occupied(order, 0); i < order->regions;
         i = bf_order_occupied(order, i + 1)) {
        empty(order, i);
        append(order, (uint64_t)i >> by, order->region[i]);
    }
    order->shift += by;
}

void bf_order_add(BfOrder *order, uint32_t number)
{
    BfSlot *slot = bf_slot(order->slots, number);

    if (bf_order_region(order, slot->block) == order->regions) {
        widen(order, slot->block);
    }
    slot->next = slot->prev = BF_LIST_END;
    append(order, bf_order_region(order, slot->block),
           (BfRegion) { number, number });
    order->count++;
}

void bf_order_remove(BfOrder *order, uint32_t number)
{
    BfSlot *slot = bf_slot(order->slots, number);
    uint32_t i = bf_order_region(order, slot->block);
    BfRegion *region = &order->region[i];

    if (region->first == region->last) {
        empty(order, i);
    } else if (region->first == number) {
        region->first = slot->next;
        bf_slot(order->slots, slot->next)->prev = BF_LIST_END;
    } else if (region->last == number) {
        region->last = slot->prev;
        bf_slot(order->slots, slot->prev)->next = BF_LIST_END;
    } else {
        bf_slot(order->slots, slot->prev)->next = slot->next;
        bf_slot(order->slots, slot->next)->prev = slot->prev;
    }
    slot->next = slot->prev = BF_NO_SLOT;
    order->count--;
}

void bf_order_clear(BfOrder *order)
{
    memset(order->occupied, 0, order->regions / 8);
    order->count = 0;
}
