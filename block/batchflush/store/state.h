/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The state of a store, which its sweeps work on too */

#ifndef BF_STATE_H
#define BF_STATE_H

#include <glib.h>

#include "history.h"
#include "index.h"
#include "order.h"
#include "slots.h"

struct BfStore {
    BfSlots slots;
    BfIndex index;
    BfOrder order;
    uint64_t dirty;         /* bytes */
    uint64_t last_write;

    GQueue sweeps;          /* open ones */
    uint64_t last_sweep;

    BfHistory *history;     /* the caller's, or NULL */
};

/* Forget these sectors of a slot; frees it with the last. */
void bf_store_forget(BfStore *store, uint32_t number, uint8_t sectors);

/* Make all open sweeps empty. */
void bf_store_empty_sweeps(BfStore *store);

/* What open sweeps have that is durable leaves the cache. */
void bf_store_settle_sweeps(BfStore *store);

static inline uint64_t bf_sectors_bytes(uint8_t sectors)
{
    return __builtin_popcount(sectors) * BF_SECTOR_SIZE;
}

#endif
