/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cut: what of cache, history and medium survives */

#include <string.h>

#include "cut.h"
#include "state.h"

/* Patches that adjoin become one, up to this size. */
#define PATCH_MAX (1024 * 1024)

/* What a sector could hold. */
typedef struct Candidate {
    uint64_t number;
    const uint8_t *data;    /* NULL: zeroes */
    unsigned sector;
    bool cached;            /* it is in the store */
} Candidate;

typedef struct Cut {
    BfStore *store;
    BfHistory *history;
    unsigned unit;
    BfKeep *keep;
    void *opaque;
    BfSurvivors *survivors;
    GArray *candidates;     /* of the block that is looked at */
} Cut;

static void add_cached(GArray *list, const BfStore *store, uint32_t number)
{
    const BfSlot *slot = bf_slot(&store->slots, number);

    for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
        if (slot->dirty >> i & 1) {
            Candidate it = {
                .number = bf_slot_number(slot, i),
                .data = bf_slot_data(&store->slots, number) +
                        i * BF_SECTOR_SIZE,
                .sector = i,
                .cached = true,
            };

            g_array_append_val(list, it);
        }
    }
}

static void add_versions(GArray *list, const BfPast *past)
{
    for (GList *link = past->versions.head; link; link = link->next) {
        const BfPiece *piece = link->data;

        for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
            Candidate it = {
                .number = piece->number,
                .data = bf_piece_sector(piece, i),
                .sector = i,
            };

            if (it.data) {
                g_array_append_val(list, it);
            }
        }
    }
}

static void add_change(GArray *list, const BfChange *change, uint64_t block)
{
    for (unsigned i = 0; i < BF_BLOCK_SECTORS; i++) {
        uint64_t at = block * BF_BLOCK_SIZE + i * BF_SECTOR_SIZE;

        if (at >= change->offset && at < change->offset + change->bytes) {
            Candidate it = {
                .number = change->number,
                .data = change->data ? change->data + (at - change->offset)
                                     : NULL,
                .sector = i,
            };

            g_array_append_val(list, it);
        }
    }
}

/* What the medium held before anything that is not durable, or NULL. */
static const BfPiece *oldest_before(const BfPast *past, unsigned sector)
{
    for (GList *link = past ? past->befores.head : NULL; link;
         link = link->next) {
        if (bf_piece_sector(link->data, sector)) {
            return link->data;
        }
    }
    return NULL;
}

/* Cached data that counts as durable is no choice any more. */
static void drop_durable(GArray *list, const BfPast *past)
{
    for (unsigned i = list->len; i-- > 0;) {
        const Candidate *it = &g_array_index(list, Candidate, i);
        const BfPiece *before = oldest_before(past, it->sector);

        if (before && it->number < before->by) {
            g_array_remove_index_fast(list, i);
        }
    }
}

/* @slot: BF_NO_SLOT if nothing of the block is cached. */
static void find_candidates(Cut *cut, uint64_t block, uint32_t slot)
{
    const BfPast *past = bf_history_past(cut->history, block);
    const BfChange *change = bf_history_changes(cut->history);

    g_array_set_size(cut->candidates, 0);
    if (slot != BF_NO_SLOT) {
        add_cached(cut->candidates, cut->store, slot);
    }
    if (past) {
        add_versions(cut->candidates, past);
    }
    for (; change; change = change->next) {
        add_change(cut->candidates, change, block);
    }
    if (past) {
        drop_durable(cut->candidates, past);
    }
}

static uint64_t mix(uint64_t x)
{
    /* The finalizer of SplitMix64. */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* A sum over sectors does not depend on the order they come in. */
static uint64_t hash_sector(uint64_t offset, const uint8_t *data)
{
    uint64_t hash = mix(offset + 1);

    for (size_t i = 0; data && i < BF_SECTOR_SIZE; i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, data + i, sizeof(word));
        hash = mix(hash ^ GUINT64_FROM_LE(word)) + i;
    }
    return hash;
}

static bool extend_patch(BfPatch *last, uint64_t offset, const uint8_t *data)
{
    if (last->offset + last->bytes != offset || !last->data != !data) {
        return false;
    }
    if (data) {
        if (last->bytes == PATCH_MAX) {
            return false;
        }
        /* A power of two: doubled when it is full. */
        if (last->bytes >= BF_BLOCK_SIZE &&
            (last->bytes & (last->bytes - 1)) == 0) {
            last->data = g_realloc(last->data, last->bytes * 2);
        }
        memcpy(last->data + last->bytes, data, BF_SECTOR_SIZE);
    }
    last->bytes += BF_SECTOR_SIZE;
    return true;
}

static void add_patch(BfSurvivors *survivors, uint64_t offset,
                      const uint8_t *data)
{
    BfPatch patch = { .offset = offset, .bytes = BF_SECTOR_SIZE };
    GArray *patches = survivors->patches;

    if (patches->len && extend_patch(&g_array_index(patches, BfPatch,
                                                    patches->len - 1),
                                     offset, data)) {
        return;
    }
    if (data) {
        patch.data = g_malloc(BF_BLOCK_SIZE);
        memcpy(patch.data, data, BF_SECTOR_SIZE);
    }
    g_array_append_val(patches, patch);
}

/* The newest write that is kept in a unit; 0 if none is. */
static uint64_t newest_kept(const Cut *cut, uint64_t unit, unsigned first,
                            unsigned end)
{
    uint64_t newest = 0;

    for (unsigned i = 0; i < cut->candidates->len; i++) {
        const Candidate *it = &g_array_index(cut->candidates, Candidate, i);

        if (it->sector >= first && it->sector < end && it->number > newest &&
            cut->keep(it->number, unit, cut->opaque)) {
            newest = it->number;
        }
    }
    return newest;
}

/* The sector's newest candidate up to @number, or NULL. */
static const Candidate *find(const Cut *cut, unsigned sector,
                             uint64_t number)
{
    const Candidate *found = NULL;

    for (unsigned i = 0; i < cut->candidates->len; i++) {
        const Candidate *it = &g_array_index(cut->candidates, Candidate, i);

        if (it->sector == sector && it->number <= number &&
            (!found || it->number > found->number)) {
            found = it;
        }
    }
    return found;
}

static void settle_sector(Cut *cut, uint64_t block, uint32_t slot,
                          unsigned sector, uint64_t kept)
{
    uint64_t offset = block * BF_BLOCK_SIZE + sector * BF_SECTOR_SIZE;
    const Candidate *newest = find(cut, sector, UINT64_MAX);
    const Candidate *chosen = find(cut, sector, kept);
    BfSurvivors *survivors = cut->survivors;
    const BfPast *past = bf_history_past(cut->history, block);
    const BfPiece *before = oldest_before(past, sector);

    if (newest != chosen) {
        survivors->lost_bytes += BF_SECTOR_SIZE;
    }
    if (chosen) {
        survivors->kept_bytes += BF_SECTOR_SIZE;
        survivors->hash += hash_sector(offset, chosen->data);
    }
    if (chosen && !chosen->cached) {
        add_patch(survivors, offset, chosen->data);
    } else if (before) {
        /* For what is in the cache, too: a battery may not last. */
        add_patch(survivors, offset, bf_piece_sector(before, sector));
    }
    if (slot != BF_NO_SLOT && !(chosen && chosen->cached) &&
        (bf_slot(&cut->store->slots, slot)->dirty >> sector & 1)) {
        bf_store_forget(cut->store, slot, 1u << sector);
    }
}

static void settle_block(Cut *cut, uint64_t block, uint32_t slot)
{
    unsigned per_unit = cut->unit / BF_SECTOR_SIZE;

    find_candidates(cut, block, slot);
    for (unsigned first = 0; first < BF_BLOCK_SECTORS; first += per_unit) {
        uint64_t unit = (block * BF_BLOCK_SIZE + first * BF_SECTOR_SIZE) /
                        cut->unit;
        uint64_t kept = newest_kept(cut, unit, first, first + per_unit);

        for (unsigned i = first; i < first + per_unit; i++) {
            settle_sector(cut, block, slot, i, kept);
        }
    }
}

static void add_block(const BfPast *past, void *opaque)
{
    GArray *blocks = opaque;

    g_array_append_val(blocks, past->block);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a;
    uint64_t two = *(const uint64_t *)b;

    return one < two ? -1 : one > two;
}

static void sort_unique(GArray *numbers)
{
    uint64_t *data = (uint64_t *)numbers->data;
    guint count = 0;

    if (!numbers->len) {
        return;
    }
    qsort(data, numbers->len, sizeof(*data), compare_numbers);
    for (guint i = 1; i < numbers->len; i++) {
        if (data[i] != data[count]) {
            data[++count] = data[i];
        }
    }
    g_array_set_size(numbers, count + 1);
}

/* Blocks that the history or a change knows of, in ascending order. */
static GArray *blocks_outside(const BfHistory *history)
{
    GArray *blocks = g_array_new(false, false, sizeof(uint64_t));
    const BfChange *change = bf_history_changes(history);

    bf_history_foreach(history, add_block, blocks);
    for (; change; change = change->next) {
        uint64_t last = (change->offset + change->bytes - 1) / BF_BLOCK_SIZE;

        for (uint64_t block = change->offset / BF_BLOCK_SIZE;
             block <= last; block++) {
            g_array_append_val(blocks, block);
        }
    }
    sort_unique(blocks);
    return blocks;
}

static void empty_sweeps(BfStore *store)
{
    for (GList *it = store->sweeps.head; it; it = it->next) {
        bf_store_sweep_abort(store, it->data);
    }
}

typedef void BlockFunc(Cut *cut, uint64_t block, uint32_t slot);

/* First blocks without a slot: @func may free one. */
static void foreach_block(Cut *cut, BlockFunc *func)
{
    g_autoptr(GArray) outside = blocks_outside(cut->history);
    BfStore *store = cut->store;

    for (guint i = 0; i < outside->len; i++) {
        uint64_t block = g_array_index(outside, uint64_t, i);

        if (!store ||
            bf_index_find(&store->index, block) == BF_NO_SLOT) {
            func(cut, block, BF_NO_SLOT);
        }
    }
    for (uint32_t i = 0; store && i < store->slots.begun; i++) {
        const BfSlot *slot = bf_slot(&store->slots, i);

        if (slot->dirty) {
            func(cut, slot->block, i);
        }
    }
}

void bf_cut(BfStore *store, BfHistory *history, unsigned unit, BfKeep *keep,
            void *opaque, BfSurvivors *survivors)
{
    g_autoptr(GArray) candidates = g_array_new(false, false,
                                               sizeof(Candidate));
    Cut cut = {
        .store = store,
        .history = history,
        .unit = unit,
        .keep = keep,
        .opaque = opaque,
        .survivors = survivors,
        .candidates = candidates,
    };

    *survivors = (BfSurvivors) {
        .patches = g_array_new(false, false, sizeof(BfPatch)),
    };
    if (store) {
        bf_store_settle_sweeps(store);
    }
    foreach_block(&cut, settle_block);
    bf_history_clear(history);
    if (store) {
        empty_sweeps(store);
    }
}

static void note_writes(Cut *cut, uint64_t block, uint32_t slot)
{
    GArray *numbers = cut->opaque;

    find_candidates(cut, block, slot);
    for (guint i = 0; i < cut->candidates->len; i++) {
        uint64_t number = g_array_index(cut->candidates, Candidate,
                                        i).number;

        if (!numbers->len ||
            g_array_index(numbers, uint64_t, numbers->len - 1) != number) {
            g_array_append_val(numbers, number);
        }
    }
}

GArray *bf_cut_writes(BfStore *store, const BfHistory *history)
{
    g_autoptr(GArray) candidates = g_array_new(false, false,
                                               sizeof(Candidate));
    GArray *numbers = g_array_new(false, false, sizeof(uint64_t));
    Cut cut = {
        .store = store,
        .history = (BfHistory *)history,
        .opaque = numbers,
        .candidates = candidates,
    };

    if (store) {
        bf_store_settle_sweeps(store);
    }
    foreach_block(&cut, note_writes);
    sort_unique(numbers);
    return numbers;
}

void bf_survivors_join(BfSurvivors *survivors, BfSurvivors *more)
{
    if (!survivors->patches) {
        *survivors = *more;
    } else {
        g_array_append_vals(survivors->patches, more->patches->data,
                            more->patches->len);
        g_array_unref(more->patches);
    }
    more->patches = NULL;
}

void bf_survivors_destroy(BfSurvivors *survivors)
{
    if (!survivors->patches) {
        return;
    }
    for (guint i = 0; i < survivors->patches->len; i++) {
        g_free(g_array_index(survivors->patches, BfPatch, i).data);
    }
    g_array_unref(survivors->patches);
    survivors->patches = NULL;
}

uint64_t bf_survivors_bytes(const BfSurvivors *survivors)
{
    uint64_t bytes = 0;

    for (guint i = 0; survivors->patches && i < survivors->patches->len;
         i++) {
        bytes += g_array_index(survivors->patches, BfPatch, i).bytes;
    }
    return bytes;
}
