"""`python -m maka_trio`: the `maka-trio` command."""

import sys

from maka_trio.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
