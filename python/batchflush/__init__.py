# SPDX-License-Identifier: GPL-2.0-or-later
"""batchflush: emulated disks for people who work on fsync."""
