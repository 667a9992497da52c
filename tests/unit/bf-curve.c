/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * bf-curve: what a storage class or a set of options promises
 *
 *   bf-curve [--profile NAME] [--size BYTES] [--option NAME=VALUE]...
 *
 * Prints one JSON object, computed by the model alone:
 *
 *   flush  [{ dirty_bytes, random_ns, sequential_ns }, ...]
 *          mean time of a flush of so much dirty data, as random blocks
 *          of 4 KiB and as one run; dirty_bytes 0 is a clean flush
 *   iops   [{ depth, read, write }, ...]
 *          random requests of 4 KiB per second, so many under way at
 *          once; null without a limit.  Writes go to the cache, if there
 *          is one, as long as it has room.
 *
 * The disk has --size bytes (default: 10 GiB).  Options win over the
 * class, as they do on QEMU's command line.
 */

#include <glib.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"
#include "service.h"

#define BLOCK 4096
#define DEPTH_MAX 256
#define REQUESTS 20000
#define WARM_UP 2000

/* Of one flush; beyond them time grows as they do. */
#define RUNS_MAX 16384

/* So many make the mean of a head's ways good to half a percent. */
#define FLUSHED_RUNS 8192

static uint64_t disk_size = UINT64_C(10) << 30;

static void G_GNUC_PRINTF(1, 2) G_GNUC_NORETURN fail(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

static void apply_profile(BfParams *params, const char *name)
{
    char *error = NULL;
    const BfProfile *profile = bf_profile_find(name, &error);

    if (!profile || !bf_profile_apply(profile, params, &error)) {
        fail("%s", error);
    }
}

static void apply_option(BfParams *params, const char *option)
{
    g_auto(GStrv) parts = g_strsplit(option, "=", 2);
    char *error = NULL;

    if (!parts[0] || !parts[1]) {
        fail("--option %s is not NAME=VALUE", option);
    }
    if (!bf_params_set(params, parts[0], parts[1], &error)) {
        fail("%s", error);
    }
}

static void parse(BfParams *params, int argc, char **argv)
{
    char *profile = NULL;
    char **options = NULL;
    gint64 size = disk_size;
    GOptionEntry entries[] = {
        { "profile", 0, 0, G_OPTION_ARG_STRING, &profile,
          "the storage class", "NAME" },
        { "size", 0, 0, G_OPTION_ARG_INT64, &size,
          "size of the disk", "BYTES" },
        { "option", 0, 0, G_OPTION_ARG_STRING_ARRAY, &options,
          "an option of the node", "NAME=VALUE" },
        { 0 },
    };
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    GError *failure = NULL;
    char *error = NULL;

    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &failure)) {
        fail("%s", failure->message);
    }
    if (argc > 1 || size < BLOCK) {
        fail(argc > 1 ? "unknown argument %s" : "--size is below 4096",
             argv[1]);
    }
    disk_size = size;
    bf_params_init(params);
    if (profile) {
        apply_profile(params, profile);
    }
    for (char **option = options; option && *option; option++) {
        apply_option(params, *option);
    }
    if (!bf_params_finish(params, &error)) {
        fail("%s", error);
    }
    g_strfreev(options);
    g_free(profile);
}

/* Where @bytes find room. */
static uint64_t random_offset(BfRandom *random, uint64_t bytes)
{
    return bf_random_u64(random) % ((disk_size - bytes) / BLOCK + 1) * BLOCK;
}

/* The instant of a request that nothing follows. */
static int64_t settled(BfService *service, const BfRequest *request)
{
    while (request->done_at == BF_NEVER) {
        bf_service_advance(service, bf_service_decision_at(service));
    }
    while (bf_service_decided(service)) {
        continue;
    }
    return request->done_at;
}

/* --- flush time ------------------------------------------------------- */

static int compare_runs(const void *a, const void *b)
{
    const BfRun *x = a, *y = b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int64_t flush_ns(BfService *service, int64_t now, const BfRun *runs,
                        size_t n_runs)
{
    BfRequest destage = {
        .op = BF_OP_DESTAGE, .runs = runs, .n_runs = n_runs,
    };
    BfRequest flush = { .op = n_runs ? BF_OP_FLUSH : BF_OP_FLUSH_CLEAN };

    if (n_runs && service->params->write_cache == BF_CACHE_VOLATILE) {
        bf_service_submit(service, now, &destage);
    }
    bf_service_submit(service, now, &flush);
    return settled(service, &flush) - now;
}

/*
 * The mean of flushes one after the other, each of other places: where
 * the head is when one begins, and how far it has to go, is chance.
 */
static int64_t mean_flush_ns(const BfParams *params, size_t n_runs,
                             uint64_t run_bytes)
{
    size_t count = MAX(1, FLUSHED_RUNS / MAX(1, n_runs));
    g_autofree BfRun *runs = g_new(BfRun, MAX(n_runs, 1));
    BfService service;
    BfRandom random;
    int64_t now = 0;

    bf_random_init(&random, 1);
    bf_service_init(&service, params, disk_size);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < n_runs; j++) {
            runs[j] = (BfRun) { random_offset(&random, run_bytes), run_bytes };
        }
        qsort(runs, n_runs, sizeof(*runs), compare_runs);
        now += flush_ns(&service, now, runs, n_runs);
    }
    bf_service_destroy(&service);
    return now / (int64_t)count;
}

static int64_t random_flush_ns(const BfParams *params, uint64_t dirty)
{
    size_t count = dirty / BLOCK;
    size_t n_runs = MIN(count, RUNS_MAX);
    int64_t took = mean_flush_ns(params, n_runs, BLOCK);
    int64_t fixed = MIN(took, params->flush_latency_ns);

    return count == n_runs ? took
                           : fixed + (double)(took - fixed) * count / n_runs;
}

static void print_flushes(const BfParams *params)
{
    uint64_t most = params->write_cache == BF_CACHE_NONE
        ? 0 : MIN((uint64_t)params->cache_size, disk_size);

    printf("  \"flush\": [");
    for (uint64_t dirty = 0; dirty <= most;
         dirty = dirty ? dirty * 2 : BLOCK) {
        printf("%s\n    {\"dirty_bytes\": %" PRIu64 ", \"random_ns\": %"
               PRId64 ", \"sequential_ns\": %" PRId64 "}", dirty ? "," : "",
               dirty, random_flush_ns(params, dirty),
               mean_flush_ns(params, dirty > 0, dirty));
    }
    printf("\n  ],\n");
}

/* --- requests per second ---------------------------------------------- */

/* The request that is done first, of those under way. */
static BfRequest *first_done(BfRequest *requests, int depth)
{
    BfRequest *first = &requests[0];

    for (int i = 1; i < depth; i++) {
        if (requests[i].done_at < first->done_at) {
            first = &requests[i];
        }
    }
    return first;
}

/*
 * @depth requests are under way; each that is done is followed by
 * another.  Returns requests per second, 0 if they take no time.
 */
static double iops(const BfParams *params, BfOp op, int depth)
{
    BfRequest requests[DEPTH_MAX];
    int64_t started = 0;
    int64_t now = 0;
    BfService service;
    BfRandom random;

    bf_random_init(&random, 2);
    bf_service_init(&service, params, disk_size);
    for (int i = 0; i < depth; i++) {
        requests[i] = (BfRequest) {
            .op = op, .offset = random_offset(&random, BLOCK), .bytes = BLOCK,
        };
        bf_service_submit(&service, 0, &requests[i]);
    }
    for (int i = 0; i < WARM_UP + REQUESTS; i++) {
        BfRequest *request = first_done(requests, depth);

        while (bf_service_decision_at(&service) < request->done_at) {
            bf_service_advance(&service, bf_service_decision_at(&service));
            while (bf_service_decided(&service)) {
                continue;
            }
            request = first_done(requests, depth);
        }
        now = request->done_at;
        if (i == WARM_UP) {
            started = now;
        }
        request->offset = random_offset(&random, BLOCK);
        bf_service_submit(&service, now, request);
        while (bf_service_decided(&service)) {
            continue;
        }
    }
    bf_service_destroy(&service);
    return now > started ? (REQUESTS - 1) * 1e9 / (now - started) : 0;
}

static void print_rate(const char *name, double rate)
{
    if (rate > 0) {
        printf(", \"%s\": %.6g", name, rate);
    } else {
        printf(", \"%s\": null", name);
    }
}

static void print_iops(const BfParams *params)
{
    BfOp write = params->write_cache == BF_CACHE_NONE ? BF_OP_WRITE
                                                      : BF_OP_CACHE;

    printf("  \"iops\": [");
    for (int depth = 1; depth <= DEPTH_MAX; depth *= 2) {
        printf("%s\n    {\"depth\": %d", depth > 1 ? "," : "", depth);
        print_rate("read", iops(params, BF_OP_READ, depth));
        print_rate("write", iops(params, write, depth));
        printf("}");
    }
    printf("\n  ]\n");
}

int main(int argc, char **argv)
{
    BfParams params;

    parse(&params, argc, argv);
    printf("{\n");
    print_flushes(&params);
    print_iops(&params);
    printf("}\n");
    return 0;
}
