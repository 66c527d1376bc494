"""`python -m tests.power_loss`: try as many states as are asked for, and say what is wrong."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from .campaign import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=__doc__)
    parser.add_argument("--states", type=int, default=10_000, help="in all (10000)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--flush", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--directory", type=Path, help="where to work (a temporary directory)")
    options = parser.parse_args()
    logging.getLogger("pocketmq").setLevel(logging.CRITICAL)
    modes = ("sync", "async") if options.flush == "both" else (options.flush,)
    root = options.directory or Path(tempfile.mkdtemp(prefix="pocketmq-power-"))
    faults = 0
    for mode in modes:
        began = time.monotonic()
        campaign = Campaign(
            root / mode,
            options.seed,
            sync=mode == "sync",
            say=lambda line: print(line, end="\r", file=sys.stderr),
        )
        asyncio.run(campaign.run(options.states // len(modes)))
        seconds = time.monotonic() - began
        print(
            f"{mode.upper()}_FLUSH, seed {options.seed}: {campaign.states} states of "
            f"{campaign.lives} lives in {seconds:.0f} s, {len(campaign.faults)} faults"
        )
        print(*campaign.faults, sep="\n", end="\n" if campaign.faults else "")
        faults += len(campaign.faults)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
