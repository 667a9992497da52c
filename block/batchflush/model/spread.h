/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How times spread around their nominal value
 *
 * A spread is a distribution of factors: a request takes its nominal
 * time times a factor that is drawn for it.  The mean of the factors is
 * 1, so that the nominal time stays the mean; only a table says itself
 * what its mean is.
 *
 *   fixed               always 1
 *   uniform:PERCENT     1 plus and minus PERCENT, 0 to 100
 *   normal:PERCENT      standard deviation in percent, 0 to 33; cut off
 *                       at 0 (at 33, one in 800, 0.01 % of the mean)
 *   log-normal:PERCENT  standard deviation in percent, 0 to 1000
 *   pareto:SHAPE        tail that falls as the power -SHAPE, 1.1 to 100;
 *                       cut off at a factor of one million
 *   table:P=F/P=F/...   the factor F at the percentile P, linear in
 *                       between and level outside; both rise
 */

#ifndef BF_SPREAD_H
#define BF_SPREAD_H

#include "random.h"

#define BF_SPREAD_POINTS 16

typedef enum BfSpreadKind {
    BF_SPREAD_FIXED,
    BF_SPREAD_UNIFORM,
    BF_SPREAD_NORMAL,
    BF_SPREAD_LOG_NORMAL,
    BF_SPREAD_PARETO,
    BF_SPREAD_TABLE,
} BfSpreadKind;

typedef struct BfSpreadPoint {
    double percentile;
    double factor;
} BfSpreadPoint;

/* All zero: fixed. */
typedef struct BfSpread {
    int64_t kind;               /* BfSpreadKind */
    double parameter;           /* percent or shape, as it was given */
    double scale;               /* derived: what draws take, see spread.c */
    double exponent;
    int64_t n_points;
    BfSpreadPoint points[BF_SPREAD_POINTS];
} BfSpread;

/*
 * Returns false, and in *@why what is to follow "OPTION=TEXT " in a
 * sentence, to be freed with g_free(), if @text is no spread; @spread
 * is left alone then.
 */
bool bf_spread_parse(BfSpread *spread, const char *text, char **why);

/* The text that bf_spread_parse() takes; free it. */
char *bf_spread_text(const BfSpread *spread);

/* The mean of its factors. */
double bf_spread_mean(const BfSpread *spread);

/* A factor. */
double bf_spread_draw(const BfSpread *spread, BfRandom *random);

/* @nominal times a factor.  A fixed spread draws nothing. */
static inline int64_t bf_spread_ns(const BfSpread *spread, BfRandom *random,
                                   int64_t nominal)
{
    if (spread->kind == BF_SPREAD_FIXED || nominal == 0) {
        return nominal;
    }
    return (int64_t)(nominal * bf_spread_draw(spread, random) + 0.5);
}

#endif
