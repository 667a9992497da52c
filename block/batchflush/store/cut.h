/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cut: what of cache, history and medium survives
 *
 * A unit is what the device writes as a whole or not at all.  After a
 * cut, each holds its last durable value or that of a later write.  The
 * caller says of each write and unit whether it is kept; the newest one
 * that is decides, and what was there before it comes with it.
 *
 * Survivors that are the newest version stay in the store.  All others
 * become patches for the medium.
 */

#ifndef BF_CUT_H
#define BF_CUT_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#include "history.h"
#include "store.h"

/* Whether write @number is kept in a unit (its offset / its size). */
typedef bool BfKeep(uint64_t number, uint64_t unit, void *opaque);

/* What the medium has to be given before anybody reads it again. */
typedef struct BfPatch {
    uint64_t offset;
    uint64_t bytes;
    uint8_t *data;      /* NULL: zeroes */
} BfPatch;

typedef struct BfSurvivors {
    uint64_t kept_bytes;    /* not durable, and there in some version */
    uint64_t lost_bytes;    /* not there in the newest version */
    uint64_t hash;          /* of where what was kept */
    GArray *patches;        /* of BfPatch, or NULL; in no order */
} BfSurvivors;

/*
 * The numbers of all writes of which something is not durable, each
 * once, in ascending order.  @store may be NULL.  The caller frees it.
 */
GArray *bf_cut_writes(BfStore *store, const BfHistory *history);

/*
 * Settle what survives; @store may be NULL.  @unit is 512 or 4096.  Open
 * sweeps become empty, and the history too, but for changes under way,
 * whose end has to come before the patches are applied.
 */
void bf_cut(BfStore *store, BfHistory *history, unsigned unit, BfKeep *keep,
            void *opaque, BfSurvivors *survivors);

/* Move the patches of @more behind those of @survivors. */
void bf_survivors_join(BfSurvivors *survivors, BfSurvivors *more);

/* Forget the patches. */
void bf_survivors_destroy(BfSurvivors *survivors);

/* The bytes that the patches have. */
uint64_t bf_survivors_bytes(const BfSurvivors *survivors);

#endif
