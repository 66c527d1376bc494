"""The topics of a broker: their queues and permissions, saved in config/topics.json.

A topic is created by an admin (code 17), by a first send (from a template topic with the inherit
bit, normally TBW102), by a heartbeat (%RETRY%group), or by the broker itself. Every change
increases the data version and is sent to the name servers through `on_change`. It takes effect at
once, and is on the disk a little later. A handler must wait for `saved` before it acknowledges a
change, or a message of a new topic. Reference: broker TopicConfigManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.attributes import apply_changes
from pocketmq.broker.tables.creation_limit import CreationLimit
from pocketmq.broker.tables.table_file import Content, TableFile
from pocketmq.broker.tables.topic_births import TopicBirths
from pocketmq.broker.tables.unserved_topics import UnservedTopics
from pocketmq.limited_log import LimitedLog
from pocketmq.message import limits
from pocketmq.message.incarnation import (
    CREATED_OFFSET,
    CREATED_TIME,
    created_offset,
    created_time,
)
from pocketmq.message.limits import (
    AUTO_CREATE_TOPIC,
    LIGHT_QUEUE_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    IllegalName,
    check_topic,
)
from pocketmq.message.multi_dispatch import is_light_queue
from pocketmq.message.properties import INNER_MULTI_DISPATCH
from pocketmq.remoting.bodies.registration import DataVersion, TopicConfig
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.request import RequestConnection
from pocketmq.store.deletions import DELETED_TOPICS, note_deleted
from pocketmq.store.errors import StoreError
from pocketmq.store.queue.consume_queue import ConsumeQueue
from pocketmq.table_writer import TableWriter

log = logging.getLogger(__name__)

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

SCHEDULE_QUEUES: Final = 18
BENCHMARK_QUEUES: Final = 1024
CLUSTER_TOPIC_QUEUES: Final = 16

_MOST_NAMED: Final = 20  # topics in a log line


def _no_log() -> int:
    return 0


class TopicConfigs:
    """The topic table of one broker. `clock` gives milliseconds.

    `on_change(names)` is called with the changed topics after each change; a deleted topic is no
    longer in `table` then. `log_end()` returns the physical offset at which the log ends, which is
    stored in new topics, see `pocketmq.message.incarnation`.

    Attributes:
        table: the topics by name.
        deleted: deleted topics, with the physical offset at which the log ended at that time. This
            includes topics that were created again: after a kill, the store finds the messages of
            the deleted topic again, as long as they are in the log.
    """

    def __init__(
        self,
        config: BrokerConfig,
        path: Path,
        clock: Callable[[], int],
        on_change: Callable[[Collection[str]], None],
        log_end: Callable[[], int] = _no_log,
    ) -> None:
        self._config = config
        self._has_light_queues = config.has_light_queues  # computed: it is asked for each pull
        self._log_end = log_end
        self._file = TableFile(path, "topics", "topicConfigTable", TopicConfig)
        self._writer = TableWriter(path, self._encode, self._file.write)
        self._births = TopicBirths(path)
        self._limit = CreationLimit("topics")
        # The topics that are not on the disk yet, with the table's revision that contains each.
        self._new: dict[str, int] = {}
        self.deleted: dict[str, int] = {}
        self._unserved = UnservedTopics(
            path.with_name("topicQueueMapping.json"), has_light_queues=config.has_light_queues
        )
        self._clock = clock
        self._on_change = on_change
        self._log = LimitedLog(log)
        self.table: dict[str, TopicConfig] = {}
        self._count = 0  # of topics that count for maxAutoCreatedTopics
        self.data_version = DataVersion(timestamp=clock())
        self._reign = 0  # the master's epoch in a controller group
        self._system = SYSTEM_TOPICS | {name for name, *_ in self._own_topics()}

    def _own_topics(self) -> list[tuple[str, int, int]]:
        """Return the topics that every broker has: name, queues, permissions."""
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
            (f"{limits.REVIVE_LOG_PREFIX}{cluster}", config.revive_queue_num, PERM_READ_WRITE),
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
        """Load the broker's own topics, then those in the file, which take precedence.

        Raises ConfigFileError.
        """
        for name, queues, perm in self._own_topics():
            self.table[name] = _new_topic(name, queues, perm)
        self._unserved.load()
        stored, self.data_version = self._file.load(self.data_version)
        self.table.update(stored)
        if not self._config.auto_create_topic_enable and AUTO_CREATE_TOPIC in self.table:
            # Automatic creation was enabled before: this is an ordinary topic from now on.
            self.table[AUTO_CREATE_TOPIC].perm = PERM_READ_WRITE
        self._count = sum(map(_counts, self.table))

        for name, topic in self.table.items():
            self._file.changed(name, topic)
        self.deleted = self._file.take_deleted(DELETED_TOPICS)
        if self._file.stale:
            self._writer.changed()
        # Topics that were not written because of a kill. In a snapshot, topics.json is the newer
        # file.
        for topic in self._births.load():
            name = topic.topic_name
            if name not in self.table and (
                created_offset(topic.attributes) >= self.deleted.get(name, 0)
            ):
                self._add(topic)
                self._count_change()

    def adopt(
        self, queues: Mapping[str, Mapping[int, ConsumeQueue]], log_begin: int, log_end: int
    ) -> None:
        """Create the topics that have messages but are not in the table: topics.json was lost, or
        the broker was killed before it was written. Call this once, after `load`.

        A topic is not created for messages that are older than its entry in `deleted`. `log_begin`
        and `log_end` are the physical offsets at which the log begins and ends.
        """
        self.log_ends(log_end)
        self.deleted = {name: end for name, end in self.deleted.items() if end > log_begin}
        adopted = []
        for name in queues:
            if name in self.table or name.startswith(LIGHT_QUEUE_PREFIX):
                continue  # without opening its queues
            of_topic = queues[name]
            try:
                end = max((queue.max_physical for queue in of_topic.values()), default=-1)
            except StoreError as error:
                log.error(
                    "topic %s is not in topics.json, and is not created again: %s", name, error
                )
                continue
            if end > max(self.deleted.get(name, 0), log_begin):
                topic = _new_topic(name, max(of_topic) + 1, PERM_READ_WRITE)
                self._note_deletion_before(topic)
                self._add(topic)
                adopted.append(name)
        if adopted:
            self._count_change()
            log.warning(
                "topics created again, as they have messages but are not in topics.json: %d (%s). "
                "They have the queues with messages, and no other settings",
                len(adopted),
                ", ".join(adopted[:_MOST_NAMED]) + (", ..." if len(adopted) > _MOST_NAMED else ""),
            )

    def log_ends(self, log_end: int) -> None:
        """Adjust the offsets of deletions and creations to the end of the log, a physical offset,
        after the log may have been truncated: new messages must count as newer than both."""
        if any(end > log_end for end in self.deleted.values()):
            self._writer.changed()
        self.deleted = {name: min(end, log_end) for name, end in self.deleted.items()}
        for name, topic in self.table.items():
            if created_offset(topic.attributes) > log_end:
                topic.attributes = {**topic.attributes, CREATED_OFFSET: str(log_end)}
                self._file.changed(name, topic)
                self._writer.changed()

    def created(self, name: str) -> int:
        """Return the physical offset from which on records belong to the topic of this name;
        earlier records belong to a deleted topic. 0 if no deletion is known."""
        topic = self.table.get(name)
        offset = self.deleted.get(name, 0)
        return offset if topic is None else max(offset, created_offset(topic.attributes))

    def is_recreated(self, name: str) -> bool:
        """Tell whether an earlier topic of this name was deleted: the log may have its messages."""
        # There are nearly never any, and every commit checks this.
        return bool(self.deleted) and name in self.deleted

    def is_popped_before(self, name: str, pop_time: int) -> bool:
        """Tell whether a message popped at `pop_time` (ms) belongs to an earlier topic of this
        name.

        Use this only for receipt handles, which contain no physical offset. After the clock was set
        back, the result can be wrong; then the message is delivered again.
        """
        topic = self.table.get(name)
        return (
            topic is not None
            and self.is_recreated(name)
            and pop_time < created_time(topic.attributes)
        )

    def start(self) -> None:
        """Write changes from now on; call this on the event loop."""
        self._writer.start()

    async def stop(self) -> None:
        """Write the remaining changes, and stop."""
        await self._writer.stop()
        self._forget_births()

    def _encode(self) -> Content:
        self._limit.clear()
        self._forget_births()
        others = {DELETED_TOPICS: self.deleted} if self.deleted else {}
        return self._file.encode(self.data_version, **others)

    def _forget_births(self) -> None:
        for name, revision in list(self._new.items()):
            if revision > self._writer.written:
                return
            del self._new[name]
        if self._writer.written:
            self._births.clear()

    def is_saved(self, name: str) -> bool:
        """Tell whether a topic in the table is on the disk, so that it survives a restart."""
        return self._new.get(name, 0) <= self._writer.written

    async def saved(self, name: str | None = None) -> None:
        """Wait until a topic is on the disk; without a name, until all changes so far are.

        Raises RemotingError (SERVICE_NOT_AVAILABLE) if they cannot be written now.
        """
        revision = self._writer.revision if name is None else self._new.get(name, 0)
        await self._writer.saved(revision)
        self._forget_births()

    def check_new(self, name: str) -> None:
        """Refuse a request that needs a topic that is not on the disk, while topics.json cannot be
        written. Raises RemotingError (SERVICE_NOT_AVAILABLE).
        """
        if self._writer.error is not None and not (name in self.table and self.is_saved(name)):
            self._writer.check()

    def get(self, name: str) -> TopicConfig | None:
        """Return the topic; None if it does not exist. Every light queue is a topic, without an
        entry in the table."""
        topic = self.table.get(name)
        if topic is None and self.is_light(name):
            topic = _new_topic(name, 1, PERM_READ_WRITE)
        return topic

    def is_light(self, name: str) -> bool:
        """Tell whether this is a light queue, and light queues are served."""
        return self._has_light_queues and is_light_queue(name)

    def is_served(self, name: str) -> bool:
        """Tell whether this broker serves a topic, which need not exist."""
        topic = self.table.get(name)
        return self._unserved.reason(name, None if topic is None else topic.attributes) is None

    def takes_messages(self, name: str) -> bool:
        """Do the same for a topic whose messages are to be stored."""
        return self.is_served(name) and not name.startswith(LIGHT_QUEUE_PREFIX)

    def check_served(self, name: str) -> TopicConfig | None:
        """Return the topic, None if it does not exist; refuse a topic that only an official broker
        serves.

        Raises:
            RemotingError: INVALID_PARAMETER, which producers do not retry.
        """
        topic = self.get(name)
        reason = self._unserved.reason(name, None if topic is None else topic.attributes)
        if reason is not None:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{name}] is not served by this broker: {reason}; "
                "use an official broker for it",
            )
        return topic

    def check_ordinary(self, name: str) -> TopicConfig | None:
        """Do the same for a request that is not for light queues: a send or a pop."""
        topic = self.check_served(name)
        if name.startswith(LIGHT_QUEUE_PREFIX):
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"topic[{name}] is a light queue: it is pulled from, and gets the messages of "
                f"topics that name it in their property {INNER_MULTI_DISPATCH}",
            )
        return topic

    def is_system(self, name: str) -> bool:
        """Tell whether a topic is RocketMQ's or this broker's own, so that admins may not change or
        delete it.
        """
        return name in self._system or name.startswith(SYSTEM_TOPIC_PREFIX)

    def system_topics(self) -> list[str]:
        """Return the names of RocketMQ's and this broker's own topics, sorted."""
        return sorted(self._system)

    def create_for_send(
        self,
        name: str,
        template_name: str,
        queues: int,
        sys_flag: int = 0,
        connection: RequestConnection | None = None,
    ) -> TopicConfig | None:
        """Create `name` from a template topic at its first send; return None if not allowed.

        `queues` is the producer's number of queues, limited to the template's write queues. Raises
        RemotingError: TOPIC_NOT_EXIST if there are maxAutoCreatedTopics already, SYSTEM_BUSY if
        `connection` has created too many topics that are not on the disk yet.
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
        if _counts(name) and self._count >= self._config.max_auto_created_topics:
            reason = f"there are already {self._count} (maxAutoCreatedTopics)"
            self._log.warning("topic %s is not created: %s", name, reason)
            raise RemotingError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please! It is not created because {reason}",
            )
        topic = _new_topic(
            name,
            max(0, min(queues, template.write_queue_nums)),
            template.perm & ~PERM_INHERIT,
            sys_flag,
        )
        topic.topic_filter_type = template.topic_filter_type
        if connection is not None:
            self._limit.count(connection)
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
        connection: RequestConnection | None = None,
    ) -> TopicConfig:
        """Return the existing topic or a new one, for retry and dead-letter topics. Raises
        RemotingError (SYSTEM_BUSY) like `create_for_send`.
        """
        topic = self.table.get(name)
        if topic is None:
            if connection is not None:
                self._limit.count(connection)
            topic = _new_topic(name, queues, perm, sys_flag)
        elif topic.order == order:
            return topic
        topic.order = order
        self._put([topic])
        return topic

    def create_for_delivery(self, name: str, queues: int) -> None:
        """Create a topic for accepted messages that are due, but whose topic is not in the table:
        topics.json was lost, or this broker became master before it had copied the topic. Do
        nothing if there are maxAutoCreatedTopics already, or if the name is not valid."""
        try:
            check_topic(name)
        except IllegalName:
            return
        if name in self.table or self.is_system(name):
            return
        if _counts(name) and self._count >= self._config.max_auto_created_topics:
            return
        self._log.warning(
            "topic %s is created with %d queues: it has messages to deliver and is not in "
            "topics.json",
            name,
            queues,
        )
        topic = _new_topic(name, queues, PERM_READ_WRITE)
        self._note_deletion_before(topic)
        self._add(topic)
        self._tell([name])

    def update(self, topics: Iterable[TopicConfig]) -> bool:
        """Create or replace topics for an admin; return whether anything changed.

        Their `attributes` are changes (`{"+k": "v", "-k": ""}`) of the topic's attributes. If this
        raises AttributeChangeError, nothing has changed.
        """
        changed = []
        for topic in topics:
            known = self.table.get(topic.topic_name)
            current = None if known is None else (known.attributes or {})
            topic.attributes = apply_changes(current, topic.attributes or {})
            if topic != known:
                changed.append(topic)
        if changed:
            self._put(changed)
        return bool(changed)

    def delete(self, name: str, log_end: int) -> bool:
        """Delete a topic; return False if it does not exist. All its messages are before the
        physical offset `log_end`."""
        if self.is_light(name) and name not in self.table:
            note_deleted(self.deleted, name, log_end)
            self._count_change()
            return True
        if self.table.pop(name, None) is None:
            return False
        self._count -= _counts(name)
        self._new.pop(name, None)
        self._births.deleted(name)
        note_deleted(self.deleted, name, log_end)
        self._changed([name])
        return True

    def follow(
        self, table: Mapping[str, TopicConfig], version: DataVersion
    ) -> tuple[list[str], list[str]]:
        """Copy a master's table and its version; return the topics that are new or changed, and
        those that the master no longer has. The latter stay: the caller must `delete` them, with
        the end of their messages. This broker's own topics stay, too."""
        changed = []
        for name, topic in table.items():
            if self.table.get(name) != topic:
                self._add(topic)
                changed.append(name)
        gone = [name for name in self.table if name not in table and not self.is_system(name)]
        self.data_version = version
        if changed:
            self._writer.changed()
            self._on_change(changed)
        return changed, gone

    def follow_deletions(
        self, table: Mapping[str, TopicConfig], deleted: Mapping[str, int]
    ) -> dict[str, int]:
        """Copy the deletions of a master; call this before `follow`. Return the topics that the
        master has deleted or created again since this slave last copied them, each with the
        physical offset before which its messages are deleted."""
        ends = dict(deleted)
        for name, topic in table.items():
            end = created_offset(topic.attributes)
            if name in self.table and end > self.created(name):
                ends[name] = max(end, ends.get(name, 0))
        new = {name: end for name, end in ends.items() if end > self.created(name)}
        for name, end in new.items():
            note_deleted(self.deleted, name, end)
        if new:
            self._writer.changed()
        return new

    def refresh_template(self) -> None:
        """Update TBW102 after a change of the settings of automatic creation."""
        if self._config.auto_create_topic_enable:
            queues = self._config.default_topic_queue_nums
            topic = _new_topic(AUTO_CREATE_TOPIC, queues, PERM_READ_WRITE | PERM_INHERIT)
        elif AUTO_CREATE_TOPIC in self.table:
            topic = msgspec.structs.replace(self.table[AUTO_CREATE_TOPIC], perm=PERM_READ_WRITE)
        else:
            return
        self._put([topic])

    def new_reign(self, epoch: int) -> None:
        """Register every topic again, with the master's `epoch` in the version."""
        self._reign = epoch
        self.tell_all()

    def tell_all(self) -> None:
        """Register every topic again: the broker's permission, which limits theirs, has changed."""
        self._tell(list(self.table))

    def mark_ordered(self, names: Iterable[str]) -> None:
        """Mark the topics in the name server's namespace ORDER_TOPIC_CONFIG as ordered."""
        changed = []
        for name in names:
            topic = self.table.get(name)
            if topic is not None and not topic.order:
                topic.order = True
                changed.append(name)
        if changed:
            self._changed(changed)

    def _put(self, topics: list[TopicConfig]) -> None:
        for topic in topics:
            if topic.topic_name not in self.table and not self.is_system(topic.topic_name):
                topic.attributes = {
                    **topic.attributes,
                    CREATED_OFFSET: str(self._log_end()),
                    CREATED_TIME: str(self._clock()),
                }
            self._add(topic)
        self._tell([topic.topic_name for topic in topics])

    def _note_deletion_before(self, topic: TopicConfig) -> None:
        """Set the creation offset of an adopted topic to that of the last deletion of its name. Its
        real creation is later, but its first remaining message may not be its first one."""
        deleted = self.deleted.get(topic.topic_name)
        if deleted is not None:
            topic.attributes = {CREATED_OFFSET: str(deleted)}

    def _add(self, topic: TopicConfig) -> None:
        name = topic.topic_name
        self._log.info("topic %s: %s", name, topic)
        if name not in self.table:
            self._new.pop(name, None)  # move it to the end
            self._new[name] = self._writer.revision + 1
            self._count += _counts(name)
            self._births.created(topic)
        self.table[name] = topic
        self._file.changed(name, topic)

    def _changed(self, names: Collection[str]) -> None:
        for name in names:
            self._file.changed(name, self.table.get(name))
        self._tell(names)

    def _tell(self, names: Collection[str]) -> None:
        self._count_change()
        self._on_change(names)

    def _count_change(self) -> None:
        counter = self.data_version.counter + 1
        self.data_version = DataVersion(counter, self._reign, self._clock())
        self._writer.changed()


def _counts(name: str) -> bool:
    """Tell whether a topic counts for maxAutoCreatedTopics: retry topics do not, because the number
    of groups is limited."""
    return not name.startswith(RETRY_PREFIX)


def _new_topic(name: str, queues: int, perm: int, sys_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
    )
