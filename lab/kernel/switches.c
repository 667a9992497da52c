// SPDX-License-Identifier: GPL-2.0-or-later
/* The switches: kernel parameters that choose among the experiments' arms. */

#include <linux/batchflush.h>
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/string.h>

int batchflush_commit_wait;
unsigned int batchflush_jiffy_us;
bool batchflush_fsync_handle;
unsigned int batchflush_reclaim_percent;
bool batchflush_coordinate;
bool batchflush_wait_unpin;

static const char * const commit_waits[] = {
	[BATCHFLUSH_COMMIT_WAIT_TODAY] = "today",
	[BATCHFLUSH_COMMIT_WAIT_JIFFY] = "jiffy",
	[BATCHFLUSH_COMMIT_WAIT_2009] = "2009",
};

static int set_commit_wait(const char *value, const struct kernel_param *param)
{
	int found = sysfs_match_string(commit_waits, value);

	if (found < 0)
		return found;
	*(int *)param->arg = found;
	return 0;
}

static int get_commit_wait(char *buffer, const struct kernel_param *param)
{
	return sprintf(buffer, "%s\n", commit_waits[*(int *)param->arg]);
}

static const struct kernel_param_ops commit_wait_ops = {
	.set = set_commit_wait,
	.get = get_commit_wait,
};

static int set_percent(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 0, 100);
}

/* From below any HZ's to the one of HZ=10. */
static int set_jiffy(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 0, 100000);
}

static const struct kernel_param_ops jiffy_ops = {
	.set = set_jiffy,
	.get = param_get_uint,
};

static const struct kernel_param_ops percent_ops = {
	.set = set_percent,
	.get = param_get_uint,
};

module_param_cb(commit_wait, &commit_wait_ops, &batchflush_commit_wait, 0444);
module_param_cb(jiffy_us, &jiffy_ops, &batchflush_jiffy_us, 0444);
module_param_named(fsync_handle, batchflush_fsync_handle, bool, 0444);
module_param_cb(reclaim_percent, &percent_ops, &batchflush_reclaim_percent, 0444);
module_param_named(coordinate, batchflush_coordinate, bool, 0444);
module_param_named(wait_unpin, batchflush_wait_unpin, bool, 0444);
