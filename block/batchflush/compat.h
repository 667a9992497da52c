/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where QEMU versions differ; the only place that knows */

#ifndef BLOCK_BATCHFLUSH_COMPAT_H
#define BLOCK_BATCHFLUSH_COMPAT_H

/* Up to 10.0 .bdrv_co_block_status takes "bool want_zero", later a mode. */
#define BATCHFLUSH_STATUS_WANT bool

/* Up to 10.0 class_init takes a "void *", later a "const void *". */
#if QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR == 0
#define BATCHFLUSH_CLASS_DATA void
#else
#define BATCHFLUSH_CLASS_DATA const void
#endif

#endif
