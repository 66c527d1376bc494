"""The lag of each group in each topic. Reference: ConsumerLagCalculator.

- lag: messages between the committed offset and the end of the queue;
- inflight: the part of the lag that was pulled;
- ready: the rest of the lag;
- lag latency: the age of the oldest message that is not committed, in ms; 0 if there is none;
- queueing latency: the age of the oldest message that was not pulled, in ms; 0 if there is none.

A queue without a committed offset does not count. Unlike the official broker's figures, these
include retry topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from heapq import nlargest
from operator import itemgetter
from typing import Final, NamedTuple

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.tables import Tables
from pocketmq.broker.tables.topic_config import PERM_READ
from pocketmq.limited_log import LimitedLog
from pocketmq.monitoring.pace import Pace
from pocketmq.store.errors import StoreError
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queue.consume_queue import ConsumeQueue

log = LimitedLog(logging.getLogger(__name__))


class GroupLag(NamedTuple):
    """The lag of a group in a topic, in messages and milliseconds."""

    topic: str
    group: str
    lag: int
    inflight: int
    lag_latency: int
    queueing_latency: int


#: Lag, topic, group, stored offsets, and pulled offsets.
_Pair = tuple[int, str, str, Mapping[int, int], Mapping[int, int]]

_lag_of: Final = itemgetter(0)
_AT_ONCE: Final = 64


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
        # Store times of the messages at the groups' offsets, by topic, queue id and offset. While a
        # group makes no progress, its message is read from the disk once, not at each scrape.
        self._times: dict[tuple[str, int, int], int] = {}

    async def largest(self, pace: Pace, most: int) -> tuple[list[GroupLag], int]:
        """Return the `most` largest lags of groups in topics, and the number of the others. Only
        for the returned ones are latencies computed, which may read the disk."""
        times, self._times = self._times, {}
        ends: dict[str, Mapping[int, int] | None] = {}
        readers: dict[str, Collection[str] | None] = {}
        found: list[_Pair] = []
        for number, (topic, group, consumed, pulled) in enumerate(self._offsets.progress()):
            # There may be a hundred thousand; each takes about a microsecond.
            if number % _AT_ONCE == 0:
                await pace.breathe()
            if topic in ends:
                of_topic = ends[topic]
            else:
                of_topic = ends[topic] = self._ends(topic)
            if group in readers:
                reads = readers[group]
            else:
                reads = readers[group] = self._reads(group)
            if of_topic is None or reads is None or (reads and topic not in reads):
                continue
            lag = 0
            for queue_id, offset in consumed.items():
                end = of_topic.get(queue_id, 0)
                if 0 <= offset < end:
                    lag += end - offset
            found.append((lag, topic, group, consumed, pulled))
        dropped = max(len(found) - most, 0)
        if dropped:
            found = nlargest(most, found, key=_lag_of)
        lags = []
        queues: dict[str, dict[int, ConsumeQueue]] = {}
        for _, topic, group, consumed, pulled in found:
            await pace.breathe()
            of = queues.get(topic)
            if of is None:
                of = queues[topic] = self._queues(topic)
            lags.append(self._of(topic, group, of, consumed, pulled, times))
        return lags, dropped

    def _reads(self, group: str) -> Collection[str] | None:
        """Return the topics that a group subscribes to, empty if unknown, None if the group does
        not exist. Its offsets may contain topics that it no longer subscribes to."""
        if group not in self._groups.table:
            return None
        online = self._consumers.get(group)
        return () if online is None else online.subscriptions

    def _ends(self, topic: str) -> Mapping[int, int] | None:
        """Return the ends of a topic's queues by id; None if the topic is not readable."""
        known = self._topics.table.get(topic)  # there may be too many light queues
        if known is None or not known.perm & self._config.broker_permission & PERM_READ:
            return None
        return {queue_id: queue.max_offset for queue_id, queue in self._queues(topic).items()}

    def _queues(self, topic: str) -> dict[int, ConsumeQueue]:
        found: dict[int, ConsumeQueue] = {}
        known, of_topic = self._topics.table.get(topic), self._store.queues.get(topic)
        if known is None or of_topic is None:
            return found
        for queue_id in range(known.read_queue_nums):
            try:
                queue = of_topic.get(queue_id)
            except (StoreError, OSError) as error:
                log.warning("queue %s/%d: the lag is unknown: %s", topic, queue_id, error)
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
