/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What wakeup.h says about learning, on hosts made up
 *
 * The first is like the machine that this was planned on, where ppoll
 * came 25 µs late at the median and 30 to 75 µs at p99.
 */

#include <float.h>
#include <glib.h>
#include <math.h>

#include "wakeup.h"

#define WAIT_NS     1000000
#define SPIN_MAX_NS 100000
#define WAKE_UPS    20000

/* Log-normal; sigma is of the logarithm. */
typedef struct Host {
    double median_ns;
    double sigma;
} Host;

static const Host quiet = { 25000, 0.15 };
static const Host busy = { 60000, 0.30 };
static const Host fast = { 2000, 0.20 };

static int64_t wake(const Host *host)
{
    double a = g_test_rand_double_range(DBL_EPSILON, 1);
    double b = g_test_rand_double();
    double normal = sqrt(-2 * log(a)) * cos(2 * G_PI * b);

    return host->median_ns * exp(host->sigma * normal);
}

/* The share of wake-ups that came too late for the lead they were given. */
static double run(BfWakeup *wakeup, const Host *host, unsigned count)
{
    unsigned late = 0;

    for (unsigned i = 0; i < count; i++) {
        int64_t lead = bf_wakeup_lead(wakeup, WAIT_NS, SPIN_MAX_NS);
        int64_t lateness = wake(host);

        late += lateness > lead;
        bf_wakeup_observe(wakeup, lateness);
    }
    return (double)late / count;
}

static double quantile(const Host *host, double normal)
{
    return host->median_ns * exp(host->sigma * normal);
}

/* 99 % and 99.99 % of a normal distribution lie below these. */
#define P99   2.326
#define P9999 3.719

static void check_host(const Host *host)
{
    BfWakeup wakeup;
    double late;
    int64_t lead;

    bf_wakeup_init(&wakeup);
    run(&wakeup, host, 2000);
    late = run(&wakeup, host, WAKE_UPS);
    lead = bf_wakeup_lead(&wakeup, WAIT_NS, SPIN_MAX_NS);
    g_test_message("%g ns: late %g, lead %" G_GINT64_FORMAT,
                   host->median_ns, late, lead);
    g_assert_cmpfloat(late, <, 0.01);
    g_assert_cmpint(lead, >=, quantile(host, P99));
    /* A bucket is an eighth wide. */
    g_assert_cmpint(lead, <=, quantile(host, P9999) * 1.125);
}

static void test_it_learns_the_host(void)
{
    check_host(&quiet);
    check_host(&fast);
}

static void test_the_first_waits_are_woken_early_too(void)
{
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    g_assert_cmpfloat(run(&wakeup, &quiet, 500), <, 0.01);
}

static void test_it_forgets_a_busy_time(void)
{
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    run(&wakeup, &busy, 5000);
    g_assert_cmpint(wakeup.lead, >, quantile(&busy, P99));
    run(&wakeup, &quiet, 1024);
    g_assert_cmpint(wakeup.lead, <, quantile(&quiet, P9999) * 1.125);
}

static void test_it_follows_a_host_that_gets_busy(void)
{
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    run(&wakeup, &quiet, 5000);
    g_assert_cmpint(wakeup.lead, <, busy.median_ns);
    run(&wakeup, &busy, 20);
    g_assert_cmpint(wakeup.lead, >, busy.median_ns);
}

/* One stall of the host is no reason to spin for long. */
static void test_a_single_stall_changes_little(void)
{
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    run(&wakeup, &quiet, 5000);
    bf_wakeup_observe(&wakeup, 50 * 1000 * 1000);
    run(&wakeup, &quiet, 512);
    g_assert_cmpint(wakeup.lead, <, quantile(&quiet, P9999) * 1.125);
}

static void test_spinning_is_capped(void)
{
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    run(&wakeup, &busy, 5000);
    g_assert_cmpint(bf_wakeup_lead(&wakeup, WAIT_NS, 7000), ==, 7000);
}

/* A wait shorter than the lead has no time to sleep. */
static void test_short_waits_do_not_sleep(void)
{
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    run(&wakeup, &quiet, 5000);
    g_assert_cmpint(bf_wakeup_lead(&wakeup, 10000, SPIN_MAX_NS), ==, 10000);
}

/*
 * A thread that has only short waits learns all the same, at the cost of
 * one late request in 256.
 */
static void test_short_waits_notice_a_host_that_got_quiet(void)
{
    const int64_t wait = 80000;
    unsigned slept = 0;
    unsigned waits = 0;
    BfWakeup wakeup;

    bf_wakeup_init(&wakeup);
    run(&wakeup, &busy, 5000);
    g_assert_cmpint(wakeup.lead, >, wait);
    while (wakeup.lead > wait / 2 && waits < 1024 * 256) {
        waits++;
        if (bf_wakeup_lead(&wakeup, wait, SPIN_MAX_NS) < wait) {
            slept++;
            bf_wakeup_observe(&wakeup, wake(&fast));
        }
    }
    g_assert_cmpint(wakeup.lead, <=, wait / 2);
    g_assert_cmpuint(slept * 256, <=, waits);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/wakeup/it-learns-the-host", test_it_learns_the_host);
    g_test_add_func("/wakeup/the-first-waits-are-woken-early-too",
                    test_the_first_waits_are_woken_early_too);
    g_test_add_func("/wakeup/it-forgets-a-busy-time",
                    test_it_forgets_a_busy_time);
    g_test_add_func("/wakeup/it-follows-a-host-that-gets-busy",
                    test_it_follows_a_host_that_gets_busy);
    g_test_add_func("/wakeup/a-single-stall-changes-little",
                    test_a_single_stall_changes_little);
    g_test_add_func("/wakeup/spinning-is-capped", test_spinning_is_capped);
    g_test_add_func("/wakeup/short-waits-do-not-sleep",
                    test_short_waits_do_not_sleep);
    g_test_add_func("/wakeup/short-waits-notice-a-host-that-got-quiet",
                    test_short_waits_notice_a_host_that_got_quiet);
    return g_test_run();
}
