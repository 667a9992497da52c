/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The battery file: a battery-backed cache beyond the end of QEMU
 *
 * While the power is off and the battery holds, the file has what the
 * cache held and what the cut has settled beside it.  Whoever opens the
 * node next brings that to the medium, and empties the file.
 *
 * The file is a header and records.  A header without records is an
 * empty battery: it is written first and replaced last, so a file whose
 * writing was cut short is empty, and one that has changed since does
 * not have its digest.  Numbers are little endian.
 */

#ifndef BLOCK_BATCHFLUSH_BATTERY_FILE_H
#define BLOCK_BATCHFLUSH_BATTERY_FILE_H

#include "block/block_int.h"

#include "store/cut.h"

#define BATCHFLUSH_BATTERY_MAGIC "bf-batt\n"
#define BATCHFLUSH_BATTERY_VERSION 1

typedef struct QEMU_PACKED BatchflushBatteryHeader {
    char magic[8];
    uint64_t version;
    uint64_t disk_size;         /* bytes */
    uint64_t records;
    uint64_t bytes;             /* of the records */
    uint8_t digest[32];         /* SHA-256 of header, this one 0, and them */
} BatchflushBatteryHeader;

/* Followed by its data, unless it is of zeroes. */
typedef struct QEMU_PACKED BatchflushBatteryRecord {
    uint64_t offset;
    uint64_t bytes;
    uint64_t zeroes;            /* 1, or 0 */
} BatchflushBatteryRecord;

typedef struct BatchflushBatteryFile BatchflushBatteryFile;

/*
 * Open or create the file of a disk of @disk_size bytes.  Returns NULL
 * and sets @errp if it is not ours, damaged, of another disk or in use;
 * then it is left as it is.
 */
BatchflushBatteryFile *batchflush_battery_file_open(const char *filename,
                                                    uint64_t disk_size,
                                                    Error **errp);

/* @file may be NULL. */
void batchflush_battery_file_close(BatchflushBatteryFile *file);

const char *batchflush_battery_file_name(const BatchflushBatteryFile *file);

/* The bytes of data that it holds. */
uint64_t batchflush_battery_file_held(const BatchflushBatteryFile *file);

/*
 * Bring what it holds to the medium, in order, and empty it.  Returns 0
 * or -errno, and then it can be tried again.
 */
int GRAPH_RDLOCK batchflush_battery_file_destage(BatchflushBatteryFile *file,
                                                 BdrvChild *child);

/*
 * Save what a cut has settled: patches, and then all dirty data of the
 * store, in which nothing may be under way.  Returns 0 or -errno, and
 * then the file is empty, if the host lets us.
 */
int batchflush_battery_file_save(BatchflushBatteryFile *file,
                                 const BfSurvivors *survivors,
                                 BfStore *store);

/* Returns 0 or -errno. */
int batchflush_battery_file_clear(BatchflushBatteryFile *file);

#endif
