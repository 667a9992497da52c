/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What cache.h says about the cache's level, as statements */

#include <glib.h>

#include "cache.h"

#define SIZE 100000             /* so that one percent is 1000 bytes */

static BfParams params_with(int64_t high, int64_t low)
{
    BfParams params;

    bf_params_init(&params);
    params.cache_size = SIZE;
    params.destage_high_percent = high;
    params.destage_low_percent = low;
    return params;
}

static void test_fits(void)
{
    BfParams params = params_with(0, 0);
    BfCache cache;

    bf_cache_init(&cache, &params);
    g_assert_true(bf_cache_fits(&cache, 0, SIZE));
    g_assert_false(bf_cache_fits(&cache, 0, SIZE + 1));
    g_assert_true(bf_cache_fits(&cache, SIZE - 1, 1));
    g_assert_false(bf_cache_fits(&cache, SIZE - 1, 2));
    g_assert_true(bf_cache_fits(&cache, SIZE, 0));
}

static void test_destage_between_the_marks(void)
{
    BfParams params = params_with(60, 30);
    BfCache cache;

    bf_cache_init(&cache, &params);
    g_assert_false(bf_cache_wants_destage(&cache, 30001));
    g_assert_false(bf_cache_wants_destage(&cache, 60000));
    g_assert_true(bf_cache_wants_destage(&cache, 60001));
    g_assert_true(bf_cache_wants_destage(&cache, 60000));
    g_assert_true(bf_cache_wants_destage(&cache, 30001));
    g_assert_false(bf_cache_wants_destage(&cache, 30000));
    g_assert_false(bf_cache_wants_destage(&cache, 60000));
}

static void test_low_mark_of_zero_empties_it(void)
{
    BfParams params = params_with(1, 0);
    BfCache cache;

    bf_cache_init(&cache, &params);
    g_assert_true(bf_cache_wants_destage(&cache, 1001));
    g_assert_true(bf_cache_wants_destage(&cache, 1));
    g_assert_false(bf_cache_wants_destage(&cache, 0));
}

static void test_off(void)
{
    BfParams params = params_with(0, 0);
    BfCache cache;

    bf_cache_init(&cache, &params);
    g_assert_false(bf_cache_wants_destage(&cache, SIZE));
}

static void test_switching_off_stops_it(void)
{
    BfParams params = params_with(60, 30);
    BfCache cache;

    bf_cache_init(&cache, &params);
    g_assert_true(bf_cache_wants_destage(&cache, 70000));
    params.destage_high_percent = 0;
    params.destage_low_percent = 0;
    g_assert_false(bf_cache_wants_destage(&cache, 70000));
    params.destage_high_percent = 80;
    params.destage_low_percent = 30;
    g_assert_false(bf_cache_wants_destage(&cache, 70000));
}

static void test_a_stall_destages_whatever_the_marks(void)
{
    BfParams params = params_with(0, 0);
    BfCache cache;

    bf_cache_init(&cache, &params);
    bf_cache_stall_begin(&cache);
    bf_cache_stall_begin(&cache);
    g_assert_true(bf_cache_wants_destage(&cache, SIZE));
    g_assert_true(bf_cache_wants_destage(&cache, 1));
    g_assert_false(bf_cache_wants_destage(&cache, 0));
    bf_cache_stall_end(&cache, 5);
    g_assert_true(bf_cache_wants_destage(&cache, 1));
    bf_cache_stall_end(&cache, 0);
    g_assert_false(bf_cache_wants_destage(&cache, SIZE));
}

static void test_a_stall_does_not_open_the_marks(void)
{
    BfParams params = params_with(60, 30);
    BfCache cache;

    bf_cache_init(&cache, &params);
    bf_cache_stall_begin(&cache);
    g_assert_true(bf_cache_wants_destage(&cache, 50000));
    bf_cache_stall_end(&cache, 5);
    g_assert_false(bf_cache_wants_destage(&cache, 50000));
}

static void test_stalls_are_counted(void)
{
    BfParams params = params_with(0, 0);
    BfCache cache;

    bf_cache_init(&cache, &params);
    bf_cache_stall_begin(&cache);
    bf_cache_stall_begin(&cache);
    g_assert_cmpuint(cache.stalled, ==, 2);
    bf_cache_stall_end(&cache, 7);
    bf_cache_stall_end(&cache, 35);
    bf_cache_stall_begin(&cache);
    g_assert_cmpuint(cache.stalled, ==, 1);
    g_assert_cmpuint(cache.stalls, ==, 3);
    g_assert_cmpint(cache.stall_ns, ==, 42);
}

static void test_highest_level(void)
{
    BfParams params = params_with(0, 0);
    BfCache cache;

    bf_cache_init(&cache, &params);
    bf_cache_wants_destage(&cache, 5);
    bf_cache_wants_destage(&cache, 9);
    bf_cache_wants_destage(&cache, 2);
    g_assert_cmpuint(cache.used_max, ==, 9);
}

static void test_largest_size(void)
{
    BfParams params = params_with(100, 99);
    BfCache cache;

    params.cache_size = INT64_C(1) << 40;
    bf_cache_init(&cache, &params);
    g_assert_false(bf_cache_wants_destage(&cache, params.cache_size));
    g_assert_true(bf_cache_wants_destage(&cache, params.cache_size + 1));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/cache/fits", test_fits);
    g_test_add_func("/cache/destage-between-the-marks",
                    test_destage_between_the_marks);
    g_test_add_func("/cache/low-mark-of-zero-empties-it",
                    test_low_mark_of_zero_empties_it);
    g_test_add_func("/cache/off", test_off);
    g_test_add_func("/cache/switching-off-stops-it",
                    test_switching_off_stops_it);
    g_test_add_func("/cache/a-stall-destages-whatever-the-marks",
                    test_a_stall_destages_whatever_the_marks);
    g_test_add_func("/cache/a-stall-does-not-open-the-marks",
                    test_a_stall_does_not_open_the_marks);
    g_test_add_func("/cache/stalls-are-counted", test_stalls_are_counted);
    g_test_add_func("/cache/highest-level", test_highest_level);
    g_test_add_func("/cache/largest-size", test_largest_size);
    return g_test_run();
}
