/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The service model under any parameters and requests
 *
 * service.h promises that instants depend on when requests arrive, and
 * not on when the caller asks.  So the input is played twice, to one
 * caller who asks as soon as something is due and to one who asks only
 * at the end, and the two must agree.  Nothing may be done before it
 * arrived, and nothing may be forgotten.
 */

#include <glib.h>
#include <string.h>

#include "fuzz.h"
#include "service.h"

#define LENGTH (UINT64_C(1) << 30)
#define REQUESTS_MAX 512
#define RUNS_MAX 8

typedef struct Input {
    const uint8_t *at;
    size_t left;
} Input;

typedef struct Play {
    BfService service;
    BfRequest requests[REQUESTS_MAX];
    BfRun runs[REQUESTS_MAX][RUNS_MAX];
    size_t count;
    int64_t now;
    bool eager;
} Play;

static uint64_t take(Input *input, size_t bytes)
{
    uint64_t value = 0;

    while (bytes-- && input->left) {
        value = value << 8 | *input->at++;
        input->left--;
    }
    return value;
}

/* Up to a minute, of all orders of magnitude. */
static int64_t take_ns(Input *input)
{
    unsigned shift = take(input, 1) % 36;

    return (take(input, 2) & 0xff) << shift >> 8;
}

/* Options as anybody may give them; what is refused is left out. */
static bool take_params(Input *input, BfParams *params)
{
    unsigned count = take(input, 1) % 24;
    char *error = NULL;
    bool fine;

    bf_params_init(params);
    while (count--) {
        const BfOption *o = &bf_options[take(input, 1) % bf_options_count];
        uint64_t span = (uint64_t)o->max - o->min + 1;
        char *value;

        if (o->kind == BF_OPTION_SPREAD) {
            continue;
        }
        value = o->choices
            ? g_strdup(o->choices[take(input, 1) % span])
            : g_strdup_printf("%" G_GINT64_FORMAT, (int64_t)(o->min +
                              (uint64_t)take_ns(input) % span));
        if (!bf_params_set(params, o->name, value, &error)) {
            g_clear_pointer(&error, g_free);
        }
        g_free(value);
    }
    fine = bf_params_finish(params, &error);
    g_free(error);
    return fine;
}

/* Runs by rising offset that do not touch. */
static void take_runs(Input *input, BfRequest *request, BfRun *runs)
{
    uint64_t offset = 0;

    request->n_runs = take(input, 1) % RUNS_MAX;
    request->runs = runs;
    for (size_t i = 0; i < request->n_runs; i++) {
        offset += 4096 * (1 + take(input, 2));
        runs[i] = (BfRun) { offset, 4096 * (1 + take(input, 1) % 16) };
        offset += runs[i].bytes;
    }
}

static void advance_to(Play *play, int64_t now)
{
    while (play->eager && bf_service_decision_at(&play->service) <= now) {
        bf_service_advance(&play->service,
                           bf_service_decision_at(&play->service));
    }
    play->now = now;
}

static void play_request(Play *play, Input *input)
{
    BfRequest *request = &play->requests[play->count];

    *request = (BfRequest) {
        .op = take(input, 1) % (BF_OP_FLUSH_BACKED + 1),
        .offset = 4096 * (take(input, 3) % (LENGTH / 4096 - 256)),
        .bytes = 4096 * (1 + take(input, 1)),
    };
    if (request->op == BF_OP_DESTAGE) {
        take_runs(input, request, play->runs[play->count]);
    }
    advance_to(play, play->now + take_ns(input));
    request->done_at = bf_service_submit(&play->service, play->now, request);
    play->count++;
}

static void play_all(Play *play, Input input, const BfParams *params)
{
    bf_service_init(&play->service, params, LENGTH);
    while (input.left && play->count < REQUESTS_MAX) {
        play_request(play, &input);
    }
    /* A head may have as many decisions to take as there are runs. */
    while (bf_service_decision_at(&play->service) != BF_NEVER) {
        play->now = MAX(play->now, bf_service_decision_at(&play->service));
        bf_service_advance(&play->service, play->now);
    }
    while (bf_service_decided(&play->service)) {
        /* its instant stands in the request */
    }
    bf_service_destroy(&play->service);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Input input = { data, size };
    Play *plays = g_new0(Play, 2);
    BfParams params;

    if (take_params(&input, &params)) {
        plays[0].eager = true;
        play_all(&plays[0], input, &params);
        play_all(&plays[1], input, &params);
        for (size_t i = 0; i < plays[0].count; i++) {
            const BfRequest *a = &plays[0].requests[i];
            const BfRequest *b = &plays[1].requests[i];

            g_assert_cmpint(a->done_at, >=, a->arrived_at);
            g_assert_cmpint(a->done_at, !=, BF_NEVER);
            g_assert_cmpint(a->done_at, ==, b->done_at);
        }
    }
    g_free(plays);
    return 0;
}
