/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data store against a naive one, by random operations
 *
 * The world is a small disk of four islands of blocks, far from each
 * other.  For each of its sectors the oracle knows which version is
 * cached, which is on the medium, and which a reader must see.  Sweeps
 * are open in parallel; what they hand out goes to the medium at once,
 * as store.h asks for.
 *
 * BF_SEED repeats a run, BF_STEPS makes it longer.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <glib.h>

#include "store.h"

#define BLOCK BF_BLOCK_SIZE
#define SECTOR BF_SECTOR_SIZE
#define PER_BLOCK (BLOCK / SECTOR)

#define ISLANDS 4
#define ISLAND_SECTORS (24 * PER_BLOCK)
#define SECTORS (ISLANDS * ISLAND_SECTORS)
#define CAPACITY_BLOCKS 64  /* of the 96 there are */
#define SWEEPS 4
#define STEPS 1000000

/* In blocks.  The last one ends where a file's offsets end. */
static const uint64_t island_start[ISLANDS] = {
    0, 1000, 1ull << 28, (1ull << 51) - 24,
};

/* Versions count up over all sectors; 0 is none. */
typedef struct Sector {
    uint64_t cached;
    uint64_t number;    /* of the write that cached it */
    uint64_t medium;
    uint64_t latest;    /* what is to be seen; 0: was dropped, anything */
} Sector;

typedef struct Claimed {
    uint64_t version;   /* 0: not claimed */
    bool dropped;       /* at some time since */
} Claimed;

typedef struct Sweep {
    BfSweep *sweep;     /* NULL: not open */
    Claimed claimed[SECTORS];
    unsigned order[SECTORS];    /* the claimed ones */
    unsigned count;
    unsigned at;        /* in @order */
    bool any_dropped;
} Sweep;

typedef struct World {
    BfStore *store;
    Sector sectors[SECTORS];
    Sweep sweeps[SWEEPS];
    Sweep *owner[SECTORS / PER_BLOCK];  /* the sweep that has claimed it */
    uint64_t version;
    uint64_t last_write;
    uint64_t random;
    uint64_t buf[SECTORS * SECTOR / sizeof(uint64_t)];
} World;

static uint64_t seed;

#ifndef BF_FUZZ     /* tests/fuzz draws from its input instead */
/* SplitMix64. */
static uint64_t draw(World *w, uint64_t below)
{
    uint64_t x = w->random += 0x9e3779b97f4a7c15;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return (x ^ (x >> 31)) % below;
}
#endif

static uint64_t offset_of(unsigned sector)
{
    return island_start[sector / ISLAND_SECTORS] * BLOCK +
           (uint64_t)(sector % ISLAND_SECTORS) * SECTOR;
}

static unsigned sector_at(uint64_t offset)
{
    for (unsigned i = 0; i < ISLANDS; i++) {
        uint64_t start = island_start[i] * BLOCK;

        if (offset >= start && offset < start + ISLAND_SECTORS * SECTOR) {
            return i * ISLAND_SECTORS + (offset - start) / SECTOR;
        }
    }
    g_assert_not_reached();
}

/* A range in one island, mostly short. */
static void draw_range(World *w, unsigned *first, unsigned *count)
{
    unsigned left, most;

    *first = draw(w, SECTORS);
    left = ISLAND_SECTORS - *first % ISLAND_SECTORS;
    most = draw(w, 4) ? 12 : 60;
    *count = 1 + draw(w, MIN(left, most));
}

static uint64_t word_of(unsigned sector, uint64_t version)
{
    return version << 16 | sector;
}

static void fill(World *w, unsigned first, unsigned count)
{
    for (unsigned i = 0; i < count * SECTOR / 8; i++) {
        w->buf[i] = word_of(first + i * 8 / SECTOR, w->version);
    }
}

/* The sector's data, at @data, are of the version that is cached. */
static void check_data(const World *w, unsigned sector, const uint64_t *data)
{
    uint64_t word = word_of(sector, w->sectors[sector].cached);

    for (unsigned i = 0; i < SECTOR / 8; i++) {
        g_assert_cmphex(data[i], ==, word);
    }
}

static bool block_cached(const World *w, unsigned block)
{
    for (unsigned i = 0; i < PER_BLOCK; i++) {
        if (w->sectors[block * PER_BLOCK + i].cached) {
            return true;
        }
    }
    return false;
}

static uint64_t room_for(const World *w, unsigned first, unsigned count)
{
    uint64_t room = 0;

    for (unsigned block = first / PER_BLOCK;
         block <= (first + count - 1) / PER_BLOCK; block++) {
        room += block_cached(w, block) ? 0 : BLOCK;
    }
    return room;
}

static void step_write(World *w)
{
    unsigned first, count, split;
    uint64_t room;

    draw_range(w, &first, &count);
    room = room_for(w, first, count);
    g_assert_cmpuint(bf_store_room_for(w->store, offset_of(first),
                                       count * SECTOR), ==, room);
    if (bf_store_used(w->store) + room > bf_store_capacity(w->store)) {
        return;
    }
    w->version++;
    w->last_write++;
    fill(w, first, count);
    split = draw(w, count * SECTOR);
    struct iovec iov[] = {
        { w->buf, split },
        { (char *)w->buf + split, count * SECTOR - split },
    };
    g_assert_cmpuint(bf_store_write(w->store, offset_of(first),
                                    count * SECTOR, iov, 2, 0), ==,
                     w->last_write);
    for (unsigned i = first; i < first + count; i++) {
        Sector *sector = &w->sectors[i];

        sector->cached = sector->latest = w->version;
        sector->number = w->last_write;
        w->owner[i / PER_BLOCK] = NULL;
    }
}

static unsigned run_of(const World *w, unsigned first, unsigned count)
{
    unsigned run = 1;

    while (run < count && !w->sectors[first].cached ==
                          !w->sectors[first + run].cached) {
        run++;
    }
    return run;
}

static void check_range(World *w, unsigned first, unsigned count)
{
    struct iovec iov = { w->buf, sizeof(w->buf) };
    uint64_t run;

    while (count) {
        unsigned length = run_of(w, first, count);
        bool cached = w->sectors[first].cached;

        g_assert_cmpint(bf_store_lookup(w->store, offset_of(first),
                                        count * SECTOR, &run), ==, cached);
        g_assert_cmpuint(run, ==, length * SECTOR);
        if (cached) {
            bf_store_read(w->store, offset_of(first), run, &iov, 1, 8);
        }
        for (unsigned i = first; i < first + length; i++) {
            const Sector *sector = &w->sectors[i];

            if (cached) {
                check_data(w, i, w->buf + 1 + (i - first) * SECTOR / 8);
            }
            if (sector->latest) {
                g_assert_cmpuint(cached ? sector->cached : sector->medium, ==,
                                 sector->latest);
            }
        }
        first += length;
        count -= length;
    }
}

static void step_read(World *w)
{
    unsigned first, count;

    draw_range(w, &first, &count);
    check_range(w, first, count);
}

static void check_totals(const World *w)
{
    uint64_t dirty = 0;
    uint64_t used = 0;

    for (unsigned i = 0; i < SECTORS; i++) {
        dirty += w->sectors[i].cached ? SECTOR : 0;
    }
    for (unsigned i = 0; i < SECTORS / PER_BLOCK; i++) {
        used += block_cached(w, i) ? BLOCK : 0;
    }
    g_assert_cmpuint(bf_store_dirty(w->store), ==, dirty);
    g_assert_cmpuint(bf_store_used(w->store), ==, used);
    g_assert_cmpuint(bf_store_last_write(w->store), ==, w->last_write);
}

static void check_all(World *w)
{
    check_totals(w);
    for (unsigned i = 0; i < ISLANDS; i++) {
        check_range(w, i * ISLAND_SECTORS, ISLAND_SECTORS);
    }
}

/* Sectors [first, first + count) leave the cache for no medium. */
static void forget(World *w, unsigned first, unsigned count, uint64_t up_to)
{
    for (unsigned i = first; i < first + count; i++) {
        Sector *sector = &w->sectors[i];

        if (!sector->cached || sector->number > up_to) {
            continue;
        }
        sector->cached = sector->latest = 0;
        for (unsigned j = 0; j < SWEEPS; j++) {
            w->sweeps[j].claimed[i].dropped = true;
            w->sweeps[j].any_dropped = true;
        }
        if (!block_cached(w, i / PER_BLOCK)) {
            w->owner[i / PER_BLOCK] = NULL;
        }
    }
}

static uint64_t draw_up_to(World *w)
{
    uint64_t ago = draw(w, 50);

    return draw(w, 3) ? w->last_write - MIN(ago, w->last_write) : UINT64_MAX;
}

static void step_drop(World *w)
{
    uint64_t up_to = draw_up_to(w);
    unsigned first, count;

    draw_range(w, &first, &count);
    bf_store_drop(w->store, offset_of(first), count * SECTOR, up_to);
    forget(w, first, count, up_to);
}

static void step_drop_much(World *w)
{
    uint64_t up_to = draw_up_to(w);
    unsigned first = draw(w, SECTORS);
    unsigned end = first + draw(w, SECTORS - first);
    uint64_t bytes = offset_of(end) - offset_of(first);

    /* By ranges of this size, the store looks at its slots. */
    if (bytes < 200 * BLOCK) {
        return;
    }
    bf_store_drop(w->store, offset_of(first), bytes, up_to);
    forget(w, first, end - first, up_to);
}

static void step_drop_all(World *w)
{
    bf_store_drop_all(w->store);
    forget(w, 0, SECTORS, UINT64_MAX);
    for (unsigned i = 0; i < SWEEPS; i++) {
        w->sweeps[i].count = 0;
    }
}

static void step_trim(World *w)
{
    bf_store_trim(w->store);
}

static Sweep *draw_sweep(World *w, bool open)
{
    unsigned first = draw(w, SWEEPS);

    for (unsigned i = 0; i < SWEEPS; i++) {
        Sweep *sweep = &w->sweeps[(first + i) % SWEEPS];

        if (!sweep->sweep == !open) {
            return sweep;
        }
    }
    return NULL;
}

/* Expect @block to be claimed; returns false if it is too much. */
static bool expect_block(World *w, Sweep *sweep, unsigned block,
                         uint64_t max_bytes)
{
    unsigned before = sweep->count;

    if (w->owner[block]) {
        return true;
    }
    for (unsigned i = block * PER_BLOCK; i < (block + 1) * PER_BLOCK; i++) {
        if (w->sectors[i].cached) {
            sweep->order[sweep->count++] = i;
        }
    }
    if (sweep->count * SECTOR > max_bytes) {
        sweep->count = before;
        return false;
    }
    for (unsigned i = before; i < sweep->count; i++) {
        unsigned sector = sweep->order[i];

        sweep->claimed[sector].version = w->sectors[sector].cached;
        w->owner[block] = sweep;
    }
    return true;
}

static void expect_sweep(World *w, Sweep *sweep, uint64_t from,
                         uint64_t max_bytes)
{
    const unsigned blocks = SECTORS / PER_BLOCK;
    unsigned first = 0;

    memset(sweep, 0, sizeof(*sweep));
    while (first < blocks && offset_of(first * PER_BLOCK) < from) {
        first++;
    }
    for (unsigned i = 0; i < blocks; i++) {
        if (!expect_block(w, sweep, (first + i) % blocks, max_bytes)) {
            return;
        }
    }
}

typedef struct Extents {
    World *w;
    const Sweep *sweep;
    unsigned at;
} Extents;

/* Whether the claim at @i of the order follows upon the one before. */
static bool follows(const Sweep *sweep, unsigned i)
{
    return offset_of(sweep->order[i]) ==
           offset_of(sweep->order[i - 1]) + SECTOR;
}

static void check_extent(uint64_t offset, uint64_t bytes, void *opaque)
{
    Extents *extents = opaque;
    const Sweep *sweep = extents->sweep;

    g_assert_cmpuint(extents->at, <, sweep->count);
    g_assert_cmpuint(offset, ==, offset_of(sweep->order[extents->at]));
    if (extents->at) {
        g_assert_false(follows(sweep, extents->at));
    }
    while (bytes -= SECTOR) {
        g_assert_cmpuint(++extents->at, <, sweep->count);
        g_assert_true(follows(sweep, extents->at));
    }
    extents->at++;
}

static uint64_t draw_from(World *w)
{
    switch (draw(w, 3)) {
    case 0:
        return 0;
    case 1:
        return draw(w, UINT64_MAX);
    default:
        return offset_of(draw(w, SECTORS));
    }
}

static void step_sweep(World *w)
{
    Sweep *sweep = draw_sweep(w, false);
    uint64_t from = draw_from(w);
    uint64_t max_bytes = draw(w, 2) ? UINT64_MAX
                       : (8 + draw(w, 120)) * SECTOR;
    Extents extents = { .w = w, .sweep = sweep };

    if (!sweep) {
        return;
    }
    expect_sweep(w, sweep, from, max_bytes);
    sweep->sweep = bf_store_sweep(w->store, from, max_bytes);
    g_assert_cmpint(!sweep->sweep, ==, !sweep->count);
    if (!sweep->sweep) {
        return;
    }
    bf_sweep_foreach(sweep->sweep, check_extent, &extents);
    g_assert_cmpuint(extents.at, ==, sweep->count);
    g_assert_cmpuint(bf_sweep_bytes(sweep->sweep), ==, sweep->count * SECTOR);
    g_assert_cmpuint(bf_sweep_end(sweep->sweep), ==,
                     offset_of(sweep->order[sweep->count - 1]) + SECTOR);
}

/*
 * Claimed sectors may be left out if they were dropped at some time, or
 * if another sweep has moved them since.
 */
static void skip_left_out(World *w, Sweep *sweep, uint64_t offset)
{
    while (sweep->at < sweep->count &&
           offset_of(sweep->order[sweep->at]) != offset) {
        unsigned sector = sweep->order[sweep->at++];

        g_assert_true(sweep->claimed[sector].dropped ||
                      w->sectors[sector].medium >=
                      sweep->claimed[sector].version);
    }
}

/* Walk one run.  Returns false at the end. */
static bool walk(World *w, Sweep *sweep)
{
    size_t max = (1 + draw(w, 8)) * BLOCK;
    uint64_t offset = UINT64_MAX;
    size_t length = bf_sweep_next(w->store, sweep->sweep, w->buf, max,
                                  &offset);
    unsigned next;

    g_assert_cmpuint(length, <=, max);
    skip_left_out(w, sweep, length ? offset : UINT64_MAX);
    for (size_t i = 0; i < length; i += SECTOR, sweep->at++) {
        unsigned sector = sector_at(offset + i);

        g_assert_cmpuint(sweep->at, <, sweep->count);
        g_assert_cmpuint(sector, ==, sweep->order[sweep->at]);
        g_assert_cmpuint(w->sectors[sector].cached, !=, 0);
        check_data(w, sector, w->buf + i / 8);
        w->sectors[sector].medium = w->sectors[sector].cached;
    }
    /* It is as long as can be. */
    next = sweep->at;
    if (length && length < max && next < sweep->count &&
        !sweep->any_dropped && follows(sweep, next)) {
        g_assert_cmpuint(w->sectors[sweep->order[next]].medium, >=,
                         sweep->claimed[sweep->order[next]].version);
    }
    return length;
}

static void step_walk(World *w)
{
    Sweep *sweep = draw_sweep(w, true);

    if (sweep) {
        walk(w, sweep);
    }
}

/* What was claimed is on the medium, in this version or a later one. */
static void check_durable(const World *w, const Sweep *sweep)
{
    for (unsigned i = 0; i < sweep->count; i++) {
        unsigned sector = sweep->order[i];

        if (!sweep->claimed[sector].dropped) {
            g_assert_cmpuint(w->sectors[sector].medium, >=,
                             sweep->claimed[sector].version);
        }
    }
}

static uint64_t release(World *w, const Sweep *sweep, bool durable)
{
    uint64_t left = 0;

    for (unsigned i = 0; i < SECTORS; i++) {
        if (w->owner[i / PER_BLOCK] != sweep) {
            continue;
        }
        if (durable && w->sectors[i].cached) {
            w->sectors[i].cached = 0;
            left += SECTOR;
        }
    }
    for (unsigned i = 0; i < SECTORS / PER_BLOCK; i++) {
        if (w->owner[i] == sweep) {
            w->owner[i] = NULL;
        }
    }
    return left;
}

static void end_sweep(World *w, Sweep *sweep, bool durable)
{
    if (durable) {
        while (walk(w, sweep)) {
            /* to the end */
        }
        check_durable(w, sweep);
    }
    g_assert_cmpuint(bf_store_sweep_done(w->store, sweep->sweep, durable), ==,
                     release(w, sweep, durable));
    sweep->sweep = NULL;
}

static void step_done(World *w)
{
    Sweep *sweep = draw_sweep(w, true);

    if (sweep) {
        end_sweep(w, sweep, draw(w, 5));
    }
}

static const struct {
    void (*step)(World *w);
    unsigned weight;
} steps[] = {
    { step_write, 5000 },
    { step_read, 1000 },
    { step_sweep, 1000 },
    { step_walk, 1500 },
    { step_done, 1000 },
    { step_drop, 400 },
    { step_drop_much, 8 },
    { step_drop_all, 2 },
    { step_trim, 30 },
    { check_all, 60 },
};

static void step(World *w)
{
    unsigned ticket = draw(w, 10000);

    for (unsigned i = 0; i < G_N_ELEMENTS(steps); i++) {
        if (ticket < steps[i].weight) {
            steps[i].step(w);
            return;
        }
        ticket -= steps[i].weight;
    }
}

static void run(bool preallocate, uint64_t count)
{
    World *w = g_new0(World, 1);

    w->random = seed;
    w->store = bf_store_new(CAPACITY_BLOCKS * BLOCK, preallocate);
    g_assert_nonnull(w->store);
    for (uint64_t i = 0; i < count; i++) {
        step(w);
    }
    check_all(w);
    for (unsigned i = 0; i < SWEEPS; i++) {
        if (w->sweeps[i].sweep) {
            end_sweep(w, &w->sweeps[i], true);
        }
    }
    check_all(w);
    bf_store_free(w->store);
    g_free(w);
}

static void test_random(void)
{
    const char *count = g_getenv("BF_STEPS");

    g_test_message("BF_SEED=%" PRIu64, seed);
    run(false, count ? g_ascii_strtoull(count, NULL, 0) : STEPS);
}

static void test_random_preallocated(void)
{
    g_test_message("BF_SEED=%" PRIu64, seed);
    run(true, STEPS / 5);
}

#ifndef BF_FUZZ
int main(int argc, char **argv)
{
    const char *given = g_getenv("BF_SEED");

    g_test_init(&argc, &argv, NULL);
    seed = given ? g_ascii_strtoull(given, NULL, 0)
                 : (uint64_t)g_get_real_time();
    g_test_add_func("/store/random", test_random);
    g_test_add_func("/store/random/preallocated", test_random_preallocated);
    return g_test_run();
}
#endif
