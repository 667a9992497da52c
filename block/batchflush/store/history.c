/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The history: what a power cut could bring back */

#include <assert.h>
#include <string.h>

#include "history.h"
#include "store.h"

#define BLOCK_SECTORS (BF_BLOCK_SIZE / BF_SECTOR_SIZE)

struct BfHistory {
    GHashTable *pasts;          /* by block */
    GQueue ages;                /* of versions, oldest first */
    BfChange *changes;
    uint64_t limit;
    uint64_t version_bytes;
    uint64_t before_bytes;
    uint64_t forgotten_bytes;
    uint64_t floor;
    uint64_t pinned;
};

static size_t sectors_bytes(uint8_t sectors)
{
    return __builtin_popcount(sectors) * BF_SECTOR_SIZE;
}

/* Where @data of a piece holds a sector. */
static size_t place(uint8_t stored, unsigned sector)
{
    return sectors_bytes(stored & ((1u << sector) - 1));
}

const uint8_t *bf_piece_sector(const BfPiece *piece, unsigned sector)
{
    return piece->sectors >> sector & 1
        ? piece->data + place(piece->stored, sector) : NULL;
}

/* @data holds the whole block. */
static BfPiece *piece_new(GQueue *queue, uint64_t block, uint8_t sectors,
                          uint64_t number, const uint8_t *data)
{
    BfPiece *piece = g_malloc(sizeof(*piece) + sectors_bytes(sectors));

    *piece = (BfPiece) {
        .link.data = piece,
        .age.data = piece,
        .number = number,
        .block = block,
        .stored = sectors,
        .sectors = sectors,
    };
    for (unsigned i = 0; i < BLOCK_SECTORS; i++) {
        if (sectors >> i & 1) {
            memcpy(piece->data + place(sectors, i),
                   data + i * BF_SECTOR_SIZE, BF_SECTOR_SIZE);
        }
    }
    g_queue_push_tail_link(queue, &piece->link);
    return piece;
}

BfHistory *bf_history_new(uint64_t limit)
{
    BfHistory *history = g_new0(BfHistory, 1);

    history->limit = limit;
    history->pasts = g_hash_table_new(g_int64_hash, g_int64_equal);
    g_queue_init(&history->ages);
    return history;
}

static void free_pieces(GQueue *queue)
{
    BfPiece *piece;

    while ((piece = g_queue_peek_head(queue))) {
        g_queue_unlink(queue, &piece->link);
        g_free(piece);
    }
}

static gboolean free_past(void *key, void *value, void *opaque)
{
    BfPast *past = value;

    (void)key;
    (void)opaque;
    free_pieces(&past->versions);
    free_pieces(&past->befores);
    g_free(past);
    return TRUE;
}

void bf_history_clear(BfHistory *history)
{
    g_hash_table_foreach_remove(history->pasts, free_past, NULL);
    g_queue_init(&history->ages);
    history->version_bytes = 0;
    history->before_bytes = 0;
    history->floor = 0;
    history->pinned = 0;
}

void bf_history_free(BfHistory *history)
{
    if (!history) {
        return;
    }
    assert(!history->changes);
    bf_history_clear(history);
    g_hash_table_destroy(history->pasts);
    g_free(history);
}

uint64_t bf_history_version_bytes(const BfHistory *history)
{
    return history->version_bytes;
}

uint64_t bf_history_before_bytes(const BfHistory *history)
{
    return history->before_bytes;
}

uint64_t bf_history_forgotten_bytes(const BfHistory *history)
{
    return history->forgotten_bytes;
}

uint64_t bf_history_floor(const BfHistory *history)
{
    return history->floor;
}

static BfPast *past_of(const BfHistory *history, uint64_t block)
{
    return g_hash_table_lookup(history->pasts, &block);
}

const BfPast *bf_history_past(const BfHistory *history, uint64_t block)
{
    return past_of(history, block);
}

static BfPast *need_past(BfHistory *history, uint64_t block)
{
    BfPast *past = past_of(history, block);

    if (!past) {
        past = g_new0(BfPast, 1);
        past->block = block;
        g_hash_table_insert(history->pasts, &past->block, past);
    }
    return past;
}

static void drop_past_if_empty(BfHistory *history, BfPast *past)
{
    if (g_queue_is_empty(&past->versions) &&
        g_queue_is_empty(&past->befores)) {
        g_hash_table_remove(history->pasts, &past->block);
        g_free(past);
    }
}

/* Forget these sectors; returns true if none is left. */
static bool piece_forget(BfPiece *piece, uint8_t sectors, uint64_t *bytes)
{
    *bytes -= sectors_bytes(piece->sectors & sectors);
    piece->sectors &= ~sectors;
    return !piece->sectors;
}

static void version_forget(BfHistory *history, BfPast *past, BfPiece *piece,
                           uint8_t sectors)
{
    if (piece_forget(piece, sectors, &history->version_bytes)) {
        g_queue_unlink(&history->ages, &piece->age);
        g_queue_unlink(&past->versions, &piece->link);
        g_free(piece);
    }
}

static void before_forget(BfHistory *history, BfPast *past, BfPiece *piece,
                          uint8_t sectors)
{
    if (piece_forget(piece, sectors, &history->before_bytes)) {
        g_queue_unlink(&past->befores, &piece->link);
        g_free(piece);
    }
}

static void forget_for_room(BfHistory *history, BfPiece *piece)
{
    BfPast *past = past_of(history, piece->block);

    history->forgotten_bytes += sectors_bytes(piece->sectors);
    history->floor = MAX(history->floor, piece->by);
    version_forget(history, past, piece, UINT8_MAX);
    drop_past_if_empty(history, past);
}

void bf_history_keep(BfHistory *history, uint64_t block, uint8_t sectors,
                     uint64_t number, const uint8_t *data, uint64_t by)
{
    BfPiece *piece = piece_new(&need_past(history, block)->versions, block,
                               sectors, number, data);

    piece->by = by;
    g_queue_push_tail_link(&history->ages, &piece->age);
    history->version_bytes += sectors_bytes(sectors);

    while (history->version_bytes > history->limit) {
        BfPiece *oldest = g_queue_peek_head(&history->ages);

        if (oldest->number <= history->pinned) {
            return;
        }
        forget_for_room(history, oldest);
    }
}

void bf_history_pin(BfHistory *history, uint64_t number)
{
    history->pinned = number;
}

/* The sectors that have a before of this order. */
static uint8_t settled_sectors(const BfPast *past, uint64_t order)
{
    uint8_t sectors = 0;

    for (GList *it = past->befores.head; it; it = it->next) {
        const BfPiece *piece = it->data;

        if (piece->number == order) {
            sectors |= piece->sectors;
        }
    }
    return sectors;
}

/* @data is the block's. */
static void before_block(BfHistory *history, uint64_t order, uint64_t block,
                         uint8_t sectors, const uint8_t *data)
{
    BfPast *past = need_past(history, block);

    sectors &= ~settled_sectors(past, order);
    if (sectors) {
        piece_new(&past->befores, block, sectors, order, data);
        history->before_bytes += sectors_bytes(sectors);
    }
}

void bf_history_before(BfHistory *history, uint64_t order, uint64_t offset,
                       uint64_t bytes, const uint8_t *data)
{
    while (bytes) {
        uint64_t block = offset / BF_BLOCK_SIZE;
        unsigned from = offset % BF_BLOCK_SIZE;
        unsigned length = MIN(bytes, BF_BLOCK_SIZE - from);
        uint8_t sectors = ((1u << (length / BF_SECTOR_SIZE)) - 1)
                          << (from / BF_SECTOR_SIZE);

        before_block(history, order, block, sectors, data - from);
        offset += length;
        bytes -= length;
        data += length;
    }
}

static void durable_past(BfHistory *history, BfPast *past, uint64_t order,
                         uint8_t sectors)
{
    GList *it, *next;

    for (it = past->versions.head; it; it = next) {
        BfPiece *piece = it->data;

        next = it->next;
        if (bf_order_of_write(piece->number) <= order) {
            version_forget(history, past, piece, sectors);
        }
    }
    for (it = past->befores.head; it; it = next) {
        BfPiece *piece = it->data;

        next = it->next;
        if (piece->number <= order) {
            before_forget(history, past, piece, sectors);
        }
    }
    drop_past_if_empty(history, past);
}

void bf_history_settle(BfHistory *history, uint64_t order, uint64_t block,
                       uint8_t sectors, uint64_t number,
                       const uint8_t *data)
{
    BfPiece *piece;

    bf_history_durable_block(history, order - 1, block, sectors);
    piece = piece_new(&need_past(history, block)->befores, block, sectors,
                      order, data);
    piece->by = number;
    history->before_bytes += sectors_bytes(sectors);
}

void bf_history_durable_block(BfHistory *history, uint64_t order,
                              uint64_t block, uint8_t sectors)
{
    BfPast *past = past_of(history, block);

    if (past) {
        durable_past(history, past, order, sectors);
    }
}

static void failed_past(BfHistory *history, BfPast *past, uint64_t order,
                        uint8_t sectors)
{
    GList *it, *next;

    for (it = past->befores.head; it; it = next) {
        BfPiece *piece = it->data;

        next = it->next;
        if (piece->number == order) {
            before_forget(history, past, piece, sectors);
        }
    }
    drop_past_if_empty(history, past);
}

void bf_history_failed_block(BfHistory *history, uint64_t order,
                             uint64_t block, uint8_t sectors)
{
    BfPast *past = past_of(history, block);

    if (past) {
        failed_past(history, past, order, sectors);
    }
}

typedef void PastRangeFunc(BfHistory *history, BfPast *past, uint64_t order,
                           uint8_t sectors);

/* The sectors of a block that lie in a range. */
static uint8_t sectors_in(uint64_t block, uint64_t offset, uint64_t bytes)
{
    uint64_t start = block * BF_BLOCK_SIZE;
    uint64_t from = MAX(start, offset);
    uint64_t to = MIN(start + BF_BLOCK_SIZE, offset + bytes);
    unsigned first = (from - start) / BF_SECTOR_SIZE;
    unsigned end = (to - start) / BF_SECTOR_SIZE;

    return from < to ? ((1u << end) - 1) & ~((1u << first) - 1) : 0;
}

/* As many look-ups as the range has blocks, or as there are pasts. */
static void foreach_in(BfHistory *history, uint64_t order, uint64_t offset,
                       uint64_t bytes, PastRangeFunc *func)
{
    uint64_t first = offset / BF_BLOCK_SIZE;
    uint64_t last = (offset + bytes - 1) / BF_BLOCK_SIZE;
    guint count = g_hash_table_size(history->pasts);

    if (!bytes || !count) {
        return;
    }
    if (last - first < count) {
        for (uint64_t block = first; block <= last; block++) {
            BfPast *past = past_of(history, block);

            if (past) {
                func(history, past, order, sectors_in(block, offset, bytes));
            }
        }
    } else {
        g_autofree BfPast **pasts = (BfPast **)
            g_hash_table_get_keys_as_array(history->pasts, &count);

        for (guint i = 0; i < count; i++) {
            /* The key is the first member. */
            BfPast *past = pasts[i];
            uint8_t sectors = sectors_in(past->block, offset, bytes);

            if (sectors) {
                func(history, past, order, sectors);
            }
        }
    }
}

void bf_history_durable(BfHistory *history, uint64_t order, uint64_t offset,
                        uint64_t bytes)
{
    foreach_in(history, order, offset, bytes, durable_past);
}

void bf_history_failed(BfHistory *history, uint64_t order, uint64_t offset,
                       uint64_t bytes)
{
    foreach_in(history, order, offset, bytes, failed_past);
}

const uint8_t *bf_history_find(const BfHistory *history, uint64_t block,
                               unsigned sector, uint64_t up_to)
{
    const BfPast *past = past_of(history, block);

    for (GList *it = past ? past->versions.tail : NULL; it; it = it->prev) {
        const BfPiece *piece = it->data;

        if (piece->number <= up_to && bf_piece_sector(piece, sector)) {
            return bf_piece_sector(piece, sector);
        }
    }
    return NULL;
}

void bf_history_begin(BfHistory *history, BfChange *change, uint64_t number,
                      uint64_t offset, uint64_t bytes, uint8_t *data)
{
    *change = (BfChange) {
        .next = history->changes,
        .number = number,
        .offset = offset,
        .bytes = bytes,
        .data = data,
    };
    history->changes = change;
}

void bf_history_end(BfHistory *history, BfChange *change)
{
    BfChange **link = &history->changes;

    while (*link != change) {
        link = &(*link)->next;
    }
    *link = change->next;
    g_free(change->data);
    change->data = NULL;
}

const BfChange *bf_history_changes(const BfHistory *history)
{
    return history->changes;
}

bool bf_history_changing(const BfHistory *history, uint64_t offset,
                         uint64_t bytes)
{
    for (const BfChange *it = history->changes; it; it = it->next) {
        if (offset < it->offset + it->bytes && it->offset < offset + bytes) {
            return true;
        }
    }
    return false;
}

uint8_t bf_history_replaced(const BfHistory *history, uint64_t block,
                            uint64_t up_to)
{
    uint8_t sectors = 0;

    for (const BfChange *it = history->changes; it; it = it->next) {
        if (it->data && !it->failed && it->number <= up_to) {
            sectors |= sectors_in(block, it->offset, it->bytes);
        }
    }
    return sectors;
}

void bf_history_foreach(const BfHistory *history, BfPastFunc *func,
                        void *opaque)
{
    GHashTableIter it;
    void *past;

    g_hash_table_iter_init(&it, history->pasts);
    while (g_hash_table_iter_next(&it, NULL, &past)) {
        func(past, opaque);
    }
}
