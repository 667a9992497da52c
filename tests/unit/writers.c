/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Closed-loop writers: see writers.h */

#include <glib.h>

#include "writers.h"

#define WRITE_BYTES 4096

typedef enum WriterState {
    THINKING,
    WRITING,
    FORMING,                    /* in the batch that forms */
    FLYING,                     /* in a flush that the hardware has */
} WriterState;

typedef struct Writer {
    WriterState state;
    int64_t next_at;            /* when it goes on, THINKING or WRITING */
    unsigned flight;
} Writer;

typedef struct Flight {
    BfFlight flight;
    int64_t done_at;            /* BF_NEVER: slot is free */
    bool clean;
} Flight;

typedef struct World {
    const Load *load;
    GRand *rand;
    int64_t now;
    Writer *writers;
    Flight *flights;            /* as many as there are writers */
    uint64_t dirty;             /* writes that no flush has taken up */
    BfCoordinator coordinator;
    BfService service;
} World;

static void think(World *w, Writer *writer)
{
    double factor = 1;

    if (w->load->jitter > 0) {
        factor += w->load->jitter * g_rand_double_range(w->rand, -1, 1);
    }
    writer->state = THINKING;
    writer->next_at = w->now + w->load->think_ns * factor;
}

static unsigned free_slot(const World *w)
{
    unsigned slot = 0;

    while (w->flights[slot].done_at != BF_NEVER) {
        slot++;
        g_assert_cmpuint(slot, <, w->load->writers);
    }
    return slot;
}

static int64_t submit(World *w, BfOp op, uint64_t bytes)
{
    BfRequest request = { .op = op, .bytes = bytes };

    return bf_service_submit(&w->service, w->now, &request);
}

/* Hand a flush that has just begun to the hardware. */
static unsigned take_off(World *w, BfFlight flight)
{
    unsigned slot = free_slot(w);
    bool clean = w->dirty == 0;

    for (; w->dirty > 0; w->dirty--) {
        submit(w, BF_OP_DESTAGE, WRITE_BYTES);
    }
    w->flights[slot] = (Flight) {
        .flight = flight,
        .done_at = submit(w, clean ? BF_OP_FLUSH_CLEAN : BF_OP_FLUSH, 0),
        .clean = clean,
    };
    return slot;
}

static void arrive(World *w, Writer *writer)
{
    BfFlight flight;

    writer->state = FORMING;
    writer->next_at = BF_NEVER;
    if (bf_coordinator_arrive(&w->coordinator, w->now) == BF_ROLE_ALONE) {
        bf_coordinator_begin_alone(&w->coordinator, w->now, &flight);
        writer->state = FLYING;
        writer->flight = take_off(w, flight);
    }
}

static void go_on(World *w, Writer *writer)
{
    if (writer->state == THINKING) {
        writer->state = WRITING;
        writer->next_at = submit(w, BF_OP_CACHE, WRITE_BYTES);
    } else {
        bf_coordinator_write(&w->coordinator, w->now);
        w->dirty++;
        arrive(w, writer);
    }
}

static void begin(World *w)
{
    BfFlight flight;
    unsigned slot;

    bf_coordinator_begin(&w->coordinator, w->now, &flight);
    slot = take_off(w, flight);
    for (unsigned i = 0; i < w->load->writers; i++) {
        if (w->writers[i].state == FORMING) {
            w->writers[i].state = FLYING;
            w->writers[i].flight = slot;
        }
    }
}

static void land(World *w, unsigned slot)
{
    Flight *flight = &w->flights[slot];

    for (unsigned i = 0; i < w->load->writers; i++) {
        Writer *writer = &w->writers[i];

        if (writer->state == FLYING && writer->flight == slot) {
            think(w, writer);
        }
    }
    flight->done_at = BF_NEVER;
    bf_coordinator_end(&w->coordinator, w->now, &flight->flight, 0,
                       flight->clean ? BF_OUTCOME_CLEAN
                                     : BF_OUTCOME_DURABLE);
}

/* Do whatever happens next, but not after @until. */
static bool step(World *w, int64_t until)
{
    int64_t begin_at = bf_coordinator_begin_at(&w->coordinator, w->now);
    Writer *writer = w->writers;
    Flight *flight = w->flights;

    for (unsigned i = 1; i < w->load->writers; i++) {
        if (w->writers[i].next_at < writer->next_at) {
            writer = &w->writers[i];
        }
        if (w->flights[i].done_at < flight->done_at) {
            flight = &w->flights[i];
        }
    }

    if (MIN(begin_at, MIN(writer->next_at, flight->done_at)) > until) {
        return false;
    }
    if (begin_at <= MIN(writer->next_at, flight->done_at)) {
        w->now = MAX(w->now, begin_at);
        begin(w);
    } else if (flight->done_at <= writer->next_at) {
        w->now = flight->done_at;
        land(w, flight - w->flights);
    } else {
        w->now = writer->next_at;
        go_on(w, writer);
    }
    return true;
}

static void run_until(World *w, int64_t until)
{
    while (step(w, until)) {
        /* the world has moved on */
    }
}

static void world_init(World *w, const Load *load, const BfParams *params)
{
    *w = (World) {
        .load = load,
        .rand = g_rand_new_with_seed(load->seed),
        .writers = g_new0(Writer, load->writers),
        .flights = g_new0(Flight, load->writers),
    };
    bf_coordinator_init(&w->coordinator, params);
    bf_service_init(&w->service, params, 0);
    for (unsigned i = 0; i < load->writers; i++) {
        w->flights[i].done_at = BF_NEVER;
        w->writers[i].next_at = i * load->stagger_ns;
    }
}

static void world_destroy(World *w)
{
    bf_service_destroy(&w->service);
    g_free(w->writers);
    g_free(w->flights);
    g_rand_free(w->rand);
}

LoadResult load_run(const Load *load, const BfParams *params)
{
    const BfFlushStats *stats;
    BfFlushStats warm;
    LoadResult result;
    int64_t warm_up = load->duration_ns / 10;
    uint64_t done;
    World w;

    world_init(&w, load, params);
    stats = &w.coordinator.stats;
    run_until(&w, warm_up);
    warm = *stats;
    run_until(&w, load->duration_ns);

    done = stats->batch_sizes.sum - warm.batch_sizes.sum;
    result = (LoadResult) {
        .flushes_per_second = done * 1e9 / (load->duration_ns - warm_up),
        .issued = stats->issued - warm.issued,
        .shared = done ? 1 - (double)(stats->alone - warm.alone) / done : 0,
        .wait_max_ns = stats->wait_ns.max,
    };
    world_destroy(&w);
    return result;
}
