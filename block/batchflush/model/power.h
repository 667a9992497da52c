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

typedef enum BfBattery {
    BF_BATTERY_CHARGED,         /* the cache outlives a cut */
    BF_BATTERY_LEARNING,        /* it is discharged for measuring it */
    BF_BATTERY_FAILED,
} BfBattery;

typedef struct BfPower {
    bool off;
    uint64_t epoch;             /* number of cuts so far */
    int64_t cut_at;             /* when the last one was */
    BfBattery battery;          /* with write-cache=battery */
    bool held;                  /* off, and the battery still holds */
} BfPower;

/* Returns false if the power is already off, or on, respectively. */
bool bf_power_cut(BfPower *power, const BfParams *params, int64_t now);
bool bf_power_restore(BfPower *power);

/* Whether a request that came in @epoch may still succeed. */
bool bf_power_alive(const BfPower *power, uint64_t epoch);

/*
 * Whether a completed write is safe in the cache, so that a flush need
 * not drain it: there is a battery, and it is charged.
 */
bool bf_power_backed(const BfPower *power, const BfParams *params);

/*
 * The instant at which the battery gives up, with the power off and the
 * cache still held; else, or if it never does, BF_NEVER.
 */
int64_t bf_power_hold_up_end(const BfPower *power, const BfParams *params);

/* The cache is lost: the hold-up is over. */
void bf_power_hold_up_over(BfPower *power);

#endif
