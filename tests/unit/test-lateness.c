/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What lateness.h says about counting and the budget, as statements */

#include <glib.h>

#include "lateness.h"

#define SECOND_NS 1000000000
#define BUDGET    10000

/* @count requests at equal distances over @span, @late of them too late. */
static bool run(BfLateness *lateness, int64_t *now, int64_t span,
                unsigned count, unsigned late, BfLatenessExcess *excess)
{
    bool exceeded = false;

    for (unsigned i = 0; i < count; i++) {
        bool is_late = (i + 1) * late / count > i * late / count;

        exceeded |= bf_lateness_add(lateness, *now,
                                    is_late ? BUDGET + 1 : BUDGET, BUDGET,
                                    excess);
        *now += span / (count - 1);
    }
    return exceeded;
}

static void test_everything_is_counted(void)
{
    BfLateness lateness = { 0 };
    BfLatenessExcess excess;

    for (int64_t value = 0; value < 1000; value++) {
        bf_lateness_add(&lateness, value, value, 0, &excess);
    }
    g_assert_cmpuint(lateness.all.total, ==, 1000);
    g_assert_cmpint(lateness.all.max, ==, 999);
}

static void test_without_a_budget_nothing_exceeds_it(void)
{
    BfLateness lateness = { 0 };
    BfLatenessExcess excess;

    for (int64_t i = 0; i < 1000; i++) {
        g_assert_false(bf_lateness_add(&lateness, i * SECOND_NS, SECOND_NS,
                                       0, &excess));
    }
}

/* One in a hundred may be late, and no more. */
static void test_the_budget_is_one_of_the_99th_percentile(void)
{
    BfLateness within = { 0 };
    BfLateness beyond = { 0 };
    BfLatenessExcess excess;
    int64_t now = 5;

    g_assert_false(run(&within, &now, SECOND_NS, 1001, 10, &excess));
    g_assert_true(run(&beyond, &now, SECOND_NS, 1001, 11, &excess));
    g_assert_cmpuint(excess.count, ==, 1001);
    g_assert_cmpint(excess.p99, ==, BUDGET + 1);
}

static void test_few_requests_make_no_window(void)
{
    BfLateness lateness = { 0 };
    BfLatenessExcess excess;
    int64_t now = 0;

    g_assert_false(run(&lateness, &now, 60 * INT64_C(1000000000), 99, 99,
                       &excess));
    g_assert_true(run(&lateness, &now, 1, 2, 2, &excess));
    g_assert_cmpuint(excess.count, ==, 100);
}

static void test_a_window_lasts_a_second(void)
{
    BfLateness lateness = { 0 };
    BfLatenessExcess excess;
    int64_t now = 0;

    g_assert_false(run(&lateness, &now, SECOND_NS - 10000, 5000, 5000,
                       &excess));
    now = SECOND_NS;
    g_assert_true(bf_lateness_add(&lateness, now, 0, BUDGET, &excess));
    g_assert_cmpuint(excess.count, ==, 5001);
}

/* What one window held is not held against the next. */
static void test_a_window_begins_empty(void)
{
    BfLateness lateness = { 0 };
    BfLatenessExcess excess;
    int64_t now = 0;

    g_assert_true(run(&lateness, &now, SECOND_NS, 101, 101, &excess));
    g_assert_false(run(&lateness, &now, SECOND_NS, 101, 1, &excess));
    g_assert_cmpuint(lateness.all.total, ==, 202);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/lateness/everything-is-counted",
                    test_everything_is_counted);
    g_test_add_func("/lateness/without-a-budget-nothing-exceeds-it",
                    test_without_a_budget_nothing_exceeds_it);
    g_test_add_func("/lateness/the-budget-is-one-of-the-99th-percentile",
                    test_the_budget_is_one_of_the_99th_percentile);
    g_test_add_func("/lateness/few-requests-make-no-window",
                    test_few_requests_make_no_window);
    g_test_add_func("/lateness/a-window-lasts-a-second",
                    test_a_window_lasts_a_second);
    g_test_add_func("/lateness/a-window-begins-empty",
                    test_a_window_begins_empty);
    return g_test_run();
}
