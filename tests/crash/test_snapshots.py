"""Snapshots of a store that a broker writes to: each is a store with all that was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pocketmq import Message, SendResult, TransactionProducer, TransactionState
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.properties import UNIQ_KEY
from pocketmq.message.record import decode
from pocketmq.store.check.report import State
from pocketmq.store.check.store_check import check_store
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from pocketmq.store.snapshot.store_snapshot import write_snapshot
from tests.interop.harness import ours

pytestmark = pytest.mark.crash

ROUNDS = 4
SENDERS = 6
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
# Small, so that every kind of file is full again and again.
SIZES = {
    "mappedFileSizeCommitLog": 64 << 10, "mappedFileSizeConsumeQueue": 4000,
    "mappedFileSizeTimerLog": 4 << 10, "maxHashSlotNum": 500, "maxIndexNum": 1000,
}  # fmt: skip
# Often, so that there is much below the checkpoint.
INTERVALS = {
    "flushIntervalCommitLog": 20, "flushCommitLogLeastPages": 0, "flushIntervalConsumeQueue": 50,
    "flushConsumeQueueThoroughInterval": 100, "timerFlushIntervalMs": 50,
    "flushDelayOffsetInterval": 100, "flushConsumerOffsetInterval": 100,
}  # fmt: skip


class Acknowledged(NamedTuple):
    """What a sender was told; `offset` is -1 where the message waits in another queue."""

    topic: str
    queue_id: int
    offset: int
    physical: int
    unique_key: str


class Traffic:
    """Sends every kind of message."""

    def __init__(self, producer: TransactionProducer) -> None:
        self._producer = producer
        self.acknowledged: list[Acknowledged] = []
        self._awaited = 0
        self._reached = asyncio.Event()
        self._goes_on = asyncio.Event()
        self._idle = 0
        self._all_idle = asyncio.Event()

    def start(self) -> None:
        """Send until `stop`."""
        self._sending = asyncio.create_task(self._run())
        self._sending.add_done_callback(lambda _: self._reached.set())
        self._goes_on.set()

    async def pause(self) -> None:
        """Wait for what is under way, and begin nothing more until `more` is called."""
        self._goes_on.clear()
        await self._all_idle.wait()

    async def stop(self) -> None:
        """Send no more."""
        self._sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sending

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for work in (self._singles, self._singles, self._batches, self._delayed,
                         self._transactions, self._topics):  # fmt: skip
                group.create_task(work())

    async def more(self, count: int) -> list[Acknowledged]:
        """What is acknowledged once that is so many messages more."""
        self._awaited = len(self.acknowledged) + count
        self._reached.clear()
        self._goes_on.set()
        async with asyncio.timeout(60.0):
            await self._reached.wait()
        if self._sending.done():
            self._sending.result()
        return self.acknowledged.copy()

    def _note(self, result: SendResult, *, waits: bool = False) -> None:
        keys, ids = result.msg_id.split(","), result.offset_msg_id.split(",")
        for number, (key, place) in enumerate(zip(keys, ids, strict=True)):
            offset = -1 if waits else result.queue_offset + number
            physical = decode_offset_msg_id(place).physical_offset
            queue = result.queue
            self.acknowledged.append(
                Acknowledged(queue.topic, queue.queue_id, offset, physical, key)
            )
        if len(self.acknowledged) >= self._awaited:
            self._reached.set()

    async def _numbers(self) -> AsyncIterator[int]:
        for number in itertools.count():
            self._idle += 1
            if self._idle == SENDERS:
                self._all_idle.set()
            while not self._goes_on.is_set():
                await self._goes_on.wait()
            self._idle -= 1
            self._all_idle.clear()
            yield number

    async def _singles(self) -> None:
        async for number in self._numbers():
            body = b"single %d " % number * (1 + number % 90)
            self._note(await self._producer.send(Message("Single", body, keys=[f"k{number}"])))

    async def _batches(self) -> None:
        async for number in self._numbers():
            messages = [Message("Batch", b"%d %d" % (number, part)) for part in range(20)]
            for result in await self._producer.send_batch(messages):
                self._note(result)

    async def _delayed(self) -> None:
        async for number in self._numbers():
            level, delay = ((1, 0.0), (0, 1.0))[number % 2]
            message = Message("Late", b"late %d" % number, delay_level=level, delay=delay)
            self._note(await self._producer.send(message), waits=True)

    async def _transactions(self) -> None:
        async for number in self._numbers():
            await self._producer.send_in_transaction(
                Message("Bound", b"bound %d" % number), self._commit_or_not
            )

    def _commit_or_not(self, message: Message, half: SendResult) -> TransactionState:
        self._note(half, waits=True)
        return (TransactionState.COMMIT, TransactionState.ROLLBACK)[half.queue_offset % 2]

    async def _topics(self) -> None:
        async for number in self._numbers():
            self._note(await self._producer.send(Message(f"New{number}", b"first")))
            await asyncio.sleep(0.1)


async def test_snapshots_under_traffic_are_whole(tmp_path: Path) -> None:
    namesrv = ours.start_name_server(tmp_path)
    store = tmp_path / "store"
    broker = ours.start_broker(
        tmp_path, namesrv.address, store=store, settings={**SIZES, **INTERVALS}
    )
    linked = 0
    try:
        async with TransactionProducer(
            "snapshots", namesrv=namesrv.address, check=lambda _: TransactionState.UNKNOWN
        ) as producer:
            traffic = Traffic(producer)
            traffic.start()
            for number in range(ROUNDS):
                expected = await traffic.more(300)
                if number % 2:  # else what is sent meanwhile hides where the copy ends
                    await traffic.pause()
                    expected = traffic.acknowledged.copy()
                target = tmp_path / f"snapshot{number}"
                taken = await asyncio.to_thread(write_snapshot, config(store), target)
                linked = taken.linked
                await traffic.pause()
                await asyncio.to_thread(hold_to, target, expected)
            await traffic.stop()
        assert linked > 5
        assert broker.process.terminate() == 0
        # What was done to the snapshots did not reach the store through their links.
        await asyncio.to_thread(hold_to, store, traffic.acknowledged, State.CLEAN)
    finally:
        broker.process.kill()
        namesrv.process.kill()


def hold_to(root: Path, expected: list[Acknowledged], state: State = State.CRASHED) -> None:
    """Check a store, open it, find every message at its place, and write to it."""
    report = check_store(config(root))
    assert not report.problems
    assert (report.state, report.starts) == (state, True)
    asyncio.run(read(root, expected))


async def read(root: Path, expected: list[Acknowledged]) -> None:
    store = MessageStore(config(root), store_host=HOST)
    store.open()
    try:
        for each in expected:
            record = decode(store.record_at(each.physical))
            assert record.properties[UNIQ_KEY] == each.unique_key
            if each.offset >= 0:
                found = store.get(each.topic, each.queue_id, each.offset, 1).buffers
                assert decode(found[0]).physical_offset == each.physical
        for number in range(100):
            store.put(
                "Single", 0, b"behind it %d " % number * 100, "", born_timestamp=1, born_host=HOST,
                tags_code=0,
            )  # fmt: skip
    finally:
        await store.close()


def config(root: Path) -> StoreConfig:
    return StoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=SIZES["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=SIZES["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=SIZES["maxHashSlotNum"],
        max_index_num=SIZES["maxIndexNum"],
    )
