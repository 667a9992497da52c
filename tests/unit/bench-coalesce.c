/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * coalesce=off, on and auto at the knee, on the model alone: a JSON list
 * on stdout, flushes per second of each load
 *
 * Exact, where the same through the driver is as noisy as the host.
 */

#include <glib.h>
#include <inttypes.h>
#include <stdio.h>

#include "writers.h"

#define US INT64_C(1000)
#define WRITE_NS (50 * US)
#define ROUNDS 2000

static const int64_t flush_us[] = { 1500, 2000, 2500, 3000 };
static const unsigned writers[] = { 1, 2, 4, 16 };
/* What a client needs between a flush and its next write. */
static const int64_t think_us[] = { 0, 100 };

static double rate(const Load *load, BfParams *params, BfCoalesce coalesce)
{
    params->coalesce = coalesce;
    return load_run(load, params).flushes_per_second;
}

static void try_load(int64_t flush_ns, unsigned n, int64_t think_ns)
{
    Load load = {
        .writers = n,
        .think_ns = think_ns,
        .jitter = 0.5,
        .stagger_ns = flush_ns / 2,
        .duration_ns = ROUNDS * (flush_ns + think_ns + WRITE_NS),
        .seed = 1,
    };
    BfParams params;
    double off, on, with;

    bf_params_init(&params);
    params.write_cache = BF_CACHE_VOLATILE;
    params.write_latency_ns = WRITE_NS;
    params.flush_latency_ns = flush_ns;
    params.flush_clean_latency_ns = flush_ns;
    params.flush_concurrency = BF_FLUSH_SERIAL;
    off = rate(&load, &params, BF_COALESCE_OFF);
    on = rate(&load, &params, BF_COALESCE_ON);
    with = rate(&load, &params, BF_COALESCE_AUTO);
    printf("{\"flush_ns\": %" PRId64 ", \"writers\": %u, \"think_ns\": %"
           PRId64 ", \"off\": %.2f, \"on\": %.2f, \"auto\": %.2f}",
           flush_ns, n, think_ns, off, on, with);
}

int main(void)
{
    const char *separator = "[\n ";

    for (size_t f = 0; f < G_N_ELEMENTS(flush_us); f++) {
        for (size_t n = 0; n < G_N_ELEMENTS(writers); n++) {
            for (size_t t = 0; t < G_N_ELEMENTS(think_us); t++) {
                printf("%s", separator);
                try_load(flush_us[f] * US, writers[n], think_us[t] * US);
                separator = ",\n ";
            }
        }
    }
    printf("\n]\n");
    return 0;
}
