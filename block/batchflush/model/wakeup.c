/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How early to wake: see wakeup.h */

#include <glib.h>

#include "wakeup.h"

#define PERCENT         99.5
#define WINDOW          512
#define FIRST_GUESS_NS  50000
#define SLEEPLESS_MAX   256

void bf_wakeup_init(BfWakeup *wakeup)
{
    *wakeup = (BfWakeup) { .lead = FIRST_GUESS_NS };
    /* It counts until there is a whole window of wake-ups. */
    bf_histogram_add(&wakeup->lateness[1], FIRST_GUESS_NS);
}

void bf_wakeup_observe(BfWakeup *wakeup, int64_t lateness)
{
    BfHistogram *latest = &wakeup->lateness[0];
    BfHistogram *before = &wakeup->lateness[1];

    wakeup->sleepless = 0;
    bf_histogram_add(latest, lateness);
    wakeup->lead = MAX(bf_histogram_percentile(latest, PERCENT),
                       bf_histogram_percentile(before, PERCENT));
    if (latest->total == WINDOW) {
        *before = *latest;
        *latest = (BfHistogram) { 0 };
    }
}

int64_t bf_wakeup_lead(BfWakeup *wakeup, int64_t wait, int64_t spin_max)
{
    int64_t lead = MIN(wakeup->lead, spin_max);

    if (lead < wait) {
        return lead;
    }
    if (++wakeup->sleepless < SLEEPLESS_MAX) {
        return wait;
    }
    wakeup->sleepless = 0;
    return wait / 2;
}
