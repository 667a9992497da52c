/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What head.h says about a disk's head, as statements and closed forms */

#include <glib.h>
#include <math.h>

#include "head.h"
#include "random.h"

#define TURN INT64_C(8000000)       /* 7500 rpm */
#define TRACK INT64_C(1000000)      /* bytes: 8 ns each */
#define SETTLE 700000
#define AVERAGE 8000000
#define FULL 18000000
#define SWITCH 500000
#define CYLINDERS 100000

typedef struct Fixture {
    BfParams params;
    BfHead head;
} Fixture;

static void setup(Fixture *f, int64_t tracks_per_cylinder)
{
    bf_params_init(&f->params);
    f->params.rpm = 7500;
    f->params.bandwidth = 125 * TRACK;
    f->params.seek_settle_ns = SETTLE;
    f->params.seek_average_ns = AVERAGE;
    f->params.seek_full_ns = FULL;
    f->params.tracks_per_cylinder = tracks_per_cylinder;
    f->params.track_switch_ns = SWITCH;
    bf_head_setup(&f->head, &f->params,
                  CYLINDERS * tracks_per_cylinder * TRACK);
}

static void setup_without_seeks(Fixture *f)
{
    setup(f, 1);
    f->params.seek_settle_ns = 0;
    f->params.seek_average_ns = 0;
    f->params.seek_full_ns = 0;
    bf_head_setup(&f->head, &f->params, CYLINDERS * TRACK);
}

static int64_t read_at(Fixture *f, int64_t now, uint64_t offset,
                       uint64_t bytes)
{
    return bf_head_serve(&f->head, now, true, offset, bytes);
}

static int64_t write_at(Fixture *f, int64_t now, uint64_t offset,
                        uint64_t bytes)
{
    return bf_head_serve(&f->head, now, false, offset, bytes);
}

static void test_no_head(void)
{
    BfParams params;
    BfHead head;

    bf_params_init(&params);
    bf_head_setup(&head, &params, 1 << 20);
    g_assert_cmpint(head.turn_ns, ==, 0);
}

/* At instant 0 the first byte of track 0 is under the head. */
static void test_one_track(void)
{
    Fixture f;

    setup(&f, 1);
    g_assert_cmpint(write_at(&f, 0, 0, 1000), ==, 8000);
    /* It has just gone by. */
    g_assert_cmpint(write_at(&f, 8001, 1000, 1000), ==, TURN + 16000);
    bf_head_reset(&f.head);
    /* Half a turn away. */
    g_assert_cmpint(write_at(&f, 0, TRACK / 2, 1000), ==, TURN / 2 + 8000);
    bf_head_reset(&f.head);
    g_assert_cmpint(write_at(&f, 7 * TURN + 5, 0, 1000), ==,
                    8 * TURN + 8000);
}

static void test_a_request_waits_for_the_one_before(void)
{
    Fixture f;

    setup(&f, 1);
    g_assert_cmpint(write_at(&f, 0, 0, 1000), ==, 8000);
    g_assert_cmpint(write_at(&f, 0, 1000, 1000), ==, 16000);
    g_assert_cmpint(write_at(&f, 0, 0, 1000), ==, TURN + 8000);
}

/* A switch turns the next track just so far that nothing is lost. */
static void test_a_stream_of_writes_loses_only_switches(void)
{
    const int64_t tracks = 4;
    const int64_t bytes = 10000;
    int64_t done = 0;
    Fixture f;

    setup(&f, tracks);
    for (int64_t offset = 0; offset < 3 * tracks * TRACK; offset += bytes) {
        done = write_at(&f, 0, offset, bytes);
    }
    g_assert_cmpint(done, ==, 12 * TURN + 9 * SWITCH + 2 * SETTLE);

    bf_head_reset(&f.head);
    g_assert_cmpint(write_at(&f, 0, 0, 3 * tracks * TRACK), ==, done);
}

/* Each written when the one before is known to be done: a turn each. */
static void test_a_synchronous_stream_of_writes_takes_a_turn_each(void)
{
    int64_t now = 0;
    Fixture f;

    setup(&f, 1);
    for (int i = 0; i < 50; i++) {
        now = write_at(&f, now, i * 4000, 4000) + 1;
    }
    g_assert_cmpint(now, ==, 49 * TURN + 50 * 32000 + 1);
}

/* The head reads on, whatever the reader's pace. */
static void test_a_stream_of_reads_is_read_at_the_rate_of_the_medium(void)
{
    const int64_t bytes = 4000;
    const int64_t count = 10 * TRACK / bytes;
    const int64_t whole = 10 * TURN + 9 * SETTLE;
    int64_t now = 0;
    Fixture f;

    setup(&f, 1);
    for (int64_t i = 0; i < count; i++) {
        now = read_at(&f, now, i * bytes, bytes) + 20000;
    }
    g_assert_cmpint(now, ==, whole + 20000);

    /* A slow one is served from the buffer. */
    bf_head_reset(&f.head);
    now = read_at(&f, 0, 0, bytes);
    for (int64_t i = 1; i < count; i++) {
        now += 40000;
        g_assert_cmpint(read_at(&f, now, i * bytes, bytes), ==, now);
    }
}

/* The buffer holds a track; what lies beyond costs the rest of a turn. */
static void test_the_buffer_is_one_track(void)
{
    int64_t now = 3 * TURN;
    int64_t done;
    Fixture f;

    setup_without_seeks(&f);
    read_at(&f, 0, 0, 1000);
    g_assert_cmpint(read_at(&f, now, 1000, TRACK), ==, now);
    bf_head_reset(&f.head);
    read_at(&f, 0, 0, 1000);
    done = read_at(&f, now, 1000, TRACK + 1000);
    g_assert_cmpint(done, ==, now + 16000);
}

static void test_another_request_ends_the_stream(void)
{
    Fixture f;

    setup(&f, 1);
    read_at(&f, 0, 0, 1000);
    g_assert_true(bf_head_continues(&f.head, 1000));
    write_at(&f, 0, 5000, 1000);
    g_assert_false(bf_head_continues(&f.head, 1000));
    g_assert_false(bf_head_continues(&f.head, 6000));
    g_assert_cmpint(read_at(&f, 2 * TURN, 1000, 1000), ==, 2 * TURN + 16000);
}

static void test_seek_curve(void)
{
    const int64_t third = (CYLINDERS - 2) / 3 + 1;
    int64_t last = 0;
    Fixture f;

    setup(&f, 1);
    g_assert_cmpint(bf_head_seek_ns(&f.head, 0), ==, 0);
    g_assert_cmpint(bf_head_seek_ns(&f.head, 1), ==, SETTLE);
    g_assert_cmpint(ABS(bf_head_seek_ns(&f.head, third) - AVERAGE), <, 200);
    g_assert_cmpint(bf_head_seek_ns(&f.head, CYLINDERS - 1), ==, FULL);
    for (int64_t d = 1; d < CYLINDERS; d += 7) {
        int64_t seek = bf_head_seek_ns(&f.head, d);

        g_assert_cmpint(seek, >=, last);
        last = seek;
    }
    /* A quarter of the short part: half way up its square root. */
    g_assert_cmpint(ABS(bf_head_seek_ns(&f.head, third / 4) -
                        (SETTLE + AVERAGE) / 2), <, 300);
}

/*
 * Over places drawn at random the distance x has the density 2 (1 - x),
 * and the integral of the curve over it is (27 s + 88 a + 20 f) / 135.
 */
static void test_mean_random_seek(void)
{
    const double expected = (27.0 * SETTLE + 88.0 * AVERAGE + 20.0 * FULL) /
                            135;
    const int seeks = 1000000;
    int64_t from = 0;
    double sum = 0;
    BfRandom random;
    Fixture f;

    setup(&f, 1);
    bf_random_init(&random, 11);
    for (int i = 0; i < seeks; i++) {
        int64_t to = bf_random_unit(&random) * CYLINDERS;

        sum += bf_head_seek_ns(&f.head, ABS(to - from));
        from = to;
    }
    g_test_message("mean random seek %.0f ns, integral %.0f ns",
                   sum / seeks, expected);
    g_assert_cmpfloat_with_epsilon(sum / seeks / expected, 1, 0.002);
}

static void test_rotational_delay_is_half_a_turn(void)
{
    const int reads = 1000000;
    int64_t now = 0;
    double sum = 0;
    BfRandom random;
    Fixture f;

    setup_without_seeks(&f);
    bf_random_init(&random, 12);
    for (int i = 0; i < reads; i++) {
        uint64_t offset = bf_random_u64(&random) % (CYLINDERS * TRACK);
        int64_t done;

        now += bf_random_u64(&random) % (3 * TURN);
        done = read_at(&f, now, offset, 1);
        sum += done - 8 - now;
        now = done;
    }
    g_test_message("mean rotational delay %.4f turns", sum / reads / TURN);
    g_assert_cmpfloat_with_epsilon(sum / reads / TURN, 0.5, 0.002);
}

/* All together: a random read is seek, half a turn and the transfer. */
static void test_mean_random_read(void)
{
    const double seek = (27.0 * SETTLE + 88.0 * AVERAGE + 20.0 * FULL) / 135;
    const double expected = seek + TURN / 2.0 + 4096 * 8;
    const int reads = 200000;
    int64_t now = 0;
    BfRandom random;
    Fixture f;

    setup(&f, 1);
    bf_random_init(&random, 13);
    for (int i = 0; i < reads; i++) {
        uint64_t block = bf_random_unit(&random) * CYLINDERS * TRACK / 4096;

        now = read_at(&f, now, block * 4096, 4096) + 12345;
    }
    g_assert_cmpfloat_with_epsilon(
        ((double)now / reads - 12345) / expected, 1, 0.01);
}

static void test_stroke(void)
{
    Fixture f;

    setup(&f, 1);
    f.params.stroke_size = 10 * TRACK;
    bf_head_setup(&f.head, &f.params, CYLINDERS * TRACK);
    g_assert_cmpint(bf_head_seek_ns(&f.head, 9), ==, FULL);
    /* Beyond it, no more than a full stroke. */
    g_assert_cmpint(bf_head_seek_ns(&f.head, 900), ==, FULL);

    /* Less than two cylinders: there is nowhere to go but next door. */
    f.params.stroke_size = 1;
    bf_head_setup(&f.head, &f.params, 0);
    g_assert_cmpint(bf_head_seek_ns(&f.head, 5), ==, SETTLE);
    g_assert_cmpint(write_at(&f, 0, 0, 0), ==, 8);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/head/no-head", test_no_head);
    g_test_add_func("/head/one-track", test_one_track);
    g_test_add_func("/head/a-request-waits-for-the-one-before",
                    test_a_request_waits_for_the_one_before);
    g_test_add_func("/head/a-stream-of-writes-loses-only-switches",
                    test_a_stream_of_writes_loses_only_switches);
    g_test_add_func("/head/a-synchronous-stream-of-writes-takes-a-turn-each",
                    test_a_synchronous_stream_of_writes_takes_a_turn_each);
    g_test_add_func("/head/a-stream-of-reads-is-read-at-the-rate-of-the-"
                    "medium",
                    test_a_stream_of_reads_is_read_at_the_rate_of_the_medium);
    g_test_add_func("/head/the-buffer-is-one-track",
                    test_the_buffer_is_one_track);
    g_test_add_func("/head/another-request-ends-the-stream",
                    test_another_request_ends_the_stream);
    g_test_add_func("/head/seek-curve", test_seek_curve);
    g_test_add_func("/head/mean-random-seek", test_mean_random_seek);
    g_test_add_func("/head/rotational-delay-is-half-a-turn",
                    test_rotational_delay_is_half_a_turn);
    g_test_add_func("/head/mean-random-read", test_mean_random_read);
    g_test_add_func("/head/stroke", test_stroke);
    return g_test_run();
}
