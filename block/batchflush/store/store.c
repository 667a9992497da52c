/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data store: what the write cache holds
 */

#include <assert.h>
#include <errno.h>

#include "cursor.h"
#include "state.h"
#include "store.h"

/* Bounds the time of one call of bf_store_lookup(). */
#define LOOKUP_MAX (64 * 1024 * 1024)

/* The part of a range that lies in one block. */
typedef struct Piece {
    uint64_t block;
    unsigned from;      /* bytes into the block */
    unsigned bytes;
    uint8_t sectors;
} Piece;

static Piece first_piece(uint64_t offset, uint64_t bytes)
{
    Piece piece = {
        .block = offset / BF_BLOCK_SIZE,
        .from = offset % BF_BLOCK_SIZE,
    };
    unsigned count;

    piece.bytes = MIN(bytes, BF_BLOCK_SIZE - piece.from);
    count = piece.bytes / BF_SECTOR_SIZE;
    piece.sectors = ((1u << count) - 1) << (piece.from / BF_SECTOR_SIZE);
    return piece;
}

static void check_range(uint64_t offset, uint64_t bytes)
{
    assert(offset % BF_SECTOR_SIZE == 0 && bytes % BF_SECTOR_SIZE == 0);
    assert(bytes <= UINT64_MAX - offset);
}

static bool populate(BfStore *store)
{
    if (store->slots.data.size + bf_store_overhead(store) >
        bf_memory_available()) {
        errno = ENOMEM;
        return false;
    }
    return bf_memory_populate(&store->slots.data) &&
           bf_memory_populate(&store->slots.about) &&
           bf_memory_populate(&store->index.buckets) &&
           bf_memory_populate(&store->order.memory);
}

BfStore *bf_store_new(uint64_t capacity, bool preallocate)
{
    uint64_t blocks = MAX(capacity / BF_BLOCK_SIZE, 1);
    BfStore *store;

    if (blocks > BF_MAX_SLOTS) {
        errno = ENOMEM;
        return NULL;
    }
    store = g_new0(BfStore, 1);
    g_queue_init(&store->sweeps);
    if (!bf_slots_init(&store->slots, blocks) ||
        !bf_index_init(&store->index, &store->slots) ||
        !bf_order_init(&store->order, &store->slots) ||
        (preallocate && !populate(store))) {
        int error = errno;

        bf_store_free(store);
        errno = error;
        return NULL;
    }
    store->slots.preallocated = preallocate;
    return store;
}

void bf_store_free(BfStore *store)
{
    if (!store) {
        return;
    }
    assert(g_queue_is_empty(&store->sweeps));
    bf_order_release(&store->order);
    bf_index_release(&store->index);
    bf_slots_release(&store->slots);
    g_free(store);
}

void bf_store_set_history(BfStore *store, BfHistory *history)
{
    store->history = history;
}

uint64_t bf_store_used(const BfStore *store)
{
    return (uint64_t)store->slots.used * BF_BLOCK_SIZE;
}

uint64_t bf_store_dirty(const BfStore *store)
{
    return store->dirty;
}

uint64_t bf_store_capacity(const BfStore *store)
{
    return (uint64_t)store->slots.count * BF_BLOCK_SIZE;
}

uint64_t bf_store_overhead(const BfStore *store)
{
    return store->slots.about.size + store->index.buckets.size +
           store->order.memory.size + sizeof(*store);
}

uint64_t bf_store_last_write(const BfStore *store)
{
    return store->last_write;
}

uint64_t bf_store_next_write(BfStore *store)
{
    return ++store->last_write;
}

uint64_t bf_store_room_for(const BfStore *store, uint64_t offset,
                           uint64_t bytes)
{
    uint64_t blocks = 0;

    check_range(offset, bytes);
    while (bytes) {
        Piece piece = first_piece(offset, bytes);

        if (bf_index_find(&store->index, piece.block) == BF_NO_SLOT) {
            blocks++;
        }
        offset += piece.bytes;
        bytes -= piece.bytes;
    }
    return blocks * BF_BLOCK_SIZE;
}

/*
 * Sectors of a slot are about to be written again: the history keeps
 * them, once for each write that they have come with.
 */
static void keep_versions(BfStore *store, uint32_t number, uint8_t sectors)
{
    const BfSlot *slot = bf_slot(&store->slots, number);

    if (!store->history) {
        return;
    }
    while (sectors) {
        uint64_t write = bf_slot_number(slot, __builtin_ctz(sectors));
        uint8_t same = sectors;

        for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
            if (bf_slot_number(slot, i) != write) {
                same &= ~(1u << i);
            }
        }
        bf_history_keep(store->history, slot->block, same, write,
                        bf_slot_data(&store->slots, number),
                        store->last_write);
        sectors &= ~same;
    }
}

static void write_piece(BfStore *store, Piece piece, BfCursor *from)
{
    uint32_t number = bf_index_find(&store->index, piece.block);
    BfSlot *slot;

    if (number == BF_NO_SLOT) {
        number = bf_slots_take(&store->slots, piece.block);
        bf_index_add(&store->index, piece.block, number);
    }
    slot = bf_slot(&store->slots, number);
    if (!bf_order_has(slot)) {
        /* New, or claimed so far: a sweep loses it. */
        bf_order_add(&store->order, number);
    }
    keep_versions(store, number, piece.sectors & slot->dirty);
    store->dirty += bf_sectors_bytes(piece.sectors & ~slot->dirty);
    slot->dirty |= piece.sectors;
    bf_slot_stamp(slot, piece.sectors, store->last_write);
    bf_cursor_get(from, bf_slot_data(&store->slots, number) + piece.from,
                  piece.bytes);
}

uint64_t bf_store_write(BfStore *store, uint64_t offset, uint64_t bytes,
                        const struct iovec *iov, unsigned niov, size_t skip)
{
    BfCursor from = bf_cursor(iov, niov, skip);

    check_range(offset, bytes);
    store->last_write++;
    while (bytes) {
        Piece piece = first_piece(offset, bytes);

        write_piece(store, piece, &from);
        offset += piece.bytes;
        bytes -= piece.bytes;
    }
    return store->last_write;
}

static uint8_t cached_sectors(const BfStore *store, uint64_t block)
{
    uint32_t number = bf_index_find(&store->index, block);

    return number == BF_NO_SLOT ? 0 : bf_slot(&store->slots, number)->dirty;
}

bool bf_store_lookup(const BfStore *store, uint64_t offset, uint64_t bytes,
                     uint64_t *run)
{
    uint64_t length = 0;
    bool cached = false;

    check_range(offset, bytes);
    assert(bytes);
    if (!store->slots.used) {
        *run = bytes;
        return false;
    }
    bytes = MIN(bytes, LOOKUP_MAX);
    while (length < bytes) {
        Piece piece = first_piece(offset + length, bytes - length);
        uint8_t sectors = cached_sectors(store, piece.block);
        unsigned first = piece.from / BF_SECTOR_SIZE;
        unsigned differ;

        if (length == 0) {
            cached = sectors >> first & 1;
        }
        differ = (cached ? ~sectors : sectors) & piece.sectors;
        if (differ) {
            length += (__builtin_ctz(differ) - first) * BF_SECTOR_SIZE;
            break;
        }
        length += piece.bytes;
    }
    *run = length;
    return cached;
}

void bf_store_read(const BfStore *store, uint64_t offset, uint64_t bytes,
                   const struct iovec *iov, unsigned niov, size_t skip)
{
    BfCursor to = bf_cursor(iov, niov, skip);

    check_range(offset, bytes);
    while (bytes) {
        Piece piece = first_piece(offset, bytes);
        uint32_t number = bf_index_find(&store->index, piece.block);

        assert(number != BF_NO_SLOT);
        assert(!(piece.sectors & ~bf_slot(&store->slots, number)->dirty));
        bf_cursor_put(&to, bf_slot_data(&store->slots, number) + piece.from,
                      piece.bytes);
        offset += piece.bytes;
        bytes -= piece.bytes;
    }
}

void bf_store_forget(BfStore *store, uint32_t number, uint8_t sectors)
{
    BfSlot *slot = bf_slot(&store->slots, number);

    store->dirty -= bf_sectors_bytes(sectors & slot->dirty);
    slot->dirty &= ~sectors;
    if (slot->dirty) {
        return;
    }
    if (bf_order_has(slot)) {
        bf_order_remove(&store->order, number);
    }
    bf_index_remove(&store->index, slot->block);
    bf_slots_put(&store->slots, number);
}

static void drop_sectors(BfStore *store, uint32_t number, uint8_t sectors,
                         uint64_t up_to)
{
    sectors &= bf_slot_written_by(bf_slot(&store->slots, number), up_to);
    if (sectors) {
        bf_store_forget(store, number, sectors);
    }
}

/* For ranges with more blocks than there are slots to look at. */
static void drop_by_slot(BfStore *store, uint64_t offset, uint64_t bytes,
                         uint64_t up_to)
{
    uint64_t end = offset + bytes;

    for (uint32_t i = 0; i < store->slots.begun; i++) {
        BfSlot *slot = bf_slot(&store->slots, i);
        uint64_t start = slot->block * BF_BLOCK_SIZE;
        uint64_t from = MAX(start, offset);

        if (slot->dirty && start < end && start + BF_BLOCK_SIZE > offset) {
            drop_sectors(store, i, first_piece(from, end - from).sectors,
                         up_to);
        }
    }
}

void bf_store_drop(BfStore *store, uint64_t offset, uint64_t bytes,
                   uint64_t up_to)
{
    bytes = MIN(bytes, UINT64_MAX - offset) / BF_SECTOR_SIZE * BF_SECTOR_SIZE;
    check_range(offset, bytes);
    if (bytes / BF_BLOCK_SIZE > store->slots.begun) {
        drop_by_slot(store, offset, bytes, up_to);
        return;
    }
    while (bytes) {
        Piece piece = first_piece(offset, bytes);
        uint32_t number = bf_index_find(&store->index, piece.block);

        if (number != BF_NO_SLOT) {
            drop_sectors(store, number, piece.sectors, up_to);
        }
        offset += piece.bytes;
        bytes -= piece.bytes;
    }
}

void bf_store_settle(BfStore *store, uint64_t offset, uint64_t bytes,
                     uint64_t number)
{
    uint64_t order = bf_order_of_write(number);

    check_range(offset, bytes);
    while (bytes) {
        Piece piece = first_piece(offset, bytes);
        uint32_t i = bf_index_find(&store->index, piece.block);
        const BfSlot *slot = i == BF_NO_SLOT ? NULL
                                             : bf_slot(&store->slots, i);

        if (slot && (slot->dirty & piece.sectors)) {
            bf_history_settle(store->history, order, piece.block,
                              slot->dirty & piece.sectors, number,
                              bf_slot_data(&store->slots, i));
        }
        offset += piece.bytes;
        bytes -= piece.bytes;
    }
}

void bf_store_drop_all(BfStore *store)
{
    bf_store_empty_sweeps(store);
    bf_order_clear(&store->order);
    bf_index_clear(&store->index);
    bf_slots_clear(&store->slots);
    store->dirty = 0;
}

void bf_store_trim(BfStore *store)
{
    bf_slots_trim(&store->slots);
}
