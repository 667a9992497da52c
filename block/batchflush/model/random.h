/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A small seeded generator, so that a run repeats
 *
 * SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom
 * number generators", OOPSLA 2014.
 */

#ifndef BF_RANDOM_H
#define BF_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct BfRandom {
    uint64_t state;
    double spare;               /* a second normal number */
    bool has_spare;
} BfRandom;

void bf_random_init(BfRandom *random, uint64_t seed);

uint64_t bf_random_u64(BfRandom *random);

/* Uniform, above 0 and below 1. */
double bf_random_unit(BfRandom *random);

/* Normal, of mean 0 and variance 1. */
double bf_random_normal(BfRandom *random);

#endif
