// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * S1: jbd2 reclaims log space in the background before it runs out, and counts
 * the time that handles spend waiting for space.
 *
 * After Xiaoguang Wang, "jbd2: reclaim journal space asynchronously", 2019-09,
 * and its review: the threshold is a share of the log, 0 switches it off, and
 * the statistics are always on.
 */

#include <linux/batchflush.h>
#include <linux/jbd2.h>
#include <linux/math64.h>
#include <linux/seq_file.h>

static void reclaim(struct work_struct *work)
{
	journal_t *journal = container_of(work, journal_t,
					  j_batchflush_space.reclaim);

	atomic64_inc(&journal->j_batchflush_space.reclaims);
	mutex_lock_io(&journal->j_checkpoint_mutex);
	jbd2_log_do_checkpoint(journal);
	mutex_unlock(&journal->j_checkpoint_mutex);
}

void batchflush_log_space_init(struct batchflush_log_space *space)
{
	INIT_WORK(&space->reclaim, reclaim);
	atomic64_set(&space->reclaims, 0);
	atomic64_set(&space->stalls, 0);
	atomic64_set(&space->stall_ns, 0);
}

void batchflush_log_space_destroy(struct batchflush_log_space *space)
{
	cancel_work_sync(&space->reclaim);
}

void batchflush_reclaim_if_low(journal_t *journal)
{
	unsigned long low = mult_frac((unsigned long)journal->j_total_len,
				      batchflush_reclaim_percent, 100);

	/* What is not committed yet cannot be reclaimed. */
	if (jbd2_log_space_left(journal) < low &&
	    READ_ONCE(journal->j_checkpoint_transactions))
		queue_work(system_unbound_wq, &journal->j_batchflush_space.reclaim);
}

void batchflush_count_stall(journal_t *journal, u64 since)
{
	atomic64_inc(&journal->j_batchflush_space.stalls);
	atomic64_add(ktime_get_ns() - since,
		     &journal->j_batchflush_space.stall_ns);
}

void batchflush_log_space_show(struct seq_file *seq, journal_t *journal)
{
	struct batchflush_log_space *space = &journal->j_batchflush_space;
	unsigned int waiting = 0;
	transaction_t *transaction;

	spin_lock(&journal->j_list_lock);
	transaction = journal->j_checkpoint_transactions;
	if (transaction) {
		do {
			waiting++;
			transaction = transaction->t_cpnext;
		} while (transaction != journal->j_checkpoint_transactions);
	}
	spin_unlock(&journal->j_list_lock);

	seq_printf(seq, "log space:\n");
	seq_printf(seq, "  %lluus waited for space\n",
		   div_u64(atomic64_read(&space->stall_ns), 1000));
	seq_printf(seq, "  %llu waits for space\n",
		   atomic64_read(&space->stalls));
	seq_printf(seq, "  %llu reclaims in the background\n",
		   atomic64_read(&space->reclaims));
	seq_printf(seq, "  %u transactions waiting for checkpoint\n", waiting);
}
