/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a 4 KiB write into the store costs, by how much is dirty
 *
 * One preallocated store is filled to each size in turn, several times
 * over, so that whatever else the host does meets all sizes alike.
 * Blocks are drawn at random from a disk of 1 TiB.
 */

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <glib.h>

#include "store.h"

#define BLOCK BF_BLOCK_SIZE
#define DISK_BLOCKS (1ull << 28)
#define BATCH 1000u         /* writes that are timed together */
#define BATCHES 16          /* of each kind, per size and round */
#define MAX_BLOCKS 1000000u

typedef struct Size {
    const char *name;
    uint32_t blocks;
} Size;

static const Size sizes[] = {
    { "1e3", 1000 },
    { "1e5", 100000 },
    { "1e6", MAX_BLOCKS },
};

static gboolean as_json;
static gint rounds = 7;
static gint callgrind = -1;
static gboolean overwrite;

static const GOptionEntry options[] = {
    { "json", 0, 0, G_OPTION_ARG_NONE, &as_json,
      "Print one flat JSON object", NULL },
    { "rounds", 0, 0, G_OPTION_ARG_INT, &rounds,
      "Measure each size so many times (7)", "N" },
    { "callgrind", 0, 0, G_OPTION_ARG_INT, &callgrind,
      "Write once, among N dirty blocks; run it by\n"
      "        valgrind --tool=callgrind --toggle-collect=write_batch \\\n"
      "            store-bench --callgrind N\n"
      "    and divide the instructions collected by the writes printed",
      "N" },
    { "overwrite", 0, 0, G_OPTION_ARG_NONE, &overwrite,
      "With --callgrind: write to dirty blocks instead of new ones", NULL },
    { NULL }
};

typedef struct Bench {
    BfStore *store;
    GRand *rand;
    uint64_t *dirty;        /* offsets */
    uint32_t count;
    uint64_t batch[BATCH];
    void *data;
} Bench;

/* An offset that is not cached. */
static uint64_t new_offset(Bench *b)
{
    uint64_t offset;

    do {
        uint64_t block = (uint64_t)g_rand_int(b->rand) % DISK_BLOCKS;

        offset = block * BLOCK;
    } while (!bf_store_room_for(b->store, offset, BLOCK));
    return offset;
}

static void write_at(Bench *b, uint64_t offset)
{
    struct iovec iov = { b->data, BLOCK };

    bf_store_write(b->store, offset, BLOCK, &iov, 1, 0);
}

/* All that is measured; callgrind knows it by its name. */
static G_NO_INLINE void write_batch(Bench *b)
{
    for (unsigned i = 0; i < BATCH; i++) {
        write_at(b, b->batch[i]);
    }
}

static void fill(Bench *b, uint32_t blocks)
{
    while (b->count < blocks) {
        uint64_t offset = new_offset(b);

        write_at(b, offset);
        b->dirty[b->count++] = offset;
    }
}

static void draw_new(Bench *b)
{
    for (unsigned i = 0; i < BATCH; i++) {
        b->batch[i] = new_offset(b);
    }
}

static void draw_dirty(Bench *b)
{
    for (unsigned i = 0; i < BATCH; i++) {
        b->batch[i] = b->dirty[g_rand_int(b->rand) % b->count];
    }
}

/* Leaves as many blocks dirty as there were. */
static void drop_batch(Bench *b)
{
    for (unsigned i = 0; i < BATCH; i++) {
        bf_store_drop(b->store, b->batch[i], BLOCK, UINT64_MAX);
    }
}

static double now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static double timed_batch(Bench *b)
{
    double start = now_ns();

    write_batch(b);
    return (now_ns() - start) / BATCH;
}

static int compare_doubles(const void *a, const void *b)
{
    double one = *(const double *)a;
    double two = *(const double *)b;

    return (one > two) - (one < two);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return values[count / 2];
}

typedef struct Result {
    double *new_ns;
    double *overwrite_ns;
    unsigned count;
} Result;

static void measure(Bench *b, uint32_t blocks, Result *result)
{
    fill(b, blocks);
    for (unsigned i = 0; i < BATCHES; i++) {
        draw_new(b);
        result->new_ns[result->count] = timed_batch(b);
        drop_batch(b);
        draw_dirty(b);
        result->overwrite_ns[result->count++] = timed_batch(b);
    }
}

static void bench_init(Bench *b, bool preallocate)
{
    uint64_t capacity = (uint64_t)(MAX_BLOCKS + BATCH) * BLOCK;

    *b = (Bench) {
        .store = bf_store_new(capacity, preallocate),
        .rand = g_rand_new_with_seed(1),
        .dirty = g_new0(uint64_t, MAX_BLOCKS),
        .data = g_malloc(BLOCK),
    };
    if (!b->store) {
        g_printerr("store-bench: not enough memory for a store of %"
                   G_GUINT64_FORMAT " MiB\n", capacity >> 20);
        exit(1);
    }
    memset(b->data, 0x5a, BLOCK);
}

static void bench_destroy(Bench *b)
{
    bf_store_free(b->store);
    g_rand_free(b->rand);
    g_free(b->dirty);
    g_free(b->data);
}

/* Instructions do not depend on whether memory was there before. */
static int run_callgrind(void)
{
    Bench b;

    if (callgrind < 1 || callgrind > (gint)MAX_BLOCKS) {
        g_printerr("store-bench: --callgrind %d: allowed are 1 to %u dirty "
                   "blocks\n", callgrind, MAX_BLOCKS);
        return 2;
    }
    bench_init(&b, false);
    fill(&b, callgrind);
    if (overwrite) {
        draw_dirty(&b);
    } else {
        draw_new(&b);
    }
    write_batch(&b);
    g_print("{ \"blocks\": %d, \"writes\": %u }\n", callgrind, BATCH);
    bench_destroy(&b);
    return 0;
}

static void print_results(const Result *results, double overhead)
{
    double times[2][G_N_ELEMENTS(sizes)];
    const unsigned last = G_N_ELEMENTS(sizes) - 1;
    const char *line = as_json ? "  \"%s_%s\": %.2f,\n" : "%-17s %s %8.2f\n";

    g_print("%s", as_json ? "{\n" : "");
    for (unsigned i = 0; i <= last; i++) {
        times[0][i] = median(results[i].new_ns, results[i].count);
        times[1][i] = median(results[i].overwrite_ns, results[i].count);
        g_print(line, "ns_new", sizes[i].name, times[0][i]);
        g_print(line, "ns_overwrite", sizes[i].name, times[1][i]);
    }
    g_print(line, "ns_new", "ratio", times[0][last] / times[0][0]);
    g_print(line, "ns_overwrite", "ratio", times[1][last] / times[1][0]);
    g_print(as_json ? "  \"%s_%s\": %.2f\n}\n" : line, "overhead_percent",
            sizes[last].name, overhead);
}

static int run_native(void)
{
    Result results[G_N_ELEMENTS(sizes)];
    Bench b;

    bench_init(&b, true);
    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        results[i] = (Result) {
            .new_ns = g_new0(double, rounds * BATCHES),
            .overwrite_ns = g_new0(double, rounds * BATCHES),
        };
    }
    for (int round = 0; round < rounds; round++) {
        bf_store_drop_all(b.store);
        b.count = 0;
        for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
            measure(&b, sizes[i].blocks, &results[i]);
        }
    }
    print_results(results, 100.0 * bf_store_overhead(b.store) /
                           ((double)MAX_BLOCKS * BLOCK));
    for (unsigned i = 0; i < G_N_ELEMENTS(sizes); i++) {
        g_free(results[i].new_ns);
        g_free(results[i].overwrite_ns);
    }
    bench_destroy(&b);
    return 0;
}

int main(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = g_option_context_new(NULL);
    g_autoptr(GError) error = NULL;

    g_option_context_add_main_entries(context, options, NULL);
    if (!g_option_context_parse(context, &argc, &argv, &error)) {
        g_printerr("store-bench: %s\n", error->message);
        return 2;
    }
    if (rounds < 1 || rounds > 1000) {
        g_printerr("store-bench: --rounds %d: allowed are 1 to 1000\n",
                   rounds);
        return 2;
    }
    return callgrind == -1 ? run_native() : run_callgrind();
}
