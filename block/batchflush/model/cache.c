/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The write cache's level: see cache.h */

#include <glib.h>

#include "cache.h"

void bf_cache_init(BfCache *cache, const BfParams *params)
{
    *cache = (BfCache) { .params = params };
}

bool bf_cache_fits(const BfCache *cache, uint64_t used, uint64_t bytes)
{
    return used + bytes <= (uint64_t)cache->params->cache_size;
}

void bf_cache_stall_begin(BfCache *cache)
{
    cache->stalled++;
    cache->stalls++;
}

void bf_cache_stall_end(BfCache *cache, int64_t waited_ns)
{
    g_assert(cache->stalled > 0);
    cache->stalled--;
    cache->stall_ns += waited_ns;
}

static uint64_t mark(const BfCache *cache, int64_t percent)
{
    /* At most 1 TiB times 100: no overflow. */
    return (uint64_t)cache->params->cache_size * percent / 100;
}

bool bf_cache_wants_destage(BfCache *cache, uint64_t used)
{
    const BfParams *params = cache->params;

    cache->used_max = MAX(cache->used_max, used);
    if (params->destage_high_percent == 0) {
        cache->destaging = false;
    } else if (used > mark(cache, params->destage_high_percent)) {
        cache->destaging = true;
    } else if (used <= mark(cache, params->destage_low_percent)) {
        cache->destaging = false;
    }
    return used > 0 && (cache->destaging || cache->stalled > 0);
}
