/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Options from any text: refused in a sentence, or understood and told
 * again in the same words
 *
 * The input is lines "name=value", as many as there are.
 */

#include <glib.h>
#include <string.h>

#include "fuzz.h"
#include "params.h"

static const BfOption *find(const char *name)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        if (!strcmp(bf_options[i].name, name)) {
            return &bf_options[i];
        }
    }
    return NULL;
}

/* What an option says of itself sets it to what it is. */
static void check_told(const BfParams *params, const BfOption *option)
{
    BfParams again = *params;
    char *told = bf_params_get(params, option);
    char *told_again;
    char *error = NULL;

    g_assert_true(bf_params_set(&again, option->name, told, &error));
    g_assert_null(error);
    told_again = bf_params_get(&again, option);
    g_assert_cmpstr(told, ==, told_again);
    g_free(told_again);
    g_free(told);
}

static void set(BfParams *params, const char *name, const char *value)
{
    const BfParams before = *params;
    const BfOption *option = find(name);
    char *error = NULL;

    if (bf_params_set(params, name, value, &error)) {
        g_assert_nonnull(option);
        g_assert_null(error);
        check_told(params, option);
        return;
    }
    g_assert_nonnull(error);
    g_assert_nonnull(strstr(error, name));
    g_assert_cmpmem(&before, sizeof(before), params, sizeof(*params));
    g_free(error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = g_strndup((const char *)data, size);
    char **lines = g_strsplit(text, "\n", 0);
    BfParams params;
    char *error = NULL;

    bf_params_init(&params);
    for (char **line = lines; *line; line++) {
        char *value = strchr(*line, '=');

        if (value) {
            *value = '\0';
            set(&params, *line, value + 1);
        }
    }
    g_assert_cmpint(bf_params_finish(&params, &error), ==, !error);
    for (size_t i = 0; !error && i < bf_options_count; i++) {
        check_told(&params, &bf_options[i]);
    }
    g_free(error);
    g_strfreev(lines);
    g_free(text);
    return 0;
}
