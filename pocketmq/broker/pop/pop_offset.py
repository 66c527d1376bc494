"""Where a group pops next in a queue: its consumer offset, or after the messages already popped.

Reference: PopMessageProcessor.getPopOffset, getInitOffset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.pop.buffer import PopBuffer
from pocketmq.broker.pop.order_table import OrderTable
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.message.limits import RETRY_PREFIX
from pocketmq.store.message_store import MessageStore
from pocketmq.store.results import GetStatus

MIN_OFFSET: Final = 0
"""initMode of a group that starts at the oldest message."""


class PopOffset:
    """The pop offsets of one broker's groups."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        offsets: ConsumerOffsets,
        buffer: PopBuffer,
        orders: OrderTable,
    ) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._buffer = buffer
        self._orders = orders

    def unread(
        self, group: str, topic: str, queues: Iterable[int]
    ) -> Iterator[tuple[int, int, int]]:
        """Yield those of the queues that have messages for a group: the id, where the group would
        continue, for a new one the oldest message, and the end. Change nothing."""
        committed = self._offsets.offsets(group, topic)
        for queue_id in queues:
            end = self._store.max_offset(topic, queue_id)
            # There may be 16,384 queues, and most are at their end.
            if end <= committed.get(queue_id, 0):
                continue
            offset = committed.get(queue_id, -1)
            if offset < 0:
                offset = self._store.min_offset(topic, queue_id)
            offset = max(offset, self._buffer.latest_offset((topic, group, queue_id)))
            if offset < end:
                yield queue_id, offset, end

    def take(self, group: str, topic: str, queue_id: int, committed: int, init_mode: int) -> int:
        """Return where a group pops; `committed` is its consumer offset (-1 if it has none).

        The start of a new group is committed at once. An offset set by an admin takes precedence.
        """
        offsets = self._offsets
        if offsets.has_reset(group, topic, queue_id):
            reset = offsets.take_reset(group, topic, queue_id)
            if reset is not None:
                self._orders.clear(group, topic, queue_id)
                self.set(group, topic, queue_id, reset)
                return reset
        if committed < 0:
            committed = self._first(topic, queue_id, init_mode)
            offsets.commit(group, topic, queue_id, committed)
        latest = self._buffer.latest_offset((topic, group, queue_id))
        return committed if committed > latest else latest

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset at which a group continues."""
        self._buffer.forget_queue((topic, group, queue_id))
        self._offsets.commit(group, topic, queue_id, offset)

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        store, config = self._store, self._config
        low = store.min_offset(topic, queue_id)
        if init_mode == MIN_OFFSET or topic.startswith(RETRY_PREFIX):
            return low
        if config.init_pop_offset_by_check_msg_in_mem and low <= 0:
            # A new topic: its first messages may be older than its first consumer.
            first = store.get(topic, queue_id, 0, 1)
            if (
                first.status is GetStatus.FOUND
                and first.behind + first.size <= config.message_memory
            ):
                return 0
        return max(0, store.max_offset(topic, queue_id) - 1)
