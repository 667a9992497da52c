/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Power: see power.h */

#include "power.h"

bool bf_power_cut(BfPower *power)
{
    if (power->off) {
        return false;
    }
    power->off = true;
    power->epoch++;
    return true;
}

bool bf_power_restore(BfPower *power)
{
    if (!power->off) {
        return false;
    }
    power->off = false;
    return true;
}

bool bf_power_alive(const BfPower *power, uint64_t epoch)
{
    return !power->off && power->epoch == epoch;
}

bool bf_power_cache_survives(const BfParams *params)
{
    return params->write_cache == BF_CACHE_BATTERY;
}
