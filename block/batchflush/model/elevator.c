/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a head does for one request: see elevator.h */

#include <glib.h>

#include "elevator.h"

/* The order begins with the first run at or above the head. */
static void board(const BfHead *head, BfRequest *destage)
{
    size_t low = 0;
    size_t high = destage->n_runs;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (destage->runs[middle].offset < head->end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    destage->runs_left = MAX(destage->n_runs, 1);
    destage->next_run = low < destage->n_runs ? low : 0;
}

uint64_t bf_elevator_next(const BfHead *head, BfRequest *destage)
{
    if (!destage->runs_left) {
        board(head, destage);
    }
    return bf_request_run(destage, destage->next_run).offset;
}

int64_t bf_elevator_serve_run(BfHead *head, BfRequest *destage)
{
    BfRun run;

    if (!destage->runs_left) {
        board(head, destage);
    }
    run = bf_request_run(destage, destage->next_run);
    destage->runs_left--;
    if (++destage->next_run >= destage->n_runs) {
        destage->next_run = 0;
    }
    return bf_head_serve(head, destage->ready_at, false, run.offset,
                         run.bytes);
}

int64_t bf_elevator_serve(BfHead *head, BfRequest *request)
{
    int64_t done;

    if (request->op != BF_OP_DESTAGE) {
        return bf_head_serve(head, request->ready_at,
                             request->op == BF_OP_READ, request->offset,
                             request->bytes);
    }
    request->runs_left = 0;
    do {
        done = bf_elevator_serve_run(head, request);
    } while (request->runs_left);
    return done;
}
