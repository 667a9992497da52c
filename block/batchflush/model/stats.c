/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Statistics: see stats.h */

#include <glib.h>

#include "stats.h"

#define SUB_BITS 3
#define SUB_COUNT (1 << SUB_BITS)

static unsigned bucket_of(int64_t value)
{
    unsigned msb;

    if (value < SUB_COUNT) {
        return value < 0 ? 0 : value;
    }
    msb = 63 - __builtin_clzll(value);
    return (msb - SUB_BITS + 1) * SUB_COUNT +
           ((value >> (msb - SUB_BITS)) & (SUB_COUNT - 1));
}

int64_t bf_histogram_upper(unsigned bucket)
{
    unsigned octave = bucket / SUB_COUNT;
    uint64_t step;

    g_assert(bucket < BF_HISTOGRAM_BUCKETS);
    if (octave == 0) {
        return bucket;
    }
    step = UINT64_C(1) << (octave - 1);
    return (SUB_COUNT + bucket % SUB_COUNT) * step + (step - 1);
}

void bf_histogram_add(BfHistogram *histogram, int64_t value)
{
    value = MAX(value, 0);
    histogram->count[bucket_of(value)]++;
    histogram->total++;
    histogram->sum += value;
    histogram->max = MAX(histogram->max, value);
}

int64_t bf_histogram_percentile(const BfHistogram *histogram, double percent)
{
    double rank = histogram->total * percent / 100;
    uint64_t seen = 0;

    for (unsigned i = 0; i < BF_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->count[i];
        if (histogram->count[i] && seen >= rank) {
            return MIN(bf_histogram_upper(i), histogram->max);
        }
    }
    return 0;
}

void bf_average_add(BfAverage *average, int64_t sample)
{
    average->value = average->sampled ? (3 * sample + average->value) / 4
                                      : sample;
    average->sampled = true;
}
