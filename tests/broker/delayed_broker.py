"""A broker's delayed deliveries without its network: a store, put hooks, and both services."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.delayed.delivery import DelayedDelivery
from pocketmq.broker.inner_message import InnerMessage, PutHooks
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.message import properties as names
from pocketmq.message.record import Record, iter_records
from pocketmq.remoting.serving.stop_steps import StopSteps
from pocketmq.store.files import MappedFile
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutResult
from tests.fake_time import FakeTime
from tests.fast_files import FastFiles


class DelayedBroker:
    """One life of a broker over the store in `root`; `send` stores as a producer's send would."""

    def __init__(self, root: Path, time: FakeTime, **settings: Any) -> None:
        settings.setdefault("mapped_file_size_commit_log", 1 << 20)
        settings.setdefault("mapped_file_size_consume_queue", 20_000)
        settings.setdefault("mapped_file_size_timer_log", 4096)
        # Progress is only written when a test says so, and at a clean stop.
        settings.setdefault("flush_delay_offset_interval", 3_600_000)
        settings.setdefault("timer_flush_interval_ms", 3_600_000)
        self.config = BrokerConfig(store_path_root_dir=str(root), broker_name="b0", **settings)
        self.time = time
        self.root = root
        self.store = MessageStore(
            self.config, store_host=bytes(8), files=FastFiles(), clock=time.clock
        )
        self.put_hooks = PutHooks(self.store)
        self._stack = StopSteps()
        self.delayed: DelayedDelivery
        self.statistics: Statistics

    async def start(self) -> DelayedBroker:
        self.store.open()
        self._stack.push_async_callback(self.store.close)
        self.store.start()
        self.statistics = Statistics("C0", self.time.clock, self.time.monotonic)
        config = self.root / "config"
        config.mkdir(exist_ok=True)
        self.delayed = DelayedDelivery(
            self.config,
            self.store,
            self.put_hooks,
            self.statistics,
            config,
            self.time.clock,
            self.time.call_later,
        )
        self.delayed.start(self._stack)
        return self

    async def stop(self) -> None:
        await self._stack.aclose()

    async def __aenter__(self) -> DelayedBroker:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def save(self) -> None:
        """Write the progress now."""
        await self.delayed.schedule.save()
        await self.delayed.timer.save()

    def send(
        self, body: bytes, *, topic: str = "T", queue_id: int = 0, **properties: str
    ) -> PutResult:
        values = {names.UNIQ_KEY: body.decode(), **properties}
        inner = InnerMessage(topic, queue_id, body, values, self.time.now, bytes(8))
        result = self.put_hooks.put(inner)
        self.store.settle()
        return result

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """What consumers can read of a queue."""
        found: list[Record] = []
        offset = self.store.min_offset(topic, queue_id)
        while offset < self.store.max_offset(topic, queue_id):
            result = self.store.get(topic, queue_id, offset, 1000)
            for buffer in result.buffers:
                found += iter_records(bytes(buffer), strict=True)
            # Where nothing can be read, a loop without an end would hide why.
            assert result.next_begin_offset > offset, (result.status, self.store.refusal)
            offset = result.next_begin_offset
        return found

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        return [bytes(record.body) for record in self.records(topic, queue_id)]


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(tmp_path: Path, time: FakeTime) -> AsyncIterator[DelayedBroker]:
    async with DelayedBroker(tmp_path / "store", time) as broker:
        yield broker


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list, to be changed, of topics (or topic/queue) whose queues cannot get a file: Stuck."""
    components = ["Stuck"]

    def create(files: FastFiles, path: Path, *rest: Any, **more: Any) -> MappedFile:
        if any(f"/consumequeue/{part}/" in str(path) for part in components):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
        return original(files, path, *rest, **more)

    original = FastFiles.create
    monkeypatch.setattr(FastFiles, "create", create)
    return components
