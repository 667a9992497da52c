/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The index: which slot holds a block
 *
 * The tag is the block's hash.  It says where the search begins, and
 * tells almost all other blocks apart without a look at their slots.
 * The eight blocks of an aligned 32 KiB share a line of the processor's
 * cache, which makes sequential access cheap.
 */

#include <assert.h>
#include <string.h>
#include <glib.h>

#include "index.h"

#define LINE_BUCKETS 8
#define TAG_LINE_BITS 29    /* and 3 bits for the bucket in the line */

bool bf_index_init(BfIndex *index, const BfSlots *slots)
{
    /* At most 3/5 full: longer searches would begin to show. */
    uint64_t buckets = (uint64_t)slots->count * 5 / 3 + 1;
    uint64_t lines = (buckets + LINE_BUCKETS - 1) / LINE_BUCKETS;
    size_t size = lines * LINE_BUCKETS * sizeof(uint64_t);

    *index = (BfIndex) { .lines = lines, .slots = slots };
    return bf_memory_reserve(&index->buckets, size) &&
           bf_memory_grow(&index->buckets, size);
}

void bf_index_release(BfIndex *index)
{
    bf_memory_release(&index->buckets);
}

static uint64_t *buckets_of(const BfIndex *index)
{
    return (uint64_t *)index->buckets.base;
}

static uint64_t next_bucket(const BfIndex *index, uint64_t i)
{
    return i + 1 == index->lines * LINE_BUCKETS ? 0 : i + 1;
}

static uint32_t tag_of(uint64_t block)
{
    /* The multipliers of SplitMix64. */
    uint64_t hash = block / LINE_BUCKETS * 0x9e3779b97f4a7c15;

    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    return (hash >> (64 - TAG_LINE_BITS)) * LINE_BUCKETS +
           block % LINE_BUCKETS;
}

static uint64_t home_of(const BfIndex *index, uint32_t tag)
{
    uint64_t line = tag / LINE_BUCKETS * index->lines >> TAG_LINE_BITS;

    return line * LINE_BUCKETS + tag % LINE_BUCKETS;
}

/* The bucket that holds @block, or the empty one where it belongs. */
static uint64_t search(const BfIndex *index, uint64_t block)
{
    const uint64_t *bucket = buckets_of(index);
    uint32_t tag = tag_of(block);
    uint64_t i = home_of(index, tag);

    while (bucket[i]) {
        if (bucket[i] >> 32 == tag &&
            bf_slot(index->slots, (uint32_t)bucket[i] - 1)->block == block) {
            break;
        }
        i = next_bucket(index, i);
    }
    return i;
}

uint32_t bf_index_find(const BfIndex *index, uint64_t block)
{
    /* An empty bucket, 0, becomes BF_NO_SLOT. */
    return (uint32_t)buckets_of(index)[search(index, block)] - 1;
}

void bf_index_add(BfIndex *index, uint64_t block, uint32_t slot)
{
    uint64_t *bucket = buckets_of(index);
    uint32_t tag = tag_of(block);
    uint64_t i = home_of(index, tag);

    while (bucket[i]) {
        i = next_bucket(index, i);
    }
    bucket[i] = (uint64_t)tag << 32 | (slot + 1);
}

/* Closes the gap, so that every search still ends at an empty bucket. */
void bf_index_remove(BfIndex *index, uint64_t block)
{
    uint64_t *bucket = buckets_of(index);
    uint64_t size = index->lines * LINE_BUCKETS;
    uint64_t gap = search(index, block);
    uint64_t i = gap;

    assert(bucket[gap]);
    for (i = next_bucket(index, gap); bucket[i]; i = next_bucket(index, i)) {
        uint64_t home = home_of(index, bucket[i] >> 32);
        uint64_t from_home = i >= home ? i - home : i + size - home;
        uint64_t from_gap = i >= gap ? i - gap : i + size - gap;

        if (from_home >= from_gap) {
            bucket[gap] = bucket[i];
            gap = i;
        }
    }
    bucket[gap] = 0;
}

void bf_index_clear(BfIndex *index)
{
    bool preallocated = index->slots->preallocated;

    if (preallocated) {
        memset(index->buckets.base, 0, index->buckets.size);
    } else {
        bf_memory_discard(&index->buckets, 0, index->buckets.size);
    }
}
