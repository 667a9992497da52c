# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmarks of `batchflush bench`, one module each."""
