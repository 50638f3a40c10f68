"""`python -m heliograph`: the command line, as `helio`."""

import sys

from heliograph.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
