/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every interleaving of a small world around the coordinator
 *
 * A few flushers each write and flush a few times.  From every state
 * that can be reached, every event that is possible next is tried:
 *
 *   write     a flusher starts a write, or its write completes
 *   flush     a flusher with a completed write issues a flush
 *   begin     the forming batch is due and goes to the hardware
 *   end       a flush succeeds, or fails and leaves its data dirty
 *   tick      time passes; not while a batch is due or a flush overdue
 *   drain     begins, or ends
 *   reopen    coalescing gets other parameters
 *
 * The oracle is the contract, written again on sets.  Writes are
 * numbered as they complete, so the set of those completed at an
 * instant is that of the first n, and n stands for it.
 *
 * Time is counted from now: a tick makes all instants one smaller.  So
 * states that differ only in when they are compare equal, and each is
 * explored once.  States are remembered by 128 bits of hash.
 *
 * After that, random steps in a larger world; BF_SEED repeats a run.
 */

#include <glib.h>
#include <stdio.h>
#include <string.h>

#include "coordinator.h"

#define FLUSHERS_MAX 8
#define RANDOM_STEPS 1000000

typedef enum FlusherState {
    IDLE,
    WRITING,
    WRITTEN,
    FORMING,                    /* in the batch that forms */
    IN_BATCH,                   /* in the batch that is flushing */
    ALONE,                      /* in a flush of its own */
} FlusherState;

typedef struct Flusher {
    uint8_t state;
    uint8_t rounds;             /* of write and flush that are left */
    uint64_t needs;             /* writes completed when it arrived */
    uint64_t covers;            /* ALONE: writes completed at the start */
    BfFlight flight;            /* ALONE */
} Flusher;

/* The coordinator without its statistics, which decide nothing. */
#define CORE_SIZE offsetof(BfCoordinator, stats)

typedef struct World {
    uint8_t core[CORE_SIZE];
    Flusher flushers[FLUSHERS_MAX];
    BfFlight batch;             /* that is flushing */
    uint64_t batch_covers;
    uint8_t batching;
    uint8_t config;             /* which parameters apply */
    uint8_t reopens;            /* that are left */
    uint8_t drains;             /* that are left */
    uint8_t drained;
    uint64_t completed;
    uint64_t durable;
    /* the oracle's own books */
    int64_t idle_since;         /* end of the last batch, or reopen */
    int64_t company;
    int64_t average;            /* -1: no sample yet */
} World;

/* What stays the same while a world is explored. */
typedef struct Bounds {
    unsigned flushers;
    unsigned rounds;
    bool endless;               /* nothing is used up */
    int64_t slowest_flush;
    const BfParams *configs;
    unsigned config_count;
} Bounds;

static Bounds bounds;
static BfCoordinator c;         /* the world's core is copied in and out */
static const char *event;       /* that is happening, for complaints */

#define CHECK(condition) \
    do { \
        if (G_UNLIKELY(!(condition))) { \
            g_error("after %s: not true that %s", event, #condition); \
        } \
    } while (0)

static void load(const World *w)
{
    memcpy(&c, w->core, CORE_SIZE);
    c.params = &bounds.configs[w->config];
}

static void save(World *w)
{
    memcpy(w->core, &c, CORE_SIZE);
}

static unsigned count(const World *w, FlusherState state)
{
    unsigned n = 0;

    for (unsigned i = 0; i < bounds.flushers; i++) {
        n += w->flushers[i].state == state;
    }
    return n;
}

static unsigned under_way(const World *w)
{
    return count(w, FORMING) + count(w, IN_BATCH) + count(w, ALONE);
}

/* The contract about who waits */

static bool is_fast(const World *w)
{
    const BfParams *p = &bounds.configs[w->config];
    int64_t average = w->average < 0 ? p->flush_latency_ns : w->average;

    return average < p->coalesce_min_flush_ns;
}

static bool must_go_alone(const World *w)
{
    const BfParams *p = &bounds.configs[w->config];

    return p->coalesce == BF_COALESCE_OFF ||
           (p->coalesce == BF_COALESCE_AUTO &&
            p->flush_concurrency == BF_FLUSH_CONCURRENT &&
            count(w, FORMING) == 0);
}

static bool must_not_wait(const World *w)
{
    const BfParams *p = &bounds.configs[w->config];

    return w->drained || p->coalesce == BF_COALESCE_OFF ||
           (p->coalesce == BF_COALESCE_AUTO &&
            (is_fast(w) || count(w, FORMING) >= w->company ||
             p->flush_concurrency == BF_FLUSH_CONCURRENT));
}

/* When the batch is due; whether that is right is looked at here. */
static int64_t due(World *w)
{
    const BfParams *p = &bounds.configs[w->config];
    int64_t at;

    load(w);
    at = bf_coordinator_begin_at(&c, 0);
    save(w);
    if (count(w, FORMING) == 0 || w->batching) {
        CHECK(at == BF_NEVER);
        return at;
    }
    CHECK(at != BF_NEVER);
    CHECK(!must_not_wait(w) || at <= 0);
    CHECK(at <= MAX(w->idle_since, c.arrived_at) + p->coalesce_max_wait_ns);
    return at;
}

/* Events */

static void write_event(World *w, Flusher *f)
{
    if (f->state == IDLE) {
        event = "write";
        f->state = WRITING;
        return;
    }
    event = "write completion";
    f->state = WRITTEN;
    w->completed++;
    load(w);
    bf_coordinator_write(&c, 0);
    save(w);
}

static void flush_event(World *w, Flusher *f)
{
    bool alone = must_go_alone(w);
    bool first = count(w, FORMING) == 0;
    BfRole role;

    event = "flush";
    load(w);
    role = bf_coordinator_arrive(&c, 0);
    CHECK(role == (alone ? BF_ROLE_ALONE :
                   first ? BF_ROLE_LEAD : BF_ROLE_JOIN));
    f->needs = w->completed;
    f->state = FORMING;
    if (alone) {
        f->state = ALONE;
        f->covers = w->completed;
        bf_coordinator_begin_alone(&c, 0, &f->flight);
        CHECK(f->flight.members == 1 && !f->flight.batch);
    }
    save(w);
}

static void begin_event(World *w)
{
    event = "begin";
    load(w);
    bf_coordinator_begin(&c, 0, &w->batch);
    save(w);
    CHECK(!w->batching);
    CHECK(w->batch.members == count(w, FORMING));
    CHECK(w->batch.batch && w->batch.began_at == 0);
    w->batching = true;
    w->batch_covers = w->completed;
    for (unsigned i = 0; i < bounds.flushers; i++) {
        if (w->flushers[i].state == FORMING) {
            w->flushers[i].state = IN_BATCH;
        }
    }
}

/* A flusher is told the result of the flush it was in. */
static void tell(World *w, Flusher *f, bool ok)
{
    CHECK(!ok || f->needs <= w->durable);
    f->state = IDLE;
    f->rounds -= !bounds.endless;
    f->needs = 0;
    f->covers = 0;
    memset(&f->flight, 0, sizeof(f->flight));
}

/* The ledger's last entry is the flush that has just ended. */
static void check_record(const BfFlight *flight)
{
    const BfFlushRecord *record =
        &c.stats.ledger[(c.stats.issued - 1) % BF_LEDGER_SIZE];

    CHECK(record->members == flight->members);
    CHECK(record->wait_ns == flight->began_at - flight->arrived_at);
    CHECK(record->flush_ns == -flight->began_at);
}

static void account(World *w, const BfFlight *flight, uint64_t covers,
                    bool ok)
{
    bool clean = covers <= w->durable;
    int64_t took = -flight->began_at;

    w->company = ok && clean ? MAX(w->company, under_way(w)) : under_way(w);
    if (ok && !clean) {
        w->durable = covers;
        w->average = w->average < 0 ? took : (3 * took + w->average) / 4;
    }
    load(w);
    bf_coordinator_end(&c, 0, flight, 0, !ok ? BF_OUTCOME_FAILED :
                       clean ? BF_OUTCOME_CLEAN : BF_OUTCOME_DURABLE);
    save(w);
    check_record(flight);
}

static void end_alone_event(World *w, Flusher *f, bool ok)
{
    event = ok ? "end of a flush alone" : "failure of a flush alone";
    account(w, &f->flight, f->covers, ok);
    tell(w, f, ok);
}

static void end_batch_event(World *w, bool ok)
{
    event = ok ? "end of a batch" : "failure of a batch";
    account(w, &w->batch, w->batch_covers, ok);
    for (unsigned i = 0; i < bounds.flushers; i++) {
        if (w->flushers[i].state == IN_BATCH) {
            tell(w, &w->flushers[i], ok);
        }
    }
    w->batching = false;
    w->batch_covers = 0;
    w->idle_since = 0;
    memset(&w->batch, 0, sizeof(w->batch));
}

static void drain_event(World *w)
{
    event = w->drained ? "end of a drain" : "drain";
    w->drains -= w->drained && !bounds.endless;
    w->drained = !w->drained;
    load(w);
    bf_coordinator_hurry(&c, w->drained);
    save(w);
}

static void reopen_event(World *w, unsigned config)
{
    event = "reopen";
    w->reopens -= !bounds.endless;
    w->config = config;
    w->idle_since = 0;
    load(w);
    bf_coordinator_reconsider(&c);
    save(w);
}

static void shift(int64_t *instant, int64_t ticks)
{
    if (*instant != BF_NEVER) {
        *instant -= ticks;
    }
}

static void shift_flight(BfFlight *flight, int64_t ticks)
{
    flight->arrived_at -= ticks;
    flight->began_at -= ticks;
}

static void tick_event(World *w, int64_t ticks)
{
    event = "tick";
    load(w);
    shift(&c.arrived_at, ticks);
    shift(&c.begin_at, ticks);
    shift(&c.first_write_at, ticks);
    c.ended_at = MAX(c.ended_at, INT64_MIN / 2) - ticks;
    save(w);
    w->idle_since -= ticks;
    if (w->batching) {
        shift_flight(&w->batch, ticks);
    }
    for (unsigned i = 0; i < bounds.flushers; i++) {
        if (w->flushers[i].state == ALONE) {
            shift_flight(&w->flushers[i].flight, ticks);
        }
    }
}

/* How long nothing has to happen: 0 if something has to now. */
static int64_t slack(World *w)
{
    int64_t at = due(w);

    if (w->batching) {
        at = MIN(at, w->batch.began_at + bounds.slowest_flush);
    }
    for (unsigned i = 0; i < bounds.flushers; i++) {
        Flusher *f = &w->flushers[i];

        if (f->state == ALONE) {
            at = MIN(at, f->flight.began_at + bounds.slowest_flush);
        }
    }
    return MAX(at, 0);
}

/* Nobody is left waiting without an event that will end it. */
static void check_world(World *w)
{
    unsigned waiting = under_way(w);

    load(w);
    CHECK(c.outstanding == waiting);
    CHECK(c.members == count(w, FORMING));
    CHECK(c.flushing == w->batching);
    CHECK(w->batching == (count(w, IN_BATCH) > 0));
    CHECK(bf_coordinator_flush_time(&c) ==
          (w->average < 0 ? c.params->flush_latency_ns : w->average));
    CHECK(waiting == 0 || slack(w) != BF_NEVER);
}

static void world_init(World *w, unsigned config)
{
    memset(w, 0, sizeof(*w));
    memset(&c, 0, sizeof(c));
    w->config = config;
    w->company = 1;
    w->average = -1;
    bf_coordinator_init(&c, &bounds.configs[config]);
    save(w);
    for (unsigned i = 0; i < bounds.flushers; i++) {
        w->flushers[i].rounds = bounds.rounds;
    }
}

/* Exhaustive exploration */

typedef struct Seen {
    uint64_t key[2];
    double paths;               /* from here to an end; < 0: not yet known */
} Seen;

#define SEEN_SLOTS (UINT64_C(1) << 24)

static Seen *seen;
static uint64_t states, transitions;

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

/* Beyond every wait it makes no difference how old an instant is. */
static int64_t age(int64_t instant)
{
    return instant == BF_NEVER ? BF_NEVER : MAX(instant, -4);
}

static uint64_t hash_flusher(const Flusher *f, uint64_t seed)
{
    uint64_t h = mix(seed, f->state | f->rounds << 8);

    h = mix(h, f->needs);
    h = mix(h, f->covers);
    return mix(h, f->flight.began_at);
}

/* Whether the end of the last batch still decides something. */
static bool counts_from_end(void)
{
    return (c.first_write_at == BF_NEVER ? c.company > 1
                                         : c.first_write_at < c.ended_at) ||
           (c.members > 0 && c.arrived_at < c.ended_at);
}

/* Flushers are alike: a sum does not tell which one is which. */
static uint64_t hash_world(const World *w, uint64_t seed)
{
    uint64_t h = 0;

    load(w);
    for (unsigned i = 0; i < bounds.flushers; i++) {
        h += hash_flusher(&w->flushers[i], seed);
    }
    h = mix(h, seed);
    h = mix(h, w->config | w->reopens << 8 | w->drains << 16 |
            w->drained << 24 | w->batching << 25 | (uint64_t)c.hurry << 26);
    h = mix(h, c.members << 32 | c.company << 16 | w->company);
    h = mix(h, c.members ? c.arrived_at : 0);
    h = mix(h, c.begin_at);
    h = mix(h, age(c.first_write_at));
    h = mix(h, counts_from_end() ? age(c.ended_at) : 0);
    h = mix(h, c.vain << 8 | c.skip);
    h = mix(h, c.flush_time.sampled ? c.flush_time.value : -1);
    h = mix(h, w->batching ? w->batch.began_at : 0);
    h = mix(h, w->batch_covers << 16 | w->completed << 8 | w->durable);
    return mix(h, c.members ? age(w->idle_since) : 0);
}

static Seen *look_up(const World *w)
{
    uint64_t key[2] = {
        hash_world(w, UINT64_C(0x243f6a8885a308d3)),
        hash_world(w, UINT64_C(0x13198a2e03707344)),
    };
    uint64_t slot = key[0] % SEEN_SLOTS;

    while (seen[slot].key[0] || seen[slot].key[1]) {
        if (seen[slot].key[0] == key[0] && seen[slot].key[1] == key[1]) {
            return &seen[slot];
        }
        slot = (slot + 1) % SEEN_SLOTS;
    }
    g_assert_cmpuint(++states, <, SEEN_SLOTS / 10 * 9);
    memcpy(seen[slot].key, key, sizeof(key));
    seen[slot].paths = -1;
    return &seen[slot];
}

static double explore(World *w);

#define TRY(act) \
    do { \
        World next = *w; \
        act; \
        check_world(&next); \
        transitions++; \
        paths += explore(&next); \
    } while (0)

static double explore_flusher(World *w, unsigned i)
{
    const Flusher *f = &w->flushers[i];
    double paths = 0;

    if ((f->state == IDLE && f->rounds) || f->state == WRITING) {
        TRY(write_event(&next, &next.flushers[i]));
    } else if (f->state == WRITTEN) {
        TRY(flush_event(&next, &next.flushers[i]));
    } else if (f->state == ALONE) {
        TRY(end_alone_event(&next, &next.flushers[i], true));
        TRY(end_alone_event(&next, &next.flushers[i], false));
    }
    return paths;
}

/* Time matters only while somebody waits or a write grows old. */
static bool time_matters(const World *w)
{
    load(w);
    return under_way(w) > 0 ||
           (c.first_write_at != BF_NEVER && c.first_write_at > -4);
}

static double explore_events(World *w)
{
    double paths = 0;

    for (unsigned i = 0; i < bounds.flushers; i++) {
        paths += explore_flusher(w, i);
    }
    if (due(w) <= 0) {
        TRY(begin_event(&next));
    }
    if (w->batching) {
        TRY(end_batch_event(&next, true));
        TRY(end_batch_event(&next, false));
    }
    if (slack(w) > 0 && time_matters(w)) {
        TRY(tick_event(&next, 1));
    }
    if (w->drains) {
        TRY(drain_event(&next));
    }
    for (unsigned i = 0; w->reopens && i < bounds.config_count; i++) {
        if (i != w->config) {
            TRY(reopen_event(&next, i));
        }
    }
    return paths;
}

static double explore(World *w)
{
    Seen *entry = look_up(w);
    double paths;

    if (entry->paths < 0) {
        paths = explore_events(w);
        /* Nothing left to happen: one way to get here. */
        entry->paths = paths ? paths : 1;
    }
    return entry->paths;
}


static int64_t seconds_since(int64_t start)
{
    return (g_get_monotonic_time() - start) / G_USEC_PER_SEC;
}

/* In ticks: a wait is at most 2 or 3, a flush takes 0, 1 or 2. */
static const BfParams small_configs[] = {
    {
        .write_cache = BF_CACHE_VOLATILE,
        .coalesce = BF_COALESCE_OFF,
        .flush_concurrency = BF_FLUSH_SERIAL,
        .coalesce_max_wait_ns = 2,
        .flush_latency_ns = 2,
    }, {
        .write_cache = BF_CACHE_VOLATILE,
        .coalesce = BF_COALESCE_ON,
        .coalesce_wait = BF_WAIT_AVERAGE,
        .flush_concurrency = BF_FLUSH_SERIAL,
        .coalesce_max_wait_ns = 2,
        .coalesce_min_flush_ns = 1,
        .flush_latency_ns = 4,
    }, {
        .write_cache = BF_CACHE_VOLATILE,
        .coalesce = BF_COALESCE_ON,
        .coalesce_wait = BF_WAIT_DELTA,
        .flush_concurrency = BF_FLUSH_CONCURRENT,
        .coalesce_max_wait_ns = 3,
        .flush_latency_ns = 2,
    }, {
        .write_cache = BF_CACHE_VOLATILE,
        .coalesce = BF_COALESCE_AUTO,
        .coalesce_wait = BF_WAIT_AVERAGE,
        .flush_concurrency = BF_FLUSH_SERIAL,
        .coalesce_max_wait_ns = 3,
        .coalesce_min_flush_ns = 1,
        .flush_latency_ns = 3,
    }, {
        .write_cache = BF_CACHE_VOLATILE,
        .coalesce = BF_COALESCE_AUTO,
        .coalesce_wait = BF_WAIT_DELTA,
        .flush_concurrency = BF_FLUSH_CONCURRENT,
        .coalesce_max_wait_ns = 2,
        .coalesce_min_flush_ns = 2,
        .flush_latency_ns = 2,
    },
};

static void explore_from(unsigned config)
{
    int64_t start = g_get_monotonic_time();
    uint64_t states_before = states;
    uint64_t transitions_before = transitions;
    double paths;
    World w;

    world_init(&w, config);
    w.reopens = 1;
    w.drains = 1;
    paths = explore(&w);
    g_test_message("from configuration %u: %" G_GUINT64_FORMAT " states, %"
                   G_GUINT64_FORMAT " transitions, %.3g interleavings, "
                   "%" G_GINT64_FORMAT " s", config, states - states_before,
                   transitions - transitions_before, paths,
                   seconds_since(start));
}

static void test_every_interleaving(void)
{
    bounds = (Bounds) {
        .flushers = 3,
        .rounds = 2,
        .slowest_flush = 2,
        .configs = small_configs,
        .config_count = G_N_ELEMENTS(small_configs),
    };
    seen = g_new0(Seen, SEEN_SLOTS);
    for (unsigned i = 0; i < bounds.config_count; i++) {
        explore_from(i);
    }
    g_free(seen);
}

/* Random steps */

#define RANDOM_CONFIGS 32

static void random_config(GRand *rand, BfParams *p)
{
    bf_params_init(p);
    p->write_cache = BF_CACHE_VOLATILE;
    p->coalesce = g_rand_int_range(rand, 0, 3);
    p->coalesce_wait = g_rand_int_range(rand, 0, 2);
    p->flush_concurrency = g_rand_int_range(rand, 0, 3);
    p->flush_latency_ns = g_rand_int_range(rand, 0, 20000000);
    p->coalesce_max_wait_ns = g_rand_int_range(rand, 1000, 15000000);
    p->coalesce_min_flush_ns = g_rand_int_range(rand, 0, 4000000);
}

static void random_flusher(World *w, GRand *rand)
{
    Flusher *f = &w->flushers[g_rand_int_range(rand, 0, bounds.flushers)];

    switch (f->state) {
    case IDLE:
    case WRITING:
        write_event(w, f);
        break;
    case WRITTEN:
        flush_event(w, f);
        break;
    case ALONE:
        end_alone_event(w, f, g_rand_int_range(rand, 0, 8) > 0);
        break;
    default:
        break;
    }
}

static void random_step(World *w, GRand *rand)
{
    int64_t longest = MIN(slack(w), bounds.slowest_flush);
    int what = g_rand_int_range(rand, 0, 100);

    if (due(w) <= 0 && what < 50) {
        begin_event(w);
    } else if (what < 60) {
        random_flusher(w, rand);
    } else if (what < 70 && w->batching) {
        end_batch_event(w, what < 69);
    } else if (what < 98 && longest > 0) {
        tick_event(w, g_rand_double(rand) * longest + 1);
    } else if (what == 98) {
        drain_event(w);
    } else if (what == 99) {
        reopen_event(w, g_rand_int_range(rand, 0, bounds.config_count));
    }
}

static void check_quiet(const World *w)
{
    const BfFlushStats *s = &c.stats;

    event = "quiet";
    CHECK(s->arrivals == s->joined + s->issued);
    CHECK((uint64_t)s->batch_sizes.sum == s->arrivals);
    CHECK(s->batch_sizes.total == s->issued);
    CHECK(s->wait_ns.total == s->issued);
    CHECK(s->batch_sizes.count[1] == s->alone);
    CHECK(s->failed <= s->issued);
    CHECK(w->durable <= w->completed);
}

static uint32_t seed_of_this_run(void)
{
    const char *given = g_getenv("BF_SEED");

    return given ? g_ascii_strtoull(given, NULL, 10) : g_random_int();
}

static void test_random_steps(void)
{
    uint32_t seed = seed_of_this_run();
    GRand *rand = g_rand_new_with_seed(seed);
    BfParams configs[RANDOM_CONFIGS];
    uint64_t quiet = 0;
    World w;

    g_test_message("BF_SEED=%u", seed);
    for (unsigned i = 0; i < RANDOM_CONFIGS; i++) {
        random_config(rand, &configs[i]);
    }
    bounds = (Bounds) {
        .flushers = FLUSHERS_MAX,
        .rounds = 1,
        .endless = true,
        .slowest_flush = 20000000,
        .configs = configs,
        .config_count = RANDOM_CONFIGS,
    };
    world_init(&w, 0);
    for (unsigned i = 0; i < RANDOM_STEPS; i++) {
        random_step(&w, rand);
        check_world(&w);
        if (under_way(&w) == 0) {
            check_quiet(&w);
            quiet++;
        }
    }
    g_test_message("%d steps, %" G_GUINT64_FORMAT " flushes in %"
                   G_GUINT64_FORMAT " issued, quiet %" G_GUINT64_FORMAT
                   " times", RANDOM_STEPS, c.stats.arrivals, c.stats.issued,
                   quiet);
    g_assert_cmpuint(quiet, >, 0);
    g_assert_cmpuint(c.stats.joined, >, 0);
    g_assert_cmpuint(c.stats.failed, >, 0);
    g_rand_free(rand);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/coordinator/every-interleaving",
                    test_every_interleaving);
    g_test_add_func("/coordinator/random-steps", test_random_steps);
    return g_test_run();
}
