"""`python -m tests.durability`: as many power cuts and disk faults as are asked for, and what the
broker did wrong."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import deque
from functools import partial
from pathlib import Path

from tests.fast_files import memory_directory

from .base_stores import quick_disk
from .damaged_store import Damages
from .failing_disk import drawn_fault, try_fault
from .power_loss import PowerLoss

#: Damages after which there is a line, and faults after which there are enough.
PROGRESS, MOST_FAULTS = 500, 20


class LastLines(logging.Handler):
    """Keeps the last lines of the log, for a failure of the campaign itself."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[str] = deque(maxlen=50)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def main() -> int:
    log = logging.getLogger("pocketmq")
    last = LastLines()
    log.addHandler(last)
    log.propagate = False
    try:
        return campaigns()
    except Exception:
        print(*last.lines, sep="\n", file=sys.stderr)
        raise


def campaigns() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.durability", description=__doc__)
    parser.add_argument("--states", type=int, default=0, help="that power cuts leave, in all")
    parser.add_argument("--faults", type=int, default=0, help="of failing disks, in all")
    parser.add_argument("--damages", type=int, default=0, help="of files, in all")
    parser.add_argument("--first", type=int, default=0, help="number of the first damage")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--mappings", type=int, help="keep only so many consume-queue files mapped (power cuts)"
    )
    options = parser.parse_args()
    if not options.states and not options.faults and not options.damages:
        parser.error("say how many: --states, --faults or --damages")
    root = Path(tempfile.mkdtemp(prefix="pocketmq-durability-", dir=memory_directory()))
    wrong = 0
    for sync in (True, False):
        mode = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
        for kind, run, count in (
            ("power cuts", partial(power_cuts, options.mappings), options.states // 4),
            ("power cuts with timed messages", timed_power_cuts, options.states // 4),
            ("failing disks", failing_disks, options.faults // 2),
        ):
            if count:
                began = time.monotonic()
                tried, faults = asyncio.run(run(root / f"{mode} {kind}", options.seed, count, sync))
                seconds = time.monotonic() - began
                print(f"{mode}, {kind}, seed {options.seed}: {tried}, {seconds:.0f} s", flush=True)
                print(*faults, sep="\n", end="\n" if faults else "", flush=True)
                wrong += len(faults)
    if options.damages:
        began = time.monotonic()
        tried, faults = asyncio.run(
            damages(root / "damages", options.seed, options.first, options.damages)
        )
        seconds = time.monotonic() - began
        print(f"damaged stores, seed {options.seed}: {tried}, {seconds:.0f} s", flush=True)
        print(*faults, sep="\n", end="\n" if faults else "", flush=True)
        wrong += len(faults)
    if wrong:
        print(f"{wrong} faults; the last states are in {root}", file=sys.stderr)
        return 1
    shutil.rmtree(root)
    return 0


async def timed_power_cuts(root: Path, seed: int, count: int, sync: bool) -> tuple[str, list[str]]:
    return await power_cuts(None, root, seed, count, sync, timed=True)


async def power_cuts(
    most_mappings: int | None,
    root: Path,
    seed: int,
    count: int,
    sync: bool,
    *,
    timed: bool = False,
) -> tuple[str, list[str]]:
    campaign = PowerLoss(root, seed, sync=sync, timed=timed, most_mappings=most_mappings)
    await campaign.run(count)
    return f"{campaign.states} states of {campaign.lives} lives", campaign.faults


async def failing_disks(root: Path, seed: int, count: int, sync: bool) -> tuple[str, list[str]]:
    chance = random.Random(seed)
    faults: list[str] = []
    happened = 0
    for _ in range(count):
        failed, wrong = await try_fault(root, drawn_fault(chance), chance, sync=sync)
        happened += failed > 0
        faults += wrong
        shutil.rmtree(root, ignore_errors=True)
    return f"{count} faults, {happened} of which came", faults


async def damages(root: Path, seed: int, first: int, count: int) -> tuple[str, list[str]]:
    campaign = Damages(root, seed)
    with quick_disk():
        for begin in range(first, first + count, PROGRESS):
            most = min(PROGRESS, first + count - begin)
            await campaign.run(most, begin, most_faults=MOST_FAULTS)
            print(f"{campaign.cases} cases, {len(campaign.faults)} faults", flush=True)
            if len(campaign.faults) >= MOST_FAULTS:
                break
    tried = f"{campaign.cases} stores, {campaign.refused} refused, {campaign.repaired} repaired"
    return tried, campaign.faults


if __name__ == "__main__":
    raise SystemExit(main())
