"""`python -m tests.interop.handover`: as many lives of one store as are asked for."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.interop.harness import ours

from .handover import MAKES, Handover
from .life import Stop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.handover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="lives of brokers, in all")
    parser.add_argument("--messages", type=int, default=250, help="of a life, at least")
    parser.add_argument("--store-rounds", type=int, default=10, help="lives of one store")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="pocketmq-handover-"))
    namesrv = ours.start_name_server(root)
    wrong = 0
    try:
        for number, begin in enumerate(range(0, options.rounds, options.store_rounds)):
            seed, rounds = options.seed + number, min(options.store_rounds, options.rounds - begin)
            began = time.monotonic()
            handover = Handover(root / str(seed), namesrv.address, seed)
            asyncio.run(campaign(handover, seed, rounds, options.messages))
            print(f"seed {seed}: {rounds} lives, {time.monotonic() - began:.0f} s")
            for what, count in sorted(handover.counts.items()):
                print(f"  {count:7} {what}")
            print(*handover.faults[:40], sep="\n", end="\n" if handover.faults else "", flush=True)
            wrong += len(handover.faults)
    finally:
        namesrv.process.kill()
    if wrong:
        print(f"{wrong} faults; the stores are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root)
    return 0


async def campaign(handover: Handover, seed: int, rounds: int, messages: int) -> None:
    """Lives that end in every way; the makes take turns."""
    chance = random.Random(seed)
    first = chance.randrange(2)
    ends = list(Stop)
    for number in range(rounds):
        make = MAKES[(first + number) % 2]
        if number and chance.random() < 0.2:
            await handover.kill_start(chance.choice(MAKES))
        # Each end comes once with each make before any comes again.
        if number % (2 * len(ends)) == 0:
            chance.shuffle(ends)
        stop = ends[number // 2 % len(ends)]
        pause = chance.choice((0.0, 0.0, 6.0))
        await handover.live(make, stop, chance.randint(messages // 3, messages), pause)
        print(f"life {number + 1}: {make}, {stop}, {len(handover.faults)} faults", flush=True)
    await handover.finish(MAKES[(first + rounds) % 2])


if __name__ == "__main__":
    raise SystemExit(main())
