/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What service.h says about a head that chooses, as statements */

#include <glib.h>
#include <inttypes.h>
#include <string.h>

#include "service.h"

#define TURN INT64_C(8000000)       /* 7500 rpm */
#define TRACK INT64_C(1000000)      /* bytes: 8 ns each */
#define CYLINDERS 1000
#define SETTLE 1000000
#define AVERAGE 8000000
#define FULL 16000000
#define FLUSH 50000
#define BLOCK 4096
#define MS INT64_C(1000000)

typedef struct Fixture {
    BfParams params;
    BfService service;
} Fixture;

static void set_params(BfParams *params, BfQueueOrder order)
{
    bf_params_init(params);
    params->rpm = 7500;
    params->bandwidth = 125 * TRACK;
    params->seek_settle_ns = SETTLE;
    params->seek_average_ns = AVERAGE;
    params->seek_full_ns = FULL;
    params->tracks_per_cylinder = 1;
    params->flush_latency_ns = FLUSH;
    params->flush_clean_latency_ns = FLUSH;
    params->queue_order = order;
}

static void setup(Fixture *f, BfQueueOrder order)
{
    set_params(&f->params, order);
    bf_service_init(&f->service, &f->params, CYLINDERS * TRACK);
}

static void teardown(Fixture *f)
{
    bf_service_destroy(&f->service);
}

static BfRequest at_cylinder(BfOp op, int64_t cylinder)
{
    return (BfRequest) {
        .op = op, .offset = cylinder * TRACK, .bytes = BLOCK,
    };
}

static int64_t submit(Fixture *f, int64_t now, BfRequest *request)
{
    return bf_service_submit(&f->service, now, request);
}

/* Decide for all that is queued, and take what was decided. */
static void settle(Fixture *f)
{
    while (bf_service_decision_at(&f->service) != BF_NEVER) {
        bf_service_advance(&f->service, bf_service_decision_at(&f->service));
    }
    while (bf_service_decided(&f->service)) {
        continue;
    }
}

static void assert_order(BfRequest *const *requests, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        g_assert_cmpint(requests[i - 1]->done_at, <, requests[i]->done_at);
    }
}

/* --- which one -------------------------------------------------------- */

static void test_in_order_of_arrival_it_is_known_at_once(void)
{
    BfRequest a = at_cylinder(BF_OP_READ, 900);
    BfRequest b = at_cylinder(BF_OP_READ, 1);
    Fixture f;

    setup(&f, BF_ORDER_FIFO);
    submit(&f, 0, &a);
    submit(&f, 0, &b);
    g_assert_cmpint(a.done_at, <, b.done_at);
    g_assert_cmpint(b.done_at, !=, BF_NEVER);
    g_assert_cmpint(bf_service_decision_at(&f.service), ==, BF_NEVER);
    teardown(&f);
}

static void test_an_idle_head_serves_at_once(void)
{
    BfRequest a = at_cylinder(BF_OP_READ, 500);
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    g_assert_cmpint(submit(&f, 5, &a), !=, BF_NEVER);
    g_assert_null(bf_service_decided(&f.service));
    g_assert_cmpint(bf_service_decision_at(&f.service), ==, BF_NEVER);
    teardown(&f);
}

static void test_nearest_first(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 500);
    BfRequest far = at_cylinder(BF_OP_WRITE, 900);
    BfRequest near = at_cylinder(BF_OP_READ, 510);
    BfRequest below = at_cylinder(BF_OP_READ, 480);
    BfRequest *const order[] = { &first, &near, &below, &far };
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    submit(&f, 0, &first);
    g_assert_cmpint(submit(&f, 1, &far), ==, BF_NEVER);
    g_assert_cmpint(submit(&f, 2, &below), ==, BF_NEVER);
    g_assert_cmpint(submit(&f, 3, &near), ==, BF_NEVER);
    g_assert_cmpint(bf_service_decision_at(&f.service), ==, first.done_at);

    bf_service_advance(&f.service, first.done_at - 1);
    g_assert_null(bf_service_decided(&f.service));
    bf_service_advance(&f.service, first.done_at);
    g_assert_true(bf_service_decided(&f.service) == &near);
    g_assert_null(bf_service_decided(&f.service));
    settle(&f);
    assert_order(order, G_N_ELEMENTS(order));
    teardown(&f);
}

/* Or a stream below the head would be read backwards. */
static void test_of_a_cylinder_below_the_first_goes_first(void)
{
    BfRequest head = at_cylinder(BF_OP_READ, 500);
    BfRequest one = at_cylinder(BF_OP_READ, 400);
    BfRequest two = { BF_OP_READ, .offset = one.offset + BLOCK,
                      .bytes = BLOCK };
    BfRequest *const order[] = { &head, &one, &two };
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    submit(&f, 0, &head);
    submit(&f, 1, &one);
    submit(&f, 2, &two);
    settle(&f);
    assert_order(order, G_N_ELEMENTS(order));
    teardown(&f);
}

/* A decision knows what came before it, not what came with it. */
static void test_a_request_that_comes_with_a_decision_is_too_late(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 500);
    BfRequest far = at_cylinder(BF_OP_READ, 900);
    BfRequest near = at_cylinder(BF_OP_READ, 501);
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    submit(&f, 0, &first);
    submit(&f, 1, &far);
    submit(&f, first.done_at, &near);
    g_assert_true(bf_service_decided(&f.service) == &far);
    settle(&f);
    g_assert_cmpint(near.done_at, >, far.done_at);
    teardown(&f);
}

/* What does not fit into the device's queue is not chosen from. */
static void test_the_device_sees_as_many_as_its_queue_holds(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 500);
    BfRequest far = at_cylinder(BF_OP_READ, 900);
    BfRequest farther = at_cylinder(BF_OP_READ, 950);
    BfRequest near = at_cylinder(BF_OP_READ, 501);
    BfRequest *const order[] = { &first, &far, &farther, &near };
    BfParams params;
    Fixture f;

    set_params(&params, BF_ORDER_NEAREST);
    params.queue_depth = 2;
    f.params = params;
    bf_service_init(&f.service, &f.params, CYLINDERS * TRACK);
    submit(&f, 0, &first);
    submit(&f, 1, &far);
    submit(&f, 2, &farther);
    submit(&f, 3, &near);
    settle(&f);
    assert_order(order, G_N_ELEMENTS(order));
    teardown(&f);
}

static void test_of_those_for_one_place_the_first_goes_first(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 500);
    BfRequest above[3], below[3];
    BfRequest *const up[] = { &above[0], &above[1], &above[2] };
    BfRequest *const down[] = { &below[0], &below[1], &below[2] };
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    submit(&f, 0, &first);
    for (int i = 0; i < 3; i++) {
        above[i] = at_cylinder(BF_OP_WRITE, 600);
        submit(&f, 1, &above[i]);
        below[i] = at_cylinder(BF_OP_WRITE, 400);
        submit(&f, 1, &below[i]);
    }
    settle(&f);
    assert_order(up, 3);
    assert_order(down, 3);
    teardown(&f);
}

static void test_deadline(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 0);
    BfRequest far = at_cylinder(BF_OP_READ, 999);
    BfRequest near[20];
    int before = 0;
    Fixture f;

    setup(&f, BF_ORDER_DEADLINE);
    f.params.queue_deadline_ns = 60 * MS;
    submit(&f, 0, &first);
    submit(&f, 0, &far);
    for (size_t i = 0; i < G_N_ELEMENTS(near); i++) {
        near[i] = at_cylinder(BF_OP_READ, i);
        submit(&f, 1, &near[i]);
    }
    settle(&f);
    for (size_t i = 0; i < G_N_ELEMENTS(near); i++) {
        before += near[i].done_at < far.done_at;
    }
    /* Some are nearer, until it is due: then it is the next. */
    g_assert_cmpint(before, >, 3);
    g_assert_cmpint(before, <, 19);
    g_assert_cmpint(far.done_at, <, 60 * MS + SETTLE + FULL + 3 * TURN);
    teardown(&f);
}

/*
 * Readers that always stay near the head starve one far away, and with
 * a deadline nobody waits longer than that and those who are due before.
 */
static int64_t longest_wait(BfQueueOrder order)
{
    enum { READERS = 8 };
    const int rounds = 4000;
    BfRequest readers[READERS];
    BfRequest far = at_cylinder(BF_OP_READ, 999);
    int64_t longest = 0;
    BfRandom random;
    int64_t now = 0;
    Fixture f;

    setup(&f, order);
    f.params.queue_deadline_ns = 100 * MS;
    bf_random_init(&random, 3);
    for (int i = 0; i < READERS; i++) {
        readers[i] = at_cylinder(BF_OP_READ, i);
        submit(&f, 0, &readers[i]);
    }
    submit(&f, 0, &far);
    for (int i = 0; i < rounds; i++) {
        BfRequest *request;

        now = bf_service_decision_at(&f.service);
        bf_service_advance(&f.service, now);
        while ((request = bf_service_decided(&f.service))) {
            longest = MAX(longest, request->done_at - request->arrived_at);
            if (request != &far) {
                *request = at_cylinder(BF_OP_READ,
                                       bf_random_u64(&random) % 20);
                submit(&f, now, request);
            }
        }
    }
    if (far.done_at == BF_NEVER) {
        longest = now;
    }
    settle(&f);
    teardown(&f);
    return longest;
}

static void test_a_deadline_bounds_the_wait(void)
{
    /* Each of eight that are due first takes two turns and a seek. */
    const int64_t bound = 100 * MS + 9 * (FULL + 2 * TURN);

    g_assert_cmpint(longest_wait(BF_ORDER_NEAREST), >, 10000 * MS);
    g_assert_cmpint(longest_wait(BF_ORDER_DEADLINE), <, bound);
}

/* When the last of many reads is done that came at once. */
static int64_t all_done(BfQueueOrder order)
{
    enum { READS = 100 };
    BfRequest reads[READS];
    int64_t last = 0;
    BfRandom random;
    BfParams params;
    Fixture f;

    set_params(&params, order);
    params.queue_depth = 2;
    params.queue_deadline_ns = 200 * MS;
    f.params = params;
    bf_service_init(&f.service, &f.params, CYLINDERS * TRACK);
    bf_random_init(&random, 4);
    for (int i = 0; i < READS; i++) {
        reads[i] = at_cylinder(BF_OP_READ,
                               bf_random_u64(&random) % CYLINDERS);
        submit(&f, 0, &reads[i]);
    }
    settle(&f);
    for (int i = 0; i < READS; i++) {
        last = MAX(last, reads[i].done_at);
    }
    teardown(&f);
    return last;
}

/* The device does not know how long a request has waited for room. */
static void test_nobody_is_due_before_the_device_has_it(void)
{
    g_assert_cmpint(all_done(BF_ORDER_NEAREST), >, 3 * 200 * MS);
    g_assert_cmpint(all_done(BF_ORDER_DEADLINE), ==,
                    all_done(BF_ORDER_NEAREST));
}

/* --- destage ---------------------------------------------------------- */

/* Upwards from the head, then from the bottom. */
static void test_destage_in_elevator_order(void)
{
    static const BfRun runs[] = {
        { 100 * TRACK, 4096 }, { 200 * TRACK, 4096 }, { 200 * TRACK + 50000,
        8192 }, { 700 * TRACK, 4096 }, { 900 * TRACK, 4096 },
    };
    static const int elevator[] = { 3, 4, 0, 1, 2 };

    for (BfQueueOrder order = 0; order <= BF_ORDER_DEADLINE; order++) {
        BfRequest first = at_cylinder(BF_OP_READ, 500);
        BfRequest destage = {
            .op = BF_OP_DESTAGE, .runs = runs, .n_runs = G_N_ELEMENTS(runs),
        };
        int64_t done = 0;
        BfHead head;
        Fixture f;

        setup(&f, order);
        head = f.service.head;
        submit(&f, 0, &first);
        submit(&f, 0, &destage);
        settle(&f);

        bf_head_serve(&head, 0, true, first.offset, first.bytes);
        for (size_t i = 0; i < G_N_ELEMENTS(elevator); i++) {
            const BfRun *run = &runs[elevator[i]];

            done = bf_head_serve(&head, 0, false, run->offset, run->bytes);
        }
        g_assert_cmpint(destage.done_at, ==, done);
        teardown(&f);
    }
}

/* Reads and destage share the head, nearest first. */
static void test_reads_compete_with_destage(void)
{
    BfRun runs[40];
    BfRequest near = at_cylinder(BF_OP_READ, 505);
    BfRequest far = at_cylinder(BF_OP_READ, 950);
    BfRequest first = at_cylinder(BF_OP_READ, 500);
    BfRequest destage = {
        .op = BF_OP_DESTAGE, .runs = runs, .n_runs = G_N_ELEMENTS(runs),
    };
    Fixture f;

    for (size_t i = 0; i < G_N_ELEMENTS(runs); i++) {
        runs[i] = (BfRun) { (500 + i) * TRACK + 500000, BLOCK };
    }
    setup(&f, BF_ORDER_NEAREST);
    submit(&f, 0, &first);
    submit(&f, 0, &destage);
    submit(&f, 0, &near);
    submit(&f, 0, &far);
    settle(&f);
    g_assert_cmpint(near.done_at, <, destage.done_at);
    g_assert_cmpint(far.done_at, >, destage.done_at);
    teardown(&f);
}

static void test_destages_have_their_share_by_the_deadline(void)
{
    BfRun runs[] = { { 10 * TRACK, BLOCK }, { 900 * TRACK, BLOCK } };
    BfRequest destage = { .op = BF_OP_DESTAGE, .runs = runs, .n_runs = 2 };
    BfRequest readers[200];
    Fixture f;

    setup(&f, BF_ORDER_DEADLINE);
    f.params.queue_deadline_ns = 50 * MS;
    for (size_t i = 0; i < G_N_ELEMENTS(readers); i++) {
        readers[i] = at_cylinder(BF_OP_READ, i % 5);
        submit(&f, i * 4 * MS, &readers[i]);
        if (i == 0) {
            submit(&f, 0, &destage);
        }
    }
    settle(&f);
    g_assert_cmpint(destage.done_at, <, 200 * MS);
    teardown(&f);
}

/* --- flushes ---------------------------------------------------------- */

static void test_a_flush_ends_after_the_destages_before_it(void)
{
    for (int kind = 0; kind < 3; kind++) {
        BfRequest first = at_cylinder(BF_OP_READ, 500);
        BfRequest before = at_cylinder(BF_OP_DESTAGE, 100);
        BfRequest flush = { .op = BF_OP_FLUSH };
        BfRequest after = at_cylinder(BF_OP_DESTAGE, 900);
        Fixture f;

        setup(&f, BF_ORDER_NEAREST);
        f.params.flush_concurrency = kind;
        submit(&f, 0, &first);
        submit(&f, 1, &before);
        g_assert_cmpint(submit(&f, 2, &flush), ==, BF_NEVER);
        submit(&f, 3, &after);
        settle(&f);
        g_assert_cmpint(flush.done_at, ==, before.done_at + FLUSH);
        g_assert_cmpint(after.done_at, >, before.done_at);
        teardown(&f);
    }
}

static void test_a_clean_flush_overlaps_where_flushes_do(void)
{
    for (int kind = 0; kind < 3; kind++) {
        BfRequest first = at_cylinder(BF_OP_READ, 500);
        BfRequest destage = at_cylinder(BF_OP_DESTAGE, 100);
        BfRequest flush = { .op = BF_OP_FLUSH };
        BfRequest clean = { .op = BF_OP_FLUSH_CLEAN };
        Fixture f;

        setup(&f, BF_ORDER_NEAREST);
        f.params.flush_concurrency = kind;
        submit(&f, 0, &first);
        submit(&f, 1, &destage);
        submit(&f, 2, &flush);
        submit(&f, 3, &clean);
        settle(&f);
        g_assert_cmpint(clean.done_at, ==, kind == BF_FLUSH_CONCURRENT
                        ? 3 + FLUSH : flush.done_at + FLUSH);
        teardown(&f);
    }
}

/* It waits for all that came before, and all that comes waits for it. */
static void test_an_exclusive_flush_is_alone(void)
{
    BfRequest before[3], after[3];
    BfRequest cached = { .op = BF_OP_CACHE, .bytes = BLOCK };
    BfRequest flush = { .op = BF_OP_FLUSH_CLEAN };
    BfRequest second = { .op = BF_OP_FLUSH_CLEAN };
    int64_t last = 0;
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    f.params.flush_concurrency = BF_FLUSH_EXCLUSIVE;
    f.params.write_latency_ns = 7;
    for (int i = 0; i < 3; i++) {
        before[i] = at_cylinder(BF_OP_READ, 400 * i);
        submit(&f, i, &before[i]);
    }
    g_assert_cmpint(submit(&f, 5, &flush), ==, BF_NEVER);
    g_assert_cmpint(submit(&f, 6, &cached), ==, BF_NEVER);
    for (int i = 0; i < 3; i++) {
        /* Nearer than those before, but behind the flush. */
        after[i] = at_cylinder(BF_OP_READ, i);
        submit(&f, 7, &after[i]);
    }
    g_assert_cmpint(submit(&f, 8, &second), ==, BF_NEVER);
    settle(&f);

    for (int i = 0; i < 3; i++) {
        last = MAX(last, before[i].done_at);
    }
    g_assert_cmpint(flush.done_at, ==, last + FLUSH);
    g_assert_cmpint(cached.done_at, ==, flush.done_at + 7);
    last = 0;
    for (int i = 0; i < 3; i++) {
        g_assert_cmpint(after[i].done_at, >=, flush.done_at + BLOCK * 8);
        last = MAX(last, after[i].done_at);
    }
    g_assert_cmpint(second.done_at, ==, last + FLUSH);
    teardown(&f);
}

/* What is held behind it is chosen from when it is over, not before. */
static void test_behind_an_exclusive_flush_the_nearest_goes_first(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 500);
    BfRequest flush = { .op = BF_OP_FLUSH_CLEAN };
    BfRequest far = at_cylinder(BF_OP_READ, 900);
    BfRequest near = at_cylinder(BF_OP_READ, 501);
    BfRequest second = at_cylinder(BF_OP_READ, 500);
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    f.params.flush_concurrency = BF_FLUSH_EXCLUSIVE;
    submit(&f, 0, &first);
    submit(&f, 1, &second);
    submit(&f, 2, &flush);
    submit(&f, 3, &far);
    bf_service_advance(&f.service, first.done_at);
    g_assert_cmpint(bf_service_decision_at(&f.service), ==, flush.done_at);
    submit(&f, flush.done_at - 1, &near);
    settle(&f);
    g_assert_cmpint(near.done_at, >, flush.done_at);
    g_assert_cmpint(near.done_at, <, far.done_at);
    teardown(&f);
}

/* --- the idle window -------------------------------------------------- */

#define WINDOW (10 * MS)

/* A stream of two reads from cylinder 100 on, and a request elsewhere. */
typedef struct Stream {
    Fixture f;
    BfRequest reads[2];
    BfRequest other;
} Stream;

static void stream_start(Stream *s, BfQueueOrder order)
{
    setup(&s->f, order);
    s->f.params.idle_window_ns = WINDOW;
    s->f.params.queue_deadline_ns = 500 * MS;
    for (int i = 0; i < 2; i++) {
        s->reads[i] = at_cylinder(BF_OP_READ, 100);
        s->reads[i].offset += i * BLOCK;
        submit(&s->f, 0, &s->reads[i]);
    }
    s->other = at_cylinder(BF_OP_READ, 900);
    submit(&s->f, 1, &s->other);
    bf_service_advance(&s->f.service, s->reads[0].done_at);
    g_assert_true(bf_service_decided(&s->f.service) == &s->reads[1]);
    g_assert_null(bf_service_decided(&s->f.service));
}

static void test_the_head_waits_for_the_stream(void)
{
    for (BfQueueOrder order = 0; order <= BF_ORDER_DEADLINE; order++) {
        BfRequest next = at_cylinder(BF_OP_READ, 100);
        BfHead head;
        Stream s;

        stream_start(&s, order);
        next.offset += 2 * BLOCK;
        g_assert_cmpint(bf_service_decision_at(&s.f.service), ==,
                        s.reads[1].done_at + WINDOW);
        /* Served at once, for the head has read on. */
        submit(&s.f, s.reads[1].done_at + 5 * MS, &next);
        g_assert_cmpint(next.done_at, ==, s.reads[1].done_at + 5 * MS);
        g_assert_cmpint(s.other.done_at, ==, BF_NEVER);
        g_assert_cmpint(bf_service_decision_at(&s.f.service), ==,
                        next.done_at + WINDOW);
        head = s.f.service.head;
        settle(&s.f);
        g_assert_cmpint(s.other.done_at, ==,
                        bf_head_serve(&head, next.done_at + WINDOW, true,
                                      s.other.offset, BLOCK));
        teardown(&s.f);
    }
}

static void test_another_request_does_not_end_the_window(void)
{
    BfRequest near = at_cylinder(BF_OP_READ, 101);
    Stream s;

    stream_start(&s, BF_ORDER_NEAREST);
    submit(&s.f, s.reads[1].done_at + MS, &near);
    g_assert_cmpint(near.done_at, ==, BF_NEVER);
    bf_service_advance(&s.f.service, s.reads[1].done_at + WINDOW - 1);
    g_assert_null(bf_service_decided(&s.f.service));
    bf_service_advance(&s.f.service, s.reads[1].done_at + WINDOW);
    g_assert_true(bf_service_decided(&s.f.service) == &near);
    settle(&s.f);
    teardown(&s.f);
}

static void test_the_window_yields_to_a_flush(void)
{
    const int64_t wait = 2 * MS;

    for (int kind = 0; kind < 3; kind++) {
        BfRequest destage = at_cylinder(BF_OP_DESTAGE, 110);
        BfRequest flush = { .op = BF_OP_FLUSH };
        int64_t now;
        Stream s;

        stream_start(&s, BF_ORDER_NEAREST);
        s.f.params.flush_concurrency = kind;
        now = s.reads[1].done_at + wait;
        /* Destage alone waits. */
        submit(&s.f, now, &destage);
        g_assert_cmpint(destage.done_at, ==, BF_NEVER);
        submit(&s.f, now, &flush);
        g_assert_cmpint(destage.done_at, !=, BF_NEVER);
        g_assert_cmpint(destage.done_at, <=, now + AVERAGE + TURN +
                        8 * BLOCK);
        if (kind != BF_FLUSH_EXCLUSIVE) {
            g_assert_cmpint(flush.done_at, ==, destage.done_at + FLUSH);
        }
        settle(&s.f);
        teardown(&s.f);
    }
}

static void test_a_clean_flush_leaves_the_window_alone(void)
{
    BfRequest flush = { .op = BF_OP_FLUSH_CLEAN };
    Stream s;

    stream_start(&s, BF_ORDER_FIFO);
    submit(&s.f, s.reads[1].done_at + MS, &flush);
    g_assert_cmpint(flush.done_at, ==, s.reads[1].done_at + MS + FLUSH);
    g_assert_cmpint(bf_service_decision_at(&s.f.service), ==,
                    s.reads[1].done_at + WINDOW);
    settle(&s.f);
    teardown(&s.f);
}

static void test_a_deadline_ends_the_window(void)
{
    Stream s;

    stream_start(&s, BF_ORDER_FIFO);
    s.f.params.queue_deadline_ns = s.reads[1].done_at + 3 * MS;
    bf_service_advance(&s.f.service, 0);
    /* The window is measured anew when something comes. */
    submit(&s.f, s.reads[1].done_at + MS, &(BfRequest) {
        .op = BF_OP_CACHE,
    });
    g_assert_cmpint(bf_service_decision_at(&s.f.service), ==,
                    s.reads[1].done_at + 3 * MS + 1);
    settle(&s.f);
    teardown(&s.f);
}

/* A stream and its windows leave destage a run each deadline. */
static void test_a_stream_does_not_starve_destage(void)
{
    enum { RUNS_TO_GO = 10 };
    BfRun runs[RUNS_TO_GO];
    BfRequest destage = {
        .op = BF_OP_DESTAGE, .runs = runs, .n_runs = RUNS_TO_GO,
    };
    const int64_t deadline = 50 * MS;
    int64_t now = 0;
    Fixture f;

    for (int i = 0; i < RUNS_TO_GO; i++) {
        runs[i] = (BfRun) { (500 + 10 * i) * TRACK, BLOCK };
    }
    setup(&f, BF_ORDER_DEADLINE);
    f.params.idle_window_ns = WINDOW;
    f.params.queue_deadline_ns = deadline;
    for (int i = 0; destage.done_at <= 0 || destage.done_at == BF_NEVER;
         i++) {
        BfRequest next = at_cylinder(BF_OP_READ, 0);

        next.offset += i * 16 * BLOCK;
        next.bytes = 16 * BLOCK;
        if (i == 5) {
            submit(&f, now, &destage);
        }
        submit(&f, now, &next);
        while (next.done_at == BF_NEVER) {
            bf_service_advance(&f.service,
                               bf_service_decision_at(&f.service));
        }
        now = next.done_at + MS;
        while (bf_service_decided(&f.service)) {
            continue;
        }
        g_assert_cmpint(now, <, 2 * RUNS_TO_GO * deadline);
    }
    teardown(&f);
}

/* What comes in between does not end the stream, another stream does. */
static void test_the_stream_outlasts_an_interruption(void)
{
    for (int others = 1; others <= 2; others++) {
        BfRequest next = at_cylinder(BF_OP_READ, 100);
        BfRequest more = at_cylinder(BF_OP_READ, 900);
        Stream s;

        stream_start(&s, BF_ORDER_FIFO);
        settle(&s.f);
        if (others == 2) {
            more.offset += BLOCK;
            submit(&s.f, s.other.done_at, &more);
            settle(&s.f);
        }
        next.offset += 2 * BLOCK;
        submit(&s.f, 300 * MS, &next);
        submit(&s.f, 300 * MS, &s.other);
        g_assert_cmpint(bf_service_decision_at(&s.f.service), ==,
                        next.done_at + (others == 1 ? WINDOW : 0));
        settle(&s.f);
        teardown(&s.f);
    }
}

/* One read that follows another by chance makes no stream. */
static void test_a_single_read_opens_no_window(void)
{
    BfRequest first = at_cylinder(BF_OP_READ, 100);
    BfRequest other = at_cylinder(BF_OP_READ, 900);
    Fixture f;

    setup(&f, BF_ORDER_FIFO);
    f.params.idle_window_ns = WINDOW;
    submit(&f, 0, &first);
    submit(&f, 1, &other);
    g_assert_cmpint(bf_service_decision_at(&f.service), ==, first.done_at);
    settle(&f);
    teardown(&f);
}

/* --- all together ----------------------------------------------------- */

#define REQUESTS 400
#define RUNS 5

typedef struct Plan {
    BfParams params;
    int64_t at[REQUESTS];
    BfRequest requests[REQUESTS];
    BfRun runs[REQUESTS][RUNS];
} Plan;

static int compare_runs(const void *a, const void *b)
{
    const BfRun *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void plan_runs(BfRun *runs, BfRandom *random)
{
    for (int i = 0; i < RUNS; i++) {
        runs[i] = (BfRun) {
            .offset = bf_random_u64(random) % (CYLINDERS * TRACK),
            .bytes = BLOCK,
        };
    }
    qsort(runs, RUNS, sizeof(runs[0]), compare_runs);
}

static void plan(Plan *p, BfRandom *random)
{
    static const BfOp ops[] = {
        BF_OP_READ, BF_OP_READ, BF_OP_READ, BF_OP_READ, BF_OP_READ,
        BF_OP_WRITE, BF_OP_FUA, BF_OP_ZERO, BF_OP_DISCARD, BF_OP_CACHE,
        BF_OP_DESTAGE, BF_OP_DESTAGE, BF_OP_FLUSH, BF_OP_FLUSH_CLEAN,
    };
    int64_t gap = 1 + bf_random_u64(random) % (20 * MS);
    uint64_t stream = 0;
    int64_t now = 0;
    char *error = NULL;

    set_params(&p->params, bf_random_u64(random) % 3);
    p->params.queue_depth = 1 + bf_random_u64(random) % 20;
    p->params.queue_deadline_ns = bf_random_u64(random) % (300 * MS);
    p->params.idle_window_ns = bf_random_u64(random) % 2 * 5 * MS;
    p->params.flush_concurrency = bf_random_u64(random) % 3;
    p->params.interface_bandwidth = bf_random_u64(random) % 2 * 200 * TRACK;
    p->params.read_latency_ns = 100000;
    p->params.write_latency_ns = 20000;
    g_assert_true(bf_params_set(&p->params, "latency-spread",
                                "log-normal:50", &error));
    for (int i = 0; i < REQUESTS; i++) {
        BfRequest *request = &p->requests[i];

        now += bf_random_u64(random) % gap;
        p->at[i] = now;
        *request = (BfRequest) {
            .op = ops[bf_random_u64(random) % G_N_ELEMENTS(ops)],
            .offset = bf_random_u64(random) % (CYLINDERS * TRACK),
            .bytes = BLOCK,
        };
        if (request->op == BF_OP_READ && bf_random_u64(random) % 2) {
            request->offset = stream;
            stream += BLOCK;
        }
        if (request->op == BF_OP_DESTAGE && bf_random_u64(random) % 2) {
            plan_runs(p->runs[i], random);
            request->runs = p->runs[i];
            request->n_runs = RUNS;
        }
    }
}

/*
 * Serve the plan; @laziness says how late the caller asks, 0: never late.
 * Each instant that was not known at once is told exactly once.
 */
static void carry_out(Plan *p, uint64_t laziness, int64_t *done)
{
    int64_t waiting = 0;
    BfService service;
    BfRandom random;

    bf_random_init(&random, laziness);
    bf_service_init(&service, &p->params, CYLINDERS * TRACK);
    for (int i = 0; i <= REQUESTS; i++) {
        int64_t until = i < REQUESTS ? p->at[i] : BF_NEVER - 1;
        int64_t next;

        while ((next = bf_service_decision_at(&service)) <= until) {
            if (laziness && i < REQUESTS && bf_random_u64(&random) % 2) {
                break;
            }
            if (laziness && i < REQUESTS) {
                next += bf_random_u64(&random) % (until - next + 1);
            }
            bf_service_advance(&service, next);
        }
        if (i < REQUESTS) {
            waiting += bf_service_submit(&service, until,
                                         &p->requests[i]) == BF_NEVER;
        }
        while (bf_service_decided(&service)) {
            waiting--;
        }
    }
    g_assert_cmpint(waiting, ==, 0);
    for (int i = 0; i < REQUESTS; i++) {
        g_assert_cmpint(p->requests[i].done_at, !=, BF_NEVER);
        g_assert_cmpint(p->requests[i].done_at, >=, p->at[i]);
        done[i] = p->requests[i].done_at;
    }
    bf_service_destroy(&service);
}

/* The same requests take the same times, however late one asks. */
static void test_it_does_not_matter_when_one_asks(void)
{
    g_autofree Plan *p = g_new0(Plan, 1);
    int64_t prompt[REQUESTS], late[REQUESTS];
    BfRandom random;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        bf_random_init(&random, seed);
        plan(p, &random);
        carry_out(p, 0, prompt);
        for (uint64_t laziness = 1; laziness <= 3; laziness++) {
            carry_out(p, laziness, late);
            for (int i = 0; i < REQUESTS; i++) {
                if (late[i] != prompt[i]) {
                    g_error("seed %" PRIu64 ", laziness %" PRIu64
                            ": request %d is done at %" PRId64 ", not %"
                            PRId64, seed, laziness, i, late[i], prompt[i]);
                }
            }
        }
    }
}

static void test_a_seed_repeats(void)
{
    g_autofree Plan *p = g_new0(Plan, 1);
    int64_t first[REQUESTS], again[REQUESTS], other[REQUESTS];
    int differ = 0;
    BfRandom random;

    bf_random_init(&random, 5);
    plan(p, &random);
    carry_out(p, 0, first);
    carry_out(p, 0, again);
    p->params.seed = 1;
    carry_out(p, 0, other);
    for (int i = 0; i < REQUESTS; i++) {
        g_assert_cmpint(again[i], ==, first[i]);
        differ += other[i] != first[i];
    }
    g_assert_cmpint(differ, >, REQUESTS / 20);
}

/* A drain completes requests at once: the queue lets go of them. */
static void test_reset_forgets_what_is_queued(void)
{
    BfRequest requests[] = {
        at_cylinder(BF_OP_READ, 500), at_cylinder(BF_OP_READ, 100),
        at_cylinder(BF_OP_DESTAGE, 900), { .op = BF_OP_FLUSH },
        at_cylinder(BF_OP_READ, 5),
    };
    Fixture f;

    setup(&f, BF_ORDER_NEAREST);
    f.params.flush_concurrency = BF_FLUSH_EXCLUSIVE;
    for (size_t i = 0; i < G_N_ELEMENTS(requests); i++) {
        submit(&f, i, &requests[i]);
    }
    bf_service_reset(&f.service);
    for (size_t i = 1; i < G_N_ELEMENTS(requests); i++) {
        g_assert_cmpint(requests[i].done_at, ==, i);
    }
    g_assert_cmpint(bf_service_decision_at(&f.service), ==, BF_NEVER);
    g_assert_null(bf_service_decided(&f.service));
    memset(requests, 0xff, sizeof(requests));
    requests[0] = at_cylinder(BF_OP_READ, 500);
    g_assert_cmpint(submit(&f, 10, &requests[0]), !=, BF_NEVER);
    teardown(&f);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/queue-order/in-order-of-arrival-it-is-known-at-once",
                    test_in_order_of_arrival_it_is_known_at_once);
    g_test_add_func("/queue-order/an-idle-head-serves-at-once",
                    test_an_idle_head_serves_at_once);
    g_test_add_func("/queue-order/nearest-first", test_nearest_first);
    g_test_add_func("/queue-order/of-a-cylinder-below-the-first-goes-first",
                    test_of_a_cylinder_below_the_first_goes_first);
    g_test_add_func("/queue-order/a-request-that-comes-with-a-decision-is-"
                    "too-late",
                    test_a_request_that_comes_with_a_decision_is_too_late);
    g_test_add_func("/queue-order/the-device-sees-as-many-as-its-queue-holds",
                    test_the_device_sees_as_many_as_its_queue_holds);
    g_test_add_func("/queue-order/of-those-for-one-place-the-first-goes-"
                    "first",
                    test_of_those_for_one_place_the_first_goes_first);
    g_test_add_func("/queue-order/deadline", test_deadline);
    g_test_add_func("/queue-order/a-deadline-bounds-the-wait",
                    test_a_deadline_bounds_the_wait);
    g_test_add_func("/queue-order/nobody-is-due-before-the-device-has-it",
                    test_nobody_is_due_before_the_device_has_it);
    g_test_add_func("/queue-order/destage-in-elevator-order",
                    test_destage_in_elevator_order);
    g_test_add_func("/queue-order/reads-compete-with-destage",
                    test_reads_compete_with_destage);
    g_test_add_func("/queue-order/destages-have-their-share-by-the-deadline",
                    test_destages_have_their_share_by_the_deadline);
    g_test_add_func("/queue-order/a-flush-ends-after-the-destages-before-it",
                    test_a_flush_ends_after_the_destages_before_it);
    g_test_add_func("/queue-order/a-clean-flush-overlaps-where-flushes-do",
                    test_a_clean_flush_overlaps_where_flushes_do);
    g_test_add_func("/queue-order/an-exclusive-flush-is-alone",
                    test_an_exclusive_flush_is_alone);
    g_test_add_func("/queue-order/behind-an-exclusive-flush-the-nearest-goes-"
                    "first",
                    test_behind_an_exclusive_flush_the_nearest_goes_first);
    g_test_add_func("/queue-order/the-head-waits-for-the-stream",
                    test_the_head_waits_for_the_stream);
    g_test_add_func("/queue-order/another-request-does-not-end-the-window",
                    test_another_request_does_not_end_the_window);
    g_test_add_func("/queue-order/the-window-yields-to-a-flush",
                    test_the_window_yields_to_a_flush);
    g_test_add_func("/queue-order/a-clean-flush-leaves-the-window-alone",
                    test_a_clean_flush_leaves_the_window_alone);
    g_test_add_func("/queue-order/a-deadline-ends-the-window",
                    test_a_deadline_ends_the_window);
    g_test_add_func("/queue-order/a-stream-does-not-starve-destage",
                    test_a_stream_does_not_starve_destage);
    g_test_add_func("/queue-order/the-stream-outlasts-an-interruption",
                    test_the_stream_outlasts_an_interruption);
    g_test_add_func("/queue-order/a-single-read-opens-no-window",
                    test_a_single_read_opens_no_window);
    g_test_add_func("/queue-order/it-does-not-matter-when-one-asks",
                    test_it_does_not_matter_when_one_asks);
    g_test_add_func("/queue-order/a-seed-repeats", test_a_seed_repeats);
    g_test_add_func("/queue-order/reset-forgets-what-is-queued",
                    test_reset_forgets_what_is_queued);
    return g_test_run();
}
