/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lateness of the node's requests, its statistics and its budget */

#include "qemu/osdep.h"
#include "block/block-io.h"
#include "qapi/qapi-events-batchflush.h"
#include "qapi/util.h"

#include "batchflush.h"
#include "trace.h"

/* Both have the same order. */
QEMU_BUILD_BUG_ON((int)BF_OPERATIONS != (int)BATCHFLUSH_OPERATION__MAX);
QEMU_BUILD_BUG_ON((int)BF_OPERATION_WRITE_ZEROES !=
                  (int)BATCHFLUSH_OPERATION_WRITE_ZEROES);

void batchflush_count_lateness(BDRVBatchflushState *s,
                               BfOperation operation, int64_t late)
{
    int64_t budget = s->params.max_lateness_ns;
    BfLatenessExcess excess;

    if (late == BATCHFLUSH_NOT_SERVED) {
        return;
    }
    if (bf_lateness_add(&s->lateness[operation],
                        batchflush_now(s->controller), late, budget,
                        &excess)) {
        trace_batchflush_too_late(s->bs, operation, excess.p99, budget);
        qapi_event_send_batchflush_lateness(
            bdrv_get_node_name(s->bs), (BatchflushOperation)operation,
            excess.p99, budget, excess.count);
    }
}

static BatchflushLateness *lateness_to_qapi(BfOperation operation,
                                            const BfHistogram *all)
{
    BatchflushLateness *lateness = g_new(BatchflushLateness, 1);

    *lateness = (BatchflushLateness) {
        .operation = (BatchflushOperation)operation,
        .count = all->total,
        .p50_ns = bf_histogram_percentile(all, 50),
        .p99_ns = bf_histogram_percentile(all, 99),
        .max_ns = all->max,
        .histogram = batchflush_histogram_to_qapi(all),
    };
    return lateness;
}

BatchflushLatenessList *
batchflush_lateness_to_qapi(const BDRVBatchflushState *s)
{
    BatchflushLatenessList *list = NULL;
    BatchflushLatenessList **tail = &list;

    for (unsigned i = 0; i < BF_OPERATIONS; i++) {
        const BfHistogram *all = &s->lateness[i].all;

        if (all->total) {
            QAPI_LIST_APPEND(tail, lateness_to_qapi(i, all));
        }
    }
    return list;
}
