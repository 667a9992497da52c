/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Parameters of the emulated device
 *
 * One table knows every option by name: its kind, range and default.
 * Command line, QAPI and storage classes all come through here, so an
 * option means the same, and is refused in the same words, wherever it
 * was given.  Times are in nanoseconds, sizes in bytes.
 */

#ifndef BF_PARAMS_H
#define BF_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spread.h"

typedef enum BfWriteCache {
    BF_CACHE_NONE,          /* a completed write is on the medium */
    BF_CACHE_VOLATILE,      /* it is in a cache that a power cut empties */
    BF_CACHE_BATTERY,       /* it is in a cache that outlives one */
} BfWriteCache;

typedef enum BfFlushConcurrency {
    BF_FLUSH_EXCLUSIVE,     /* waits for the queue to empty, blocks the rest */
    BF_FLUSH_SERIAL,        /* one after the other, beside other requests */
    BF_FLUSH_CONCURRENT,    /* overlap freely */
} BfFlushConcurrency;

typedef enum BfQueueOrder {
    BF_ORDER_FIFO,          /* first come, first served */
    BF_ORDER_NEAREST,       /* the shortest seek */
    BF_ORDER_DEADLINE,      /* that, but the oldest once it is due */
} BfQueueOrder;

typedef enum BfCoalesce {
    BF_COALESCE_OFF,        /* every flush by itself */
    BF_COALESCE_ON,         /* the first always waits for company */
    BF_COALESCE_AUTO,       /* it waits where that pays */
} BfCoalesce;

typedef enum BfCoalesceWait {
    BF_WAIT_DELTA,          /* until so long after the first write */
    BF_WAIT_AVERAGE,        /* so long, counted from now */
} BfCoalesceWait;

typedef enum BfClock {
    BF_CLOCK_AUTO,
    BF_CLOCK_VIRTUAL,
    BF_CLOCK_REALTIME,
} BfClock;

typedef enum BfCutPolicy {
    BF_CUT_DROP_ALL,        /* nothing survives that is not durable */
    BF_CUT_PREFIX,          /* the first writes in order of completion */
    BF_CUT_SUBSET,          /* any writes */
    BF_CUT_TORN,            /* any writes, sector by sector */
} BfCutPolicy;

typedef enum BfLie {
    BF_LIE_NONE,
    BF_LIE_FLUSH,           /* flushes do nothing */
    BF_LIE_FUA,             /* FUA writes are like others */
    BF_LIE_DELAYED,         /* both take effect later */
} BfLie;

typedef struct BfParams {
    int64_t write_cache;            /* BfWriteCache */
    int64_t cache_size;
    int64_t destage_high_percent;   /* 0: no background destage */
    int64_t destage_low_percent;
    int64_t read_latency_ns;
    int64_t write_latency_ns;
    int64_t destage_latency_ns;     /* per contiguous run */
    int64_t discard_latency_ns;
    int64_t zero_latency_ns;
    int64_t fua_latency_ns;         /* a write past the cache */
    int64_t flush_latency_ns;       /* fixed part */
    int64_t flush_clean_latency_ns; /* nothing to drain */
    BfSpread latency_spread;
    BfSpread flush_spread;
    int64_t seed;
    int64_t bandwidth;              /* bytes per second, 0: unlimited */
    int64_t interface_bandwidth;    /* the same, towards the host */
    int64_t queue_depth;            /* lanes of the medium */
    int64_t rpm;                    /* 0: a medium without a head */
    int64_t seek_settle_ns;         /* to the next cylinder */
    int64_t seek_average_ns;        /* over a third of the stroke */
    int64_t seek_full_ns;           /* over all of it */
    int64_t stroke_size;            /* bytes it spans, 0: the node's */
    int64_t tracks_per_cylinder;
    int64_t track_switch_ns;        /* within a cylinder */
    int64_t queue_order;            /* BfQueueOrder */
    int64_t queue_deadline_ns;
    int64_t idle_window_ns;
    int64_t flush_concurrency;      /* BfFlushConcurrency */
    int64_t coalesce;               /* BfCoalesce */
    int64_t coalesce_wait;          /* BfCoalesceWait */
    int64_t coalesce_max_wait_ns;
    int64_t coalesce_min_flush_ns;
    int64_t clock;                  /* BfClock */
    int64_t spin_max_ns;            /* ahead of an instant, 0: never */
    int64_t max_lateness_ns;        /* budget of its p99, 0: none */
    int64_t atomic_write_size;      /* 512 or 4096 */
    int64_t power_cuts;             /* false: refused */
    int64_t power_cut_policy;       /* BfCutPolicy */
    int64_t power_cut_history_size;
    int64_t battery_hold_up_ns;     /* 0: for any time */
    int64_t lie;                    /* BfLie */
    int64_t lie_delay_ns;
    uint64_t given;                 /* bit per option that was set */
} BfParams;

typedef enum BfOptionKind {
    BF_OPTION_NS,
    BF_OPTION_SIZE,
    BF_OPTION_PERCENT,
    BF_OPTION_COUNT,
    BF_OPTION_CHOICE,
    BF_OPTION_SPREAD,
} BfOptionKind;

typedef struct BfOption {
    const char *name;
    BfOptionKind kind;
    int64_t min;
    int64_t max;
    int64_t def;
    /* Offset in BfParams of an int64_t, or a BfSpread: it begins with one. */
    size_t field;
    const char *const *choices;     /* BF_OPTION_CHOICE: names by value */
    bool mutable_at_runtime;        /* blockdev-reopen may change it */
    bool of_controller;             /* the same for all its disks */
    const char *help;
} BfOption;

/* All options, in the order of the documentation. */
extern const BfOption bf_options[];
extern const size_t bf_options_count;

/* Set every parameter to its default. */
void bf_params_init(BfParams *params);

/*
 * Set one option from its text.  Sizes take a suffix K, M, G or T.
 *
 * Returns false, with a sentence in *@error that the caller frees with
 * g_free(), if there is no such option or the value is not allowed.
 */
bool bf_params_set(BfParams *params, const char *name, const char *value,
                   char **error);

/*
 * Settle what depends on other options and refuse what makes no sense
 * together.  To be called once all options are set.
 *
 * Returns false with a sentence in *@error, as bf_params_set().
 */
bool bf_params_finish(BfParams *params, char **error);

/* The value of an option as bf_params_set() takes it; free it. */
char *bf_params_get(const BfParams *params, const BfOption *option);

/* Take over those options that all disks of a controller share. */
void bf_params_copy_shared(BfParams *to, const BfParams *from);

/*
 * The first option that all disks of a controller share and that
 * differs between the two, or NULL.
 */
const BfOption *bf_params_shared_mismatch(const BfParams *a,
                                          const BfParams *b);

/* What a flush is expected to take before one has been measured. */
int64_t bf_params_expected_flush_ns(const BfParams *params);

/* Bytes that pass under the head in one turn; there is a head. */
int64_t bf_params_track_size(const BfParams *params);

/* True if no read or write is ever delayed and nothing is cached. */
bool bf_params_pass_through(const BfParams *params);

#endif
