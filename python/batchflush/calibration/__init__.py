# SPDX-License-Identifier: GPL-2.0-or-later
"""From real storage to a class: what is probed, the probe, the fit, and the way back."""
