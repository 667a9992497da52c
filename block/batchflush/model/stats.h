/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Statistics: histograms and the running average of S0
 */

#ifndef BF_STATS_H
#define BF_STATS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A histogram of non-negative values.  Values below 8 have a bucket
 * each, larger ones share one with values at most 12.5 % apart.
 */
#define BF_HISTOGRAM_BUCKETS 488

typedef struct BfHistogram {
    uint64_t count[BF_HISTOGRAM_BUCKETS];
    uint64_t total;                     /* number of values */
    int64_t sum;
    int64_t max;
} BfHistogram;

/* Negative values count as 0. */
void bf_histogram_add(BfHistogram *histogram, int64_t value);

/* The largest value that falls into a bucket. */
int64_t bf_histogram_upper(unsigned bucket);

/*
 * The upper end of the bucket that the @percent-th percentile falls
 * into, at most the largest value seen; 0 if there is no value.
 */
int64_t bf_histogram_percentile(const BfHistogram *histogram,
                                double percent);

/*
 * avg = (3 * last + avg) / 4; the first sample sets it (Bacik's posting
 * of 2009-01-08, linux f420d4dc, has the same weights).
 */
typedef struct BfAverage {
    int64_t value;
    bool sampled;
} BfAverage;

void bf_average_add(BfAverage *average, int64_t sample);

#endif
