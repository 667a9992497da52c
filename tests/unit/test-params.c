/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What params.h says about options, as statements */

#include <glib.h>
#include <string.h>

#include "params.h"

/* Names and defaults are a promise to users, so they are spelled out. */
static const struct {
    const char *name;
    const char *def;
} promised[] = {
    { "write-cache", "none" },
    { "cache-size", "67108864" },
    { "destage-high-percent", "0" },
    { "destage-low-percent", "0" },
    { "read-latency-ns", "0" },
    { "write-latency-ns", "0" },
    { "destage-latency-ns", "0" },
    { "discard-latency-ns", "0" },
    { "zero-latency-ns", "0" },
    { "fua-latency-ns", "0" },
    { "flush-latency-ns", "0" },
    { "flush-clean-latency-ns", "0" },
    { "latency-spread", "fixed" },
    { "flush-spread", "fixed" },
    { "seed", "0" },
    { "bandwidth", "0" },
    { "interface-bandwidth", "0" },
    { "queue-depth", "32" },
    { "rpm", "0" },
    { "seek-settle-ns", "0" },
    { "seek-average-ns", "0" },
    { "seek-full-ns", "0" },
    { "stroke-size", "0" },
    { "tracks-per-cylinder", "4" },
    { "track-switch-ns", "0" },
    { "queue-order", "fifo" },
    { "queue-deadline-ns", "500000000" },
    { "idle-window-ns", "0" },
    { "flush-concurrency", "serial" },
    { "coalesce", "auto" },
    { "coalesce-wait", "average" },
    { "coalesce-max-wait-ns", "15000000" },
    { "coalesce-min-flush-ns", "2000000" },
    { "clock", "auto" },
    { "spin-max-ns", "300000" },
    { "max-lateness-ns", "0" },
    { "atomic-write-size", "512" },
    { "power-cuts", "on" },
    { "power-cut-policy", "drop-all" },
    { "power-cut-history-size", "16777216" },
    { "battery-hold-up-ns", "0" },
    { "lie", "none" },
    { "lie-delay-ns", "1000000000" },
};

static const BfOption *option_named(const char *name)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        if (strcmp(bf_options[i].name, name) == 0) {
            return &bf_options[i];
        }
    }
    g_error("no option %s", name);
}

static void accept(BfParams *params, const char *name, const char *value)
{
    g_autofree char *error = NULL;

    if (!bf_params_set(params, name, value, &error)) {
        g_error("%s=%s was refused: %s", name, value, error);
    }
}

/* Refused in a sentence that names both, and nothing has changed. */
static void refuse(const char *name, const char *value)
{
    g_autofree char *error = NULL;
    BfParams params, before;

    bf_params_init(&params);
    before = params;
    if (bf_params_set(&params, name, value, &error)) {
        g_error("%s=%s was accepted", name, value);
    }
    g_assert_nonnull(error);
    g_assert_nonnull(strstr(error, name));
    g_assert_nonnull(strstr(error, value));
    g_assert_true(memcmp(&params, &before, sizeof(params)) == 0);
}

static void refuse_saying(const char *name, const char *value,
                          const char *sentence)
{
    g_autofree char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    g_assert_false(bf_params_set(&params, name, value, &error));
    g_assert_cmpstr(error, ==, sentence);
}

static void assert_value(const BfParams *params, const char *name,
                         const char *value)
{
    g_autofree char *text = bf_params_get(params, option_named(name));

    g_assert_cmpstr(text, ==, value);
}

static void test_names_and_defaults(void)
{
    BfParams params;

    bf_params_init(&params);
    g_assert_cmpuint(bf_options_count, ==, G_N_ELEMENTS(promised));
    for (size_t i = 0; i < G_N_ELEMENTS(promised); i++) {
        assert_value(&params, promised[i].name, promised[i].def);
    }
    g_assert_cmpuint(params.given, ==, 0);
}

static char *number(int64_t value)
{
    return g_strdup_printf("%" G_GINT64_FORMAT, value);
}

static bool is_number(const BfOption *option)
{
    return option->kind != BF_OPTION_CHOICE &&
           option->kind != BF_OPTION_SPREAD;
}

/* A value that is no option's default. */
static char *unusual(const BfOption *option)
{
    if (option->kind == BF_OPTION_SPREAD) {
        return g_strdup("uniform:50");
    }
    if (option->choices) {
        return g_strdup(option->choices[option->def ? 0 : option->max]);
    }
    return number(option->max);
}

static void test_boundaries(void)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        const BfOption *option = &bf_options[i];
        g_autofree char *below = number(option->min - 1);
        g_autofree char *min = number(option->min);
        g_autofree char *max = number(option->max);
        g_autofree char *above = number(option->max + 1);
        BfParams params;

        if (!is_number(option)) {
            continue;
        }
        bf_params_init(&params);
        refuse(option->name, below);
        accept(&params, option->name, min);
        assert_value(&params, option->name, min);
        accept(&params, option->name, max);
        assert_value(&params, option->name, max);
        refuse(option->name, above);
    }
}

/* Ranges that the documentation and other rooms rely on. */
static void test_ranges(void)
{
    refuse("coalesce-max-wait-ns", "999");
    refuse("flush-latency-ns", "60000000001");
    refuse("destage-high-percent", "101");
    refuse("queue-depth", "0");
    refuse("queue-depth", "1025");
    refuse("cache-size", "65535");
    refuse("cache-size", "1025G");
}

static void test_choices(void)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        const BfOption *option = &bf_options[i];
        BfParams params;

        if (option->kind != BF_OPTION_CHOICE) {
            continue;
        }
        bf_params_init(&params);
        for (size_t j = 0; option->choices[j]; j++) {
            accept(&params, option->name, option->choices[j]);
            assert_value(&params, option->name, option->choices[j]);
        }
        refuse(option->name, "maybe");
        refuse(option->name, "");
        refuse(option->name, "0");
        g_assert_cmpint(option->max, ==,
                        (int64_t)g_strv_length((char **)option->choices) - 1);
    }
}

static void test_choices_mean_what_they_say(void)
{
    BfParams params;

    bf_params_init(&params);
    accept(&params, "write-cache", "battery");
    g_assert_cmpint(params.write_cache, ==, BF_CACHE_BATTERY);
    accept(&params, "flush-concurrency", "exclusive");
    g_assert_cmpint(params.flush_concurrency, ==, BF_FLUSH_EXCLUSIVE);
    accept(&params, "flush-concurrency", "concurrent");
    g_assert_cmpint(params.flush_concurrency, ==, BF_FLUSH_CONCURRENT);
    accept(&params, "coalesce", "on");
    g_assert_cmpint(params.coalesce, ==, BF_COALESCE_ON);
    accept(&params, "coalesce-wait", "delta");
    g_assert_cmpint(params.coalesce_wait, ==, BF_WAIT_DELTA);
    accept(&params, "clock", "virtual");
    g_assert_cmpint(params.clock, ==, BF_CLOCK_VIRTUAL);
}

static void test_each_option_has_its_own_field(void)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        g_autofree char *value = unusual(&bf_options[i]);
        BfParams params;

        bf_params_init(&params);
        accept(&params, bf_options[i].name, value);
        for (size_t j = 0; j < bf_options_count; j++) {
            if (j != i) {
                assert_value(&params, promised[j].name, promised[j].def);
            }
        }
    }
}

static void test_suffixes(void)
{
    BfParams params;

    bf_params_init(&params);
    accept(&params, "cache-size", "64K");
    g_assert_cmpint(params.cache_size, ==, 65536);
    accept(&params, "cache-size", "3m");
    g_assert_cmpint(params.cache_size, ==, 3 * 1048576);
    accept(&params, "cache-size", "2G");
    g_assert_cmpint(params.cache_size, ==, INT64_C(2) << 30);
    accept(&params, "bandwidth", "1T");
    g_assert_cmpint(params.bandwidth, ==, INT64_C(1) << 40);
    refuse("cache-size", "64KB");
    refuse("cache-size", "64 K");
    refuse("cache-size", "1P");
    refuse("cache-size", "K");
    refuse("flush-latency-ns", "8K");
    refuse("queue-depth", "1K");
    refuse("destage-high-percent", "5%");
}

static void test_garbage(void)
{
    static const char *const garbage[] = {
        "", " ", "fast", "1.5", "1e3", "0x10", "--1", "-1", "1 ", "1,5",
        "99999999999999999999", "-99999999999999999999", "inf", "nan",
        "9223372036854775807", "-9223372036854775808",
        "8388608T", "9007199254740992K", "16777216T", "16777217T",
    };

    for (size_t i = 0; i < bf_options_count; i++) {
        for (size_t j = 0; j < G_N_ELEMENTS(garbage); j++) {
            refuse(bf_options[i].name, garbage[j]);
        }
    }
}

static void test_sentences(void)
{
    refuse_saying("flush-latency-ms", "8",
                  "flush-latency-ms is not an option of batchflush");
    refuse_saying("flush-latency-ns", "-1",
                  "flush-latency-ns=-1 is out of range; "
                  "allowed are 0 to 60000000000 ns");
    refuse_saying("cache-size", "1",
                  "cache-size=1 is out of range; "
                  "allowed are 65536 to 1099511627776 bytes");
    refuse_saying("destage-high-percent", "101",
                  "destage-high-percent=101 is out of range; "
                  "allowed are 0 to 100 percent");
    refuse_saying("queue-depth", "0",
                  "queue-depth=0 is out of range; allowed are 1 to 1024");
    refuse_saying("write-cache", "flash",
                  "write-cache=flash is not known; "
                  "allowed are none, volatile, battery");
}

static void test_given(void)
{
    BfParams params;

    bf_params_init(&params);
    for (size_t i = 0; i < bf_options_count; i++) {
        accept(&params, promised[i].name, promised[i].def);
        g_assert_cmpuint(__builtin_popcountll(params.given), ==, i + 1);
    }
}

static bool finish(BfParams *params, const char *high, const char *low,
                   char **error)
{
    bf_params_init(params);
    accept(params, "destage-high-percent", high);
    accept(params, "destage-low-percent", low);
    return bf_params_finish(params, error);
}

static void test_watermarks(void)
{
    g_autofree char *crossed = NULL;
    g_autofree char *equal = NULL;
    g_autofree char *low_alone = NULL;
    char *error = NULL;
    BfParams params;

    g_assert_true(finish(&params, "0", "0", &error));
    g_assert_true(finish(&params, "100", "99", &error));
    g_assert_true(finish(&params, "1", "0", &error));
    g_assert_false(finish(&params, "50", "50", &equal));
    g_assert_false(finish(&params, "0", "1", &low_alone));
    g_assert_false(finish(&params, "40", "60", &crossed));
    g_assert_cmpstr(crossed, ==,
                    "destage-low-percent=60 is not below "
                    "destage-high-percent=40; it has to be, or both 0");
}

typedef struct Given {
    const char *name;
    const char *value;
} Given;

static char *refusal(const Given *given, size_t count)
{
    char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    for (size_t i = 0; i < count; i++) {
        accept(&params, given[i].name, given[i].value);
    }
    g_assert_true(bf_params_finish(&params, &error) == !error);
    return error;
}

static void refuse_together(const Given *given, size_t count,
                            const char *sentence)
{
    g_autofree char *error = refusal(given, count);

    g_assert_cmpstr(error, ==, sentence);
}

static void test_what_needs_a_head(void)
{
    static const char *const times[] = {
        "seek-settle-ns", "seek-average-ns", "seek-full-ns", "stroke-size",
        "track-switch-ns", "idle-window-ns",
    };
    static const Given order = { "queue-order", "nearest" };

    refuse_together(&order, 1, "queue-order=nearest needs a disk with a "
                    "head; allowed is fifo, or set rpm");
    for (size_t i = 0; i < G_N_ELEMENTS(times); i++) {
        Given given = { times[i], "5" };
        g_autofree char *sentence = g_strdup_printf(
            "%s=5 needs a disk with a head; allowed is 0, or set rpm",
            times[i]);

        refuse_together(&given, 1, sentence);
    }
}

static void test_a_head(void)
{
    static const Given good[] = {
        { "rpm", "7200" }, { "bandwidth", "150M" },
        { "seek-settle-ns", "800000" }, { "seek-average-ns", "8500000" },
        { "seek-full-ns", "17000000" }, { "queue-order", "deadline" },
        { "idle-window-ns", "8000000" },
    };
    static const Given short_tracks[] = {
        { "rpm", "6000" }, { "bandwidth", "409599" },
    };
    static const Given low_average[] = {
        { "rpm", "7200" }, { "bandwidth", "150M" },
        { "seek-settle-ns", "3" }, { "seek-average-ns", "2" },
    };
    static const Given low_full[] = {
        { "rpm", "7200" }, { "bandwidth", "150M" },
        { "seek-average-ns", "2" }, { "seek-full-ns", "1" },
    };

    static const Given slow[] = { { "rpm", "59" }, { "bandwidth", "1M" } };

    g_assert_null(refusal(good, G_N_ELEMENTS(good)));
    refuse_together(slow, 2, "rpm=59 is out of range; allowed are 0 and 60 "
                    "to 60000");
    refuse_together(good, 1, "rpm=7200 needs bandwidth, the rate at which "
                    "data passes under the head");
    refuse_together(short_tracks, 2, "bandwidth=409599 with rpm=6000 makes "
                    "tracks of 4095 bytes; allowed are at least 4096");
    refuse_together(low_average, 4, "seek-average-ns=2 is below "
                    "seek-settle-ns=3; it must not be");
    refuse_together(low_full, 4, "seek-full-ns=1 is below "
                    "seek-average-ns=2; it must not be");
}

static void test_rates(void)
{
    static const Given medium = { "bandwidth", "1023" };
    static const Given interface = { "interface-bandwidth", "1" };

    refuse_together(&medium, 1, "bandwidth=1023 is out of range; allowed are "
                    "0 and 1024 to 1099511627776 bytes");
    refuse_together(&interface, 1, "interface-bandwidth=1 is out of range; "
                    "allowed are 0 and 1024 to 1099511627776 bytes");
}

static void test_spreads(void)
{
    BfParams params;

    bf_params_init(&params);
    accept(&params, "latency-spread", "table:50=0.9/90=1.4/99=6");
    assert_value(&params, "latency-spread", "table:50=0.9/90=1.4/99=6");
    assert_value(&params, "flush-spread", "fixed");
    accept(&params, "flush-spread", "pareto:1.5");
    assert_value(&params, "flush-spread", "pareto:1.5");
    refuse_saying("flush-spread", "pareto:1",
                  "flush-spread=pareto:1 is out of range; "
                  "allowed are pareto:1.1 to pareto:100");
}

/* What goes past the cache costs a write and a destage until it is given. */
static void test_defaults_past_the_cache(void)
{
    char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    accept(&params, "write-latency-ns", "100");
    accept(&params, "destage-latency-ns", "30");
    g_assert_true(bf_params_finish(&params, &error));
    g_assert_cmpint(params.discard_latency_ns, ==, 100);
    g_assert_cmpint(params.zero_latency_ns, ==, 100);
    g_assert_cmpint(params.fua_latency_ns, ==, 100);
    accept(&params, "write-cache", "volatile");
    accept(&params, "discard-latency-ns", "0");
    g_assert_true(bf_params_finish(&params, &error));
    g_assert_cmpint(params.discard_latency_ns, ==, 0);
    g_assert_cmpint(params.zero_latency_ns, ==, 130);
    g_assert_cmpint(params.fua_latency_ns, ==, 130);
}

static void test_clean_flush_default(void)
{
    char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    accept(&params, "flush-latency-ns", "5000");
    g_assert_true(bf_params_finish(&params, &error));
    g_assert_cmpint(params.flush_clean_latency_ns, ==, 5000);

    /* It follows its model until it is given, even if as 0. */
    accept(&params, "flush-latency-ns", "7000");
    g_assert_true(bf_params_finish(&params, &error));
    g_assert_cmpint(params.flush_clean_latency_ns, ==, 7000);
    accept(&params, "flush-clean-latency-ns", "0");
    g_assert_true(bf_params_finish(&params, &error));
    g_assert_cmpint(params.flush_clean_latency_ns, ==, 0);
}

static void test_pass_through(void)
{
    static const char *const delaying[][2] = {
        { "write-cache", "volatile" }, { "write-cache", "battery" },
        { "read-latency-ns", "1" }, { "write-latency-ns", "1" },
        { "flush-latency-ns", "1" }, { "flush-clean-latency-ns", "1" },
        { "bandwidth", "1" }, { "interface-bandwidth", "1" },
        { "discard-latency-ns", "1" }, { "zero-latency-ns", "1" },
        { "fua-latency-ns", "1" },
    };
    BfParams params;

    bf_params_init(&params);
    g_assert_true(bf_params_pass_through(&params));
    for (size_t i = 0; i < G_N_ELEMENTS(delaying); i++) {
        bf_params_init(&params);
        accept(&params, delaying[i][0], delaying[i][1]);
        g_assert_false(bf_params_pass_through(&params));
    }
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/params/names-and-defaults", test_names_and_defaults);
    g_test_add_func("/params/boundaries", test_boundaries);
    g_test_add_func("/params/ranges", test_ranges);
    g_test_add_func("/params/choices", test_choices);
    g_test_add_func("/params/choices-mean-what-they-say",
                    test_choices_mean_what_they_say);
    g_test_add_func("/params/each-option-has-its-own-field",
                    test_each_option_has_its_own_field);
    g_test_add_func("/params/suffixes", test_suffixes);
    g_test_add_func("/params/garbage", test_garbage);
    g_test_add_func("/params/sentences", test_sentences);
    g_test_add_func("/params/given", test_given);
    g_test_add_func("/params/watermarks", test_watermarks);
    g_test_add_func("/params/what-needs-a-head", test_what_needs_a_head);
    g_test_add_func("/params/a-head", test_a_head);
    g_test_add_func("/params/rates", test_rates);
    g_test_add_func("/params/spreads", test_spreads);
    g_test_add_func("/params/defaults-past-the-cache",
                    test_defaults_past_the_cache);
    g_test_add_func("/params/clean-flush-default", test_clean_flush_default);
    g_test_add_func("/params/pass-through", test_pass_through);
    return g_test_run();
}
