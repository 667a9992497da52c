/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of storage classes: see profile.h */

#include <stddef.h>

#include "profile.h"
#include "batchflush-profiles.h"
