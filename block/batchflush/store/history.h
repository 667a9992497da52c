/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The history: what a power cut could bring back
 *
 * Data that a newer write has taken the place of is kept until it is
 * durable, or something newer is.  There are three kinds of it:
 *
 * - a *version* was in the cache and was written again;
 * - a *change* is under way to the medium, past the cache;
 * - a *before* is what the medium held where something has been put
 *   over it that is not durable yet.
 *
 * What is put onto the medium has an order.  A change's follows from the
 * number of its write (store.h counts them), a sweep's from the last
 * write when it began: bf_order_of_write(), bf_order_of_sweep().  The
 * caller puts changes and sweeps that overlap onto the medium in this
 * order.
 *
 * Offsets and lengths are in bytes and multiples of BF_SECTOR_SIZE;
 * sectors of a block are a bit each.  Nothing here locks: the caller's
 * lock must be held.
 */

#ifndef BF_HISTORY_H
#define BF_HISTORY_H

#include <glib.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct BfHistory BfHistory;

/* A version or a before. */
typedef struct BfPiece {
    GList link;         /* among those of its block */
    GList age;          /* versions: among all */
    uint64_t number;    /* version: of its write; before: its order */
    /*
     * Version: the write that replaced it.  Before: the last write it
     * has, if it had not been on the medium; 0 otherwise.
     */
    uint64_t by;
    uint64_t block;
    uint8_t stored;     /* the sectors that @data holds */
    uint8_t sectors;    /* those of them that are still wanted */
    uint8_t data[];
} BfPiece;

/* What is known of a block: pieces, oldest first. */
typedef struct BfPast {
    uint64_t block;
    GQueue versions;
    GQueue befores;
} BfPast;

/* A write, or zeroes, under way past the cache. */
typedef struct BfChange {
    struct BfChange *next;
    uint64_t number;
    uint64_t offset;
    uint64_t bytes;
    uint8_t *data;      /* NULL: zeroes */
    bool failed;        /* the caller's to set: it had its turn in vain */
} BfChange;

static inline uint64_t bf_order_of_write(uint64_t number)
{
    return 2 * number;
}

static inline uint64_t bf_order_of_sweep(uint64_t last_write)
{
    return 2 * last_write + 1;
}

/* Keeps at most about @limit bytes of versions; the oldest go first. */
BfHistory *bf_history_new(uint64_t limit);
void bf_history_free(BfHistory *history);

/* Forget versions and befores, but not changes: they have an end. */
void bf_history_clear(BfHistory *history);

/* Bytes of versions, of befores, and of versions ever forgotten. */
uint64_t bf_history_version_bytes(const BfHistory *history);
uint64_t bf_history_before_bytes(const BfHistory *history);
uint64_t bf_history_forgotten_bytes(const BfHistory *history);

/*
 * The number of the last write that took the place of a version that
 * had to be forgotten; 0 if there is none.  What was there before that
 * write cannot be told completely any more.
 */
uint64_t bf_history_floor(const BfHistory *history);

/*
 * Keep a version: these sectors of @data, a block, which write @number
 * put into the cache and write @by replaces.
 */
void bf_history_keep(BfHistory *history, uint64_t block, uint8_t sectors,
                     uint64_t number, const uint8_t *data, uint64_t by);

/* Versions up to this write are not forgotten, however many they are. */
void bf_history_pin(BfHistory *history, uint64_t number);

/*
 * Keep what the medium holds before something of @order is put over it,
 * as far as bf_history_settle() has not said what counts as that.
 */
void bf_history_before(BfHistory *history, uint64_t order, uint64_t offset,
                       uint64_t bytes, const uint8_t *data);

/*
 * What write @number put into the cache counts as durable from now on,
 * as a change of @order, which came later, is about to replace it there
 * and on the medium.  @data is the block's.
 */
void bf_history_settle(BfHistory *history, uint64_t order, uint64_t block,
                       uint8_t sectors, uint64_t number,
                       const uint8_t *data);

/*
 * What was put onto the medium with @order is durable now: nothing that
 * came before it is wanted any more.
 */
void bf_history_durable(BfHistory *history, uint64_t order, uint64_t offset,
                        uint64_t bytes);
void bf_history_durable_block(BfHistory *history, uint64_t order,
                              uint64_t block, uint8_t sectors);

/* It has failed: what it left on the medium counts as being there. */
void bf_history_failed_block(BfHistory *history, uint64_t order,
                             uint64_t block, uint8_t sectors);
void bf_history_failed(BfHistory *history, uint64_t order, uint64_t offset,
                       uint64_t bytes);

/* What is known of a block, or NULL. */
const BfPast *bf_history_past(const BfHistory *history, uint64_t block);

/* Where a piece holds a sector that it still stands for, or NULL. */
const uint8_t *bf_piece_sector(const BfPiece *piece, unsigned sector);

/*
 * The sectors of a block that writes up to @up_to, under way past the
 * cache, have put their data over.
 */
uint8_t bf_history_replaced(const BfHistory *history, uint64_t block,
                            uint64_t up_to);

/*
 * What write @up_to or the last one before it left in a sector that has
 * been written since; NULL if that is not kept.
 */
const uint8_t *bf_history_find(const BfHistory *history, uint64_t block,
                               unsigned sector, uint64_t up_to);

/*
 * A change begins and ends.  @data (NULL: zeroes) becomes the history's
 * own and is freed with g_free(); the caller keeps the change.
 */
void bf_history_begin(BfHistory *history, BfChange *change, uint64_t number,
                      uint64_t offset, uint64_t bytes, uint8_t *data);
void bf_history_end(BfHistory *history, BfChange *change);

/* The changes under way, newest first. */
const BfChange *bf_history_changes(const BfHistory *history);

/* Whether the range has sectors in common with a change under way. */
bool bf_history_changing(const BfHistory *history, uint64_t offset,
                         uint64_t bytes);

/* Call @func for each block with a version or a before. */
typedef void BfPastFunc(const BfPast *past, void *opaque);
void bf_history_foreach(const BfHistory *history, BfPastFunc *func,
                        void *opaque);

#endif
