"""A store that a stream reads while the test writes to it."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections import defaultdict
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from pocketmq.message.limits import SYNC_BROKER_MEMBER_PREFIX
from pocketmq.store.config import StoreConfig
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import PutStatus
from pocketmq.store.scan.stream_offsets import Position, offsets_of, to_json
from tests.store.conftest import HOST, put
from tests.store.made_store import MadeStore, write


def offsets_alone(positions: dict[str, Any]) -> dict[str, Any]:
    """The positions of a stream without the marks of messages."""
    return to_json({queue: Position(offset) for queue, offset in offsets_of(positions).items()})


class GrowingStore(MadeStore):
    """The store of a broker; `add` makes messages visible at once. `T` has two queues."""

    def __init__(self, root: Path, broker: str = "broker-a", segment_size: int = 16_384) -> None:
        super().__init__(root, segment_size)
        topics = {
            SYNC_BROKER_MEMBER_PREFIX + broker: {},
            "T": {"readQueueNums": 2, "writeQueueNums": 2},
        }
        table = {"topicConfigTable": topics}
        write(root / "config" / "topics.json", json.dumps(table).encode())

    def add(self, count: int, topic: str = "T", queue_id: int = 0) -> None:
        for _ in range(count):
            number = self.next_offsets[topic, queue_id]
            self.put(topic, queue_id, b"%s/%d/%d" % (topic.encode(), queue_id, number))
        self.write()

    def delete(self, topic: str = "T") -> None:
        """Delete a topic: the next message of it has the queue offset 0."""
        for key in [key for key in self.next_offsets if key[0] == topic]:
            del self.next_offsets[key]
            self.entries.pop(key, None)
        shutil.rmtree(self.root / "consumequeue" / topic, ignore_errors=True)

    def expire_first_file(self) -> None:
        min((self.root / "commitlog").iterdir()).unlink()


class OpenStore:
    """A store that a broker of this process has open, on a thread. A context manager."""

    def __init__(self, root: Path, broker: str = "broker-a") -> None:
        self.root = root
        self._sent: dict[tuple[str, int], int] = defaultdict(int)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        GrowingStore(root, broker)

    def __enter__(self) -> OpenStore:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, count: int, topic: str = "T", queue_id: int = 0, padding: int = 0) -> None:
        """Store messages, and return when they are flushed and in their queue. Their bodies are
        longer by `padding` bytes."""
        self._run(self._add(count, topic, queue_id, padding))

    def sent(self, topic: str, queue_id: int) -> int:
        """How many messages of a queue are stored, also by earlier brokers."""
        return self._store.max_offset(topic, queue_id)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def _open(self) -> None:
        config = StoreConfig(
            store_path_root_dir=str(self.root),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=20_000,
            max_hash_slot_num=500,
            max_index_num=2_000,
            sync_flush_timeout=60_000,  # a machine that runs Spark as well may be very busy
        )
        self._store = MessageStore(config, store_host=HOST)
        self._store.open()
        self._store.start()

    async def _add(self, count: int, topic: str, queue_id: int, padding: int) -> None:
        for _ in range(count):
            number = self._sent[topic, queue_id]
            self._sent[topic, queue_id] += 1
            body = b"%s/%d/%d" % (topic.encode(), queue_id, number) + bytes(padding)
            assert put(self._store, topic, queue_id, body).status is PutStatus.PUT_OK
        assert await self._store.all_flushed()
