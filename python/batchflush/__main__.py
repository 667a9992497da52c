# SPDX-License-Identifier: GPL-2.0-or-later
import sys

from batchflush import cli

# A process that Dask starts imports this, too.
if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
