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

static u64 jiffy_ns(void)
{
	if (batchflush_jiffy_us)
		return batchflush_jiffy_us * NSEC_PER_USEC;
	return TICK_NSEC;
}

static void sleep_until(ktime_t end)
{
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_hrtimeout(&end, HRTIMER_MODE_ABS);
}

/*
 * Before: as long as each jiffy brings another handle.  schedule_timeout(1)
 * slept until the next tick then; since Linux 4.8 it sleeps a jiffy longer.
 */
static void wait_jiffies(transaction_t *transaction)
{
	int before;

	do {
		u64 now = ktime_get_ns();
		u64 into_jiffy = now % jiffy_ns();

		before = atomic_read(&transaction->t_handle_count);
		sleep_until(ns_to_ktime(now - into_jiffy + jiffy_ns()));
	} while (atomic_read(&transaction->t_handle_count) != before);
}

/* After: the average commit, unless the transaction has run for that long. */
static void wait_average(journal_t *journal, transaction_t *transaction)
{
	ktime_t now = ktime_get();
	u64 wait;

	read_lock(&journal->j_state_lock);
	wait = min(journal->j_average_commit_time, jiffy_ns());
	read_unlock(&journal->j_state_lock);

	if (ktime_to_ns(ktime_sub(now, transaction->t_start_time)) < wait)
		sleep_until(ktime_add_ns(now, wait));
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
