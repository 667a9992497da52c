/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The controller: what the disks of an array share
 *
 * Cache room, flush coordinator, power and clock belong to a controller.
 * A node has one of its own, unless it names an object of type
 * batchflush-controller: then it is one of several disks behind it, as
 * the LUNs of an array are.  Each disk keeps its own medium and data.
 *
 * Times are in nanoseconds of the controller's clock, sizes in bytes.
 */

#ifndef BLOCK_BATCHFLUSH_CONTROLLER_H
#define BLOCK_BATCHFLUSH_CONTROLLER_H

#include "block/block_int.h"
#include "qemu/queue.h"
#include "system/runstate.h"

#include "alarm.h"
#include "model/cache.h"
#include "model/coordinator.h"
#include "model/params.h"
#include "model/power.h"
#include "model/stats.h"

typedef struct BDRVBatchflushState BDRVBatchflushState;
typedef struct BatchflushController BatchflushController;
typedef struct BatchflushCut BatchflushCut;

/* A coroutine that waits until an instant or until somebody wakes it. */
typedef struct BatchflushDelay {
    Coroutine *co;
    QEMUTimer loop_timer;       /* on the main loop's own list */
    QEMUTimer context_timer;    /* on the AioContext's list */
    BatchflushAlarm alarm;      /* or in place of both */
    bool has_alarm;
    BatchflushController *controller;
    QTAILQ_ENTRY(BatchflushDelay) next;
    bool waiting;
    bool on_time;               /* its instant ended it, and nobody else */
    bool for_room;              /* a writer stalled for want of it */
} BatchflushDelay;

/* A guest flush that joined a batch; it lives on its coroutine's stack. */
typedef struct BatchflushMember {
    BDRVBatchflushState *s;
    Coroutine *co;
    int64_t arrived_at;
    int ret;
    QSIMPLEQ_ENTRY(BatchflushMember) next;
} BatchflushMember;

typedef QSIMPLEQ_HEAD(, BatchflushMember) BatchflushMembers;

struct BatchflushController {
    char *id;                   /* NULL: a node's own */
    unsigned refs;              /* of the object and of nodes; BQL */
    VMChangeStateEntry *vmstate;
    QLIST_ENTRY(BatchflushController) everywhere;   /* outage.c */

    /*
     * Protects everything below and the state of all nodes, their
     * stores included.  Never held while a coroutine yields.  Requests
     * may come from several AioContexts at once.
     */
    QemuMutex lock;

    QLIST_HEAD(, BDRVBatchflushState) nodes;
    unsigned n_nodes;

    BfParams params;            /* its flush time: the slowest node's */
    BfCache cache;
    BfCoordinator coordinator;
    BfPower power;
    BatchflushCut *cut;         /* that waits for its moment */
    bool cut_in_flush;          /* which is the next flush */
    bool attention;             /* atomic: off, or a cut waits */
    BfCutPolicy cut_policy;     /* of the last cut */
    uint64_t cut_seed;
    bool restore_at_reset;
    QEMUTimer *hold_up;         /* while a battery holds the cache */
    QEMUBH *save_bh;            /* batteries have something to save */
    QEMUClockType clock;

    /* Times are only served while the machine runs and is not drained. */
    bool running;
    unsigned drained;

    QTAILQ_HEAD(, BatchflushDelay) delays;
    int64_t flush_done_at;      /* instant of the last flush that began */
    BatchflushMembers joined;   /* of the batch that is forming */
    BatchflushDelay *leader;    /* its leader, while it waits */
    QEMUBH *stuck_bh;           /* see batchflush_check_stuck() */
    int64_t wakeup_lead_ns;     /* of the last alarm */
    uint64_t spin_ns;
    BfHistogram spin_turns;     /* ns a turn took, one per alarm */
    uint64_t destage_failures;  /* on any node */
    int destage_error;          /* of the last one */
};

/* A new controller, with one reference.  @id may be NULL; copied. */
BatchflushController *batchflush_controller_new(const char *id);
void batchflush_controller_ref(BatchflushController *c);
void batchflush_controller_unref(BatchflushController *c);

/*
 * The controller of the object of that name, without a reference.
 * Returns NULL and sets @errp if there is none.
 */
BatchflushController *batchflush_controller_find(const char *id,
                                                 Error **errp);

/*
 * Put a node behind a controller, which it takes a reference to.
 * Fails if its options contradict those of the nodes that are there.
 */
bool batchflush_controller_attach(BatchflushController *c,
                                  BDRVBatchflushState *s, Error **errp);
void batchflush_controller_detach(BDRVBatchflushState *s);

/* A node's parameters have changed.  Called with the lock held. */
void batchflush_controller_update(BDRVBatchflushState *s);

/* Bytes that the caches of all nodes hold.  Called with the lock held. */
uint64_t batchflush_controller_used(const BatchflushController *c);

/*
 * The average flush time of the slowest node, measured or else
 * expected.  Called with the lock held.
 */
int64_t batchflush_controller_flush_time(const BatchflushController *c);

int64_t batchflush_now(const BatchflushController *c);

/* The clock that times are served on, or will be when the machine runs. */
QEMUClockType batchflush_serving_clock(const BatchflushController *c);

/* Its power, or what waits to cut it, has changed.  Lock held. */
void batchflush_update_attention(BatchflushController *c);

/* Whether times are served.  Called with the lock held. */
bool batchflush_serving(const BatchflushController *c);

/* What that depends on has changed.  Called with the lock held. */
void batchflush_update_serving(BatchflushController *c);

/* delay.c: the lock is held on entry and return, and released meanwhile */

#define BATCHFLUSH_NOT_SERVED (-1)

/*
 * Wait until @instant, or not at all while times are not served.
 * Returns how late it is then, or BATCHFLUSH_NOT_SERVED if the wait was
 * ended early.
 */
int64_t coroutine_fn batchflush_co_wait_until(BatchflushController *c,
                                              int64_t instant);

/*
 * Wait until @instant (BF_NEVER: without limit) or until @delay is
 * woken, whether times are served or not.
 */
void coroutine_fn batchflush_co_park(BatchflushController *c,
                                     BatchflushDelay *delay,
                                     int64_t instant);

/* End a wait early.  Called with the lock held, from a coroutine. */
void coroutine_fn batchflush_co_unpark(BatchflushDelay *delay);

/* There may be room: wake stalled writers.  Lock held, in a coroutine. */
void coroutine_fn batchflush_co_wake_stalled(BatchflushController *c);

/* End all waits early.  Called with the lock held, from anywhere. */
void batchflush_wake_all(BatchflushController *c);

/* Whether the clock stands still because the main thread polls. */
bool batchflush_stuck(const BatchflushController *c);

/*
 * Have all waits end if that turns out to be so.  Called before a
 * coroutine waits for anything that only the clock brings.
 */
void batchflush_check_stuck(BatchflushController *c);
void batchflush_stuck_bh(void *opaque);

#endif
