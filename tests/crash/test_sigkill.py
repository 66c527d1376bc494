"""Fifty rounds of SIGKILL under sends: what was acknowledged is served, where it was acknowledged.

A killed process loses nothing that reached its mapped files, whatever the flush mode, so the
promise is the same for both; with SYNC_FLUSH the kill also hits answers that wait for the disk.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.crash.traffic import Ledger, Sender, check
from tests.interop.harness import ours

pytestmark = pytest.mark.crash

ROUNDS = 50

# Small, so that commit log, consume queues and their recovery cross many file boundaries.
SMALL_FILES = {"mappedFileSizeCommitLog": 128 << 10, "mappedFileSizeConsumeQueue": 4000}


async def test_acknowledged_messages_survive_fifty_kills(tmp_path: Path) -> None:
    seed = time.time_ns()
    print(f"seed {seed}")  # Shown with a failure: sizes, queues and moments repeat with it.
    chance = random.Random(seed)
    namesrv = ours.start_name_server(tmp_path)
    store = tmp_path / "store"
    ledger = Ledger("Crash")
    senders = [
        Sender(ledger, f"sender{number}", batch=batch, chance=chance)
        for number, batch in enumerate((1, 1, 1, 5, 16))
    ]
    senders.append(Sender(ledger, "parents", batch=8, chance=chance, parents=True))
    for turn in range(ROUNDS):
        settings = {**SMALL_FILES, "flushDiskType": ("ASYNC_FLUSH", "SYNC_FLUSH")[turn % 2]}
        if turn % 5 == 4:
            # Recovery must bear to be killed itself, wherever it is.
            starting = ours.spawn_broker(tmp_path, namesrv.address, store=store, settings=settings)
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            starting.process.kill()
        broker = ours.start_broker(tmp_path, namesrv.address, store=store, settings=settings)
        try:
            await check(ledger, broker.address)
            ledger.progress.clear()
            sending = [asyncio.create_task(sender.run(broker.address)) for sender in senders]
            if turn % 7:
                async with asyncio.timeout(20.0):
                    await ledger.progress.wait()
            await asyncio.sleep(chance.uniform(0.0, 0.08))
            broker.process.kill()
            await asyncio.gather(*sending)
        finally:
            broker.process.kill()
    last = ours.start_broker(tmp_path, namesrv.address, store=store, settings=SMALL_FILES)
    await check(ledger, last.address)
    assert last.process.terminate() == 0, last.process.tail()
    assert namesrv.process.terminate() == 0
    # The rounds did something.
    assert len(ledger.acknowledged) > ROUNDS * 20
    assert len(list((store / "commitlog").iterdir())) > 20
