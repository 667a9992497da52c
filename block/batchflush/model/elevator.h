/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a head does for one request
 *
 * A destage of several runs is served in elevator order: upwards from
 * where the head is when it begins, and then from the bottom.
 */

#ifndef BF_ELEVATOR_H
#define BF_ELEVATOR_H

#include "head.h"
#include "request.h"

/* Serve all of it.  Returns the instant at which it is done. */
int64_t bf_elevator_serve(BfHead *head, BfRequest *request);

/*
 * Serve a destage run by run: where the next one is, and to serve it,
 * until its runs_left, which is to be 0 before the first, is 0 again.
 */
uint64_t bf_elevator_next(const BfHead *head, BfRequest *destage);
int64_t bf_elevator_serve_run(BfHead *head, BfRequest *destage);

#endif
