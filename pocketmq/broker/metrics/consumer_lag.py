"""How far each group is behind in each topic. Reference: ConsumerLagCalculator.

- lag: messages between the committed offset and the end of the queue;
- inflight: those of them that were pulled;
- ready: the others;
- lag latency: the age of the oldest message that is not committed, ms; 0 without one;
- queueing latency: the same of the oldest one that was not pulled.

A queue without a committed offset does not count. Unlike the official broker's, the figures of
retry topics are among them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables import Tables
from pocketmq.broker.topic_config import PERM_READ
from pocketmq.limited_log import LimitedLog
from pocketmq.monitoring.pace import Pace
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = LimitedLog(logging.getLogger(__name__))


class GroupLag(NamedTuple):
    """How far a group is behind in a topic: messages, and milliseconds."""

    topic: str
    group: str
    lag: int
    inflight: int
    lag_latency: int
    queueing_latency: int


class ConsumerLag:
    """The lags of one broker; `clock` gives milliseconds."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        tables: Tables,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._consumers = tables.consumers
        self._offsets = tables.offsets
        self._clock = clock
        # Store times of the messages that groups wait at, by topic, queue id and offset. A group
        # that stands still has its message read from the disk once, not at each scrape.
        self._times: dict[tuple[str, int, int], int] = {}

    async def all(self, pace: Pace) -> list[GroupLag]:
        """Return the lag of every group in every topic that it consumes."""
        times, self._times = self._times, {}
        queues: dict[str, dict[int, ConsumeQueue]] = {}
        found = []
        for topic, group, consumed, pulled in self._offsets.progress():
            await pace.breathe()
            if not self._counts(topic, group):
                continue
            of_topic = queues.get(topic)
            if of_topic is None:
                of_topic = queues[topic] = self._queues(topic)
            found.append(self._of(topic, group, of_topic, consumed, pulled, times))
        return found

    def _counts(self, topic: str, group: str) -> bool:
        known = self._topics.get(topic)
        if known is None or group not in self._groups.table:
            return False
        if not known.perm & self._config.broker_permission & PERM_READ:
            return False
        online = self._consumers.get(group)
        # Old offsets of a topic that the group has dropped.
        return online is None or not online.subscriptions or topic in online.subscriptions

    def _queues(self, topic: str) -> dict[int, ConsumeQueue]:
        found: dict[int, ConsumeQueue] = {}
        of_topic = self._store.queues.get(topic)
        if of_topic is None:
            return found
        for queue_id in range(self._topics.table[topic].read_queue_nums):
            try:
                queue = of_topic.get(queue_id)
            except (StoreError, OSError) as error:
                log.warning("the lag in queue %d of %s is unknown: %s", queue_id, topic, error)
            else:
                if queue is not None:
                    found[queue_id] = queue
        return found

    def _of(
        self,
        topic: str,
        group: str,
        queues: Mapping[int, ConsumeQueue],
        consumed: Mapping[int, int],
        pulled: Mapping[int, int],
        times: Mapping[tuple[str, int, int], int],
    ) -> GroupLag:
        lag = inflight = 0
        now = self._clock()
        oldest = oldest_queued = now
        for queue_id, queue in queues.items():
            end = queue.max_offset
            offset = consumed.get(queue_id, -1)
            if not 0 <= offset < end:
                continue
            lag += end - offset
            begin = queue.min_offset
            oldest = min(oldest, self._time_at(topic, queue_id, max(offset, begin), now, times))
            reached = min(max(pulled.get(queue_id, offset), offset), end)
            inflight += reached - offset
            if reached < end:
                at = self._time_at(topic, queue_id, max(reached, begin), now, times)
                oldest_queued = min(oldest_queued, at)
        return GroupLag(topic, group, lag, inflight, now - oldest, now - oldest_queued)

    def _time_at(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        now: int,
        known: Mapping[tuple[str, int, int], int],
    ) -> int:
        key = topic, queue_id, offset
        time = self._times.get(key) or known.get(key)
        if time is None:
            time = self._store.store_time_at(topic, queue_id, offset)
            if time <= 0:
                return now
        self._times[key] = time
        return time
