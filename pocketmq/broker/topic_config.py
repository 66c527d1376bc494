"""The topics of a broker: their queues and permissions, kept in config/topics.json.

A topic is created by an admin (code 17), by a first send (from a template topic with the inherit
bit, normally TBW102), by a heartbeat (%RETRY%group), or by the broker itself. Every change raises
the data version, is on the disk before it is answered, and reaches the name servers through
`on_change`. Reference: broker TopicConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.table_file import TableFile
from pocketmq.broker.topic_attributes import apply_changes
from pocketmq.broker.unserved_topics import UnservedTopics
from pocketmq.limited_log import LimitedLog
from pocketmq.message import limits
from pocketmq.message.limits import AUTO_CREATE_TOPIC, SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from pocketmq.remoting.bodies.registration import DataVersion, TopicConfig

log = logging.getLogger(__name__)

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

SCHEDULE_QUEUES: Final = 18
BENCHMARK_QUEUES: Final = 1024
REVIVE_QUEUES: Final = 8
CLUSTER_TOPIC_QUEUES: Final = 16


class TopicConfigs:
    """The topic table of one broker. `clock` gives milliseconds.

    `on_change(names)` is called after each change with the topics concerned; a deleted one is
    no longer in `table` by then.

    Attributes:
        table: the topics by name.
        unserved: refuses topics of an official store that this broker does not serve.
    """

    def __init__(
        self,
        config: BrokerConfig,
        path: Path,
        clock: Callable[[], int],
        on_change: Callable[[Iterable[str]], None],
    ) -> None:
        self._config = config
        self._file = TableFile(path, "topicConfigTable", TopicConfig)
        self.unserved = UnservedTopics(path.with_name("topicQueueMapping.json"))
        self._clock = clock
        self._on_change = on_change
        self._log = LimitedLog(log)
        self._collected: dict[str, None] | None = None  # changed topics, within `collecting`
        self.table: dict[str, TopicConfig] = {}
        self.data_version = DataVersion(timestamp=clock())
        self._system = SYSTEM_TOPICS | {name for name, *_ in self._own_topics()}

    def _own_topics(self) -> list[tuple[str, int, int]]:
        """Return the topics every broker has: name, queues, permissions."""
        config = self._config
        cluster, name = config.broker_cluster_name, config.broker_name
        cluster_perm = PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0)
        broker_perm = PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0)
        topics = [
            (limits.SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
            (limits.BENCHMARK_TOPIC, BENCHMARK_QUEUES, PERM_READ_WRITE),
            (cluster, CLUSTER_TOPIC_QUEUES, cluster_perm),
            (name, 1, broker_perm),
            (limits.OFFSET_MOVED_EVENT, 1, PERM_READ_WRITE),
            (limits.SCHEDULE_TOPIC, SCHEDULE_QUEUES, PERM_READ_WRITE),
            (f"{cluster}_REPLY_TOPIC", 1, PERM_READ_WRITE),
            (f"{limits.REVIVE_LOG_PREFIX}{cluster}", REVIVE_QUEUES, PERM_READ_WRITE),
            (f"{limits.SYNC_BROKER_MEMBER_PREFIX}{name}", 1, PERM_INHERIT),
            (limits.HALF_TOPIC, 1, PERM_READ_WRITE),
            (limits.OP_HALF_TOPIC, 1, PERM_READ_WRITE),
        ]
        if config.timer_wheel_enable:
            topics.append((limits.TIMER_TOPIC, 1, PERM_READ_WRITE))
        if config.auto_create_topic_enable:
            queues = config.default_topic_queue_nums
            topics.append((AUTO_CREATE_TOPIC, queues, PERM_READ_WRITE | PERM_INHERIT))
        if config.trace_topic_enable:
            topics.append((config.msg_trace_topic_name, 1, PERM_READ_WRITE))
        return topics

    def load(self) -> None:
        """Load the broker's own topics, then those of the file, which wins where both name one.

        Raises ConfigFileError.
        """
        for name, queues, perm in self._own_topics():
            self.table[name] = _new_topic(name, queues, perm)
        self.unserved.load()
        stored, self.data_version = self._file.load(self.data_version)
        self.table.update(stored)
        if not self._config.auto_create_topic_enable and AUTO_CREATE_TOPIC in self.table:
            # Stored by a run that allowed creation: an ordinary topic from now on.
            self.table[AUTO_CREATE_TOPIC].perm = PERM_READ_WRITE

    def save(self) -> None:
        """Write topics.json; keys of the file that mean nothing here are kept."""
        self._file.save(self.table, self.data_version)

    def get(self, name: str) -> TopicConfig | None:
        """Return the topic, or None."""
        return self.table.get(name)

    def is_served(self, name: str) -> bool:
        """Tell whether this broker stores messages of a topic; unknown topics are served."""
        topic = self.table.get(name)
        return topic is None or self.unserved.reason(topic) is None

    def is_system(self, name: str) -> bool:
        """Tell whether a topic is RocketMQ's own or this broker's; admins may not change or delete
        those.
        """
        return name in self._system or name.startswith(SYSTEM_TOPIC_PREFIX)

    def system_topics(self) -> list[str]:
        """Return the names of those that are fixed or this broker's own, sorted."""
        return sorted(self._system)

    def create_for_send(
        self, name: str, template_name: str, queues: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create `name` from a template topic at its first send; None when that is not allowed.

        `queues` is what the producer wants, bounded by the template's write queues.
        """
        known = self.table.get(name)
        if known is not None:
            return known
        template = self.table.get(template_name)
        if template is None:
            self._log.warning(
                "topic %s is not created: the template topic %s does not exist here",
                name,
                template_name,
            )
            return None
        if not template.perm & PERM_INHERIT:
            self._log.warning(
                "topic %s is not created: the template topic %s is not inheritable (perm %d)",
                name,
                template_name,
                template.perm,
            )
            return None
        topic = _new_topic(
            name,
            max(0, min(queues, template.write_queue_nums)),
            template.perm & ~PERM_INHERIT,
            sys_flag,
        )
        topic.topic_filter_type = template.topic_filter_type
        self._put([topic])
        return topic

    def create_if_absent(
        self,
        name: str,
        queues: int,
        perm: int = PERM_READ_WRITE,
        sys_flag: int = 0,
        *,
        order: bool = False,
    ) -> TopicConfig:
        """Return the topic as it is, or a new one: for retry and dead-letter topics."""
        topic = self.table.get(name)
        if topic is None:
            topic = _new_topic(name, queues, perm, sys_flag)
        elif topic.order == order:
            return topic
        topic.order = order
        self._put([topic])
        return topic

    def update(self, topics: Iterable[TopicConfig]) -> None:
        """Create or replace topics as an admin says.

        Their `attributes` hold changes (`{"+k": "v", "-k": ""}`), applied to what the topic
        has. Raises `AttributeChangeError`; then nothing changes.
        """
        changed = []
        for topic in topics:
            known = self.table.get(topic.topic_name)
            current = None if known is None else (known.attributes or {})
            topic.attributes = apply_changes(current, topic.attributes or {})
            changed.append(topic)
        self._put(changed)

    def delete(self, name: str) -> bool:
        """Forget a topic; False when it is unknown."""
        if self.table.pop(name, None) is None:
            return False
        self._changed([name])
        return True

    def refresh_template(self) -> None:
        """Let TBW102 follow the changed settings of automatic creation."""
        if self._config.auto_create_topic_enable:
            queues = self._config.default_topic_queue_nums
            topic = _new_topic(AUTO_CREATE_TOPIC, queues, PERM_READ_WRITE | PERM_INHERIT)
        elif AUTO_CREATE_TOPIC in self.table:
            topic = msgspec.structs.replace(self.table[AUTO_CREATE_TOPIC], perm=PERM_READ_WRITE)
        else:
            return
        self._put([topic])

    def tell_all(self) -> None:
        """Announce every topic: the broker's permission, which limits theirs, changed."""
        self._changed(list(self.table))

    def mark_ordered(self, names: Iterable[str]) -> None:
        """Mark the topics that the name server lists in its namespace ORDER_TOPIC_CONFIG."""
        changed = []
        for name in names:
            topic = self.table.get(name)
            if topic is not None and not topic.order:
                topic.order = True
                changed.append(name)
        if changed:
            self._changed(changed)

    @contextmanager
    def collecting(self, save: Callable[[], None] | None = None) -> Iterator[None]:
        """Write and tell what changes within only once, at the end: one request may bring many.
        With `save` that is called instead, to have it written later."""
        self._collected = {}
        try:
            yield
        finally:
            collected, self._collected = self._collected, None
            if collected:
                self._changed(collected, save)

    def _put(self, topics: list[TopicConfig]) -> None:
        for topic in topics:
            self._log.info("topic %s: %s", topic.topic_name, topic)
            self.table[topic.topic_name] = topic
        self._changed([topic.topic_name for topic in topics])

    def _changed(self, names: Iterable[str], save: Callable[[], None] | None = None) -> None:
        if self._collected is not None:
            self._collected.update(dict.fromkeys(names))
            return
        self.data_version = DataVersion(self.data_version.counter + 1, 0, self._clock())
        (save or self.save)()
        self._on_change(names)


def _new_topic(name: str, queues: int, perm: int, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )
