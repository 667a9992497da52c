/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A small seeded generator: see random.h */

#include <math.h>

#include "random.h"

void bf_random_init(BfRandom *random, uint64_t seed)
{
    *random = (BfRandom) { .state = seed };
}

uint64_t bf_random_u64(BfRandom *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double bf_random_unit(BfRandom *random)
{
    /* 52 bits, and half a step more, which keeps 0 and 1 out. */
    return ((bf_random_u64(random) >> 12) + 0.5) / (UINT64_C(1) << 52);
}

/* Marsaglia's polar method: two numbers at a time. */
double bf_random_normal(BfRandom *random)
{
    double u, v, s;

    if (random->has_spare) {
        random->has_spare = false;
        return random->spare;
    }
    do {
        u = 2 * bf_random_unit(random) - 1;
        v = 2 * bf_random_unit(random) - 1;
        s = u * u + v * v;
    } while (s >= 1 || s == 0);
    s = sqrt(-2 * log(s) / s);
    random->spare = v * s;
    random->has_spare = true;
    return u * s;
}
