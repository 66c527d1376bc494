"""`python -m pocketmq`: the command line."""

import sys

from pocketmq.cli import main

if __name__ == "__main__":
    sys.exit(main())
