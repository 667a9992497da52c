/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Closed-loop writers on the model alone
 *
 * Each writer thinks, writes 4 KiB into the cache, flushes, and starts
 * over when its flush is done.  Coordinator and service are driven as
 * the driver does it, by a small event simulator, so that seconds of a
 * disk's time take milliseconds.  The same load gives the same result.
 */

#ifndef WRITERS_H
#define WRITERS_H

#include "coordinator.h"
#include "service.h"

typedef struct Load {
    unsigned writers;
    int64_t think_ns;           /* on average */
    double jitter;              /* think time differs by this fraction */
    int64_t stagger_ns;         /* writer i starts at i times this */
    int64_t duration_ns;
    uint32_t seed;
} Load;

typedef struct LoadResult {
    double flushes_per_second;  /* that writers saw done */
    uint64_t issued;            /* to the hardware */
    double shared;              /* fraction of flushes not alone */
    int64_t wait_max_ns;        /* for company or the flush before */
} LoadResult;

/* The first tenth of the duration is not counted. */
LoadResult load_run(const Load *load, const BfParams *params);

#endif
