/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The choice: which writes survive a power cut */

#include <glib.h>

#include "choice.h"

#define REMEMBERED 65536
#define IN_FLIGHT UINT64_MAX

struct BfCompletions {
    uint64_t newest;            /* number of a write */
    uint64_t settled;           /* the last one before the last cut */
    uint64_t count;             /* of completions */
    uint64_t place[REMEMBERED]; /* among them, or IN_FLIGHT */
};

BfCompletions *bf_completions_new(void)
{
    return g_new0(BfCompletions, 1);
}

void bf_completions_free(BfCompletions *completions)
{
    g_free(completions);
}

static bool is_remembered(const BfCompletions *completions, uint64_t number)
{
    return number > completions->settled && number <= completions->newest &&
           completions->newest - number < REMEMBERED;
}

void bf_completions_begin(BfCompletions *completions, uint64_t number)
{
    /* Numbers that were never begun, if any, are nobody's. */
    completions->newest = number;
    completions->place[number % REMEMBERED] = IN_FLIGHT;
}

void bf_completions_end(BfCompletions *completions, uint64_t number)
{
    if (is_remembered(completions, number)) {
        completions->place[number % REMEMBERED] = ++completions->count;
    }
}

void bf_completions_settle(BfCompletions *completions)
{
    completions->settled = completions->newest;
}

static uint64_t place_of(const BfCompletions *completions, uint64_t number)
{
    return is_remembered(completions, number)
        ? completions->place[number % REMEMBERED] : 0;
}

bool bf_completions_in_flight(const BfCompletions *completions,
                              uint64_t number)
{
    return place_of(completions, number) == IN_FLIGHT;
}

bool bf_completions_before(const BfCompletions *completions, uint64_t a,
                           uint64_t b)
{
    uint64_t one = place_of(completions, a);
    uint64_t two = place_of(completions, b);

    return one < two || (one == two && a < b);
}

/* SplitMix64: it passes through all numbers before it repeats one. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static int compare_completions(const void *a, const void *b, void *opaque)
{
    const BfCompletions *completions = opaque;
    uint64_t one = *(const uint64_t *)a;
    uint64_t two = *(const uint64_t *)b;

    if (one == two) {
        return 0;
    }
    return bf_completions_before(completions, one, two) ? -1 : 1;
}

/* The last write of a prefix whose length is drawn, 0 for an empty one. */
static uint64_t draw_last(const BfChoice *choice, const uint64_t *numbers,
                          size_t count, uint64_t floor)
{
    g_autofree uint64_t *sorted = g_new(uint64_t, count);
    size_t least = 0;
    size_t length;

    for (size_t i = 0; i < count; i++) {
        sorted[i] = numbers[i];
    }
    g_qsort_with_data(sorted, count, sizeof(*sorted), compare_completions,
                      (void *)choice->completions);
    for (size_t i = 0; i < count; i++) {
        if (sorted[i] <= floor) {
            least = i + 1;
        }
    }
    length = least + mix(choice->seed) % (count + 1 - least);
    return length ? sorted[length - 1] : 0;
}

void bf_choice_init(BfChoice *choice, BfCutPolicy policy, uint64_t seed,
                    const BfCompletions *completions,
                    const uint64_t *numbers, size_t count, uint64_t floor)
{
    *choice = (BfChoice) {
        .policy = policy,
        .seed = seed,
        .completions = completions,
        .floor = floor,
    };
    if (policy == BF_CUT_PREFIX) {
        choice->last = draw_last(choice, numbers, count, floor);
    }
}

void bf_choice_hold(BfChoice *choice)
{
    choice->held = true;
}

bool bf_choice_keep(const BfChoice *choice, uint64_t number,
                    uint64_t sector)
{
    if (choice->held &&
        (number <= choice->floor ||
         !bf_completions_in_flight(choice->completions, number))) {
        return true;
    }
    switch (choice->policy) {
    case BF_CUT_PREFIX:
        return choice->last &&
               !bf_completions_before(choice->completions, choice->last,
                                      number);
    case BF_CUT_SUBSET:
        return mix(choice->seed ^ mix(number)) & 1;
    case BF_CUT_TORN:
        return mix(choice->seed ^ mix(number ^ mix(sector))) & 1;
    default:
        return false;
    }
}

uint64_t bf_choice_seed(uint64_t seed, uint64_t cut)
{
    /* Short, because people copy it. */
    return mix(seed ^ mix(cut)) & UINT32_MAX;
}

uint64_t bf_choice_part_seed(uint64_t seed, const char *name)
{
    for (; *name; name++) {
        seed = mix(seed ^ (uint8_t)*name);
    }
    return mix(seed);
}
