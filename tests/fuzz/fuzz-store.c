/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data store under any operations
 *
 * World and oracle are those of the random test; its dice are the input.
 */

#include "dice.h"

typedef struct World World;
static uint64_t draw(World *w, uint64_t below);

#include "../unit/test-store-random.c"

#define OPERATIONS 400

static uint64_t draw(World *w, uint64_t below)
{
    return bf_dice(&w->random, below);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bf_dice_set(data, size);
    run(false, OPERATIONS);
    return 0;
}
