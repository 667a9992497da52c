/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Power: on or off, and what a cut takes with it
 *
 * A cut latches: it begins a new epoch, and a request of an earlier
 * epoch never succeeds, even if power is back when it ends.
 */

#ifndef BF_POWER_H
#define BF_POWER_H

#include "params.h"

typedef struct BfPower {
    bool off;
    uint64_t epoch;             /* number of cuts so far */
} BfPower;

/* Returns false if the power is already off, or on, respectively. */
bool bf_power_cut(BfPower *power);
bool bf_power_restore(BfPower *power);

/* Whether a request that came in @epoch may still succeed. */
bool bf_power_alive(const BfPower *power, uint64_t epoch);

/* Whether cached data outlives a cut. */
bool bf_power_cache_survives(const BfParams *params);

#endif
