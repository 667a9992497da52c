/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the guest reads until it selects a disk again
 *
 * All values are taken at one instant, so they fit together however
 * many reads it takes to fetch them.
 */

#ifndef HW_BATCHFLUSH_LATCH_H
#define HW_BATCHFLUSH_LATCH_H

#include "registers.h"

#define BFC_DISK_WORDS ((BFC_DISK_END - BFC_DISK) / sizeof(uint64_t))

typedef struct BatchflushLatch {
    uint64_t slowest_ns;            /* of all disks that are present */
    uint64_t disk[BFC_DISK_WORDS];  /* the registers from BFC_DISK on */
} BatchflushLatch;

/*
 * @names: node names, ending with NULL; a node is looked up each time,
 * so it may be deleted, and created again, at will.
 * @selector: index into @names, or beyond its end.
 *
 * Called under the BQL.
 */
void batchflush_latch(BatchflushLatch *latch, char **names,
                      uint64_t selector);

#endif
