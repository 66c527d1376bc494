"""The configured consumer groups of a broker, saved in config/subscriptionGroup.json.

A group's settings exist whether or not a member is online. An unknown group is created with
defaults at its first pull or heartbeat, if the broker allows that. The answer does not wait until
such a group is on the disk. So a group may be missing after a kill, or on a slave that has become
master, and its messages must still be delivered. Therefore the table also stores which groups were
deleted. Reference: broker SubscriptionGroupManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.tables.creation_limit import CreationLimit
from pocketmq.broker.tables.table_file import Content, TableFile
from pocketmq.limited_log import LimitedLog
from pocketmq.message.limits import (
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    IllegalName,
    check_new_group,
)
from pocketmq.message.multi_dispatch import is_light_queue
from pocketmq.message.retry_topic import V1_SEPARATOR, normal_topic
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.serving.request import RequestConnection
from pocketmq.store.config_file import ConfigFileError
from pocketmq.store.deletions import DELETED_GROUPS, note_deleted
from pocketmq.table_writer import TableWriter

log = logging.getLogger(__name__)

#: Groups of RocketMQ's tools, which exist on every broker from its first start.
OWN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
_TOOL_GROUPS: Final = frozenset(
    (*OWN_GROUPS, "DEFAULT_CONSUMER", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER")
)
FORBID_READ: Final = 1 << 2  # a bit in `forbidden`: the group may not read the topic


def is_tool_group(name: str) -> bool:
    """Tell whether a group belongs to RocketMQ's tools, which may always pull."""
    return name in _TOOL_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


class SubscriptionGroups:
    """The group table of one broker. `clock` gives milliseconds.

    Attributes:
        deleted: deleted groups, with the time of deletion (Unix ms).
        offset_of: returns the committed offset of a group in a queue of a topic; -1 if there is
            none.
    """

    def __init__(self, config: BrokerConfig, path: Path, clock: Callable[[], int]) -> None:
        self._config = config
        self._has_light_queues = config.has_light_queues  # computed: it is asked for each pull
        self._path = path
        self._file = TableFile(
            path, "consumer groups", "subscriptionGroupTable", SubscriptionGroupConfig
        )
        self._writer = TableWriter(path, self._encode, self._file.write)
        self._clock = clock
        self._limit = CreationLimit("consumer groups")
        self._log = LimitedLog(log)
        self.table: dict[str, SubscriptionGroupConfig] = {}
        self.data_version = DataVersion(timestamp=clock())
        # group → topic → bits, see FORBID_READ.
        self.forbidden: dict[str, dict[str, int]] = {}
        self.deleted: dict[str, int] = {}
        self.offset_of: Callable[[str, str, int], int] = lambda group, topic, queue_id: -1

    def load(self) -> None:
        """Load RocketMQ's groups, then those in the file. Raises ConfigFileError."""
        for name in OWN_GROUPS:
            self.table[name] = SubscriptionGroupConfig(group_name=name)
        stored, self.data_version = self._file.load(self.data_version)
        self.table.update(stored)
        forbidden = self._file.document.get("forbiddenTable", {})
        try:
            self.forbidden = msgspec.convert(forbidden, dict[str, dict[str, int]], strict=False)
        except msgspec.ValidationError as error:
            raise ConfigFileError(self._path, f"forbiddenTable: {error}") from None
        self.deleted = self._file.take_deleted(DELETED_GROUPS)
        for name, group in self.table.items():
            self._file.changed(name, group)
        if self._file.stale:
            self._writer.changed()

    def start(self) -> None:
        """Write changes from now on; call this on the event loop."""
        self._writer.start()

    async def stop(self) -> None:
        """Write the remaining changes, and stop."""
        await self._writer.stop()

    async def saved(self) -> None:
        """Wait until all changes so far are on the disk.

        Raises RemotingError (SERVICE_NOT_AVAILABLE) if they cannot be written now.
        """
        await self._writer.saved(self._writer.revision)

    def _encode(self) -> Content:
        self._limit.clear()
        others = {DELETED_GROUPS: self.deleted} if self.deleted else {}
        return self._file.encode(self.data_version, forbiddenTable=self.forbidden, **others)

    def known(self, name: str) -> bool:
        """Tell whether the group is in the table; do not create it."""
        return name in self.table

    def is_light(self, name: str) -> bool:
        """Tell whether this is a group of light queues: every name that could be a light queue's is
        a group without an entry in the table, if light queues are served. Such groups only pull:
        they have no retry topics, whose number would have no limit."""
        return self._has_light_queues and is_light_queue(name)

    def exists(self, name: str) -> bool:
        """Tell whether the group is in the table, or one of light queues."""
        return name in self.table or self.is_light(name)

    def find_any(
        self, name: str, connection: RequestConnection | None = None
    ) -> SubscriptionGroupConfig | None:
        """Do as `find`, also for a group of light queues."""
        if self.is_light(name):
            return SubscriptionGroupConfig(group_name=name)
        return self.find(name, connection)

    def is_retry_of_another(self, topic: str, group: str) -> bool:
        """Tell whether a topic that is named like a POP retry topic of `group` belongs to another
        group: what `pay` popped from `orders` would return to %RETRY%pay_orders (v1), the retry
        topic of `pay_orders`. Of two groups whose names for their topics are the same, such as
        `pay` with `orders_eu` and `pay_orders` with `eu`, the first one that needed it has it: it
        has an offset there from the start."""
        if normal_topic(topic, group) == topic:
            return False
        joined = topic.removeprefix(RETRY_PREFIX)
        if joined in self.table:
            return True
        if self.offset_of(group, topic, 0) >= 0:
            return False
        parts = joined.split(V1_SEPARATOR)
        others = (V1_SEPARATOR.join(parts[:end]) for end in range(1, len(parts)))
        return any(self.offset_of(other, topic, 0) >= 0 for other in others)

    def is_deleted(self, name: str, time: int) -> bool:
        """Tell whether a group that existed at `time` (Unix ms) was deleted since, or was deleted
        before and does not exist now."""
        deleted = self.deleted.get(name)
        return deleted is not None and (name not in self.table or deleted >= time)

    def find(
        self, name: str, connection: RequestConnection | None = None
    ) -> SubscriptionGroupConfig | None:
        """Return the group's settings; create the group with defaults if the broker allows that,
        and it is none of light queues.

        Raises RemotingError (SYSTEM_BUSY) if `connection` has created too many groups that are not
        on the disk yet.
        """
        group = self.table.get(name)
        if group is not None:
            return group
        if self.is_light(name):
            return None
        if not (
            self._config.auto_create_subscription_group or name.startswith(SYSTEM_GROUP_PREFIX)
        ):
            return None
        try:
            check_new_group(name)
        except IllegalName as error:
            self._log.warning("the group is not created: %s", error)
            return None
        if len(self.table) >= self._config.max_auto_created_groups:
            self._log.warning(
                "group %s is not created: there are already %d (maxAutoCreatedGroups)",
                name,
                len(self.table),
            )
            return None
        if connection is not None:
            self._limit.count(connection)
        group = SubscriptionGroupConfig(group_name=name)
        self._log.info("group %s created", name)
        self.update([group])
        return group

    def update(self, groups: Iterable[SubscriptionGroupConfig]) -> None:
        """Create or replace groups for an admin."""
        names = []
        for group in groups:
            self.table[group.group_name] = group
            names.append(group.group_name)
        self._changed(*names)

    def delete(self, name: str) -> bool:
        """Delete a group; return False if it does not exist."""
        self.forbidden.pop(name, None)
        if self.table.pop(name, None) is None:
            return False
        note_deleted(self.deleted, name, self._clock())
        self._changed(name)
        return True

    def follow(
        self,
        table: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, dict[str, int]],
        version: DataVersion,
    ) -> None:
        """Copy a master's table and its version."""
        gone = [name for name in self.table if name not in table and name not in OWN_GROUPS]
        for name in gone:
            del self.table[name]
            note_deleted(self.deleted, name, self._clock())
            self._file.changed(name, None)
        for name, group in table.items():
            if self.table.get(name) != group:
                self.table[name] = group
                self._file.changed(name, group)
        self.forbidden = dict(forbidden)
        if version != self.data_version or gone:
            self.data_version = version
            self._writer.changed()

    def may_read(self, group: str, topic: str) -> bool:
        """Return False if an admin has forbidden `group` to read `topic`."""
        return not self.forbidden.get(group, {}).get(topic, 0) & FORBID_READ

    def forbid_reading(self, group: str, topic: str, *, forbidden: bool) -> None:
        """Forbid `group` to read `topic`, or allow it again."""
        topics = self.forbidden.setdefault(group, {})
        bits = topics.get(topic, 0)
        bits = bits | FORBID_READ if forbidden else bits & ~FORBID_READ
        if bits:
            topics[topic] = bits
        else:
            topics.pop(topic, None)
        if not topics:
            del self.forbidden[group]
        self._changed()

    def _changed(self, *names: str) -> None:
        for name in names:
            self._file.changed(name, self.table.get(name))
        self.data_version = DataVersion(self.data_version.counter + 1, 0, self._clock())
        self._writer.changed()
