# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests: real Linux kernels that run on an emulated disk, and what they report."""
