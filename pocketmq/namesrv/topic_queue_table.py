"""The queues of each topic by broker group: topic → broker name → queues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from itertools import chain, islice

from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.route import QueueData, TopicQueueMappingInfo
from pocketmq.remoting.serving.budget import text_bytes

log = logging.getLogger("pocketmq.namesrv.topic_queue_table")

PERM_READ = 4
PERM_WRITE = 2
UNIT_FLAG = 1
UNIT_SUB_FLAG = 2

_TOPICS_OF_STEP = 2_000

# Estimates of the bytes that objects take, without the characters of texts: a topic at a group, a
# queue mapping, a queue in that.
_ROW = 450
_MAPPING = 950
_MAPPED_QUEUE = 150


def weight_of_rows(topics: Iterable[str]) -> int:
    """Return an estimate of the bytes that these topics take at one group."""
    return sum(_ROW + text_bytes(topic) for topic in topics)


def weight_of_mappings(mappings: Iterable[TopicQueueMappingInfo]) -> int:
    """Return an estimate of the bytes that queue mappings take."""
    return sum(
        _MAPPING
        + text_bytes(mapping.bname)
        + text_bytes(mapping.scope)
        + text_bytes(mapping.topic)
        + _MAPPED_QUEUE * len(mapping.curr_id_map)
        for mapping in mappings
    )


class TopicQueueTable:
    """One of the tables of `pocketmq.namesrv.route_table`; a topic without queues is not in it.

    Attributes:
        changes: a number that differs after each change.
        weight: an estimate of the bytes that this table takes.
    """

    def __init__(self) -> None:
        self.changes = 0
        self.weight = 0
        self._topics: dict[str, dict[str, QueueData]] = {}
        #: The same by broker name; looking for a group's topics among all would take too long.
        self._groups: dict[str, dict[str, QueueData]] = {}
        self._log = LimitedLog(log)
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    def get(self, topic: str) -> Mapping[str, QueueData]:
        """Return the queues of a topic by broker name; empty for an unknown one."""
        return self._topics.get(topic, {})

    def mappings(self, topic: str) -> dict[str, TopicQueueMappingInfo] | None:
        """Return the queue mappings of a static topic by broker name; None for any other topic.

        Do not change them.
        """
        return self._mappings.get(topic)

    def mappings_at(
        self, broker_name: str, topics: Iterable[str]
    ) -> Iterable[TopicQueueMappingInfo]:
        """Return the queue mappings of a group for those of `topics` that are static."""
        known = (self._mappings.get(topic, {}).get(broker_name) for topic in topics)
        return (mapping for mapping in known if mapping is not None)

    def names(self) -> list[str]:
        """Return all topics."""
        return list(self._topics)

    def at(self, broker_name: str) -> Mapping[str, QueueData]:
        """Return the queues of a group by topic."""
        return self._groups.get(broker_name, {})

    @property
    def rows(self) -> int:
        """The number of topics at all groups; a topic at two groups counts twice."""
        return sum(map(len, self._groups.values()))

    def names_at(self, broker_names: Iterable[str]) -> list[str]:
        """Topics with queues at any of these groups."""
        return list(dict.fromkeys(chain.from_iterable(map(self.at, broker_names))))

    def names_by_unit(
        self, accept: Callable[[bool, bool], bool]
    ) -> Generator[None, None, list[str]]:
        """Return the topics by the flags (unit, has a unit subscription) of their first group; look
        at some in each step."""
        result = []
        for number, (topic, rows) in enumerate(list(self._topics.items()), 1):
            for queues in islice(rows.values(), 1):
                flag = queues.topic_sys_flag
                if accept(bool(flag & UNIT_FLAG), bool(flag & UNIT_SUB_FLAG)):
                    result.append(topic)
            if not number % _TOPICS_OF_STEP:
                yield
        return result

    def register(
        self, broker_name: str, topics: Iterable[TopicConfig], *, changed: bool, read_only: bool
    ) -> None:
        """Take the topics of a group's registration; those not mentioned stay.

        Args:
            changed: false if the registration has the same data version as the previous one. Known
                topics then stay unchanged, including the effect of `wipe_write_perm`.
            read_only: without their write permission.
        """
        for topic in topics:
            rows = self._topics.get(topic.topic_name, {})
            known = rows.get(broker_name)
            if known is not None and not changed:
                continue
            queues = QueueData(
                broker_name=broker_name,
                perm=topic.perm & ~PERM_WRITE if read_only else topic.perm,
                read_queue_nums=topic.read_queue_nums,
                topic_sys_flag=topic.topic_sys_flag,
                write_queue_nums=topic.write_queue_nums,
            )
            if not rows:
                self._log.info("new topic registered, %s %s", topic.topic_name, queues)
                self._topics[topic.topic_name] = rows
            elif known is not None and known != queues:
                self._log.info("topic changed, %s OLD: %s NEW: %s", topic.topic_name, known, queues)
            self._set(rows, topic.topic_name, queues)

    def register_mappings(
        self, broker_name: str, mappings: Mapping[str, TopicQueueMappingInfo], *, changed: bool
    ) -> None:
        """Take the queue mappings of a group's registration; those not mentioned stay.

        A mapping is dropped with the topic's queues at the group. The reference keeps it for ever,
        also for a topic that is recreated and no longer static.
        """
        for topic, mapping in mappings.items():
            if broker_name not in self.get(topic):
                continue
            known = self._mappings.setdefault(topic, {})
            before = known.get(broker_name)
            if changed or before is None:
                known[broker_name] = mapping
                self.weight += weight_of_mappings([mapping])
                if before is not None:
                    self.weight -= weight_of_mappings([before])
                self.changes += 1

    def add(self, topic: str, rows: Iterable[QueueData]) -> None:
        """Set the queues of a topic at the groups that `rows` name."""
        for queues in rows:
            self._set(self._topics.setdefault(topic, {}), topic, queues)

    def _set(self, rows: dict[str, QueueData], topic: str, queues: QueueData) -> None:
        if queues.broker_name not in rows:
            self.weight += weight_of_rows([topic])
        rows[queues.broker_name] = queues
        self._groups.setdefault(queues.broker_name, {})[topic] = queues
        self.changes += 1

    def drop(self, topic: str) -> None:
        """Forget a topic."""
        self.changes += 1
        for broker_name in self._topics.pop(topic, ()):
            self._forget(broker_name, topic)
        self.weight -= weight_of_mappings(self._mappings.pop(topic, {}).values())

    def drop_at(self, topic: str, broker_names: Iterable[str]) -> None:
        """Forget a topic's queues at some groups."""
        for broker_name in broker_names:
            if topic in self._groups.get(broker_name, ()):
                self._log.info("topic %s is no longer at %s", topic, broker_name)
                self._drop_row(topic, broker_name)

    def drop_broker(self, broker_name: str, *, keep: Collection[str] = ()) -> None:
        """Forget all queues of a group except those of the topics in `keep`."""
        kept = set(keep)
        topics = [topic for topic in self._groups.get(broker_name, ()) if topic not in kept]
        for topic in topics:
            self._drop_row(topic, broker_name)
        if topics:
            self._log.info("%d topics are no longer at %s", len(topics), broker_name)

    def _drop_row(self, topic: str, broker_name: str) -> None:
        self.changes += 1
        self._forget(broker_name, topic)
        rows = self._topics[topic]
        del rows[broker_name]
        if not rows:
            del self._topics[topic]
        if topic in self._mappings:
            mappings = self._mappings[topic]
            if (mapping := mappings.pop(broker_name, None)) is not None:
                self.weight -= weight_of_mappings([mapping])
            if not mappings:
                del self._mappings[topic]

    def _forget(self, broker_name: str, topic: str) -> None:
        topics = self._groups[broker_name]
        del topics[topic]
        self.weight -= weight_of_rows([topic])
        if not topics:
            del self._groups[broker_name]

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the write permission from all topics of a group; return their number."""
        return self._set_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a group readable and writable; return their number.

        As in the reference this is exactly read and write, also for topics that had other bits.
        """
        return self._set_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        rows = self._groups.get(broker_name, {}).values()
        self.changes += 1
        for queues in rows:
            queues.perm = change(queues.perm)
        return len(rows)
