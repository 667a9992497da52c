/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Storage classes by name: see profile.h */

#include <glib.h>
#include <string.h>

#include "profile.h"

/* Levenshtein's distance of two short names. */
static unsigned distance(const char *a, const char *b)
{
    size_t width = strlen(b) + 1;
    g_autofree unsigned *row = g_new(unsigned, width);

    for (size_t j = 0; j < width; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= strlen(a); i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j < width; j++) {
            unsigned replace = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            row[j] = MIN(replace, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[width - 1];
}

static bool similar(const char *name, const char *candidate)
{
    return strstr(candidate, name) || strstr(name, candidate) ||
           distance(name, candidate) <= 1 + strlen(name) / 3;
}

static char *unknown(const char *name)
{
    g_autoptr(GString) names = g_string_new(NULL);

    /* Similar ones if there are any, else all. */
    for (int all = 0; all < 2 && names->len == 0; all++) {
        for (const BfProfile *p = bf_profiles; p->name; p++) {
            if (all || (*name && similar(name, p->name))) {
                g_string_append_printf(names, "%s%s",
                                       names->len ? ", " : "", p->name);
            }
        }
        if (names->len) {
            g_string_prepend(names, all ? "there are " : "similar are ");
        }
    }
    return g_strdup_printf("profile=%s is not known; %s", name, names->str);
}

const BfProfile *bf_profile_find(const char *name, char **error)
{
    for (const BfProfile *profile = bf_profiles; profile->name; profile++) {
        if (strcmp(profile->name, name) == 0) {
            return profile;
        }
    }
    *error = unknown(name);
    return NULL;
}

bool bf_profile_apply(const BfProfile *profile, BfParams *params,
                      char **error)
{
    for (const BfSetting *s = profile->settings; s->option; s++) {
        if (!bf_params_set(params, s->option, s->value, error)) {
            return false;
        }
    }
    return true;
}
