"""`python -m tests.crash`: as many rounds of kills as are asked for, and what went wrong."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from .campaign import ROUNDS_OF_A_STORE, Campaign
from .lies import LIES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--lie", choices=LIES, default="", help="a bug to be found")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="pocketmq-kills-"))
    began = time.monotonic()

    def progress(campaign: Campaign) -> None:
        seconds = time.monotonic() - began
        messages = sum(campaign.acknowledged.values())
        print(f"{campaign.rounds} rounds, {messages} acknowledged, {seconds:.0f} s", flush=True)

    campaign = Campaign(root, options.seed, lie=options.lie, progress=progress)
    asyncio.run(campaign.run(options.rounds))
    endings = ", ".join(f"{count} {how}" for how, count in sorted(campaign.endings.items()))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(campaign.acknowledged.items()))
    print(f"seed {options.seed}: {campaign.rounds} rounds; processes: {endings}")
    print(f"acknowledged: {kinds}")
    print(f"{len(campaign.faults)} faults")
    if not campaign.faults:
        shutil.rmtree(root)
        return 0
    print(*campaign.faults[:20], sep="\n")
    print(
        f"the store is left in {campaign.store}; to see it again: python -m tests.crash "
        f"--rounds {ROUNDS_OF_A_STORE} --seed {campaign.seed_of_store}"
        + (f" --lie {options.lie!r}" if options.lie else ""),
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
