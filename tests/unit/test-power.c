/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What power.h says about a cut, as statements */

#include <glib.h>

#include "power.h"

static void test_alive_until_the_cut(void)
{
    BfPower power = { 0 };

    g_assert_true(bf_power_alive(&power, power.epoch));
    g_assert_true(bf_power_cut(&power));
    g_assert_false(bf_power_alive(&power, power.epoch));
}

static void test_a_cut_latches(void)
{
    BfPower power = { 0 };
    uint64_t before = power.epoch;

    bf_power_cut(&power);
    g_assert_false(bf_power_alive(&power, before));
    g_assert_true(bf_power_restore(&power));
    g_assert_false(bf_power_alive(&power, before));
    g_assert_true(bf_power_alive(&power, power.epoch));
}

static void test_every_cut_is_an_epoch(void)
{
    BfPower power = { 0 };

    for (uint64_t cuts = 1; cuts <= 3; cuts++) {
        g_assert_true(bf_power_cut(&power));
        g_assert_cmpuint(power.epoch, ==, cuts);
        g_assert_true(bf_power_restore(&power));
        g_assert_cmpuint(power.epoch, ==, cuts);
        for (uint64_t epoch = 0; epoch < cuts; epoch++) {
            g_assert_false(bf_power_alive(&power, epoch));
        }
        g_assert_true(bf_power_alive(&power, cuts));
    }
}

static void test_twice_is_refused(void)
{
    BfPower power = { 0 };

    g_assert_false(bf_power_restore(&power));
    g_assert_true(bf_power_cut(&power));
    g_assert_false(bf_power_cut(&power));
    g_assert_cmpuint(power.epoch, ==, 1);
    g_assert_true(power.off);
    g_assert_true(bf_power_restore(&power));
    g_assert_false(power.off);
}

static void test_what_survives(void)
{
    BfParams params;

    bf_params_init(&params);
    params.write_cache = BF_CACHE_NONE;
    g_assert_false(bf_power_cache_survives(&params));
    params.write_cache = BF_CACHE_VOLATILE;
    g_assert_false(bf_power_cache_survives(&params));
    params.write_cache = BF_CACHE_BATTERY;
    g_assert_true(bf_power_cache_survives(&params));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/power/alive-until-the-cut", test_alive_until_the_cut);
    g_test_add_func("/power/a-cut-latches", test_a_cut_latches);
    g_test_add_func("/power/every-cut-is-an-epoch",
                    test_every_cut_is_an_epoch);
    g_test_add_func("/power/twice-is-refused", test_twice_is_refused);
    g_test_add_func("/power/what-survives", test_what_survives);
    return g_test_run();
}
