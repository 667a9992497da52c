/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The choice: which writes survive a power cut
 *
 * Writes have numbers in the order of their arrival, from 1 on, and may
 * be completed in another one.  A choice is a function of policy, seed
 * and a write's number (and of the sector, where writes are torn): it
 * needs no list of writes, and the same writes with the same seed have
 * the same fate.
 */

#ifndef BF_CHOICE_H
#define BF_CHOICE_H

#include <stddef.h>

#include "params.h"

/*
 * In which order writes were completed: the last 65536 of them.  Of
 * older ones it is only known that they came before, in order of
 * arrival.  Writes in flight come behind all, in order of arrival.
 */
typedef struct BfCompletions BfCompletions;

BfCompletions *bf_completions_new(void);
void bf_completions_free(BfCompletions *completions);

/* Write @number, larger than all before, is in flight, or completed. */
void bf_completions_begin(BfCompletions *completions, uint64_t number);
void bf_completions_end(BfCompletions *completions, uint64_t number);

/* After a cut: what is left of earlier writes is as good as completed. */
void bf_completions_settle(BfCompletions *completions);

bool bf_completions_in_flight(const BfCompletions *completions,
                              uint64_t number);

/* Whether write @a is completed before write @b. */
bool bf_completions_before(const BfCompletions *completions, uint64_t a,
                           uint64_t b);

typedef struct BfChoice {
    BfCutPolicy policy;
    uint64_t seed;
    bool held;          /* by a battery: what is completed survives */
    const BfCompletions *completions;
    uint64_t last;      /* prefix: the last one that survives, 0: none */
    uint64_t floor;
} BfChoice;

/*
 * Choose among @numbers (ascending), the writes that are not durable.
 * The prefix does not end before write @floor: what was there before it
 * is not known any more.  @completions has to outlive @choice.
 */
void bf_choice_init(BfChoice *choice, BfCutPolicy policy, uint64_t seed,
                    const BfCompletions *completions,
                    const uint64_t *numbers, size_t count, uint64_t floor);

/*
 * The cache is held by a battery: only writes in flight are chosen among,
 * and of those only such as came after the floor, as others replaced what
 * is not there any more.
 */
void bf_choice_hold(BfChoice *choice);

/* Whether write @number survives in a sector. */
bool bf_choice_keep(const BfChoice *choice, uint64_t number,
                    uint64_t sector);

/* A seed for cut number @cut of something that has a seed itself. */
uint64_t bf_choice_seed(uint64_t seed, uint64_t cut);

/* The seed of one of several parts that are cut together. */
uint64_t bf_choice_part_seed(uint64_t seed, const char *name);

#endif
