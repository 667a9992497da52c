/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Lateness: when a request was completed, minus when the model says
 *
 * Counted for each operation of a node, from its opening on, and again in
 * windows that are held against a budget.  A window lasts a second, and
 * longer until it holds 100 requests: fewer have no 99th percentile.
 *
 * Times are in nanoseconds of the node's clock.
 */

#ifndef BF_LATENESS_H
#define BF_LATENESS_H

#include "stats.h"

typedef enum BfOperation {
    BF_OPERATION_READ,
    BF_OPERATION_WRITE,
    BF_OPERATION_WRITE_ZEROES,
    BF_OPERATION_DISCARD,
    BF_OPERATION_FLUSH,
    BF_OPERATIONS,
} BfOperation;

typedef struct BfLateness {
    BfHistogram all;
    BfHistogram window;
    uint64_t window_late;       /* of its values, those over the budget */
    int64_t window_began_at;
} BfLateness;

/* A window whose 99th percentile exceeds the budget. */
typedef struct BfLatenessExcess {
    int64_t p99;
    uint64_t count;             /* requests in the window */
} BfLatenessExcess;

/*
 * Count a request completed at @now, @value too late.  Returns true, and
 * what is wrong in *@excess, if a window ends with it that exceeds
 * @budget; without a budget, 0, never.
 */
bool bf_lateness_add(BfLateness *lateness, int64_t now, int64_t value,
                     int64_t budget, BfLatenessExcess *excess);

#endif
