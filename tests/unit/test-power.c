/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What power.h says about a cut and a battery, as statements */

#include <glib.h>

#include "coordinator.h"
#include "power.h"

typedef struct Fixture {
    BfParams params;
    BfPower power;
} Fixture;

static Fixture fixture(BfWriteCache write_cache)
{
    Fixture f = {};

    bf_params_init(&f.params);
    f.params.write_cache = write_cache;
    return f;
}

static bool cut(Fixture *f, int64_t now)
{
    return bf_power_cut(&f->power, &f->params, now);
}

static void test_alive_until_the_cut(void)
{
    Fixture f = fixture(BF_CACHE_VOLATILE);

    g_assert_true(bf_power_alive(&f.power, f.power.epoch));
    g_assert_true(cut(&f, 0));
    g_assert_false(bf_power_alive(&f.power, f.power.epoch));
}

static void test_a_cut_latches(void)
{
    Fixture f = fixture(BF_CACHE_VOLATILE);
    uint64_t before = f.power.epoch;

    cut(&f, 0);
    g_assert_false(bf_power_alive(&f.power, before));
    g_assert_true(bf_power_restore(&f.power));
    g_assert_false(bf_power_alive(&f.power, before));
    g_assert_true(bf_power_alive(&f.power, f.power.epoch));
}

static void test_every_cut_is_an_epoch(void)
{
    Fixture f = fixture(BF_CACHE_NONE);

    for (uint64_t cuts = 1; cuts <= 3; cuts++) {
        g_assert_true(cut(&f, 0));
        g_assert_cmpuint(f.power.epoch, ==, cuts);
        g_assert_true(bf_power_restore(&f.power));
        g_assert_cmpuint(f.power.epoch, ==, cuts);
        for (uint64_t epoch = 0; epoch < cuts; epoch++) {
            g_assert_false(bf_power_alive(&f.power, epoch));
        }
        g_assert_true(bf_power_alive(&f.power, cuts));
    }
}

static void test_twice_is_refused(void)
{
    Fixture f = fixture(BF_CACHE_VOLATILE);

    g_assert_false(bf_power_restore(&f.power));
    g_assert_true(cut(&f, 0));
    g_assert_false(cut(&f, 0));
    g_assert_cmpuint(f.power.epoch, ==, 1);
    g_assert_true(f.power.off);
    g_assert_true(bf_power_restore(&f.power));
    g_assert_false(f.power.off);
}

static void test_who_is_backed(void)
{
    Fixture none = fixture(BF_CACHE_NONE);
    Fixture cache = fixture(BF_CACHE_VOLATILE);
    Fixture battery = fixture(BF_CACHE_BATTERY);

    g_assert_false(bf_power_backed(&none.power, &none.params));
    g_assert_false(bf_power_backed(&cache.power, &cache.params));
    g_assert_true(bf_power_backed(&battery.power, &battery.params));
    battery.power.battery = BF_BATTERY_LEARNING;
    g_assert_false(bf_power_backed(&battery.power, &battery.params));
    battery.power.battery = BF_BATTERY_FAILED;
    g_assert_false(bf_power_backed(&battery.power, &battery.params));
}

static void test_a_battery_holds_for_its_time(void)
{
    Fixture f = fixture(BF_CACHE_BATTERY);

    f.params.battery_hold_up_ns = 500;
    g_assert_cmpint(bf_power_hold_up_end(&f.power, &f.params), ==, BF_NEVER);
    cut(&f, 1000);
    g_assert_true(f.power.held);
    g_assert_cmpint(bf_power_hold_up_end(&f.power, &f.params), ==, 1500);

    /* From the cut on, whenever it was changed. */
    f.params.battery_hold_up_ns = 800;
    g_assert_cmpint(bf_power_hold_up_end(&f.power, &f.params), ==, 1800);
    f.params.battery_hold_up_ns = 0;
    g_assert_cmpint(bf_power_hold_up_end(&f.power, &f.params), ==, BF_NEVER);

    bf_power_hold_up_over(&f.power);
    g_assert_false(f.power.held);
    g_assert_true(f.power.off);
}

static void test_a_battery_that_fails_ends_the_hold_up(void)
{
    Fixture f = fixture(BF_CACHE_BATTERY);

    cut(&f, 1000);
    f.power.battery = BF_BATTERY_FAILED;
    g_assert_cmpint(bf_power_hold_up_end(&f.power, &f.params), ==, 1000);
}

static void test_without_a_charge_nothing_is_held(void)
{
    Fixture f = fixture(BF_CACHE_BATTERY);

    f.power.battery = BF_BATTERY_LEARNING;
    cut(&f, 1000);
    g_assert_false(f.power.held);
    /* Too late. */
    f.power.battery = BF_BATTERY_CHARGED;
    g_assert_cmpint(bf_power_hold_up_end(&f.power, &f.params), ==, BF_NEVER);
    g_assert_true(bf_power_restore(&f.power));
    g_assert_true(cut(&f, 2000));
    g_assert_true(f.power.held);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/power/alive-until-the-cut", test_alive_until_the_cut);
    g_test_add_func("/power/a-cut-latches", test_a_cut_latches);
    g_test_add_func("/power/every-cut-is-an-epoch",
                    test_every_cut_is_an_epoch);
    g_test_add_func("/power/twice-is-refused", test_twice_is_refused);
    g_test_add_func("/power/who-is-backed", test_who_is_backed);
    g_test_add_func("/power/battery/holds-for-its-time",
                    test_a_battery_holds_for_its_time);
    g_test_add_func("/power/battery/failing-ends-the-hold-up",
                    test_a_battery_that_fails_ends_the_hold_up);
    g_test_add_func("/power/battery/without-a-charge",
                    test_without_a_charge_nothing_is_held);
    return g_test_run();
}
