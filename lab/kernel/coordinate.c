// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * S3: concurrent fsyncs of ext4 share flushes of the disk.
 *
 * After Darrick J. Wong, "ext4: coordinate data-only flush requests sent by
 * fsync", 2010-11.  The first of a batch waits an average flush for others to
 * close up behind it, then flushes for all.  Who comes while the flush is under
 * way may have written too late for it, so it waits for the end and starts
 * over.  Where a flush takes less than 2 ms everybody flushes alone; and who was
 * alone the last time does not wait.
 */

#include <linux/batchflush.h>
#include <linux/blkdev.h>
#include <linux/completion.h>
#include <linux/hrtimer.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/slab.h>

enum { IDLE, COLLECTING, FLUSHING };

#define FAST_FLUSH_NS	(2 * NSEC_PER_MSEC)

struct batchflush_batch {
	refcount_t		refs;
	struct completion	done;
	int			error;
	unsigned int		arrivals;	/* until it was done; [flushes->lock] */
};

void batchflush_flushes_init(struct batchflush_flushes *flushes)
{
	memset(flushes, 0, sizeof(*flushes));
	spin_lock_init(&flushes->lock);
}

static void put_batch(struct batchflush_batch *batch)
{
	if (refcount_dec_and_test(&batch->refs))
		kfree(batch);
}

static int wait_for_batch(struct batchflush_batch *batch)
{
	int error;

	wait_for_completion(&batch->done);
	error = batch->error;
	put_batch(batch);
	return error;
}

static int timed_flush(struct batchflush_flushes *flushes,
		       struct block_device *bdev)
{
	u64 start = ktime_get_ns();
	int error = blkdev_issue_flush(bdev);
	u64 took = ktime_get_ns() - start;

	spin_lock(&flushes->lock);
	if (flushes->average_ns)
		took = div_u64(3 * flushes->average_ns + took, 4);
	flushes->average_ns = took;
	spin_unlock(&flushes->lock);
	return error;
}

static void collect(u64 wait_ns)
{
	ktime_t end = ktime_add_ns(ktime_get(), wait_ns);

	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_hrtimeout(&end, HRTIMER_MODE_ABS);
}

static int lead(struct batchflush_flushes *flushes,
		struct batchflush_batch *batch, struct block_device *bdev,
		u64 wait_ns)
{
	if (wait_ns)
		collect(wait_ns);

	spin_lock(&flushes->lock);
	flushes->state = FLUSHING;
	spin_unlock(&flushes->lock);

	batch->error = timed_flush(flushes, bdev);

	spin_lock(&flushes->lock);
	flushes->state = IDLE;
	flushes->batch = NULL;
	flushes->lone = batch->arrivals == 1 ? current->pid : 0;
	spin_unlock(&flushes->lock);

	complete_all(&batch->done);
	return wait_for_batch(batch);
}

int batchflush_flush(struct batchflush_flushes *flushes,
		     struct block_device *bdev, u64 max_wait_ns)
{
	struct batchflush_batch *own;
	u64 wait_ns;

	if (READ_ONCE(flushes->average_ns) < FAST_FLUSH_NS)
		return timed_flush(flushes, bdev);
	own = kzalloc(sizeof(*own), GFP_NOFS);
	if (!own)
		return timed_flush(flushes, bdev);
	refcount_set(&own->refs, 1);
	init_completion(&own->done);

	for (;;) {
		struct batchflush_batch *other;
		bool joins;

		spin_lock(&flushes->lock);
		other = flushes->batch;
		if (!other)
			break;
		joins = flushes->state == COLLECTING;
		other->arrivals++;
		refcount_inc(&other->refs);
		spin_unlock(&flushes->lock);

		if (joins) {
			kfree(own);
			return wait_for_batch(other);
		}
		wait_for_batch(other);
	}

	own->arrivals = 1;
	flushes->batch = own;
	flushes->state = COLLECTING;
	wait_ns = min(flushes->average_ns, max_wait_ns);
	if (flushes->lone == current->pid)
		wait_ns = 0;
	spin_unlock(&flushes->lock);

	return lead(flushes, own, bdev, wait_ns);
}
