/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Keeping what the child held until what is written over it is durable */

#include "qemu/osdep.h"
#include "block/block-io.h"

#include "outage.h"

int coroutine_fn GRAPH_RDLOCK
batchflush_co_keep_before(BDRVBatchflushState *s, uint64_t epoch,
                          uint64_t order, int64_t offset, int64_t bytes,
                          void *buffer)
{
    QemuMutex *lock = &s->controller->lock;
    int ret;

    qemu_mutex_unlock(lock);
    ret = bdrv_co_pread(s->bs->file, offset, bytes, buffer, 0);
    qemu_mutex_lock(lock);
    if (!bf_power_alive(&s->controller->power, epoch)) {
        return -EIO;
    }
    /* What cannot be read has no value that a cut could bring back. */
    if (ret == 0) {
        bf_history_before(s->history, order, offset, bytes, buffer);
    }
    return 0;
}

void coroutine_fn batchflush_co_wait_unchanging(BDRVBatchflushState *s,
                                                int64_t offset,
                                                int64_t bytes)
{
    while (s->history && bf_history_changing(s->history, offset, bytes)) {
        qemu_co_queue_wait(&s->changes, &s->controller->lock);
    }
}

void coroutine_fn batchflush_change_end(BDRVBatchflushState *s,
                                        BfChange *change)
{
    bf_history_end(s->history, change);
    qemu_co_queue_restart_all(&s->changes);
}
