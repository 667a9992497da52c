/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instants: nanoseconds of whatever clock the caller uses */

#ifndef BF_INSTANT_H
#define BF_INSTANT_H

#include <stdint.h>

/* Not known yet, or not without something else happening first. */
#define BF_NEVER INT64_MAX

#endif
