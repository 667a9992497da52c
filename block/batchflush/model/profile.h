/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Storage classes by name
 *
 * The table is generated from profiles.toml, where each number stands
 * beside its source, by profile-gen.py.
 */

#ifndef BF_PROFILE_H
#define BF_PROFILE_H

#include "params.h"

typedef struct BfSetting {
    const char *option;
    const char *value;
} BfSetting;

typedef struct BfProfile {
    const char *name;
    const char *title;
    const BfSetting *settings;      /* ends with an option of NULL */
} BfProfile;

/* All classes, by name; ends with a name of NULL. */
extern const BfProfile bf_profiles[];

/*
 * Returns NULL, with a sentence in *@error that names similar classes
 * and is freed with g_free(), if there is none of that name.
 */
const BfProfile *bf_profile_find(const char *name, char **error);

/* Set the options of a class; fails as bf_params_set() does. */
bool bf_profile_apply(const BfProfile *profile, BfParams *params,
                      char **error);

#endif
