# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs that carry the driver are started as in tests/driver."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "driver"))
