/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the laboratory's experiments change in Linux, as switches of one kernel.
 *
 * Each switch is a kernel parameter, batchflush.NAME=VALUE, and can be read in
 * /sys/module/batchflush/parameters.  With all of them at their first value the
 * kernel behaves as Debian's source does.  graft/linux.toml says where the
 * functions are called.
 */
#ifndef _LINUX_BATCHFLUSH_H
#define _LINUX_BATCHFLUSH_H

#include <linux/atomic.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

struct batchflush_batch;
struct block_device;
struct jbd2_journal_handle;
struct journal_s;
struct seq_file;
struct transaction_s;

/* Switches */

/* How the first fsync of a transaction waits for others. */
enum batchflush_commit_wait {
	BATCHFLUSH_COMMIT_WAIT_TODAY,	/* the average commit time, at most max_batch_time */
	BATCHFLUSH_COMMIT_WAIT_JIFFY,	/* before 2009: a jiffy, again while others join */
	BATCHFLUSH_COMMIT_WAIT_2009,	/* the average commit time, at most a jiffy */
};

extern int batchflush_commit_wait;
/* How long a jiffy is to the two rules of 2009; 0: as long as this kernel's. */
extern unsigned int batchflush_jiffy_us;
/* ext4's fsync starts its data and goes through one sync handle, as ext3's did. */
extern bool batchflush_fsync_handle;
/* jbd2 reclaims space when less than this share of the log is free; 0: never. */
extern unsigned int batchflush_reclaim_percent;
/* ext4's fsyncs share flushes of the disk. */
extern bool batchflush_coordinate;
/* btrfs: fsyncs that join a commit wait until its extents are unpinned. */
extern bool batchflush_wait_unpin;

/* jbd2's commit */

/* At the end of a sync handle, before jbd2's own wait, which it may replace. */
void batchflush_wait_for_company(struct journal_s *journal,
				 struct jbd2_journal_handle *handle,
				 struct transaction_s *transaction);

/* 2009 gave the last commit three times the weight of the average. */
static inline bool batchflush_last_commit_weighs_more(void)
{
	return batchflush_commit_wait == BATCHFLUSH_COMMIT_WAIT_2009;
}

/* jbd2's log space; one of them is part of each journal. */

struct batchflush_log_space {
	struct work_struct	reclaim;
	atomic64_t		reclaims;	/* in the background */
	atomic64_t		stalls;		/* handles that waited for space */
	atomic64_t		stall_ns;
};

void batchflush_log_space_init(struct batchflush_log_space *space);
void batchflush_log_space_destroy(struct batchflush_log_space *space);
/* A handle has got its credits.  The caller holds j_state_lock. */
void batchflush_reclaim_if_low(struct journal_s *journal);
/* A handle has waited for space since ktime_get_ns() was @since. */
void batchflush_count_stall(struct journal_s *journal, u64 since);
/* Lines for /proc/fs/jbd2/DEVICE/info. */
void batchflush_log_space_show(struct seq_file *seq, struct journal_s *journal);

/* ext4's flushes; one of them is part of each mounted file system. */

struct batchflush_flushes {
	spinlock_t		lock;
	int			state;
	struct batchflush_batch	*batch;
	u64			average_ns;	/* of a flush; 0: none measured */
	pid_t			lone;		/* whose batch was the last, if nobody came */
};

void batchflush_flushes_init(struct batchflush_flushes *flushes);
/* Make durable what was written to @bdev, alone or in company. */
int batchflush_flush(struct batchflush_flushes *flushes,
		     struct block_device *bdev, u64 max_wait_ns);

#endif
