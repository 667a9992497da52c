/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Parameters of the emulated device: see params.h */

#include <errno.h>
#include <glib.h>
#include <inttypes.h>
#include <string.h>

#include "params.h"

#define MINUTE_NS (60 * INT64_C(1000000000))
#define MS_NS     INT64_C(1000000)
#define DAY_NS    (24 * 60 * MINUTE_NS)
#define KIB       INT64_C(1024)
#define MIB       (1024 * KIB)
#define GIB       (1024 * MIB)
#define TIB       (1024 * GIB)
#define RPM_MIN   60
#define RPM_MAX   60000

static const char *const write_cache_names[] = {
    "none", "volatile", "battery", NULL
};
static const char *const flush_concurrency_names[] = {
    "exclusive", "serial", "concurrent", NULL
};
static const char *const queue_order_names[] = {
    "fifo", "nearest", "deadline", NULL
};
static const char *const coalesce_names[] = { "off", "on", "auto", NULL };
static const char *const coalesce_wait_names[] = { "delta", "average", NULL };
static const char *const clock_names[] = {
    "auto", "virtual", "realtime", NULL
};
static const char *const off_on_names[] = { "off", "on", NULL };
static const char *const cut_policy_names[] = {
    "drop-all", "prefix", "subset", "torn", NULL
};
static const char *const lie_names[] = {
    "none", "flush", "fua", "delayed", NULL
};

#define FIELD(f) .field = offsetof(BfParams, f)
#define CHOICE(names) \
    .kind = BF_OPTION_CHOICE, .choices = names, .max = G_N_ELEMENTS(names) - 2

const BfOption bf_options[] = {
    {
        .name = "write-cache", FIELD(write_cache),
        CHOICE(write_cache_names), .def = BF_CACHE_NONE,
        .of_controller = true,
        .help = "kind of write cache (none, volatile, battery)",
    }, {
        .name = "cache-size", FIELD(cache_size), .kind = BF_OPTION_SIZE,
        .min = 64 * KIB, .max = TIB, .def = 64 * MIB,
        .of_controller = true,
        .help = "capacity of the write cache",
    }, {
        .name = "destage-high-percent", FIELD(destage_high_percent),
        .kind = BF_OPTION_PERCENT, .max = 100, .mutable_at_runtime = true,
        .of_controller = true,
        .help = "fill level that starts background destage (0 = off)",
    }, {
        .name = "destage-low-percent", FIELD(destage_low_percent),
        .kind = BF_OPTION_PERCENT, .max = 99, .mutable_at_runtime = true,
        .of_controller = true,
        .help = "fill level that ends background destage",
    }, {
        .name = "read-latency-ns", FIELD(read_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time to read from the medium",
    }, {
        .name = "write-latency-ns", FIELD(write_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time to write, into the cache if there is one",
    }, {
        .name = "destage-latency-ns", FIELD(destage_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time to move one run of dirty data to the medium",
    }, {
        .name = "discard-latency-ns", FIELD(discard_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time of a discard (default: as a write past the cache)",
    }, {
        .name = "zero-latency-ns", FIELD(zero_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time to write zeroes (default: as a write past the cache)",
    }, {
        .name = "fua-latency-ns", FIELD(fua_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time of a FUA write past the cache "
                "(default: write-latency-ns and destage-latency-ns)",
    }, {
        .name = "flush-latency-ns", FIELD(flush_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "fixed part of a flush",
    }, {
        .name = "flush-clean-latency-ns", FIELD(flush_clean_latency_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time of a flush with nothing to drain "
                "(default: flush-latency-ns)",
    }, {
        .name = "latency-spread", FIELD(latency_spread),
        .kind = BF_OPTION_SPREAD, .mutable_at_runtime = true,
        .help = "how latencies spread: fixed, uniform:PERCENT, "
                "normal:PERCENT, log-normal:PERCENT, pareto:SHAPE, "
                "table:PERCENTILE=FACTOR/...",
    }, {
        .name = "flush-spread", FIELD(flush_spread),
        .kind = BF_OPTION_SPREAD, .mutable_at_runtime = true,
        .help = "how the fixed part of a flush spreads",
    }, {
        .name = "seed", FIELD(seed), .kind = BF_OPTION_COUNT,
        .max = UINT32_MAX,
        .help = "seed of what is drawn at random",
    }, {
        .name = "bandwidth", FIELD(bandwidth), .kind = BF_OPTION_SIZE,
        .max = TIB, .mutable_at_runtime = true,
        .help = "transfer rate of the medium per second (0 = unlimited)",
    }, {
        .name = "interface-bandwidth", FIELD(interface_bandwidth),
        .kind = BF_OPTION_SIZE, .max = TIB, .mutable_at_runtime = true,
        .help = "transfer rate to the host per second (0 = unlimited)",
    }, {
        .name = "queue-depth", FIELD(queue_depth), .kind = BF_OPTION_COUNT,
        .min = 1, .max = 1024, .def = 32,
        .help = "requests that the medium serves at once, or that a disk "
                "with a head chooses from",
    }, {
        .name = "rpm", FIELD(rpm), .kind = BF_OPTION_COUNT,
        .max = RPM_MAX,
        .help = "turns per minute of a disk with a head (0 = no head)",
    }, {
        .name = "seek-settle-ns", FIELD(seek_settle_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time of a seek to the next cylinder",
    }, {
        .name = "seek-average-ns", FIELD(seek_average_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time of a seek over a third of the stroke",
    }, {
        .name = "seek-full-ns", FIELD(seek_full_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time of a seek over the full stroke",
    }, {
        .name = "stroke-size", FIELD(stroke_size), .kind = BF_OPTION_SIZE,
        .max = 1024 * TIB, .mutable_at_runtime = true,
        .help = "bytes that the full stroke spans (0 = the node's size)",
    }, {
        .name = "tracks-per-cylinder", FIELD(tracks_per_cylinder),
        .kind = BF_OPTION_COUNT, .min = 1, .max = 64, .def = 4,
        .mutable_at_runtime = true,
        .help = "tracks that the head reaches without a seek",
    }, {
        .name = "track-switch-ns", FIELD(track_switch_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "time to go on with the next track of a cylinder",
    }, {
        .name = "queue-order", FIELD(queue_order),
        CHOICE(queue_order_names), .def = BF_ORDER_FIFO,
        .mutable_at_runtime = true,
        .help = "which request a disk with a head serves next "
                "(fifo, nearest, deadline)",
    }, {
        .name = "queue-deadline-ns", FIELD(queue_deadline_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .def = 500 * MS_NS,
        .mutable_at_runtime = true,
        .help = "age at which a request goes first (queue-order=deadline)",
    }, {
        .name = "idle-window-ns", FIELD(idle_window_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "how long the head waits for a sequential reader "
                "(0 = not at all)",
    }, {
        .name = "flush-concurrency", FIELD(flush_concurrency),
        CHOICE(flush_concurrency_names), .def = BF_FLUSH_SERIAL,
        .mutable_at_runtime = true,
        .of_controller = true,
        .help = "what overlapping flushes do to each other "
                "(exclusive, serial, concurrent)",
    }, {
        .name = "coalesce", FIELD(coalesce),
        CHOICE(coalesce_names), .def = BF_COALESCE_AUTO,
        .mutable_at_runtime = true,
        .of_controller = true,
        .help = "whether overlapping flushes share one (off, on, auto)",
    }, {
        .name = "coalesce-wait", FIELD(coalesce_wait),
        CHOICE(coalesce_wait_names), .def = BF_WAIT_AVERAGE,
        .mutable_at_runtime = true,
        .of_controller = true,
        .help = "how the wait for company is counted (delta, average)",
    }, {
        .name = "coalesce-max-wait-ns", FIELD(coalesce_max_wait_ns),
        .kind = BF_OPTION_NS, .min = 1000, .max = MINUTE_NS,
        .def = 15 * MS_NS, .mutable_at_runtime = true,
        .of_controller = true,
        .help = "upper bound of the wait for company",
    }, {
        .name = "coalesce-min-flush-ns", FIELD(coalesce_min_flush_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .def = 2 * MS_NS,
        .mutable_at_runtime = true,
        .of_controller = true,
        .help = "average flush time below which nobody waits (coalesce=auto)",
    }, {
        .name = "clock", FIELD(clock),
        CHOICE(clock_names), .def = BF_CLOCK_AUTO,
        .of_controller = true,
        .help = "clock that times are served on (auto, virtual, realtime)",
    }, {
        .name = "spin-max-ns", FIELD(spin_max_ns), .kind = BF_OPTION_NS,
        .max = 10 * MS_NS, .def = 300000, .mutable_at_runtime = true,
        .of_controller = true,
        .help = "longest spin ahead of an instant in an iothread (0 = off)",
    }, {
        .name = "max-lateness-ns", FIELD(max_lateness_ns),
        .kind = BF_OPTION_NS, .max = MINUTE_NS, .mutable_at_runtime = true,
        .help = "budget of the 99th percentile of lateness (0 = none)",
    }, {
        .name = "atomic-write-size", FIELD(atomic_write_size),
        .kind = BF_OPTION_SIZE, .min = 512, .max = 4 * KIB, .def = 512,
        .help = "what is written as a whole or not at all (512, 4096)",
    }, {
        .name = "power-cuts", FIELD(power_cuts),
        CHOICE(off_on_names), .def = true,
        .of_controller = true,
        .help = "whether the power can be cut (off, on)",
    }, {
        .name = "power-cut-policy", FIELD(power_cut_policy),
        CHOICE(cut_policy_names), .def = BF_CUT_DROP_ALL,
        .mutable_at_runtime = true,
        .of_controller = true,
        .help = "which writes survive a power cut "
                "(drop-all, prefix, subset, torn)",
    }, {
        .name = "power-cut-history-size", FIELD(power_cut_history_size),
        .kind = BF_OPTION_SIZE, .max = TIB, .def = 16 * MIB,
        .help = "older versions of data that is not durable, kept for a cut",
    }, {
        .name = "battery-hold-up-ns", FIELD(battery_hold_up_ns),
        .kind = BF_OPTION_NS, .max = 30 * DAY_NS, .mutable_at_runtime = true,
        .of_controller = true,
        .help = "how long the battery keeps the cache (0 = for any time)",
    }, {
        .name = "lie", FIELD(lie),
        CHOICE(lie_names), .def = BF_LIE_NONE, .mutable_at_runtime = true,
        .help = "what is acknowledged without being done "
                "(none, flush, fua, delayed)",
    }, {
        .name = "lie-delay-ns", FIELD(lie_delay_ns), .kind = BF_OPTION_NS,
        .min = 1, .max = MINUTE_NS, .def = 1000 * MS_NS,
        .mutable_at_runtime = true,
        .help = "when a flush or FUA write is durable (lie=delayed)",
    },
};

const size_t bf_options_count = G_N_ELEMENTS(bf_options);

static int64_t *field(const BfParams *params, const BfOption *option)
{
    return (int64_t *)((char *)params + option->field);
}

static BfSpread *spread_field(const BfParams *params, const BfOption *option)
{
    return (BfSpread *)((char *)params + option->field);
}

static uint64_t bit(const BfOption *option)
{
    return UINT64_C(1) << (option - bf_options);
}

static const BfOption *find_option(const char *name)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        if (strcmp(bf_options[i].name, name) == 0) {
            return &bf_options[i];
        }
    }
    return NULL;
}

static bool was_given(const BfParams *params, const char *name)
{
    return params->given & bit(find_option(name));
}

void bf_params_init(BfParams *params)
{
    memset(params, 0, sizeof(*params));
    for (size_t i = 0; i < bf_options_count; i++) {
        *field(params, &bf_options[i]) = bf_options[i].def;
    }
}

static const char *unit_of(const BfOption *option)
{
    switch (option->kind) {
    case BF_OPTION_NS:
        return " ns";
    case BF_OPTION_SIZE:
        return " bytes";
    case BF_OPTION_PERCENT:
        return " percent";
    default:
        return "";
    }
}

/* A size's suffix as a shift, -1 if it is none. */
static int suffix_shift(const char *suffix)
{
    static const char letters[] = "KMGT";
    const char *letter;

    if (!*suffix) {
        return 0;
    }
    letter = strchr(letters, g_ascii_toupper(*suffix));
    return letter && !suffix[1] ? 10 * (int)(letter - letters + 1) : -1;
}

/* Digits, and for a size perhaps a suffix: a number, if out of range. */
static bool looks_like_number(const BfOption *option, const char *value)
{
    size_t digits = strspn(value + (*value == '-'), "0123456789");
    const char *rest = value + (*value == '-') + digits;

    return digits && (option->kind == BF_OPTION_SIZE
                      ? suffix_shift(rest) >= 0 : !*rest);
}

static char *not_allowed(const BfOption *option, const char *value)
{
    if (option->kind == BF_OPTION_CHOICE) {
        g_autofree char *names = g_strjoinv(", ", (char **)option->choices);

        return g_strdup_printf("%s=%s is not known; allowed are %s",
                               option->name, value, names);
    }
    return g_strdup_printf("%s=%s is %s; allowed are %" PRId64 " to %" PRId64
                           "%s", option->name, value,
                           looks_like_number(option, value)
                           ? "out of range" : "not a number",
                           option->min, option->max, unit_of(option));
}

static bool parse_choice(const BfOption *option, const char *value,
                         int64_t *result)
{
    for (*result = 0; option->choices[*result]; (*result)++) {
        if (strcmp(option->choices[*result], value) == 0) {
            return true;
        }
    }
    return false;
}

static bool parse_number(const BfOption *option, const char *value,
                         int64_t *result)
{
    char *end;
    int shift = 0;

    errno = 0;
    *result = g_ascii_strtoll(value, &end, 10);
    if (errno || !g_ascii_isdigit(*value)) {
        return false;
    }
    if (option->kind == BF_OPTION_SIZE) {
        shift = suffix_shift(end);
    } else if (*end) {
        return false;
    }
    if (shift < 0 || *result < 0 || *result > (INT64_MAX >> shift)) {
        return false;
    }
    *result <<= shift;
    return *result >= option->min && *result <= option->max;
}

static bool set_spread(BfSpread *spread, const char *name, const char *value,
                       char **error)
{
    g_autofree char *why = NULL;

    if (!bf_spread_parse(spread, value, &why)) {
        *error = g_strdup_printf("%s=%s %s", name, value, why);
        return false;
    }
    return true;
}

static bool set_number(int64_t *number, const BfOption *option,
                       const char *value, char **error)
{
    int64_t parsed;

    if (option->kind == BF_OPTION_CHOICE
        ? !parse_choice(option, value, &parsed)
        : !parse_number(option, value, &parsed)) {
        *error = not_allowed(option, value);
        return false;
    }
    *number = parsed;
    return true;
}

bool bf_params_set(BfParams *params, const char *name, const char *value,
                   char **error)
{
    const BfOption *option = find_option(name);
    bool ok;

    if (!option) {
        *error = g_strdup_printf("%s is not an option of batchflush", name);
        return false;
    }
    ok = option->kind == BF_OPTION_SPREAD
        ? set_spread(spread_field(params, option), name, value, error)
        : set_number(field(params, option), option, value, error);
    if (ok) {
        params->given |= bit(option);
    }
    return ok;
}

/* Values that follow others until they are given. */
static void settle_defaults(BfParams *params)
{
    int64_t past_cache = params->write_latency_ns +
        (params->write_cache == BF_CACHE_NONE ? 0
                                              : params->destage_latency_ns);

    if (!was_given(params, "flush-clean-latency-ns")) {
        params->flush_clean_latency_ns = params->flush_latency_ns;
    }
    if (!was_given(params, "discard-latency-ns")) {
        params->discard_latency_ns = past_cache;
    }
    if (!was_given(params, "zero-latency-ns")) {
        params->zero_latency_ns = past_cache;
    }
    if (!was_given(params, "fua-latency-ns")) {
        params->fua_latency_ns = past_cache;
    }
}

static bool check_rate(const char *name, int64_t rate, char **error)
{
    if (rate && rate < KIB) {
        *error = g_strdup_printf("%s=%" PRId64 " is out of range; "
                                 "allowed are 0 and %" PRId64 " to %" PRId64
                                 " bytes", name, rate, KIB, TIB);
        return false;
    }
    return true;
}

/* What only a head can do is refused where there is none. */
static bool check_no_head(const BfParams *params, char **error)
{
    static const char *const names[] = {
        "seek-settle-ns", "seek-average-ns", "seek-full-ns", "stroke-size",
        "track-switch-ns", "queue-order", "idle-window-ns",
    };

    for (size_t i = 0; i < G_N_ELEMENTS(names); i++) {
        const BfOption *option = find_option(names[i]);

        if (*field(params, option) != option->def) {
            g_autofree char *value = bf_params_get(params, option);

            *error = g_strdup_printf("%s=%s needs a disk with a head; "
                                     "allowed is %s, or set rpm",
                                     names[i], value, option->choices
                                     ? option->choices[0] : "0");
            return false;
        }
    }
    return true;
}

static bool check_seeks(const BfParams *params, char **error)
{
    if (params->seek_average_ns < params->seek_settle_ns) {
        *error = g_strdup_printf("seek-average-ns=%" PRId64 " is below "
                                 "seek-settle-ns=%" PRId64 "; it must not be",
                                 params->seek_average_ns,
                                 params->seek_settle_ns);
        return false;
    }
    if (params->seek_full_ns < params->seek_average_ns) {
        *error = g_strdup_printf("seek-full-ns=%" PRId64 " is below "
                                 "seek-average-ns=%" PRId64 "; it must not be",
                                 params->seek_full_ns,
                                 params->seek_average_ns);
        return false;
    }
    return true;
}

static bool check_head(const BfParams *params, char **error)
{
    int64_t track;

    if (!params->rpm) {
        return check_no_head(params, error);
    }
    if (params->rpm < RPM_MIN) {
        *error = g_strdup_printf("rpm=%" PRId64 " is out of range; allowed "
                                 "are 0 and %d to %d", params->rpm, RPM_MIN,
                                 RPM_MAX);
        return false;
    }
    if (!params->bandwidth) {
        *error = g_strdup_printf("rpm=%" PRId64 " needs bandwidth, the rate "
                                 "at which data passes under the head",
                                 params->rpm);
        return false;
    }
    track = bf_params_track_size(params);
    if (track < 4 * KIB) {
        *error = g_strdup_printf("bandwidth=%" PRId64 " with rpm=%" PRId64
                                 " makes tracks of %" PRId64 " bytes; "
                                 "allowed are at least %" PRId64,
                                 params->bandwidth, params->rpm, track,
                                 4 * KIB);
        return false;
    }
    return check_seeks(params, error);
}

/* Options of the power that need a certain kind of cache. */
static bool check_power(const BfParams *params, char **error)
{
    if (params->atomic_write_size != 512 &&
        params->atomic_write_size != 4 * KIB) {
        *error = g_strdup_printf("atomic-write-size=%" PRId64 " is not "
                                 "allowed; allowed are 512 and 4096",
                                 params->atomic_write_size);
        return false;
    }
    if (params->lie != BF_LIE_NONE &&
        params->write_cache != BF_CACHE_VOLATILE) {
        *error = g_strdup_printf("lie=%s needs write-cache=volatile; without "
                                 "one allowed is none",
                                 lie_names[params->lie]);
        return false;
    }
    if (params->battery_hold_up_ns &&
        params->write_cache != BF_CACHE_BATTERY) {
        *error = g_strdup_printf("battery-hold-up-ns=%" PRId64 " needs "
                                 "write-cache=battery; without one allowed "
                                 "is 0", params->battery_hold_up_ns);
        return false;
    }
    return true;
}

bool bf_params_finish(BfParams *params, char **error)
{
    settle_defaults(params);
    if (!check_rate("bandwidth", params->bandwidth, error) ||
        !check_rate("interface-bandwidth", params->interface_bandwidth,
                    error) ||
        !check_head(params, error) ||
        !check_power(params, error)) {
        return false;
    }
    if (params->destage_high_percent
        ? params->destage_low_percent >= params->destage_high_percent
        : params->destage_low_percent > 0) {
        *error = g_strdup_printf(
            "destage-low-percent=%" PRId64 " is not below "
            "destage-high-percent=%" PRId64 "; it has to be, or both 0",
            params->destage_low_percent, params->destage_high_percent);
        return false;
    }
    return true;
}

char *bf_params_get(const BfParams *params, const BfOption *option)
{
    int64_t value = *field(params, option);

    switch (option->kind) {
    case BF_OPTION_CHOICE:
        return g_strdup(option->choices[value]);
    case BF_OPTION_SPREAD:
        return bf_spread_text(spread_field(params, option));
    default:
        return g_strdup_printf("%" PRId64, value);
    }
}

void bf_params_copy_shared(BfParams *to, const BfParams *from)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        if (bf_options[i].of_controller) {
            *field(to, &bf_options[i]) = *field(from, &bf_options[i]);
        }
    }
}

const BfOption *bf_params_shared_mismatch(const BfParams *a,
                                          const BfParams *b)
{
    for (size_t i = 0; i < bf_options_count; i++) {
        if (bf_options[i].of_controller &&
            *field(a, &bf_options[i]) != *field(b, &bf_options[i])) {
            return &bf_options[i];
        }
    }
    return NULL;
}

int64_t bf_params_expected_flush_ns(const BfParams *params)
{
    return params->write_cache == BF_CACHE_NONE
        ? params->flush_clean_latency_ns : params->flush_latency_ns;
}

int64_t bf_params_track_size(const BfParams *params)
{
    return (__int128)params->bandwidth * 60 / params->rpm;
}

/* A discard or a write of zeroes may keep the others waiting. */
bool bf_params_pass_through(const BfParams *params)
{
    return params->write_cache == BF_CACHE_NONE &&
           params->read_latency_ns == 0 &&
           params->write_latency_ns == 0 &&
           params->discard_latency_ns == 0 &&
           params->zero_latency_ns == 0 &&
           params->fua_latency_ns == 0 &&
           params->flush_latency_ns == 0 &&
           params->flush_clean_latency_ns == 0 &&
           params->bandwidth == 0 &&
           params->interface_bandwidth == 0;
}
