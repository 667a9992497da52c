/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Does coalesce=auto pay?  One line for each load where it is more than
 * 5 % worse than the better of off and on, and a summary
 *
 * Not a test: it is there to see what a change of the coordinator's
 * rules does.  All figures are flushes per second.
 */

#include <glib.h>
#include <stdio.h>

#include "writers.h"

#define US INT64_C(1000)
#define WRITE_NS (50 * US)
#define LIMIT 0.95

static const char *const concurrencies[] = {
    "exclusive", "serial", "concurrent"
};
static const char *const waits[] = { "delta", "average" };
static const int64_t flush_us[] = { 200, 1500, 2000, 3000, 8000, 20000 };
static const unsigned writers[] = { 1, 2, 4, 16, 64 };
/* In thousandths of the flush time, then in microseconds. */
static const int64_t think_permille[] = { 0, 500, 1000, 2000, 10000 };
static const int64_t think_us[] = { 100, 1000, 5000 };

typedef struct Cell {
    unsigned loads;
    unsigned worse;
    double worst;
} Cell;

static double rate(const Load *load, BfParams *params, BfCoalesce coalesce)
{
    params->coalesce = coalesce;
    return load_run(load, params).flushes_per_second;
}

static void compare(Cell *cell, const BfParams *base, const Load *load)
{
    BfParams params = *base;
    double off = rate(load, &params, BF_COALESCE_OFF);
    double on = rate(load, &params, BF_COALESCE_ON);
    double with = rate(load, &params, BF_COALESCE_AUTO);
    double ratio = with / MAX(off, on);

    cell->loads++;
    cell->worst = MIN(cell->worst, ratio);
    if (ratio < LIMIT) {
        cell->worse++;
        printf("%-10s %-7s flush %5.1f ms, %2u writers, think %6.2f ms "
               "+-%2.0f %%: off %8.1f on %8.1f auto %8.1f = %.2f\n",
               concurrencies[params.flush_concurrency],
               waits[params.coalesce_wait], params.flush_latency_ns / 1e6,
               load->writers, load->think_ns / 1e6, load->jitter * 100,
               off, on, with, ratio);
    }
}

static void try_think(Cell *cell, const BfParams *params, unsigned n,
                      int64_t think_ns)
{
    for (int jitter = 0; jitter <= (think_ns > 0); jitter++) {
        int64_t round = params->flush_latency_ns + think_ns + WRITE_NS;
        Load load = {
            .writers = n,
            .think_ns = think_ns,
            .jitter = jitter * 0.5,
            .stagger_ns = params->flush_latency_ns / 2 + 7919,
            .duration_ns = (n <= 2 ? 1600 : 400) * round,
            .seed = 1,
        };

        compare(cell, params, &load);
    }
}

static Cell sweep(BfFlushConcurrency concurrency, BfCoalesceWait wait,
                  int64_t flush_ns)
{
    Cell cell = { .worst = 1 };
    BfParams params;

    bf_params_init(&params);
    params.write_cache = BF_CACHE_VOLATILE;
    params.write_latency_ns = WRITE_NS;
    params.flush_latency_ns = flush_ns;
    params.flush_clean_latency_ns = flush_ns;
    params.flush_concurrency = concurrency;
    params.coalesce_wait = wait;
    for (size_t n = 0; n < G_N_ELEMENTS(writers); n++) {
        for (size_t i = 0; i < G_N_ELEMENTS(think_permille); i++) {
            try_think(&cell, &params, writers[n],
                      flush_ns / 1000 * think_permille[i]);
        }
        for (size_t i = 0; i < G_N_ELEMENTS(think_us); i++) {
            try_think(&cell, &params, writers[n], think_us[i] * US);
        }
    }
    return cell;
}

int main(void)
{
    Cell cells[3][2][G_N_ELEMENTS(flush_us)];

    for (int c = 0; c < 3; c++) {
        for (int w = 0; w < 2; w++) {
            for (size_t f = 0; f < G_N_ELEMENTS(flush_us); f++) {
                cells[c][w][f] = sweep(c, w, flush_us[f] * US);
            }
        }
    }
    printf("\nloads where auto is worse, and the worst ratio\n%-19s", "");
    for (size_t f = 0; f < G_N_ELEMENTS(flush_us); f++) {
        printf("  %8.1f ms", flush_us[f] / 1000.0);
    }
    for (int i = 0; i < 6; i++) {
        printf("\n%-10s %-8s", concurrencies[i / 2], waits[i % 2]);
        for (size_t f = 0; f < G_N_ELEMENTS(flush_us); f++) {
            const Cell *cell = &cells[i / 2][i % 2][f];

            printf("  %2u/%u %.2f", cell->worse, cell->loads, cell->worst);
        }
    }
    printf("\n");
    return 0;
}
