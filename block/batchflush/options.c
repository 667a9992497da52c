/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Options of the batchflush node */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/option.h"
#include "qobject/qdict.h"

#include "batchflush.h"
#include "model/profile.h"

#define OPTION_PROFILE "profile"
#define OPTION_CONTROLLER "controller"
#define OPTION_LOG "log"
#define OPTION_BATTERY_FILE "battery-file"

/*
 * All are declared as strings: the model parses them, so that a value
 * is refused in the same words wherever it comes from.
 */
static QemuOptsList *option_list;

static QemuOptsList *make_option_list(void)
{
    QemuOptsList *list = g_malloc0(sizeof(*list) + (bf_options_count + 5) *
                                   sizeof(list->desc[0]));

    list->name = "batchflush";
    QTAILQ_INIT(&list->head);
    list->desc[0] = (QemuOptDesc) {
        .name = OPTION_PROFILE,
        .type = QEMU_OPT_STRING,
        .help = "storage class that supplies the defaults",
    };
    list->desc[1] = (QemuOptDesc) {
        .name = OPTION_CONTROLLER,
        .type = QEMU_OPT_STRING,
        .help = "batchflush-controller object that the disk is behind",
    };
    list->desc[2] = (QemuOptDesc) {
        .name = OPTION_LOG,
        .type = QEMU_OPT_STRING,
        .help = "file to write a log of all writes and flushes to",
    };
    list->desc[3] = (QemuOptDesc) {
        .name = OPTION_BATTERY_FILE,
        .type = QEMU_OPT_STRING,
        .help = "file that keeps the cache beyond the end of the process",
    };
    for (size_t i = 0; i < bf_options_count; i++) {
        list->desc[i + 4] = (QemuOptDesc) {
            .name = bf_options[i].name,
            .type = QEMU_OPT_STRING,
            .help = bf_options[i].help,
        };
    }
    return list;
}

static const char *const *make_mutable_list(void)
{
    const char **names = g_new0(const char *, bf_options_count + 1);
    size_t n = 0;

    for (size_t i = 0; i < bf_options_count; i++) {
        if (bf_options[i].mutable_at_runtime) {
            names[n++] = bf_options[i].name;
        }
    }
    return names;
}

void batchflush_options_init(BlockDriver *driver)
{
    option_list = make_option_list();
    driver->mutable_opts = make_mutable_list();
}

static bool apply_profile(QemuOpts *opts, BfParams *params, char **error)
{
    const char *name = qemu_opt_get(opts, OPTION_PROFILE);
    const BfProfile *profile;

    if (!name) {
        return true;
    }
    profile = bf_profile_find(name, error);
    return profile && bf_profile_apply(profile, params, error);
}

static bool apply_options(QemuOpts *opts, BfParams *params, char **error)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        const char *value = qemu_opt_get(opts, bf_options[i].name);

        if (value && !bf_params_set(params, bf_options[i].name, value,
                                    error)) {
            return false;
        }
    }
    return true;
}

static bool check_battery_file(QemuOpts *opts, const BfParams *params,
                               char **error)
{
    const char *filename = qemu_opt_get(opts, OPTION_BATTERY_FILE);

    if (filename && params->write_cache != BF_CACHE_BATTERY) {
        *error = g_strdup_printf("battery-file=%s needs write-cache=battery; "
                                 "without one allowed is none", filename);
        return false;
    }
    return true;
}

bool batchflush_options_parse(QDict *options, BfParams *params,
                              char **controller, char **log,
                              char **battery_file, Error **errp)
{
    QemuOpts *opts = qemu_opts_create(option_list, NULL, 0, &error_abort);
    g_autofree char *error = NULL;
    bool ok = qemu_opts_absorb_qdict(opts, options, errp);

    if (ok) {
        bf_params_init(params);
        ok = apply_profile(opts, params, &error) &&
             apply_options(opts, params, &error) &&
             bf_params_finish(params, &error) &&
             check_battery_file(opts, params, &error);
        if (!ok) {
            error_setg(errp, "%s", error);
        }
        *controller = g_strdup(qemu_opt_get(opts, OPTION_CONTROLLER));
        *log = g_strdup(qemu_opt_get(opts, OPTION_LOG));
        *battery_file = g_strdup(qemu_opt_get(opts, OPTION_BATTERY_FILE));
    }
    qemu_opts_del(opts);
    return ok;
}
