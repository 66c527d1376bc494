"""A sample of stores that change hands, and proof that a broker which lies would be found out."""

from __future__ import annotations

import asyncio
import random
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from tests.interop.harness.official import Server

from .answers import Answers, read_answers
from .comparison import Begin, faults
from .handover import Handover
from .ledger import Kind, Ledger, Sent
from .life import Stop
from .traffic import DELAY_LEVELS, NEVER, Traffic


@pytest.mark.usefixtures("jars")
async def test_a_store_changes_hands_twice(own_namesrv: Server, tmp_path: Path) -> None:
    """Ours is killed while its log rolls, then the official one while its consume queues do."""
    seed = time.time_ns()
    print(f"seed {seed}")  # Shown with a failure.
    handover = Handover(tmp_path, own_namesrv.address, seed)
    await handover.live("ours", Stop.LOG, 100)
    await handover.live("official", Stop.QUEUE, 60)
    await handover.finish("ours", due_within=1_000)
    assert handover.faults == []
    assert handover.counts["messages compared"] > 300


Lie = Callable[[Path, Sent], None]

ENTRY = 20


def entry_of(store: Path, sent: Sent) -> tuple[Path, int]:
    """The file of a message's entry, and where it lies there."""
    place = sent.place
    queue = store / "consumequeue" / place.topic / str(place.queue_id)
    return queue / f"{0:020d}", place.queue_offset * ENTRY


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def wrong_tags_code(store: Path, sent: Sent) -> None:
    path, at = entry_of(store, sent)
    change(path, at + 12, struct.pack(">q", 4711))


def left_out_of_its_queue(store: Path, sent: Sent) -> None:
    """Also from what the stop knew of the queues: else our broker mends it."""
    path, at = entry_of(store, sent)
    change(path, at, bytes(ENTRY))
    change(store / "checkpoint", 104, bytes(8))


def not_in_the_index(store: Path, sent: Sent) -> None:
    for path in (store / "index").iterdir():
        change(path, 40, bytes(4 * 100))  # the slots


def another_record(store: Path, sent: Sent) -> None:
    """Its store timestamp, which no checksum covers."""
    change(store / "commitlog" / f"{0:020d}", sent.physical_offset + 56, struct.pack(">q", 1))


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (wrong_tags_code, "has tags code 4711"),
        (left_out_of_its_queue, "is not served"),
        (not_in_the_index, "does not find the message"),
        (another_record, "ours served .* ours serves"),
    ],
)
async def test_a_lie_is_found(tmp_path: Path, lie: Lie, found: str) -> None:
    """The proof can fail: one wrong entry or record of a store is seen."""
    config = BrokerConfig(
        store_path_root_dir=str(tmp_path / "store"),
        listen_port=0,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
        max_hash_slot_num=100,
        max_index_num=5_000,
        message_delay_level=DELAY_LEVELS,
        transaction_op_batch_interval=100,
    )
    ledger = Ledger()
    lives = [Begin(0, "ours", killed=False)]
    async with Broker(config) as broker:
        await fill(broker, ledger)
        before = await read_answers(broker.address, "ours")
    assert all_faults(before, ledger, None, lives) == []
    queue = [sent for sent in ledger.messages if sent.kind is Kind.PLAIN]
    last = max((s for s in queue if s.keys and s.tag), key=lambda sent: sent.place)
    lie(tmp_path / "store", last)
    async with Broker(config) as broker:
        after = await read_answers(broker.address, "ours")
    seen = all_faults(after, ledger, before, lives)
    assert any(re.search(found, fault) for fault in seen), seen[:5]


async def fill(broker: Broker, ledger: Ledger) -> None:
    enough = asyncio.Event()
    traffic = Traffic(ledger, random.Random(1))
    sending = await traffic.begin(broker.address, 1, enough, 100, senders=1)
    enough.set()
    await sending


def all_faults(
    answers: Answers, ledger: Ledger, before: Answers | None, lives: list[Begin]
) -> list[str]:
    return list(faults(answers, ledger, before, lives, int(time.time() * 1000) + NEVER))
