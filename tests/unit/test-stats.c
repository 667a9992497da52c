/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What stats.h says about histograms and the average, as statements */

#include <glib.h>
#include <math.h>

#include "stats.h"

#define VALUES 100000

static void test_buckets_are_ordered_and_narrow(void)
{
    for (unsigned i = 1; i < BF_HISTOGRAM_BUCKETS; i++) {
        int64_t below = bf_histogram_upper(i - 1);
        int64_t upper = bf_histogram_upper(i);

        g_assert_cmpint(upper, >, below);
        /* Lowest and highest value are at most an eighth apart. */
        g_assert_cmpint(upper - (below + 1), <=, (below + 1) / 8);
    }
    g_assert_cmpint(bf_histogram_upper(0), ==, 0);
    g_assert_cmpint(bf_histogram_upper(7), ==, 7);
    g_assert_cmpint(bf_histogram_upper(BF_HISTOGRAM_BUCKETS - 1), ==,
                    INT64_MAX);
}

/* Both ends of every bucket fall into it. */
static void test_each_value_finds_its_bucket(void)
{
    for (unsigned i = 1; i < BF_HISTOGRAM_BUCKETS; i++) {
        BfHistogram lowest = { 0 };
        BfHistogram highest = { 0 };

        bf_histogram_add(&lowest, bf_histogram_upper(i - 1) + 1);
        g_assert_cmpuint(lowest.count[i], ==, 1);
        bf_histogram_add(&highest, bf_histogram_upper(i));
        g_assert_cmpuint(highest.count[i], ==, 1);
    }
}

static void test_counts(void)
{
    BfHistogram histogram = { 0 };

    bf_histogram_add(&histogram, 3);
    bf_histogram_add(&histogram, 1000);
    bf_histogram_add(&histogram, -5);
    g_assert_cmpuint(histogram.total, ==, 3);
    g_assert_cmpint(histogram.sum, ==, 1003);
    g_assert_cmpint(histogram.max, ==, 1000);
    g_assert_cmpuint(histogram.count[0], ==, 1);
}

static void test_percentile_of_nothing(void)
{
    BfHistogram histogram = { 0 };

    g_assert_cmpint(bf_histogram_percentile(&histogram, 50), ==, 0);
}

static void test_percentile_of_small_values_is_exact(void)
{
    BfHistogram histogram = { 0 };

    for (int i = 0; i < 8; i++) {
        bf_histogram_add(&histogram, i);
    }
    g_assert_cmpint(bf_histogram_percentile(&histogram, 0), ==, 0);
    g_assert_cmpint(bf_histogram_percentile(&histogram, 50), ==, 3);
    g_assert_cmpint(bf_histogram_percentile(&histogram, 75), ==, 5);
    g_assert_cmpint(bf_histogram_percentile(&histogram, 76), ==, 6);
    g_assert_cmpint(bf_histogram_percentile(&histogram, 100), ==, 7);
}

static void test_percentile_is_at_most_the_maximum(void)
{
    BfHistogram histogram = { 0 };

    bf_histogram_add(&histogram, 1025);
    g_assert_cmpint(bf_histogram_percentile(&histogram, 50), ==, 1025);
    g_assert_cmpint(bf_histogram_percentile(&histogram, 100), ==, 1025);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Never below the true percentile, never more than 12.5 % above. */
static void test_percentile_error(void)
{
    static int64_t values[VALUES];
    BfHistogram histogram = { 0 };
    GRand *rand = g_rand_new_with_seed(42);

    for (int i = 0; i < VALUES; i++) {
        values[i] = exp(g_rand_double_range(rand, 0, 30));
        bf_histogram_add(&histogram, values[i]);
    }
    g_rand_free(rand);
    qsort(values, VALUES, sizeof(values[0]), compare);

    for (int tenth = 1; tenth <= 1000; tenth++) {
        int64_t exact = values[VALUES / 1000 * tenth - 1];
        int64_t told = bf_histogram_percentile(&histogram, tenth / 10.0);

        g_assert_cmpint(told, >=, exact);
        g_assert_cmpint(told - exact, <=, exact / 8);
    }
}

static void test_first_sample_sets_the_average(void)
{
    BfAverage average = { 0 };

    g_assert_false(average.sampled);
    bf_average_add(&average, 1000);
    g_assert_true(average.sampled);
    g_assert_cmpint(average.value, ==, 1000);
}

static void test_average_weighs_the_last_by_three(void)
{
    BfAverage average = { 0 };

    bf_average_add(&average, 1000);
    bf_average_add(&average, 2000);
    g_assert_cmpint(average.value, ==, 1750);
    bf_average_add(&average, 0);
    g_assert_cmpint(average.value, ==, 437);
}

static void test_first_sample_may_be_zero(void)
{
    BfAverage average = { 0 };

    bf_average_add(&average, 0);
    bf_average_add(&average, 100);
    g_assert_cmpint(average.value, ==, 75);
}

/* After a step, what is left of the difference is a quarter per sample. */
static void test_average_follows_a_step(void)
{
    BfAverage average = { 0 };
    int64_t left = 1 << 20;

    bf_average_add(&average, 0);
    for (int i = 0; i < 10; i++) {
        bf_average_add(&average, 1 << 20);
        left /= 4;
        g_assert_cmpint(average.value, ==, (1 << 20) - left);
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/stats/buckets-are-ordered-and-narrow",
                    test_buckets_are_ordered_and_narrow);
    g_test_add_func("/stats/each-value-finds-its-bucket",
                    test_each_value_finds_its_bucket);
    g_test_add_func("/stats/counts", test_counts);
    g_test_add_func("/stats/percentile-of-nothing",
                    test_percentile_of_nothing);
    g_test_add_func("/stats/percentile-of-small-values-is-exact",
                    test_percentile_of_small_values_is_exact);
    g_test_add_func("/stats/percentile-is-at-most-the-maximum",
                    test_percentile_is_at_most_the_maximum);
    g_test_add_func("/stats/percentile-error", test_percentile_error);
    g_test_add_func("/stats/first-sample-sets-the-average",
                    test_first_sample_sets_the_average);
    g_test_add_func("/stats/average-weighs-the-last-by-three",
                    test_average_weighs_the_last_by_three);
    g_test_add_func("/stats/first-sample-may-be-zero",
                    test_first_sample_may_be_zero);
    g_test_add_func("/stats/average-follows-a-step",
                    test_average_follows_a_step);
    return g_test_run();
}
