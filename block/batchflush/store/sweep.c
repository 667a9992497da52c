/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sweeps: moving dirty data to the medium in its order
 *
 * A block belongs to the sweep whose number its slot carries, as long
 * as it is not back in the order, where a write puts it.
 */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "store.h"

/* How many claims ahead their slots are fetched. */
#define AHEAD 8

/* A block, and the sectors of it that were dirty. */
typedef struct Claim {
    uint64_t block;
    uint32_t slot;
    uint8_t sectors;
} Claim;

struct BfSweep {
    uint64_t number;
    uint64_t last_write;    /* when it began */
    bool one_run;       /* claim no more than adjoins */
    bool durable;       /* and not ended yet */
    uint64_t bytes;
    uint64_t end;       /* of the last sector claimed */
    Claim *claims;
    size_t count;
    size_t room;
    size_t at;          /* where bf_sweep_next() is, and the bytes that */
    unsigned from;      /* are done of this block */
};

static int compare_claims(const void *a, const void *b)
{
    uint64_t one = ((const Claim *)a)->block;
    uint64_t two = ((const Claim *)b)->block;

    return one < two ? -1 : one > two;
}

static void note_claim(BfSweep *sweep, const BfSlot *slot, uint32_t number)
{
    if (sweep->count == sweep->room) {
        sweep->room = MAX(sweep->room * 2, 64);
        sweep->claims = g_renew(Claim, sweep->claims, sweep->room);
    }
    sweep->claims[sweep->count++] = (Claim) {
        .block = slot->block,
        .slot = number,
        .sectors = slot->dirty,
    };
}

/* Note the blocks of a region that lie from @first up to @last. */
static void note_region(const BfOrder *order, uint32_t region,
                        uint64_t first, uint64_t last, BfSweep *sweep)
{
    size_t before = sweep->count;
    uint32_t number = order->region[region].first;

    while (number != BF_LIST_END) {
        const BfSlot *slot = bf_slot(order->slots, number);

        if (slot->block >= first && slot->block <= last) {
            note_claim(sweep, slot, number);
        }
        number = slot->next;
    }
    if (sweep->count > before) {
        qsort(sweep->claims + before, sweep->count - before, sizeof(Claim),
              compare_claims);
    }
}

/* Whether the block continues the run that the one before it ends. */
static bool adjoins(const Claim *it)
{
    const Claim *before = it - 1;

    return before->block + 1 == it->block && (before->sectors & 0x80) &&
           (it->sectors & 0x01);
}

/* Claim what has been noted from @i on, and forget what is too much. */
static bool claim(BfStore *store, BfSweep *sweep, size_t i, uint64_t max_bytes)
{
    for (; i < sweep->count; i++) {
        const Claim *noted = &sweep->claims[i];
        BfSlot *slot = bf_slot(&store->slots, noted->slot);
        uint64_t bytes = bf_sectors_bytes(noted->sectors);

        if (sweep->bytes + bytes > max_bytes ||
            (sweep->one_run && i > 0 && !adjoins(noted))) {
            sweep->count = i;
            return false;
        }
        sweep->bytes += bytes;
        slot->sweep = sweep->number;
        bf_order_remove(&store->order, noted->slot);
    }
    return true;
}

/* Returns false when @max_bytes are reached. */
static bool claim_range(BfStore *store, BfSweep *sweep, uint64_t first,
                        uint64_t last, uint64_t max_bytes)
{
    BfOrder *order = &store->order;
    uint32_t end = bf_order_region(order, last);
    uint32_t region = bf_order_region(order, first);

    while (order->count) {
        size_t before = sweep->count;

        region = bf_order_occupied(order, region);
        if (region > end || region == order->regions) {
            break;
        }
        note_region(order, region, first, last, sweep);
        if (!claim(store, sweep, before, max_bytes)) {
            return false;
        }
        region++;
    }
    return true;
}

static uint64_t claim_end(const Claim *it)
{
    unsigned sectors = 32 - __builtin_clz(it->sectors);

    return it->block * BF_BLOCK_SIZE + sectors * BF_SECTOR_SIZE;
}

/* The versions that the open sweeps have claimed have to stay. */
static void pin_history(BfStore *store)
{
    const BfSweep *newest = g_queue_peek_tail(&store->sweeps);

    if (store->history) {
        bf_history_pin(store->history, newest ? newest->last_write : 0);
    }
}

static BfSweep *begin_sweep(BfStore *store, uint64_t from,
                            uint64_t max_bytes, bool one_run)
{
    uint64_t first = from / BF_BLOCK_SIZE + (from % BF_BLOCK_SIZE > 0);
    BfSweep *sweep;

    assert(max_bytes >= BF_BLOCK_SIZE);
    if (!store->order.count) {
        return NULL;
    }
    sweep = g_new0(BfSweep, 1);
    sweep->number = ++store->last_sweep;
    sweep->last_write = store->last_write;
    sweep->one_run = one_run;
    if (claim_range(store, sweep, first, UINT64_MAX, max_bytes) && first) {
        claim_range(store, sweep, 0, first - 1, max_bytes);
    }
    sweep->end = claim_end(&sweep->claims[sweep->count - 1]);
    g_queue_push_tail(&store->sweeps, sweep);
    pin_history(store);
    return sweep;
}

uint64_t bf_sweep_order(const BfSweep *sweep)
{
    return bf_order_of_sweep(sweep->last_write);
}

BfSweep *bf_store_sweep(BfStore *store, uint64_t from, uint64_t max_bytes)
{
    return begin_sweep(store, from, max_bytes, false);
}

BfSweep *bf_store_sweep_run(BfStore *store, uint64_t from,
                            uint64_t max_bytes)
{
    return begin_sweep(store, from, max_bytes, true);
}

uint64_t bf_sweep_bytes(const BfSweep *sweep)
{
    return sweep->bytes;
}

uint64_t bf_sweep_end(const BfSweep *sweep)
{
    return sweep->end;
}

/*
 * The first contiguous run of @sectors, as bytes from *@from of the
 * block on; 0 if there is none.
 */
static unsigned first_run(uint8_t sectors, unsigned *from)
{
    unsigned first = *from / BF_SECTOR_SIZE;
    unsigned rest = sectors >> first << first;

    if (!rest) {
        return 0;
    }
    first = __builtin_ctz(rest);
    *from = first * BF_SECTOR_SIZE;
    return __builtin_ctz(~(rest >> first)) * BF_SECTOR_SIZE;
}

void bf_sweep_foreach(const BfSweep *sweep, BfSweepRun *run, void *opaque)
{
    uint64_t start = 0;
    uint64_t length = 0;

    for (size_t i = 0; i < sweep->count; i++) {
        const Claim *it = &sweep->claims[i];
        unsigned from = 0;
        unsigned bytes;

        while ((bytes = first_run(it->sectors, &from))) {
            uint64_t offset = it->block * BF_BLOCK_SIZE + from;

            if (length && offset != start + length) {
                run(start, length, opaque);
                length = 0;
            }
            start = length ? start : offset;
            length += bytes;
            from += bytes;
        }
    }
    if (length) {
        run(start, length, opaque);
    }
}

static void fetch(const BfStore *store, const BfSweep *sweep, size_t i)
{
    if (i < sweep->count) {
        __builtin_prefetch(bf_slot(&store->slots, sweep->claims[i].slot), 1);
    }
}

/*
 * The data of a claimed sector, as it was claimed: where it has been
 * written since, the history has it.  NULL if it was dropped.
 */
static const uint8_t *claimed_sector(const BfStore *store,
                                     const BfSweep *sweep, const Claim *it,
                                     unsigned sector)
{
    const BfSlot *slot = bf_slot(&store->slots, it->slot);
    bool cached = slot->block == it->block && (slot->dirty >> sector & 1);

    if (store->history &&
        !(cached && bf_slot_number(slot, sector) <= sweep->last_write)) {
        return bf_history_find(store->history, it->block, sector,
                               sweep->last_write);
    }
    return cached ? bf_slot_data(&store->slots, it->slot) +
                    sector * BF_SECTOR_SIZE : NULL;
}

/* Nothing of it has been written or dropped since it was claimed. */
static bool is_as_claimed(const BfStore *store, const BfSweep *sweep,
                          const Claim *it)
{
    const BfSlot *slot = bf_slot(&store->slots, it->slot);

    return slot->block == it->block && slot->newest <= sweep->last_write &&
           !(it->sectors & ~slot->dirty);
}

/*
 * The sectors of a claim that are still there.  What a write past the
 * cache replaces stays until it is completed, but the medium has the
 * newer data by now: the sweep's turn is behind that write's.
 */
static uint8_t live_sectors(const BfStore *store, const BfSweep *sweep,
                            const Claim *it)
{
    uint8_t replaced = store->history
        ? bf_history_replaced(store->history, it->block, sweep->last_write)
        : 0;
    uint8_t sectors = 0;

    if (is_as_claimed(store, sweep, it)) {
        return it->sectors & ~replaced;
    }
    for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
        if ((it->sectors >> i & 1) && claimed_sector(store, sweep, it, i)) {
            sectors |= 1u << i;
        }
    }
    return sectors & ~replaced;
}

static void copy_claim(const BfStore *store, const BfSweep *sweep,
                       const Claim *it, uint8_t *to, unsigned bytes)
{
    if (is_as_claimed(store, sweep, it)) {
        memcpy(to, bf_slot_data(&store->slots, it->slot) + sweep->from,
               bytes);
        return;
    }
    for (unsigned done = 0; done < bytes; done += BF_SECTOR_SIZE) {
        unsigned sector = (sweep->from + done) / BF_SECTOR_SIZE;

        memcpy(to + done, claimed_sector(store, sweep, it, sector),
               BF_SECTOR_SIZE);
    }
}

size_t bf_sweep_next(BfStore *store, BfSweep *sweep, void *buf, size_t max,
                     uint64_t *offset)
{
    size_t length = 0;

    assert(max && max % BF_BLOCK_SIZE == 0);
    while (length < max && sweep->at < sweep->count) {
        Claim *it = &sweep->claims[sweep->at];
        unsigned done = sweep->from / BF_SECTOR_SIZE;
        uint8_t live = live_sectors(store, sweep, it);
        unsigned bytes = first_run(live, &sweep->from);
        uint64_t start = it->block * BF_BLOCK_SIZE + sweep->from;

        /* What is gone has become durable by another hand, if it has. */
        it->sectors &= live | ((1u << done) - 1);
        if (!bytes) {
            sweep->at++;
            sweep->from = 0;
            fetch(store, sweep, sweep->at + AHEAD);
            continue;
        }
        if (!length) {
            *offset = start;
        } else if (start != *offset + length) {
            break;
        }
        bytes = MIN(bytes, max - length);
        copy_claim(store, sweep, it, (uint8_t *)buf + length, bytes);
        length += bytes;
        sweep->from += bytes;
    }
    return length;
}

static bool belongs(const BfStore *store, const BfSweep *sweep,
                    const Claim *it)
{
    const BfSlot *slot = bf_slot(&store->slots, it->slot);

    return slot->dirty && slot->sweep == sweep->number && !bf_order_has(slot);
}

static void settle_history(BfStore *store, const BfSweep *sweep,
                           const Claim *it, bool durable)
{
    uint64_t order = bf_sweep_order(sweep);

    if (durable) {
        bf_history_durable_block(store->history, order, it->block,
                                 it->sectors);
    } else {
        bf_history_failed_block(store->history, order, it->block,
                                it->sectors);
    }
}

/* What it claimed leaves the cache, or is in the order again. */
static void settle(BfStore *store, BfSweep *sweep, bool durable)
{
    for (size_t i = 0; i < sweep->count; i++) {
        const Claim *it = &sweep->claims[i];

        fetch(store, sweep, i + AHEAD);
        if (store->history) {
            settle_history(store, sweep, it, durable);
        }
        if (!belongs(store, sweep, it)) {
            continue;
        }
        if (durable) {
            bf_store_forget(store, it->slot, it->sectors);
        }
        if (bf_slot(&store->slots, it->slot)->dirty) {
            bf_order_add(&store->order, it->slot);
        }
    }
    sweep->count = 0;
}

void bf_store_sweep_abort(BfStore *store, BfSweep *sweep)
{
    settle(store, sweep, false);
}

void bf_sweep_set_durable(BfSweep *sweep)
{
    sweep->durable = true;
}

void bf_store_settle_sweeps(BfStore *store)
{
    for (GList *it = store->sweeps.head; it; it = it->next) {
        BfSweep *sweep = it->data;

        if (sweep->durable) {
            settle(store, sweep, true);
        }
    }
}

uint64_t bf_store_last_sweep(const BfStore *store)
{
    return store->last_sweep;
}

bool bf_store_sweeping(const BfStore *store, uint64_t up_to)
{
    for (GList *it = store->sweeps.head; it; it = it->next) {
        const BfSweep *sweep = it->data;

        if (sweep->number > up_to) {
            break;
        }
        if (!sweep->durable) {
            return true;
        }
    }
    return false;
}

uint64_t bf_store_sweep_done(BfStore *store, BfSweep *sweep, bool durable)
{
    uint64_t dirty = store->dirty;

    settle(store, sweep, durable);
    g_queue_remove(&store->sweeps, sweep);
    pin_history(store);
    g_free(sweep->claims);
    g_free(sweep);
    return dirty - store->dirty;
}

void bf_store_empty_sweeps(BfStore *store)
{
    for (GList *it = store->sweeps.head; it; it = it->next) {
        BfSweep *sweep = it->data;

        sweep->count = 0;
    }
}
