/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What profile.h says about storage classes, as statements
 *
 * The table here stands in for the generated one, so that no number of
 * a real class is repeated.
 */

#include <glib.h>
#include <string.h>

#include "profile.h"

static const BfSetting disk[] = {
    { "write-cache", "volatile" },
    { "cache-size", "64M" },
    { "flush-latency-ns", "8000000" },
    { NULL, NULL }
};
static const BfSetting wrong[] = {
    { "write-cache", "none" },
    { "flush-latency-ns", "fast" },
    { "queue-depth", "7" },
    { NULL, NULL }
};
static const BfSetting nothing[] = { { NULL, NULL } };

const BfProfile bf_profiles[] = {
    { "array", "An array", nothing },
    { "disk-7200", "A disk", disk },
    { "disk-7200-nocache", "The same without its cache", nothing },
    { "wrong", "A class with a bad value", wrong },
    { NULL, NULL, NULL }
};

static const BfProfile *find(const char *name)
{
    char *error = NULL;
    const BfProfile *profile = bf_profile_find(name, &error);

    g_assert_nonnull(profile);
    g_assert_null(error);
    return profile;
}

static void assert_unknown(const char *name, const char *sentence)
{
    g_autofree char *error = NULL;

    g_assert_null(bf_profile_find(name, &error));
    g_assert_cmpstr(error, ==, sentence);
}

static void test_find(void)
{
    for (const BfProfile *p = bf_profiles; p->name; p++) {
        g_assert_true(find(p->name) == p);
    }
}

static void test_unknown_names_similar_ones(void)
{
    assert_unknown("disk-7201",
                   "profile=disk-7201 is not known; similar are disk-7200");
    assert_unknown("disk",
                   "profile=disk is not known; similar are disk-7200, "
                   "disk-7200-nocache");
    assert_unknown("my-array",
                   "profile=my-array is not known; similar are array");
    assert_unknown("aray", "profile=aray is not known; similar are array");
}

static void test_unknown_names_all(void)
{
    assert_unknown("zip",
                   "profile=zip is not known; there are array, disk-7200, "
                   "disk-7200-nocache, wrong");
    assert_unknown("xxxxxwrnng",
                   "profile=xxxxxwrnng is not known; there are array, "
                   "disk-7200, disk-7200-nocache, wrong");
    assert_unknown("",
                   "profile= is not known; there are array, disk-7200, "
                   "disk-7200-nocache, wrong");
}

static void test_apply(void)
{
    char *error = NULL;
    BfParams params, expected;

    bf_params_init(&params);
    bf_params_init(&expected);
    g_assert_true(bf_profile_apply(find("array"), &params, &error));
    g_assert_true(memcmp(&params, &expected, sizeof(params)) == 0);

    g_assert_true(bf_profile_apply(find("disk-7200"), &params, &error));
    g_assert_cmpint(params.write_cache, ==, BF_CACHE_VOLATILE);
    g_assert_cmpint(params.cache_size, ==, 64 * 1048576);
    g_assert_cmpint(params.flush_latency_ns, ==, 8000000);
    g_assert_cmpint(params.queue_depth, ==, expected.queue_depth);
}

static void test_explicit_option_wins(void)
{
    char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    g_assert_true(bf_profile_apply(find("disk-7200"), &params, &error));
    g_assert_true(bf_params_set(&params, "flush-latency-ns", "1", &error));
    g_assert_cmpint(params.flush_latency_ns, ==, 1);
    g_assert_cmpint(params.write_cache, ==, BF_CACHE_VOLATILE);
}

static void test_bad_value(void)
{
    g_autofree char *error = NULL;
    BfParams params;

    bf_params_init(&params);
    g_assert_false(bf_profile_apply(find("wrong"), &params, &error));
    g_assert_cmpstr(error, ==,
                    "flush-latency-ns=fast is not a number; "
                    "allowed are 0 to 60000000000 ns");
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/profile/find", test_find);
    g_test_add_func("/profile/unknown-names-similar-ones",
                    test_unknown_names_similar_ones);
    g_test_add_func("/profile/unknown-names-all", test_unknown_names_all);
    g_test_add_func("/profile/apply", test_apply);
    g_test_add_func("/profile/explicit-option-wins",
                    test_explicit_option_wins);
    g_test_add_func("/profile/bad-value", test_bad_value);
    return g_test_run();
}
