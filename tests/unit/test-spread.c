/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What spread.h says about distributions, against their closed forms */

#include <glib.h>
#include <math.h>
#include <stdlib.h>

#include "spread.h"

#define DRAWS 1000000

typedef struct Sample {
    double mean;
    double deviation;
    double sorted[DRAWS];
} Sample;

static BfSpread parse(const char *text)
{
    BfSpread spread;
    char *why = NULL;

    if (!bf_spread_parse(&spread, text, &why)) {
        g_error("%s %s", text, why);
    }
    return spread;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static Sample *draw(const char *text)
{
    BfSpread spread = parse(text);
    Sample *sample = g_new(Sample, 1);
    double sum = 0, squares = 0;
    BfRandom random;

    bf_random_init(&random, 2009);
    for (int i = 0; i < DRAWS; i++) {
        double factor = bf_spread_draw(&spread, &random);

        sample->sorted[i] = factor;
        sum += factor;
        squares += factor * factor;
    }
    qsort(sample->sorted, DRAWS, sizeof(double), compare);
    sample->mean = sum / DRAWS;
    sample->deviation = sqrt(squares / DRAWS - sample->mean * sample->mean);
    return sample;
}

static double quantile(const Sample *sample, double p)
{
    return sample->sorted[(int)(p * DRAWS)];
}

static void assert_near(double value, double expected, double tolerance)
{
    g_assert_cmpfloat_with_epsilon(value / expected, 1, tolerance);
}

static void test_fixed_draws_nothing(void)
{
    BfSpread spread = parse("fixed");
    BfRandom random, before;

    bf_random_init(&random, 1);
    before = random;
    g_assert_cmpint(bf_spread_ns(&spread, &random, 12345), ==, 12345);
    g_assert_cmpuint(random.state, ==, before.state);
    g_assert_cmpfloat(bf_spread_draw(&spread, &random), ==, 1);
}

static void test_uniform(void)
{
    g_autofree Sample *s = draw("uniform:40");

    assert_near(s->mean, 1, 0.001);
    assert_near(s->deviation, 0.4 / sqrt(3), 0.005);
    for (double p = 0.05; p < 1; p += 0.05) {
        assert_near(quantile(s, p), 1 + 0.4 * (2 * p - 1), 0.003);
    }
    g_assert_cmpfloat(s->sorted[0], >=, 0.6);
    g_assert_cmpfloat(s->sorted[DRAWS - 1], <=, 1.4);
}

/* The normal distribution function at -2, -1, 0, 1 and 2. */
static const struct {
    double z;
    double p;
} normal[] = {
    { -2, 0.0227501 }, { -1, 0.1586553 }, { 0, 0.5 },
    { 1, 0.8413447 }, { 2, 0.9772499 },
};

static void test_normal(void)
{
    g_autofree Sample *s = draw("normal:20");

    assert_near(s->mean, 1, 0.001);
    assert_near(s->deviation, 0.2, 0.005);
    for (size_t i = 0; i < G_N_ELEMENTS(normal); i++) {
        assert_near(quantile(s, normal[i].p), 1 + 0.2 * normal[i].z, 0.005);
    }
}

/* As wide as is allowed, it is cut off at 0, and that hardly shows. */
static void test_normal_at_its_widest(void)
{
    g_autofree Sample *s = draw("normal:33");

    g_assert_cmpfloat(s->sorted[0], ==, 0);
    g_assert_cmpfloat(quantile(s, 0.002), >, 0);
    assert_near(s->mean, 1, 0.001);
}

static void test_log_normal(void)
{
    const double sigma = sqrt(log(1 + 0.8 * 0.8));
    g_autofree Sample *s = draw("log-normal:80");

    assert_near(s->mean, 1, 0.003);
    assert_near(s->deviation, 0.8, 0.02);
    for (size_t i = 0; i < G_N_ELEMENTS(normal); i++) {
        assert_near(quantile(s, normal[i].p),
                    exp(sigma * normal[i].z - sigma * sigma / 2), 0.007);
    }
}

static void test_pareto(void)
{
    static const double quantiles[] = { 0.01, 0.5, 0.9, 0.99, 0.999 };
    const double shape = 2.5;
    g_autofree Sample *s = draw("pareto:2.5");

    assert_near(s->mean, 1, 0.005);
    g_assert_cmpfloat(s->sorted[0], >=, (shape - 1) / shape);
    for (size_t i = 0; i < G_N_ELEMENTS(quantiles); i++) {
        assert_near(quantile(s, quantiles[i]), (shape - 1) / shape *
                    pow(1 - quantiles[i], -1 / shape), 0.02);
    }
}

/* However heavy the tail, no factor exceeds a million. */
static void test_cut_off(void)
{
    BfSpread spread = parse("pareto:1.1");
    BfRandom random;

    bf_random_init(&random, 1);
    for (int i = 0; i < 20 * DRAWS; i++) {
        g_assert_cmpfloat(bf_spread_draw(&spread, &random), <=, 1e6);
    }
}

static void test_table(void)
{
    static const struct {
        double p;
        double factor;
    } expected[] = {
        { 0.01, 0.5 }, { 0.1, 0.5 }, { 0.3, 0.75 }, { 0.5, 1 },
        { 0.7, 2 }, { 0.89, 2.95 }, { 0.945, 11.5 }, { 0.995, 20 },
    };
    const char *text = "table:10=0.5/50=1/90=3/99=20";
    g_autofree Sample *s = draw(text);
    BfSpread spread = parse(text);

    for (size_t i = 0; i < G_N_ELEMENTS(expected); i++) {
        assert_near(quantile(s, expected[i].p), expected[i].factor, 0.01);
    }
    g_assert_cmpfloat_with_epsilon(bf_spread_mean(&spread),
                                   0.1 * 0.5 + 0.4 * 0.75 + 0.4 * 2 +
                                   0.09 * 11.5 + 0.01 * 20, 0.000001);
    assert_near(s->mean, bf_spread_mean(&spread), 0.005);
}

static void test_table_of_one_point(void)
{
    BfSpread spread = parse("table:50=2");
    BfRandom random;

    bf_random_init(&random, 1);
    for (int i = 0; i < 100; i++) {
        g_assert_cmpfloat(bf_spread_draw(&spread, &random), ==, 2);
    }
    g_assert_cmpfloat(bf_spread_mean(&spread), ==, 2);
}

/* A draw takes one number (two halves of a pair for the normal). */
static void test_a_draw_takes_what_it_needs(void)
{
    static const char *const texts[] = {
        "uniform:50", "pareto:2", "table:1=1/99=2",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        BfSpread spread = parse(texts[i]);
        BfRandom random, other;

        bf_random_init(&random, 7);
        bf_random_init(&other, 7);
        bf_spread_draw(&spread, &random);
        bf_random_unit(&other);
        g_assert_cmpuint(random.state, ==, other.state);
    }
}

static void test_texts_come_back(void)
{
    static const char *const texts[] = {
        "fixed", "uniform:12.5", "normal:33", "log-normal:1000",
        "pareto:1.1", "table:0=0/50.5=1/100=1000000",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        BfSpread spread = parse(texts[i]);
        g_autofree char *text = bf_spread_text(&spread);

        g_assert_cmpstr(text, ==, texts[i]);
    }
}

static void test_a_bad_one_changes_nothing(void)
{
    BfSpread spread = parse("uniform:5");
    g_autofree char *why = NULL;

    g_assert_false(bf_spread_parse(&spread, "table:90=2/50=1", &why));
    g_assert_cmpstr(why, ==, "is out of order at 50=1; percentiles have to "
                    "rise, and factors must not fall");
    g_assert_cmpint(spread.kind, ==, BF_SPREAD_UNIFORM);
}

/* Steele, Lea and Flood's generator, from seed 1234567. */
static void test_generator(void)
{
    BfRandom random;

    bf_random_init(&random, 1234567);
    g_assert_cmpuint(bf_random_u64(&random), ==,
                     UINT64_C(6457827717110365317));
    g_assert_cmpuint(bf_random_u64(&random), ==,
                     UINT64_C(3203168211198807973));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/spread/fixed-draws-nothing", test_fixed_draws_nothing);
    g_test_add_func("/spread/uniform", test_uniform);
    g_test_add_func("/spread/normal", test_normal);
    g_test_add_func("/spread/normal-at-its-widest",
                    test_normal_at_its_widest);
    g_test_add_func("/spread/log-normal", test_log_normal);
    g_test_add_func("/spread/pareto", test_pareto);
    g_test_add_func("/spread/cut-off", test_cut_off);
    g_test_add_func("/spread/table", test_table);
    g_test_add_func("/spread/table-of-one-point", test_table_of_one_point);
    g_test_add_func("/spread/a-draw-takes-what-it-needs",
                    test_a_draw_takes_what_it_needs);
    g_test_add_func("/spread/texts-come-back", test_texts_come_back);
    g_test_add_func("/spread/a-bad-one-changes-nothing",
                    test_a_bad_one_changes_nothing);
    g_test_add_func("/spread/generator", test_generator);
    return g_test_run();
}
