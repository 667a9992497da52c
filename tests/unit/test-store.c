/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the data store promises in store.h, statement by statement */

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <glib.h>

#include "index.h"
#include "store.h"

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)

#define BLOCK BF_BLOCK_SIZE
#define SECTOR BF_SECTOR_SIZE

static BfStore *new_store(uint64_t blocks)
{
    BfStore *store = bf_store_new(blocks * BLOCK, false);

    g_assert_nonnull(store);
    return store;
}

/* Write a range that consists of the byte @value. */
static uint64_t put(BfStore *store, uint64_t offset, uint64_t bytes,
                    uint8_t value)
{
    g_autofree void *data = g_malloc(bytes);
    struct iovec iov = { data, bytes };

    memset(data, value, bytes);
    return bf_store_write(store, offset, bytes, &iov, 1, 0);
}

static void assert_bytes(const uint8_t *data, size_t bytes, uint8_t value)
{
    for (size_t i = 0; i < bytes; i++) {
        g_assert_cmphex(data[i], ==, value);
    }
}

static void assert_cached(BfStore *store, uint64_t offset, uint64_t bytes,
                          uint8_t value)
{
    g_autofree void *data = g_malloc(bytes);
    struct iovec iov = { data, bytes };
    uint64_t run;

    g_assert_true(bf_store_lookup(store, offset, bytes, &run));
    g_assert_cmpuint(run, ==, bytes);
    bf_store_read(store, offset, bytes, &iov, 1, 0);
    assert_bytes(data, bytes, value);
}

static void assert_not_cached(BfStore *store, uint64_t offset, uint64_t bytes)
{
    uint64_t run;

    g_assert_false(bf_store_lookup(store, offset, bytes, &run));
    g_assert_cmpuint(run, ==, bytes);
}

/* The next run of a sweep is exactly this; @bytes of 0: there is none. */
static void assert_next(BfStore *store, BfSweep *sweep, size_t max,
                        uint64_t offset, size_t bytes, uint8_t value)
{
    g_autofree void *data = g_malloc(max);
    uint64_t at = 0;

    g_assert_cmpuint(bf_sweep_next(store, sweep, data, max, &at), ==, bytes);
    if (bytes) {
        g_assert_cmpuint(at, ==, offset);
        assert_bytes(data, bytes, value);
    }
}

static void test_fresh(void)
{
    BfStore *store = new_store(4);

    g_assert_cmpuint(bf_store_capacity(store), ==, 4 * BLOCK);
    g_assert_cmpuint(bf_store_used(store), ==, 0);
    g_assert_cmpuint(bf_store_dirty(store), ==, 0);
    g_assert_cmpuint(bf_store_last_write(store), ==, 0);
    assert_not_cached(store, 0, 1 * TIB);
    g_assert_null(bf_store_sweep(store, 0, UINT64_MAX));
    bf_store_drop(store, 0, UINT64_MAX, UINT64_MAX);
    bf_store_drop_all(store);
    bf_store_trim(store);
    bf_store_free(store);
}

static void test_capacity_is_whole_blocks(void)
{
    BfStore *least = bf_store_new(0, false);
    BfStore *rounded = bf_store_new(2 * BLOCK + SECTOR, false);

    g_assert_cmpuint(bf_store_capacity(least), ==, BLOCK);
    put(least, 5 * BLOCK, BLOCK, 1);
    assert_cached(least, 5 * BLOCK, BLOCK, 1);
    g_assert_cmpuint(bf_store_capacity(rounded), ==, 2 * BLOCK);
    bf_store_free(least);
    bf_store_free(rounded);
}

static void test_single_sector(void)
{
    BfStore *store = new_store(2);

    put(store, 3 * SECTOR, SECTOR, 7);
    assert_cached(store, 3 * SECTOR, SECTOR, 7);
    assert_not_cached(store, 0, 3 * SECTOR);
    assert_not_cached(store, 4 * SECTOR, BLOCK);
    g_assert_cmpuint(bf_store_dirty(store), ==, SECTOR);
    g_assert_cmpuint(bf_store_used(store), ==, BLOCK);
    bf_store_free(store);
}

static void test_newest_data_is_read(void)
{
    BfStore *store = new_store(4);

    put(store, 6 * SECTOR, 12 * SECTOR, 1);
    put(store, 7 * SECTOR, 2 * SECTOR, 2);
    assert_cached(store, 6 * SECTOR, SECTOR, 1);
    assert_cached(store, 7 * SECTOR, 2 * SECTOR, 2);
    assert_cached(store, 9 * SECTOR, 9 * SECTOR, 1);
    g_assert_cmpuint(bf_store_dirty(store), ==, 12 * SECTOR);
    g_assert_cmpuint(bf_store_used(store), ==, 3 * BLOCK);
    bf_store_free(store);
}

static void test_writes_are_numbered(void)
{
    BfStore *store = new_store(2);

    g_assert_cmpuint(put(store, 0, 2 * BLOCK, 1), ==, 1);
    g_assert_cmpuint(put(store, 0, SECTOR, 1), ==, 2);
    bf_store_drop_all(store);
    g_assert_cmpuint(put(store, 0, SECTOR, 1), ==, 3);
    g_assert_cmpuint(bf_store_last_write(store), ==, 3);
    bf_store_free(store);
}

/* Data in odd pieces, of which some are empty, between other data. */
static void test_vectors(void)
{
    BfStore *store = new_store(3);
    uint8_t in[2 * BLOCK + 100], out[sizeof(in)];
    struct iovec from[] = {
        { in, 1 }, { in + 1, 0 }, { in + 1, 4999 },
        { in + 5000, sizeof(in) - 5000 }, { in, 0 },
    };
    struct iovec to[] = { { out, 700 }, { out + 700, sizeof(out) - 700 } };

    for (size_t i = 0; i < sizeof(in); i++) {
        in[i] = i * 131 >> 3;
    }
    bf_store_write(store, SECTOR, 2 * BLOCK, from, G_N_ELEMENTS(from), 60);
    memset(out, 0xee, sizeof(out));
    bf_store_read(store, SECTOR, 2 * BLOCK, to, G_N_ELEMENTS(to), 99);
    assert_bytes(out, 99, 0xee);
    g_assert_cmpmem(out + 99, 2 * BLOCK, in + 60, 2 * BLOCK);
    assert_bytes(out + 99 + 2 * BLOCK, 1, 0xee);
    bf_store_free(store);
}

static void test_lookup_counts_what_is_alike(void)
{
    BfStore *store = new_store(8);
    uint64_t run;

    put(store, BLOCK + SECTOR, 2 * BLOCK, 1);
    g_assert_false(bf_store_lookup(store, SECTOR, 8 * BLOCK, &run));
    g_assert_cmpuint(run, ==, BLOCK);
    g_assert_true(bf_store_lookup(store, BLOCK + SECTOR, 8 * BLOCK, &run));
    g_assert_cmpuint(run, ==, 2 * BLOCK);
    g_assert_true(bf_store_lookup(store, 2 * BLOCK, SECTOR, &run));
    g_assert_cmpuint(run, ==, SECTOR);
    g_assert_false(bf_store_lookup(store, 3 * BLOCK + SECTOR, BLOCK, &run));
    g_assert_cmpuint(run, ==, BLOCK);
    bf_store_free(store);
}

static void test_room(void)
{
    BfStore *store = new_store(4);

    put(store, 0, SECTOR, 1);
    put(store, 2 * BLOCK, BLOCK, 1);
    g_assert_cmpuint(bf_store_room_for(store, 0, BLOCK), ==, 0);
    g_assert_cmpuint(bf_store_room_for(store, 0, 4 * BLOCK), ==, 2 * BLOCK);
    g_assert_cmpuint(bf_store_room_for(store, BLOCK + 7 * SECTOR,
                                       2 * SECTOR), ==, BLOCK);
    g_assert_cmpuint(bf_store_room_for(store, 9 * BLOCK, 0), ==, 0);
    bf_store_free(store);
}

static void test_full(void)
{
    BfStore *store = new_store(1000);

    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 1000; i++) {
            g_assert_cmpuint(bf_store_room_for(store, i * MIB, BLOCK), ==,
                             BLOCK);
            put(store, i * MIB, BLOCK, i);
        }
        g_assert_cmpuint(bf_store_used(store), ==, 1000 * BLOCK);
        put(store, 500 * MIB, BLOCK, 99);
        assert_cached(store, 500 * MIB, BLOCK, 99);
        assert_cached(store, 501 * MIB, BLOCK, 501 % 256);
        bf_store_drop(store, 0, 1000 * MIB, UINT64_MAX);
        g_assert_cmpuint(bf_store_used(store), ==, 0);
    }
    bf_store_free(store);
}

static void collect_run(uint64_t offset, uint64_t bytes, void *opaque)
{
    g_string_append_printf(opaque, "%" G_GUINT64_FORMAT "+%" G_GUINT64_FORMAT
                           " ", offset / SECTOR, bytes / SECTOR);
}

/* Extents are written as sector+count. */
static void assert_extents(const BfSweep *sweep, const char *extents)
{
    g_autoptr(GString) found = g_string_new(NULL);

    bf_sweep_foreach(sweep, collect_run, found);
    g_assert_cmpstr(found->str, ==, extents);
}

static void test_sweep_is_in_order(void)
{
    BfStore *store = new_store(64);
    BfSweep *sweep;

    put(store, 1 * TIB, BLOCK, 1);
    put(store, 3 * BLOCK, 2 * BLOCK, 2);
    put(store, 2 * BLOCK, BLOCK, 2);
    put(store, 9 * BLOCK + SECTOR, SECTOR, 3);
    put(store, 9 * BLOCK + 3 * SECTOR, SECTOR, 4);
    sweep = bf_store_sweep(store, 0, UINT64_MAX);
    g_assert_cmpuint(bf_sweep_bytes(sweep), ==, 4 * BLOCK + 2 * SECTOR);
    assert_extents(sweep, "16+24 73+1 75+1 2147483648+8 ");
    assert_next(store, sweep, 2 * BLOCK, 2 * BLOCK, 2 * BLOCK, 2);
    assert_next(store, sweep, 2 * BLOCK, 4 * BLOCK, BLOCK, 2);
    assert_next(store, sweep, BLOCK, 9 * BLOCK + SECTOR, SECTOR, 3);
    assert_next(store, sweep, BLOCK, 9 * BLOCK + 3 * SECTOR, SECTOR, 4);
    assert_next(store, sweep, BLOCK, 1 * TIB, BLOCK, 1);
    assert_next(store, sweep, BLOCK, 0, 0, 0);
    g_assert_cmpuint(bf_sweep_end(sweep), ==, 1 * TIB + BLOCK);
    g_assert_cmpuint(bf_store_sweep_done(store, sweep, true), ==,
                     4 * BLOCK + 2 * SECTOR);
    g_assert_cmpuint(bf_store_used(store), ==, 0);
    g_assert_cmpuint(bf_store_dirty(store), ==, 0);
    bf_store_free(store);
}

/* A block far behind the others makes the store divide its disk anew. */
static void test_sweep_order_on_a_growing_disk(void)
{
    BfStore *store = new_store(1 << 20);
    BfSweep *sweep;

    put(store, 40000 * BLOCK, BLOCK, 1);
    put(store, 30000 * BLOCK, BLOCK, 1);
    put(store, (1ull << 51) * BLOCK, BLOCK, 1);
    put(store, 50000 * BLOCK, BLOCK, 1);
    put(store, 10000 * BLOCK, BLOCK, 1);
    sweep = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(sweep, "80000+8 240000+8 320000+8 400000+8 "
                   "18014398509481984+8 ");
    bf_store_sweep_done(store, sweep, true);
    bf_store_free(store);
}

static void test_sweep_begins_where_told_and_wraps(void)
{
    BfStore *store = new_store(64);
    BfSweep *sweep;

    put(store, 0, 8 * BLOCK, 1);
    sweep = bf_store_sweep(store, 5 * BLOCK + SECTOR, 4 * BLOCK);
    assert_extents(sweep, "48+16 0+16 ");
    g_assert_cmpuint(bf_sweep_end(sweep), ==, 2 * BLOCK);
    assert_next(store, sweep, 8 * BLOCK, 6 * BLOCK, 2 * BLOCK, 1);
    assert_next(store, sweep, 8 * BLOCK, 0, 2 * BLOCK, 1);
    bf_store_sweep_done(store, sweep, true);

    sweep = bf_store_sweep(store, 2 * BLOCK, 3 * BLOCK + SECTOR);
    assert_extents(sweep, "16+24 ");
    bf_store_sweep_done(store, sweep, true);
    sweep = bf_store_sweep(store, UINT64_MAX, UINT64_MAX);
    assert_extents(sweep, "40+8 ");
    bf_store_sweep_done(store, sweep, true);
    bf_store_free(store);
}

static void assert_run(BfStore *store, uint64_t from, uint64_t max,
                       const char *extents)
{
    BfSweep *sweep = bf_store_sweep_run(store, from, max);

    assert_extents(sweep, extents);
    bf_store_sweep_done(store, sweep, true);
}

static void test_sweep_of_one_run(void)
{
    BfStore *store = new_store(64);

    put(store, 0, BLOCK, 1);
    put(store, 4 * BLOCK, 4 * BLOCK, 1);
    put(store, 8 * BLOCK, 7 * SECTOR, 1);   /* adjoins, the next does not */
    put(store, 9 * BLOCK, 2 * BLOCK, 1);
    put(store, 1 * TIB, BLOCK, 1);
    assert_run(store, 3 * BLOCK, 2 * BLOCK, "32+16 ");
    assert_run(store, 3 * BLOCK, UINT64_MAX, "48+23 ");
    assert_run(store, 3 * BLOCK, UINT64_MAX, "72+16 ");
    assert_run(store, 3 * BLOCK, UINT64_MAX, "2147483648+8 ");
    assert_run(store, 3 * BLOCK, UINT64_MAX, "0+8 ");
    g_assert_null(bf_store_sweep_run(store, 0, UINT64_MAX));
    bf_store_free(store);
}

static void test_sweeps_share_nothing(void)
{
    BfStore *store = new_store(64);
    BfSweep *a, *b, *c;

    put(store, 0, 4 * BLOCK, 1);
    a = bf_store_sweep(store, 0, 2 * BLOCK);
    b = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(a, "0+16 ");
    assert_extents(b, "16+16 ");
    g_assert_null(bf_store_sweep(store, 0, UINT64_MAX));
    put(store, 8 * BLOCK, BLOCK, 1);
    c = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(c, "64+8 ");
    g_assert_cmpuint(bf_store_sweep_done(store, b, true), ==, 2 * BLOCK);
    assert_cached(store, 0, 2 * BLOCK, 1);
    assert_not_cached(store, 2 * BLOCK, 6 * BLOCK);
    g_assert_cmpuint(bf_store_sweep_done(store, c, true), ==, BLOCK);
    g_assert_cmpuint(bf_store_sweep_done(store, a, true), ==, 2 * BLOCK);
    bf_store_free(store);
}

static void test_failed_sweep_leaves_its_data_dirty(void)
{
    BfStore *store = new_store(64);
    BfSweep *sweep;

    put(store, 0, 4 * BLOCK, 1);
    sweep = bf_store_sweep(store, 0, UINT64_MAX);
    assert_next(store, sweep, 8 * BLOCK, 0, 4 * BLOCK, 1);
    g_assert_cmpuint(bf_store_sweep_done(store, sweep, false), ==, 0);
    g_assert_cmpuint(bf_store_dirty(store), ==, 4 * BLOCK);
    sweep = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(sweep, "0+32 ");
    bf_store_sweep_done(store, sweep, true);
    g_assert_cmpuint(bf_store_dirty(store), ==, 0);
    bf_store_free(store);
}

/* Others may claim it although the sweep is not over. */
static void test_aborted_sweep_gives_up_its_claims(void)
{
    BfStore *store = new_store(64);
    BfSweep *a, *b;

    put(store, 0, 2 * BLOCK, 1);
    a = bf_store_sweep(store, 0, UINT64_MAX);
    bf_store_sweep_abort(store, a);
    assert_extents(a, "");
    b = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(b, "0+16 ");
    g_assert_cmpuint(bf_store_sweep_done(store, a, true), ==, 0);
    assert_cached(store, 0, 2 * BLOCK, 1);
    g_assert_cmpuint(bf_store_sweep_done(store, b, true), ==, 2 * BLOCK);
    bf_store_free(store);
}

static void test_rewritten_block_leaves_its_sweep(void)
{
    BfStore *store = new_store(64);
    BfSweep *a, *b;

    put(store, 0, 3 * BLOCK, 1);
    a = bf_store_sweep(store, 0, UINT64_MAX);
    put(store, BLOCK + SECTOR, SECTOR, 2);
    /* The newest form is copied: the older one is not there any more. */
    b = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(b, "8+8 ");
    g_assert_cmpuint(bf_store_sweep_done(store, a, true), ==, 2 * BLOCK);
    assert_cached(store, BLOCK, SECTOR, 1);
    assert_cached(store, BLOCK + SECTOR, SECTOR, 2);
    assert_cached(store, BLOCK + 2 * SECTOR, 6 * SECTOR, 1);
    g_assert_cmpuint(bf_store_sweep_done(store, b, true), ==, BLOCK);

    put(store, 0, BLOCK, 1);
    a = bf_store_sweep(store, 0, UINT64_MAX);
    put(store, 0, BLOCK, 2);
    assert_next(store, a, BLOCK, 0, BLOCK, 2);
    g_assert_cmpuint(bf_store_sweep_done(store, a, true), ==, 0);
    b = bf_store_sweep(store, 0, UINT64_MAX);
    assert_extents(b, "0+8 ");
    bf_store_sweep_done(store, b, true);
    bf_store_free(store);
}

static void test_drop_spares_later_writes(void)
{
    BfStore *store = new_store(64);
    uint64_t zeroed_at;

    put(store, 0, 2 * BLOCK, 1);
    zeroed_at = put(store, 4 * SECTOR, SECTOR, 1);
    put(store, 2 * SECTOR, SECTOR, 2);
    put(store, BLOCK, BLOCK, 2);
    bf_store_drop(store, 0, 2 * BLOCK, zeroed_at);
    assert_not_cached(store, 0, 2 * SECTOR);
    assert_cached(store, 2 * SECTOR, SECTOR, 2);
    assert_not_cached(store, 3 * SECTOR, 5 * SECTOR);
    assert_cached(store, BLOCK, BLOCK, 2);
    g_assert_cmpuint(bf_store_dirty(store), ==, BLOCK + SECTOR);
    bf_store_free(store);
}

static void test_drop_keeps_to_its_range(void)
{
    for (unsigned others = 0; others <= 40; others += 40) {
        /* With few blocks it looks at these, with many at the range. */
        BfStore *store = new_store(64);

        for (unsigned i = 0; i < others; i++) {
            put(store, (100 + 2 * i) * BLOCK, BLOCK, 3);
        }
        put(store, 0, 20 * BLOCK, 1);
        bf_store_drop(store, BLOCK - SECTOR, 18 * BLOCK + 2 * SECTOR,
                      UINT64_MAX);
        assert_cached(store, 0, BLOCK - SECTOR, 1);
        assert_not_cached(store, BLOCK - SECTOR, 18 * BLOCK + 2 * SECTOR);
        assert_cached(store, 19 * BLOCK + SECTOR, BLOCK - SECTOR, 1);
        bf_store_drop(store, 19 * BLOCK + 4 * SECTOR, UINT64_MAX, UINT64_MAX);
        assert_cached(store, 19 * BLOCK + SECTOR, 3 * SECTOR, 1);
        g_assert_cmpuint(bf_store_dirty(store), ==, BLOCK + 2 * SECTOR);
        bf_store_free(store);
    }
}

static void test_drop_takes_data_from_sweeps(void)
{
    BfStore *store = new_store(64);
    BfSweep *sweep;

    put(store, 0, 3 * BLOCK, 1);
    sweep = bf_store_sweep(store, 0, UINT64_MAX);
    bf_store_drop(store, SECTOR, 7 * SECTOR + BLOCK, UINT64_MAX);
    /* Its slot goes to another block, which is none of the sweep's. */
    put(store, 30 * BLOCK, BLOCK, 2);
    assert_next(store, sweep, 8 * BLOCK, 0, SECTOR, 1);
    assert_next(store, sweep, 8 * BLOCK, 2 * BLOCK, BLOCK, 1);
    assert_next(store, sweep, 8 * BLOCK, 0, 0, 0);
    g_assert_cmpuint(bf_store_sweep_done(store, sweep, true), ==,
                     BLOCK + SECTOR);
    assert_cached(store, 30 * BLOCK, BLOCK, 2);
    bf_store_free(store);
}

static void test_drop_all_empties_sweeps(void)
{
    BfStore *store = new_store(64);
    BfSweep *a, *b;

    put(store, 0, 3 * BLOCK, 1);
    a = bf_store_sweep(store, 0, UINT64_MAX);
    put(store, 7 * BLOCK, BLOCK, 1);
    bf_store_drop_all(store);
    g_assert_cmpuint(bf_store_used(store), ==, 0);
    g_assert_cmpuint(bf_store_dirty(store), ==, 0);
    g_assert_null(bf_store_sweep(store, 0, UINT64_MAX));
    put(store, 0, BLOCK, 2);
    b = bf_store_sweep(store, 0, UINT64_MAX);
    assert_next(store, a, BLOCK, 0, 0, 0);
    g_assert_cmpuint(bf_store_sweep_done(store, a, true), ==, 0);
    assert_next(store, b, BLOCK, 0, BLOCK, 2);
    g_assert_cmpuint(bf_store_sweep_done(store, b, true), ==, BLOCK);
    bf_store_free(store);
}

/* A number in pages, as /proc/self/statm has it, in bytes. */
static uint64_t statm(unsigned field)
{
    g_autofree char *text = NULL;
    g_auto(GStrv) fields = NULL;

    g_assert_true(g_file_get_contents("/proc/self/statm", &text, NULL, NULL));
    fields = g_strsplit(text, " ", 0);
    return g_ascii_strtoull(fields[field], NULL, 10) * 4 * KIB;
}

#define RESIDENT 1
#define WRITABLE 5

/* The kernel counts pages a bit loosely. */
static void assert_trimmed(BfStore *store, int64_t bytes)
{
    int64_t before = statm(RESIDENT);
    int64_t given;

    bf_store_trim(store);
    given = before - (int64_t)statm(RESIDENT);
    g_assert_cmpint(given, >, bytes - (int64_t)MIB);
    g_assert_cmpint(given, <, bytes + (int64_t)MIB);
}

static void test_trim_gives_memory_back(void)
{
    BfStore *store = new_store(64 * MIB / BLOCK);

    put(store, 0, 64 * MIB, 1);
    assert_trimmed(store, 0);
    bf_store_drop(store, 2 * BLOCK, 62 * MIB, UINT64_MAX);
    assert_trimmed(store, 62 * MIB);

    assert_cached(store, 0, 2 * BLOCK, 1);
    assert_cached(store, 62 * MIB + 2 * BLOCK, 2 * MIB - 2 * BLOCK, 1);
    put(store, 2 * BLOCK, 62 * MIB, 2);
    assert_cached(store, 0, 2 * BLOCK, 1);
    assert_cached(store, 2 * BLOCK, 62 * MIB, 2);
    assert_cached(store, 62 * MIB + 2 * BLOCK, 2 * MIB - 2 * BLOCK, 1);

    bf_store_drop_all(store);
    assert_trimmed(store, 64 * MIB);
    bf_store_free(store);
}

static void test_preallocated_memory_is_there(void)
{
    uint64_t before = statm(RESIDENT);
    BfStore *store = bf_store_new(64 * MIB, true);

    g_assert_nonnull(store);
    g_assert_cmpuint(statm(RESIDENT), >=, before + 64 * MIB);
    for (unsigned round = 0; round < 2; round++) {
        put(store, 5 * GIB, 64 * MIB, 1);
        bf_store_drop(store, 5 * GIB, 32 * MIB, UINT64_MAX);
        assert_trimmed(store, 0);
        bf_store_drop_all(store);
        assert_trimmed(store, 0);
        assert_not_cached(store, 5 * GIB, 64 * MIB);
        g_assert_cmpuint(statm(RESIDENT), >=, before + 64 * MIB);
    }
    bf_store_free(store);
}

static void test_too_much_is_refused(void)
{
    errno = 0;
    g_assert_null(bf_store_new(4 * TIB, true));
    g_assert_cmpint(errno, ==, ENOMEM);
    errno = 0;
    g_assert_null(bf_store_new(UINT64_MAX, false));
    g_assert_cmpint(errno, ==, ENOMEM);
}

/*
 * A limit on writable memory refuses what a host would that counts
 * commitments strictly (vm.overcommit_memory=2).
 */
static void test_reservation_is_no_commitment(void)
{
    struct rlimit old, strict;
    BfStore *store;

    g_assert_cmpint(getrlimit(RLIMIT_DATA, &old), ==, 0);
    strict = old;
    strict.rlim_cur = statm(WRITABLE) + GIB;
    g_assert_cmpint(setrlimit(RLIMIT_DATA, &strict), ==, 0);
    store = bf_store_new(64 * GIB, false);
    g_assert_nonnull(store);
    put(store, 3 * TIB, 64 * MIB, 1);
    assert_cached(store, 3 * TIB, 64 * MIB, 1);
    bf_store_free(store);
    g_assert_cmpint(setrlimit(RLIMIT_DATA, &old), ==, 0);
}

static void test_overhead(void)
{
    BfStore *store = bf_store_new(1 * GIB, false);

    g_assert_cmpuint(bf_store_overhead(store), <=, GIB * 2 / 100);
    bf_store_free(store);
}

/*
 * Among so many blocks some have the same tag, and a removal has to
 * close gaps, also across the end of the table.
 */
static void test_index_tells_blocks_apart(void)
{
    const uint32_t count = 200000;
    BfSlots slots;
    BfIndex index;

    g_assert_true(bf_slots_init(&slots, count));
    g_assert_true(bf_index_init(&index, &slots));
    for (uint32_t i = 0; i < count; i++) {
        g_assert_cmpuint(bf_index_find(&index, i * 8), ==, BF_NO_SLOT);
        g_assert_cmpuint(bf_slots_take(&slots, i * 8), ==, i);
        bf_index_add(&index, i * 8, i);
    }
    for (uint32_t i = 0; i < count; i += 3) {
        bf_index_remove(&index, i * 8);
    }
    for (uint32_t i = 0; i < count; i++) {
        g_assert_cmpuint(bf_index_find(&index, i * 8), ==,
                         i % 3 ? i : BF_NO_SLOT);
    }
    bf_index_release(&index);
    bf_slots_release(&slots);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/store/fresh", test_fresh);
    g_test_add_func("/store/capacity", test_capacity_is_whole_blocks);
    g_test_add_func("/store/single-sector", test_single_sector);
    g_test_add_func("/store/newest-data", test_newest_data_is_read);
    g_test_add_func("/store/write-numbers", test_writes_are_numbered);
    g_test_add_func("/store/vectors", test_vectors);
    g_test_add_func("/store/lookup", test_lookup_counts_what_is_alike);
    g_test_add_func("/store/room", test_room);
    g_test_add_func("/store/full", test_full);
    g_test_add_func("/store/sweep/order", test_sweep_is_in_order);
    g_test_add_func("/store/sweep/growing-disk",
                    test_sweep_order_on_a_growing_disk);
    g_test_add_func("/store/sweep/wrap",
                    test_sweep_begins_where_told_and_wraps);
    g_test_add_func("/store/sweep/one-run", test_sweep_of_one_run);
    g_test_add_func("/store/sweep/disjoint", test_sweeps_share_nothing);
    g_test_add_func("/store/sweep/failed",
                    test_failed_sweep_leaves_its_data_dirty);
    g_test_add_func("/store/sweep/aborted",
                    test_aborted_sweep_gives_up_its_claims);
    g_test_add_func("/store/sweep/rewritten",
                    test_rewritten_block_leaves_its_sweep);
    g_test_add_func("/store/drop/up-to", test_drop_spares_later_writes);
    g_test_add_func("/store/drop/range", test_drop_keeps_to_its_range);
    g_test_add_func("/store/drop/sweep", test_drop_takes_data_from_sweeps);
    g_test_add_func("/store/drop/all", test_drop_all_empties_sweeps);
    g_test_add_func("/store/memory/trim", test_trim_gives_memory_back);
    g_test_add_func("/store/memory/preallocated",
                    test_preallocated_memory_is_there);
    g_test_add_func("/store/memory/too-much", test_too_much_is_refused);
    g_test_add_func("/store/memory/strict",
                    test_reservation_is_no_commitment);
    g_test_add_func("/store/memory/overhead", test_overhead);
    g_test_add_func("/store/index", test_index_tells_blocks_apart);
    return g_test_run();
}
