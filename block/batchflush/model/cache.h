/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The write cache's level: who may enter, and when it is destaged
 *
 * The store knows what is cached; here it is only counted.  Background
 * destage starts above the high watermark and ends at the low one, so
 * that writers find room (S1).  A writer that finds none stalls, and
 * then destage runs whatever the watermarks say.
 */

#ifndef BF_CACHE_H
#define BF_CACHE_H

#include "params.h"

typedef struct BfCache {
    const BfParams *params;
    bool destaging;             /* between the watermarks, on the way down */
    uint64_t stalled;           /* writers that wait for room now */
    uint64_t stalls;            /* writers that ever did */
    int64_t stall_ns;           /* how long they did, in total */
    uint64_t used_max;          /* highest level seen, in bytes */
} BfCache;

/* @params has to outlive @cache; watermarks may change meanwhile. */
void bf_cache_init(BfCache *cache, const BfParams *params);

/* Whether @bytes more fit into a cache that holds @used. */
bool bf_cache_fits(const BfCache *cache, uint64_t used, uint64_t bytes);

/* A writer begins and ends waiting for room. */
void bf_cache_stall_begin(BfCache *cache);
void bf_cache_stall_end(BfCache *cache, int64_t waited_ns);

/*
 * Whether background destage is to move (more) data, now that the
 * cache holds @used bytes.
 */
bool bf_cache_wants_destage(BfCache *cache, uint64_t used);

#endif
