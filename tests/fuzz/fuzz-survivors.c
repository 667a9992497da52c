/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What survives a power cut, after any requests on any host
 *
 * Device and oracle are those of the random test; its dice are the
 * input.
 */

#include "dice.h"

#define draw bf_dice

#include "../unit/test-survivors.c"

#define OPERATIONS 200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    World *w;

    if (!size) {
        return 0;
    }
    bf_dice_set(data + 1, size - 1);
    w = run(&setups[data[0] % G_N_ELEMENTS(setups)], 1, 2, OPERATIONS);
    if (w->broken) {
        g_error("%s", w->why);
    }
    world_free(w);
    return 0;
}
