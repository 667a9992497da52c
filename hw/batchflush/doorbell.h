/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The doorbell: a guest cuts its own power
 *
 * Four registers say how, and a write to CUT does it before the next
 * instruction of the processor that wrote.  RESTORE is for a guest that
 * runs on: it returns when the survivors are on the medium.
 */

#ifndef HW_BATCHFLUSH_DOORBELL_H
#define HW_BATCHFLUSH_DOORBELL_H

#include "registers.h"

typedef struct BatchflushDoorbell {
    uint64_t policy;
    uint64_t seed;
    uint64_t guest;
    uint64_t scope;
    uint64_t result;
} BatchflushDoorbell;

/* What a reset leaves: all disks, the nodes' policies and seeds, reset. */
void batchflush_doorbell_reset(BatchflushDoorbell *bell);

/* @offset: from BFC_DOORBELL up to its end. */
uint64_t batchflush_doorbell_read(const BatchflushDoorbell *bell,
                                  uint64_t offset);

/*
 * @size is 4 or 8; @node_name: of the selected disk, or NULL.  Returns
 * false if nobody may write there.  Called under the BQL.
 */
bool batchflush_doorbell_write(BatchflushDoorbell *bell, uint64_t offset,
                               uint64_t value, unsigned size,
                               const char *node_name);

#endif
