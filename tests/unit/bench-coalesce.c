/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * coalesce=off, on and auto around the threshold and on a fast device,
 * on the model alone: a JSON list on stdout, flushes per second of each
 * load
 *
 * Exact, where the same through the driver is as noisy as the host.
 */

#include <glib.h>
#include <inttypes.h>
#include <stdio.h>

#include "writers.h"

#define US INT64_C(1000)
#define ROUNDS 2000

/* What a client needs between a flush and its next write. */
static const int64_t think_us[] = { 0, 100 };

typedef struct Device {
    const char *name;
    BfWriteCache write_cache;
    BfFlushConcurrency concurrency;
    int64_t write_ns;
    int64_t flush_ns[4];        /* ends at 0 */
    unsigned writers[4];
} Device;

static const Device devices[] = {
    { "knee", BF_CACHE_VOLATILE, BF_FLUSH_SERIAL, 50 * US,
      { 1500 * US, 2000 * US, 2500 * US, 3000 * US }, { 1, 2, 4, 16 } },
    { "fast", BF_CACHE_BATTERY, BF_FLUSH_CONCURRENT, 20 * US,
      { 200 * US }, { 1, 4, 16, 64 } },
    { "fast", BF_CACHE_BATTERY, BF_FLUSH_SERIAL, 20 * US,
      { 200 * US }, { 1, 4, 16, 64 } },
};

static double rate(const Load *load, BfParams *params, BfCoalesce coalesce)
{
    params->coalesce = coalesce;
    return load_run(load, params).flushes_per_second;
}

static void try_load(const Device *device, int64_t flush_ns, unsigned n,
                     int64_t think_ns)
{
    Load load = {
        .writers = n,
        .think_ns = think_ns,
        .jitter = 0.5,
        .stagger_ns = flush_ns / 2,
        .duration_ns = ROUNDS * (flush_ns + think_ns + device->write_ns),
        .seed = 1,
    };
    static const char *separator = "[\n ";
    BfParams params;
    double off, on, with;

    bf_params_init(&params);
    params.write_cache = device->write_cache;
    params.write_latency_ns = device->write_ns;
    params.flush_latency_ns = flush_ns;
    params.flush_clean_latency_ns = flush_ns;
    params.flush_concurrency = device->concurrency;
    off = rate(&load, &params, BF_COALESCE_OFF);
    on = rate(&load, &params, BF_COALESCE_ON);
    with = rate(&load, &params, BF_COALESCE_AUTO);
    printf("%s{\"device\": \"%s\", \"flush_ns\": %" PRId64 ", \"writers\": %u, "
           "\"think_ns\": %" PRId64 ", \"off\": %.2f, \"on\": %.2f, "
           "\"auto\": %.2f}", separator, device->name, flush_ns, n,
           think_ns, off, on, with);
    separator = ",\n ";
}

static void try_device(const Device *device)
{
    for (size_t f = 0; f < 4 && device->flush_ns[f]; f++) {
        for (size_t n = 0; n < G_N_ELEMENTS(device->writers); n++) {
            for (size_t t = 0; t < G_N_ELEMENTS(think_us); t++) {
                try_load(device, device->flush_ns[f], device->writers[n],
                         think_us[t] * US);
            }
        }
    }
}

int main(void)
{
    for (size_t i = 0; i < G_N_ELEMENTS(devices); i++) {
        try_device(&devices[i]);
    }
    printf("\n]\n");
    return 0;
}
