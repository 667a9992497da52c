// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * S0: how long the first fsync of a jbd2 transaction waits for company.
 *
 * The two rules of Josef Bacik, "jbd: improve fsync batching", 2009-01-08.  In
 * both a task that was the last to sync, too, has no company to wait for.
 */

#include <linux/batchflush.h>
#include <linux/hrtimer.h>
#include <linux/jbd2.h>
#include <linux/jiffies.h>
#include <linux/sched.h>

/* Before: as long as each jiffy brings another handle. */
static void wait_jiffies(transaction_t *transaction)
{
	int before;

	do {
		before = atomic_read(&transaction->t_handle_count);
		schedule_timeout_uninterruptible(1);
	} while (atomic_read(&transaction->t_handle_count) != before);
}

/* After: the average commit, unless the transaction has run for that long. */
static void wait_average(journal_t *journal, transaction_t *transaction)
{
	const u64 jiffy_ns = NSEC_PER_SEC / HZ;
	ktime_t now = ktime_get();
	ktime_t end;
	u64 wait;

	read_lock(&journal->j_state_lock);
	wait = min(journal->j_average_commit_time, jiffy_ns);
	read_unlock(&journal->j_state_lock);

	if (ktime_to_ns(ktime_sub(now, transaction->t_start_time)) >= wait)
		return;
	end = ktime_add_ns(now, wait);
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_hrtimeout(&end, HRTIMER_MODE_ABS);
}

void batchflush_wait_for_company(journal_t *journal, handle_t *handle,
				 transaction_t *transaction)
{
	if (batchflush_commit_wait == BATCHFLUSH_COMMIT_WAIT_TODAY ||
	    !handle->h_sync || journal->j_last_sync_writer == current->pid)
		return;

	/* Also keeps jbd2's own wait from being made. */
	journal->j_last_sync_writer = current->pid;
	if (batchflush_commit_wait == BATCHFLUSH_COMMIT_WAIT_JIFFY)
		wait_jiffies(transaction);
	else
		wait_average(journal, transaction);
}
