/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lateness: see lateness.h */

#include <glib.h>

#include "lateness.h"

#define WINDOW_NS       INT64_C(1000000000)
#define WINDOW_REQUESTS 100

bool bf_lateness_add(BfLateness *lateness, int64_t now, int64_t value,
                     int64_t budget, BfLatenessExcess *excess)
{
    BfHistogram *window = &lateness->window;

    bf_histogram_add(&lateness->all, value);
    if (budget == 0) {
        window->total = 0;
        return false;
    }
    if (window->total == 0) {
        *window = (BfHistogram) { 0 };
        lateness->window_late = 0;
        lateness->window_began_at = now;
    }
    bf_histogram_add(window, value);
    lateness->window_late += value > budget;
    if (window->total < WINDOW_REQUESTS ||
        now - lateness->window_began_at < WINDOW_NS) {
        return false;
    }
    *excess = (BfLatenessExcess) {
        .p99 = bf_histogram_percentile(window, 99),
        .count = window->total,
    };
    window->total = 0;
    /* Exact, where the percentile is rounded up to the end of a bucket. */
    return lateness->window_late * 100 > excess->count;
}
