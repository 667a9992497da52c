/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Outages: power cuts, what survives them, and the power's return
 *
 * A cut takes nodes whole controllers at a time, all of them at one
 * instant: with the locks of all of them held.  It settles what
 * survives; until the power is restored or the node closed, that waits
 * in the store and in patches for the medium.
 *
 * Data is moved to the child when a request arrives, but it is there, to
 * the guest, at its instant.  So that a cut between the two leaves what
 * the guest may see, the child's data is kept before it is written over,
 * until the instant has come.
 */

#ifndef BLOCK_BATCHFLUSH_OUTAGE_H
#define BLOCK_BATCHFLUSH_OUTAGE_H

#include "qapi/qapi-types-batchflush.h"

#include "batchflush.h"

/* A cut as it was ordered: see qapi/batchflush.json. */
typedef struct BatchflushCutOrder {
    const char *node_name;      /* or NULL */
    const char *controller;     /* or NULL */
    BatchflushCutGuest guest;
    BatchflushCutMoment when;
    int64_t count;
    int64_t ns;                 /* < 0: not given */
    bool has_policy;
    BfCutPolicy policy;
    bool has_seed;
    int64_t seed;
} BatchflushCutOrder;

/* The defaults: everything, now, and the guest is reset. */
void batchflush_cut_order_init(BatchflushCutOrder *order);

/* Cut the power, or have it cut when the moment comes. */
bool batchflush_cut(const BatchflushCutOrder *order, Error **errp);

/*
 * Restore the power of a node's controller, of a controller, or (both
 * NULL) of all; or withdraw a cut that waits.
 */
bool batchflush_restore(const char *node_name, const char *controller,
                        Error **errp);

/* Restore what the cut wanted to be restored at the machine's reset. */
void batchflush_restore_at_reset(void);

/* Called with the controller's lock held, which is released meanwhile: */

/*
 * A flush or write of @s has arrived, or (IN_FLUSH) a flush is on its
 * way: cut the power if that is what a cut waits for.
 */
void coroutine_fn batchflush_cut_moment(BDRVBatchflushState *s,
                                        BatchflushCutMoment moment);

/*
 * Whether a cut waits for the middle of the flush that begins; if so, how
 * long after its beginning, given that it takes @flush_ns.
 */
bool batchflush_cut_in_flush(BatchflushController *c, int64_t flush_ns,
                             int64_t *after_ns);

/* The cut that a controller waits for, to be freed, or NULL. */
BatchflushPendingCut *batchflush_cut_pending(const BatchflushController *c);

/* These take the lock themselves. */

/* Controllers that a cut may take; c->cut ends with being delisted. */
void batchflush_controller_enlist(BatchflushController *c);
void batchflush_controller_delist(BatchflushController *c);

/* A node has left its controller: forget a cut that waits for it. */
void batchflush_cut_forget(BatchflushController *c,
                           const BDRVBatchflushState *s);

/* Returns whether one was waiting. */
bool batchflush_cut_withdraw(BatchflushController *c);

/*
 * Controllers that a command speaks of, the newest first; not empty, or
 * NULL and @errp.
 */
GPtrArray *batchflush_controllers_named(const char *node_name,
                                        const char *controller,
                                        Error **errp);

/* The names of a controller's nodes.  Lock held. */
strList *batchflush_node_names(const BatchflushController *c);

/*
 * Settle what survives on a node; @held: what the cache holds of
 * completed writes does.  Returns what there is to say of it.  Lock held.
 */
BatchflushSurvivors *batchflush_settle(BDRVBatchflushState *s,
                                       BfCutPolicy policy, uint64_t seed,
                                       bool held);

/* restore.c: the way back */

/* The cache is held by its battery from now on.  Lock held. */
void batchflush_hold_up_begin(BatchflushController *c);
void batchflush_hold_up_end(BatchflushController *c);

/*
 * Put into the battery files what the batteries hold, or nothing once
 * they no longer do.  Of a BatchflushController; in the main loop.
 */
void batchflush_save_bh(void *opaque);

/*
 * Have the battery file keep what a node holds that closes without
 * power.  Returns false if there is no such file, or no battery.
 */
bool batchflush_save_at_close(BDRVBatchflushState *s);

/*
 * Bring the survivors to the child; nothing is under way.  Returns 0 or
 * -errno, and then it can be tried again.
 */
int GRAPH_RDLOCK batchflush_apply_survivors(BDRVBatchflushState *s);

/* Change a battery; both are optional. */
bool batchflush_set_battery(BatchflushController *c,
                            const BfBattery *battery,
                            const int64_t *hold_up_ns, Error **errp);

/* undo.c: keeping what is written over.  Lock held, and released. */

/*
 * Keep what the child holds before something of @order is written over
 * it, in the turn for that.  @buffer is as long.  Returns 0, or -EIO if
 * the power was cut since @epoch; the child must not be changed then.
 */
int coroutine_fn GRAPH_RDLOCK
batchflush_co_keep_before(BDRVBatchflushState *s, uint64_t epoch,
                          uint64_t order, int64_t offset, int64_t bytes,
                          void *buffer);

/* Wait until no change under way overlaps the range. */
void coroutine_fn batchflush_co_wait_unchanging(BDRVBatchflushState *s,
                                                int64_t offset,
                                                int64_t bytes);

/* A change of the medium ends; others may wait for it. */
void coroutine_fn batchflush_change_end(BDRVBatchflushState *s,
                                        BfChange *change);

/* machine.c: what a cut does to the guest; without one, nothing */

typedef struct BatchflushMachine {
    /* A cut that resets the guest has been ordered.  BQL held. */
    void (*prepare_reset)(void);
    void (*act)(BatchflushCutGuest guest);
    /* Whether a device in front of a node does not hand FUA on. */
    bool (*loses_fua)(BlockDriverState *bs);
} BatchflushMachine;

extern const BatchflushMachine *batchflush_machine;

#endif
