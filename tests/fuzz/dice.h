/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The dice of a random test, thrown by the fuzzer
 *
 * Each throw takes as many bytes of the input as it needs; after its end
 * they fall by chance, the same one each time.
 */

#ifndef BF_DICE_H
#define BF_DICE_H

#include <stddef.h>

#include "fuzz.h"

/* A test that is included leaves its own dice and its main() out. */
#define BF_FUZZ

static const uint8_t *bf_dice_at;
static size_t bf_dice_left;

static void bf_dice_set(const uint8_t *data, size_t size)
{
    bf_dice_at = data;
    bf_dice_left = size;
}

/* 0 to @below - 1.  @random is the state of what falls by chance. */
static uint64_t bf_dice(uint64_t *random, uint64_t below)
{
    uint64_t x = 0;

    if (!bf_dice_left) {
        x = *random = *random * 6364136223846793005 + 1442695040888963407;
        return (x >> 33) % below;
    }
    for (uint64_t most = below - 1; most && bf_dice_left; most >>= 8) {
        x = x << 8 | *bf_dice_at++;
        bf_dice_left--;
    }
    return x % below;
}

#endif
