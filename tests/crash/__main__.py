"""`python -m tests.crash`: as many rounds of kills as are asked for, and what went wrong.

With --mixed, clients of every kind through faults of all servers (tests.crash.mixed).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from .campaign import Campaign
from .lies import LIES, MIXED_LIES
from .mixed import MixedCampaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--mixed", action="store_true", help="clients of every kind")
    parser.add_argument("--lie", choices=(LIES | MIXED_LIES), default="", help="a bug to be found")
    options = parser.parse_args()
    logging.getLogger("pocketmq").setLevel(logging.CRITICAL)  # clients tell of every fault
    root = Path(tempfile.mkdtemp(prefix="pocketmq-kills-"))
    began = time.monotonic()

    def progress(campaign: Campaign | MixedCampaign) -> None:
        seconds = time.monotonic() - began
        messages = sum(campaign.acknowledged.values())
        print(f"{campaign.rounds} rounds, {messages} acknowledged, {seconds:.0f} s", flush=True)

    kind: type[Campaign | MixedCampaign] = MixedCampaign if options.mixed else Campaign
    campaign = kind(root, options.seed, lie=options.lie, progress=progress)
    asyncio.run(campaign.run(options.rounds))
    endings = ", ".join(f"{count} {how}" for how, count in sorted(campaign.endings.items()))
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(campaign.acknowledged.items()))
    print(f"seed {options.seed}: {campaign.rounds} rounds; {endings}")
    print(f"acknowledged: {kinds}")
    if isinstance(campaign, MixedCampaign):
        groups = ", ".join(f"{count} {who}" for who, count in sorted(campaign.handled.items()))
        print(f"handled: {groups}; {campaign.late} came after the last send")
    print(f"{len(campaign.faults)} faults")
    if not campaign.faults:
        shutil.rmtree(root)
        return 0
    print(*campaign.faults[:20], sep="\n")
    print(
        f"the store is left in {campaign.store}; to see it again: python -m tests.crash "
        f"--rounds {campaign.rounds_of_a_store} --seed {campaign.seed_of_store}"
        + (" --mixed" if options.mixed else "")
        + (f" --lie {options.lie!r}" if options.lie else ""),
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
