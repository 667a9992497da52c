# SPDX-License-Identifier: GPL-2.0-or-later
"""Sphinx's configuration; ./batchflush docs builds these pages."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs/extensions"), str(ROOT / "python")]

project = "batchflush"
html_title = "batchflush"
html_theme = "furo"
html_copy_source = False
html_show_copyright = False

extensions = ["qapi_reference", "class_reference", "page_links"]
exclude_patterns = ["extensions"]

# A word in single backquotes with no role is a mistake, not an emphasis.
default_role = "any"
nitpicky = True
highlight_language = "none"
