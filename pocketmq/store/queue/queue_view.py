"""The queues of a store as mappings, for those who only look: topic → queue id → queue.

A queue that is asked for is opened; topics and queue ids are listed without opening any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.store.queue.consume_queue_table import ConsumeQueueTable


class QueuesOfTopic(Mapping[int, ConsumeQueue]):
    """Queue id → queue, of one topic. Raises as `ConsumeQueueTable.find`."""

    def __init__(self, table: ConsumeQueueTable, topic: str) -> None:
        self._table = table
        self._topic = topic

    def __getitem__(self, queue_id: int) -> ConsumeQueue:
        queue = self._table.find(self._topic, queue_id)
        if queue is None:
            raise KeyError(queue_id)
        return queue

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._table.queue_ids(self._topic)))

    def __len__(self) -> int:
        return len(self._table.queue_ids(self._topic))


class QueuesByTopic(Mapping[str, Mapping[int, ConsumeQueue]]):
    """Topic → its queues. A topic whose directory is empty has none."""

    def __init__(self, table: ConsumeQueueTable) -> None:
        self._table = table

    def __getitem__(self, topic: str) -> Mapping[int, ConsumeQueue]:
        if not self._table.has_topic(topic):
            raise KeyError(topic)
        return QueuesOfTopic(self._table, topic)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.topics())

    def __len__(self) -> int:
        return len(self._table.topics())
