/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data store: what the write cache holds
 *
 * The store keeps the newest data of everything that has been written
 * to the cache and is not yet on the medium.  It never looks at a clock
 * and does no I/O: it is told what is written, hands out what is dirty
 * in the order of the medium, and is told what has become durable.
 *
 * Offsets and lengths are in bytes and multiples of BF_SECTOR_SIZE.
 * Room is counted in blocks of BF_BLOCK_SIZE; within a block every
 * sector is known to be cached or not.
 *
 * Nothing here locks: the caller's lock must be held when calling any
 * function.  Functions assert their arguments and never fail,
 * bf_store_new() apart; but a host that has no memory left for a store
 * that was not preallocated ends the process, as it does for any
 * allocation.
 */

#ifndef BF_STORE_H
#define BF_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define BF_SECTOR_SIZE 512
#define BF_BLOCK_SIZE 4096

typedef struct BfStore BfStore;
typedef struct BfSweep BfSweep;
typedef struct BfHistory BfHistory;

/*
 * A store with room for @capacity bytes (rounded down to whole blocks,
 * at least one).  Address space is reserved at once, and with
 * @preallocate the memory too; otherwise memory is taken as it is used
 * and given back by bf_store_trim().
 *
 * Returns NULL, with errno set, if there is not enough memory.  With
 * @preallocate, that is what Linux calls available, on the host and in
 * the control group of this process.
 */
BfStore *bf_store_new(uint64_t capacity, bool preallocate);
void bf_store_free(BfStore *store);

/*
 * Have @history keep what is written again, or replaced, before it is
 * durable.  It has to outlive the store.
 */
void bf_store_set_history(BfStore *store, BfHistory *history);

/* Bytes taken, in whole blocks; never more than the capacity. */
uint64_t bf_store_used(const BfStore *store);
/* Bytes of sectors that are dirty. */
uint64_t bf_store_dirty(const BfStore *store);
uint64_t bf_store_capacity(const BfStore *store);
/*
 * Bytes of memory that finding the data takes when the store is full,
 * beside the data itself.  An open sweep takes 16 bytes more for every
 * block it claimed.
 */
uint64_t bf_store_overhead(const BfStore *store);

/* Bytes of additional room that a write to this range would take. */
uint64_t bf_store_room_for(const BfStore *store, uint64_t offset,
                           uint64_t bytes);

/*
 * Cache @bytes of data, which begin @skip bytes into @iov.  There must
 * be room for them.  Every write gets a number, larger than all before
 * it, which is returned.
 */
uint64_t bf_store_write(BfStore *store, uint64_t offset, uint64_t bytes,
                        const struct iovec *iov, unsigned niov, size_t skip);

/* The number of the last write; 0 before the first. */
uint64_t bf_store_last_write(const BfStore *store);

/* Take a number for a write that goes past the cache. */
uint64_t bf_store_next_write(BfStore *store);

/*
 * Whether the sector at @offset is cached.  Stores in *@run how many of
 * the @bytes from there share the answer: at least one sector, and
 * possibly not all of them if they are more than 64 MiB.
 */
bool bf_store_lookup(const BfStore *store, uint64_t offset, uint64_t bytes,
                     uint64_t *run);

/* Copy a range that is cached throughout, to @skip bytes into @iov. */
void bf_store_read(const BfStore *store, uint64_t offset, uint64_t bytes,
                   const struct iovec *iov, unsigned niov, size_t skip);

/*
 * Forget cached data in the range, unless it was written after write
 * number @up_to (UINT64_MAX forgets all of it).  For zeroes, discards
 * and truncation, which take its place on the medium: a write that
 * came later than they did must survive them.  Each sector is judged by
 * its own last write.  @bytes may reach beyond everything there is.
 */
void bf_store_drop(BfStore *store, uint64_t offset, uint64_t bytes,
                   uint64_t up_to);

/*
 * Write @number of this range is about to go past the cache.  What is
 * cached of it counts as durable: it would be, had it been destaged, and
 * it is dropped when the write has reached the medium.  There has to be
 * a history.
 */
void bf_store_settle(BfStore *store, uint64_t offset, uint64_t bytes,
                     uint64_t number);

/* Forget everything.  Open sweeps become empty. */
void bf_store_drop_all(BfStore *store);

/*
 * Give memory of unused blocks back to the host, unless preallocated.
 * Takes time in proportion to the blocks that were used since the last
 * time.
 */
void bf_store_trim(BfStore *store);

/*
 * A sweep moves dirty data to the medium, in ascending order of its
 * offset.  It claims whole blocks, that is the sectors of them that are
 * dirty, as far as no other sweep has claimed them and @max_bytes
 * (UINT64_MAX: all; at least BF_BLOCK_SIZE) suffice.  It begins with
 * the first block that starts at or behind @from, and wraps around at
 * the end.
 *
 * The caller walks its runs with bf_sweep_next(), writes them to the
 * medium, and then ends it with bf_store_sweep_done().  A block that is
 * written again meanwhile, be it a single sector, stops belonging to
 * it: all of the block is dirty and unclaimed again, and stays so when
 * the sweep ends.
 *
 * Several sweeps may be open, and two may hold versions of one block.
 * What bf_sweep_next() has copied must be on the medium before another
 * sweep is walked or the medium is changed otherwise; then an older
 * version never overtakes a newer one.
 *
 * Returns NULL if nothing is dirty and unclaimed.
 */
BfSweep *bf_store_sweep(BfStore *store, uint64_t from, uint64_t max_bytes);

/*
 * As bf_store_sweep(), but the sweep ends with the first block that
 * does not adjoin the one before it: what one movement of a disk's head
 * puts onto the medium.
 */
BfSweep *bf_store_sweep_run(BfStore *store, uint64_t from,
                            uint64_t max_bytes);

/*
 * The sweep's place in the order of what is put onto the medium (see
 * history.h): behind all writes before it began.
 */
uint64_t bf_sweep_order(const BfSweep *sweep);

/* Bytes claimed when the sweep began. */
uint64_t bf_sweep_bytes(const BfSweep *sweep);

/* Where its last claimed sector ends: where a next one may go on. */
uint64_t bf_sweep_end(const BfSweep *sweep);

/*
 * The extents of a sweep as they were claimed, for asking how long it
 * takes: calls @run for each contiguous one in order.
 */
typedef void BfSweepRun(uint64_t offset, uint64_t bytes, void *opaque);
void bf_sweep_foreach(const BfSweep *sweep, BfSweepRun *run, void *opaque);

/*
 * Copy the next contiguous run of at most @max bytes (a multiple of
 * BF_BLOCK_SIZE) to @buf and store where it belongs in *@offset.  What
 * was dropped since is left out; what was written again is copied as it
 * was when the sweep began, or without a history in its newest form.
 *
 * Returns the length in bytes, 0 at the end.
 */
size_t bf_sweep_next(BfStore *store, BfSweep *sweep, void *buf, size_t max,
                     uint64_t *offset);

/*
 * The data of a sweep is durable from now on, though it is not ended
 * yet: a cut does not take it any more.
 */
void bf_sweep_set_durable(BfSweep *sweep);

/*
 * The number of the last sweep that began, and whether one up to a
 * number is under way whose data is not durable.
 */
uint64_t bf_store_last_sweep(const BfStore *store);
bool bf_store_sweeping(const BfStore *store, uint64_t up_to);

/*
 * Give up what a sweep has claimed: it is dirty and unclaimed as before,
 * at once, for others to claim.  The sweep stays open, and empty.
 */
void bf_store_sweep_abort(BfStore *store, BfSweep *sweep);

/*
 * End the sweep and free it.  With @durable its data leaves the cache,
 * otherwise it is dirty and unclaimed as before.
 *
 * Returns the bytes that left the cache.
 */
uint64_t bf_store_sweep_done(BfStore *store, BfSweep *sweep, bool durable);

#endif
