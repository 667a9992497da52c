/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where QEMU versions differ; the only place that knows */

#ifndef BLOCK_BATCHFLUSH_COMPAT_H
#define BLOCK_BATCHFLUSH_COMPAT_H

#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0

/* icount_enabled() */
#include "system/cpu-timers.h"

/* What .bdrv_co_block_status wants to know */
#define BATCHFLUSH_STATUS_WANT bool

/* The data of class_init */
#define BATCHFLUSH_CLASS_DATA void

#else

#include "exec/icount.h"

#define BATCHFLUSH_STATUS_WANT unsigned int
#define BATCHFLUSH_CLASS_DATA const void

#endif

#endif
