/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The write log's format on disk; docs/specs/batchflush-log.rst
 * explains it, python/batchflush/crash/log.py reads it.
 *
 * All numbers are little endian.  Records are aligned to 64 bytes.
 */

#ifndef BLOCK_BATCHFLUSH_LOG_FORMAT_H
#define BLOCK_BATCHFLUSH_LOG_FORMAT_H

#include <stdint.h>

#define BF_LOG_MAGIC "batchflush log\r\n"
#define BF_LOG_VERSION 1
#define BF_LOG_RECORD_MAGIC 0x524c4642      /* "BFLR" */
#define BF_LOG_ALIGN 64
#define BF_LOG_HEADER_SIZE 512
#define BF_LOG_FLUSHES_PER_INDEX 1024

enum {
    BF_LOG_WRITE = 1,
    BF_LOG_ZERO = 2,
    BF_LOG_DISCARD = 3,
    BF_LOG_FLUSH = 4,
    BF_LOG_DONE = 5,        /* one of the above has ended */
    BF_LOG_INDEX = 6,
    BF_LOG_END = 7,         /* the log was closed */
};

#define BF_LOG_FUA 1        /* flag */

typedef struct BfLogHeader {
    char magic[16];
    uint32_t version;
    uint32_t sector_size;
    uint64_t disk_size;     /* bytes */
    uint32_t write_cache;   /* 0 none, 1 volatile, 2 battery */
    uint32_t crc;           /* CRC-32 of all before it */
    /* Rewritten each time an index has been appended. */
    uint64_t index;         /* where the last one is, 0: nowhere */
    uint32_t index_crc;     /* CRC-32 of that number */
    uint32_t zero;
} BfLogHeader;

typedef struct BfLogRecord {
    uint32_t magic;
    uint16_t kind;
    uint16_t flags;
    uint64_t position;      /* INDEX, END: of the record that follows */
    uint64_t time_ns;       /* of the node's clock */
    uint64_t offset;        /* bytes; DONE: position of what has ended */
                            /* INDEX, END: where the index before is */
    uint64_t length;        /* bytes; DONE: 0 or its errno */
                            /* INDEX: number of its first flush */
    uint32_t data_length;   /* bytes that follow, without padding */
    uint32_t data_crc;      /* CRC-32 of those */
    uint64_t flush;         /* where the flush before is, 0: nowhere */
    uint32_t zero;
    uint32_t crc;           /* CRC-32 of all before it */
} BfLogRecord;

/* An index's data: one for each flush since the index before. */
typedef struct BfLogIndexEntry {
    uint64_t position;
    uint64_t place;         /* where its record is in the file */
} BfLogIndexEntry;

#endif
