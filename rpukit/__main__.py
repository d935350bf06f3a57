"""``python -m rpukit``: the command line, see `rpukit.cli`."""

import sys

from rpukit.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
