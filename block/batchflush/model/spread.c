/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How times spread around their nominal value: see spread.h */

#include <errno.h>
#include <glib.h>
#include <math.h>
#include <string.h>

#include "spread.h"

#define FACTOR_MAX 1e6

/* Kinds with one parameter, and its range. */
static const struct {
    const char *name;
    double min;
    double max;
} ranges[] = {
    [BF_SPREAD_UNIFORM] = { "uniform", 0, 100 },
    [BF_SPREAD_NORMAL] = { "normal", 0, 33 },
    [BF_SPREAD_LOG_NORMAL] = { "log-normal", 0, 1000 },
    [BF_SPREAD_PARETO] = { "pareto", 1.1, 100 },
};

/* What a draw needs of the parameter. */
static void derive(BfSpread *spread)
{
    double deviation = spread->parameter / 100;

    switch (spread->kind) {
    case BF_SPREAD_UNIFORM:
    case BF_SPREAD_NORMAL:
        spread->scale = deviation;
        break;
    case BF_SPREAD_LOG_NORMAL:
        /* Mean 1: exp(sigma z - sigma^2 / 2). */
        spread->exponent = sqrt(log1p(deviation * deviation));
        spread->scale = -spread->exponent * spread->exponent / 2;
        break;
    case BF_SPREAD_PARETO:
        /* Mean 1: the smallest factor is (a - 1) / a. */
        spread->exponent = -1 / spread->parameter;
        spread->scale = 1 + spread->exponent;
        break;
    }
}

/* A decimal number up to @end: digits, and a point with more of them. */
static bool parse_number(const char *text, const char *end, double *number)
{
    size_t length = end - text;
    char *stop;

    if (length == 0 || length > 20 ||
        strspn(text, "0123456789.") < length || !g_ascii_isdigit(*text) ||
        !g_ascii_isdigit(end[-1])) {
        return false;
    }
    *number = g_ascii_strtod(text, &stop);
    return stop == end;
}

static bool parse_point(BfSpread *spread, const char *text, const char *end,
                        char **why)
{
    const char *middle = memchr(text, '=', end - text);
    BfSpreadPoint *point = &spread->points[spread->n_points];
    const BfSpreadPoint *last = spread->n_points ? point - 1 : NULL;

    if (!middle || !parse_number(text, middle, &point->percentile) ||
        !parse_number(middle + 1, end, &point->factor)) {
        *why = g_strdup("is not a table; allowed are points "
                        "PERCENTILE=FACTOR with a / between them");
        return false;
    }
    if (point->percentile > 100 || point->factor > FACTOR_MAX) {
        *why = g_strdup("is out of range; allowed are percentiles of 0 to "
                        "100 and factors of 0 to 1000000");
        return false;
    }
    if (last && (point->percentile <= last->percentile ||
                 point->factor < last->factor)) {
        *why = g_strdup_printf("is out of order at %g=%g; percentiles have "
                               "to rise, and factors must not fall",
                               point->percentile, point->factor);
        return false;
    }
    spread->n_points++;
    return true;
}

static bool parse_table(BfSpread *spread, const char *text, char **why)
{
    const char *end;

    do {
        end = strchrnul(text, '/');
        if (spread->n_points == BF_SPREAD_POINTS) {
            *why = g_strdup_printf("has too many points; allowed are 1 to "
                                   "%d", BF_SPREAD_POINTS);
            return false;
        }
        if (!parse_point(spread, text, end, why)) {
            return false;
        }
        text = end + 1;
    } while (*end);
    return true;
}

static bool parse_parameter(BfSpread *spread, const char *text, char **why)
{
    const double min = ranges[spread->kind].min;
    const double max = ranges[spread->kind].max;
    bool number = parse_number(text, text + strlen(text),
                               &spread->parameter);

    if (number && spread->parameter >= min && spread->parameter <= max) {
        return true;
    }
    *why = g_strdup_printf("is %s; allowed are %s:%g to %s:%g",
                           number || *text == '-' ? "out of range"
                                                  : "not a number",
                           ranges[spread->kind].name, min,
                           ranges[spread->kind].name, max);
    return false;
}

static bool parse_kind(BfSpread *spread, const char *text, size_t length)
{
    for (size_t i = BF_SPREAD_UNIFORM; i < G_N_ELEMENTS(ranges); i++) {
        if (strlen(ranges[i].name) == length &&
            strncmp(ranges[i].name, text, length) == 0) {
            spread->kind = i;
            return true;
        }
    }
    return false;
}

bool bf_spread_parse(BfSpread *spread, const char *text, char **why)
{
    const char *colon = strchr(text, ':');
    BfSpread parsed;
    bool ok = true;

    memset(&parsed, 0, sizeof(parsed));
    if (g_str_has_prefix(text, "table:")) {
        parsed.kind = BF_SPREAD_TABLE;
        ok = parse_table(&parsed, colon + 1, why);
    } else if (colon && parse_kind(&parsed, text, colon - text)) {
        ok = parse_parameter(&parsed, colon + 1, why);
    } else if (strcmp(text, "fixed") != 0) {
        *why = g_strdup("is not known; allowed are fixed, uniform:PERCENT, "
                        "normal:PERCENT, log-normal:PERCENT, pareto:SHAPE "
                        "and table:PERCENTILE=FACTOR/...");
        ok = false;
    }
    if (ok) {
        derive(&parsed);
        memcpy(spread, &parsed, sizeof(parsed));
    }
    return ok;
}

static char *table_text(const BfSpread *spread)
{
    GString *text = g_string_new("table:");

    for (int64_t i = 0; i < spread->n_points; i++) {
        g_string_append_printf(text, "%s%.10g=%.10g", i ? "/" : "",
                               spread->points[i].percentile,
                               spread->points[i].factor);
    }
    return g_string_free(text, FALSE);
}

char *bf_spread_text(const BfSpread *spread)
{
    switch (spread->kind) {
    case BF_SPREAD_FIXED:
        return g_strdup("fixed");
    case BF_SPREAD_TABLE:
        return table_text(spread);
    default:
        return g_strdup_printf("%s:%.10g", ranges[spread->kind].name,
                               spread->parameter);
    }
}

/* The integral of the quantile function. */
static double table_mean(const BfSpread *spread)
{
    const BfSpreadPoint *first = &spread->points[0];
    const BfSpreadPoint *last = &spread->points[spread->n_points - 1];
    double sum = first->percentile * first->factor +
                 (100 - last->percentile) * last->factor;

    for (const BfSpreadPoint *p = first; p < last; p++) {
        sum += (p[1].percentile - p[0].percentile) *
               (p[0].factor + p[1].factor) / 2;
    }
    return sum / 100;
}

double bf_spread_mean(const BfSpread *spread)
{
    return spread->kind == BF_SPREAD_TABLE ? table_mean(spread) : 1;
}

static double table_at(const BfSpread *spread, double percentile)
{
    const BfSpreadPoint *p = spread->points;
    const BfSpreadPoint *last = &p[spread->n_points - 1];

    if (percentile <= p->percentile) {
        return p->factor;
    }
    while (p < last && percentile > p[1].percentile) {
        p++;
    }
    if (p == last) {
        return last->factor;
    }
    return p[0].factor + (p[1].factor - p[0].factor) *
           (percentile - p[0].percentile) /
           (p[1].percentile - p[0].percentile);
}

double bf_spread_draw(const BfSpread *spread, BfRandom *random)
{
    switch (spread->kind) {
    case BF_SPREAD_UNIFORM:
        return 1 + spread->scale * (2 * bf_random_unit(random) - 1);
    case BF_SPREAD_NORMAL:
        return fmax(0, 1 + spread->scale * bf_random_normal(random));
    case BF_SPREAD_LOG_NORMAL:
        return fmin(FACTOR_MAX, exp(spread->scale + spread->exponent *
                                    bf_random_normal(random)));
    case BF_SPREAD_PARETO:
        return fmin(FACTOR_MAX, spread->scale * pow(bf_random_unit(random),
                                                    spread->exponent));
    case BF_SPREAD_TABLE:
        return table_at(spread, 100 * bf_random_unit(random));
    default:
        return 1;
    }
}
