/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Registers of the batchflush control device
 *
 * Offsets into BAR 0; docs/specs/batchflush-control.rst says what they
 * mean.  Each is 64 bits wide and little endian.
 */

#ifndef HW_BATCHFLUSH_REGISTERS_H
#define HW_BATCHFLUSH_REGISTERS_H

#define BFC_SIZE                0x1000

#define BFC_MAGIC               0x000
#define BFC_VERSION             0x008
#define BFC_DISKS               0x010
#define BFC_SELECTOR            0x018
#define BFC_SLOWEST_NS          0x020

/* The selected disk, as latched */
#define BFC_DISK                0x100
#define BFC_STATUS              0x100
#define BFC_WRITE_CACHE         0x108
#define BFC_POWER_OFF           0x110
#define BFC_FLUSH_AVERAGE_NS    0x118
#define BFC_FLUSH_ARRIVALS      0x120
#define BFC_FLUSHES_ISSUED      0x128
#define BFC_FLUSHES_JOINED      0x130
#define BFC_FLUSHES_ALONE       0x138
#define BFC_FLUSHES_FAILED      0x140
#define BFC_CACHE_SIZE          0x148
#define BFC_DIRTY_BYTES         0x150
#define BFC_DESTAGED_BYTES      0x158
#define BFC_DESTAGE_FAILURES    0x160
#define BFC_STALLS              0x168
#define BFC_STALL_NS            0x170
#define BFC_POWER_CUTS          0x178
#define BFC_NODE_NAME           0x180
#define BFC_NODE_NAME_SIZE      0x020
#define BFC_BATTERY             0x1a0
#define BFC_HOLD_UP_NS          0x1a8
#define BFC_DISK_END            0x200

/* The doorbell */
#define BFC_DOORBELL            0x200
#define BFC_CUT_POLICY          0x200
#define BFC_CUT_SEED            0x208
#define BFC_CUT_GUEST           0x210
#define BFC_CUT_SCOPE           0x218
#define BFC_CUT                 0x220
#define BFC_RESTORE             0x228
#define BFC_CUT_RESULT          0x230
#define BFC_DOORBELL_END        0x300

#define BFC_MAGIC_VALUE         0x6c7274632d6c6662ull   /* "bfl-ctrl" */
#define BFC_VERSION_VALUE       2

#define BFC_POLICY_OF_NODE      UINT64_MAX
#define BFC_SEED_DRAWN          UINT64_MAX

typedef enum BfcStatus {
    BFC_STATUS_NONE,            /* the selector is no disk's number */
    BFC_STATUS_PRESENT,
    BFC_STATUS_GONE,            /* its node has been deleted */
} BfcStatus;

typedef enum BfcScope {
    BFC_SCOPE_ALL,              /* all batchflush nodes of the machine */
    BFC_SCOPE_SELECTED,         /* the selected disk's controller */
    BFC_SCOPE__MAX,
} BfcScope;

typedef enum BfcResult {
    BFC_RESULT_NONE,            /* nobody has rung since the reset */
    BFC_RESULT_DONE,
    BFC_RESULT_REFUSED,
} BfcResult;

#endif
