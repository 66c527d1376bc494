"""python -m tests.interop.failover --group ours,ours,ours --group official,official,official"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from ..harness.controllers import Controllers
from .campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--group", action="append", metavar="MAKES",
        help="such as ours,ours,official; may be repeated",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two failures")
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--kills-only", action="store_true", help="do not stop processes")
    parser.add_argument("--keep", action="store_true", help="keep the directories")
    options = parser.parse_args()
    failed = False
    for makes in options.group or ["ours,ours,ours"]:
        directory = Path(tempfile.mkdtemp(prefix="failover-"))
        controllers = Controllers(directory, options.controllers)
        try:
            controllers.wait()
            campaign = Campaign(directory, makes.split(","), controllers)
            outcome = campaign.run(
                options.seconds, every=options.every, stops=not options.kills_only
            )
            print(f"{makes}\n{outcome.report()}", flush=True)
            failed |= not outcome.is_whole
        finally:
            controllers.close()
            if options.keep:
                print(directory)
            else:
                shutil.rmtree(directory, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
