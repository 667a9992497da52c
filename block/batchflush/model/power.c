/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Power: see power.h */

#include "coordinator.h"
#include "power.h"

bool bf_power_cut(BfPower *power, const BfParams *params, int64_t now)
{
    if (power->off) {
        return false;
    }
    power->held = bf_power_backed(power, params);
    power->off = true;
    power->epoch++;
    power->cut_at = now;
    return true;
}

bool bf_power_restore(BfPower *power)
{
    if (!power->off) {
        return false;
    }
    power->off = false;
    power->held = false;
    return true;
}

bool bf_power_alive(const BfPower *power, uint64_t epoch)
{
    return !power->off && power->epoch == epoch;
}

bool bf_power_backed(const BfPower *power, const BfParams *params)
{
    return params->write_cache == BF_CACHE_BATTERY &&
           power->battery == BF_BATTERY_CHARGED;
}

int64_t bf_power_hold_up_end(const BfPower *power, const BfParams *params)
{
    if (!power->held) {
        return BF_NEVER;
    }
    if (power->battery != BF_BATTERY_CHARGED) {
        return power->cut_at;
    }
    return params->battery_hold_up_ns
        ? power->cut_at + params->battery_hold_up_ns : BF_NEVER;
}

void bf_power_hold_up_over(BfPower *power)
{
    power->held = false;
}
