# SPDX-License-Identifier: GPL-2.0-or-later
import sys

from batchflush import cli

sys.exit(cli.main(sys.argv[1:]))
