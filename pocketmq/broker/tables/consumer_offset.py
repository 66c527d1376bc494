"""How far each group has consumed each queue, kept in config/consumerOffset.json.

Commits only change memory; the file is written every 5 s when something changed, and at stop. What
an admin changes is written before it is acknowledged (`saved`). An offset lower than the stored one
is stored too (a client may rewind). Offsets are queue offsets: the next message to consume.

An official broker with enableLmq=true keeps all offsets in config/lmqConsumerOffset.json instead. A
store that has this file gets both files, each time with the same offsets, so that either broker
goes on where the other one was.
Reference: broker ConsumerOffsetManager, LmqConsumerOffsetManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.broker.tables.offset_file import OffsetFile
from pocketmq.message import fastjson
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.store.config_file import ConfigFile

log = logging.getLogger(__name__)

SEPARATOR: Final = "@"
LMQ_FILE: Final = "lmqConsumerOffset.json"
_LMQ_TABLE: Final = "lmqOffsetTable"
_NONE: Final[Mapping[int, int]] = {}
LOG_END: Final = "commitLogMaxOffset"
"""A field of the answer to GET_ALL_CONSUMER_OFFSET: the physical offset behind the last message.
Official brokers do not have it."""


class _Stored(msgspec.Struct, rename="camel"):
    """The fields of the file that are read."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion | None = None


class _StoredWithLmq(_Stored, rename="camel"):
    """The same of the file of light queues; offsets of their own groups by `topic@group`."""

    lmq_offset_table: dict[str, int] = {}


def _age(stored: _Stored, written: int) -> tuple[int, int, int]:
    """Return what is larger for the newer one of two files. The version rises only with every 500th
    commit."""
    version = stored.data_version
    return (version.timestamp, version.counter, written) if version else (0, 0, written)


async def _nothing_to_flush() -> bool:
    return True


class ConsumerOffsets(OffsetFile):
    """The offset table of one broker.

    `clock` gives milliseconds; the data version rises every `version_step` commits. `lmq` is
    enableLmq: True takes the offsets from lmqConsumerOffset.json beside `path`, False those from
    `path`, and None the newer ones.

    Attributes:
        after_log: an offset moved because of a message that was stored, as a checkpoint of a pop.
            The next write waits until the log is on the disk, or a power cut would leave an offset
            that passes over what nobody has.
        log_flushed: waits for that, and returns whether it is.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], int],
        version_step: int = 500,
        lmq: bool | None = None,
    ) -> None:
        super().__init__(path, "consumer offsets", clock, version_step)
        self._lmq = lmq
        self._lmq_file = ConfigFile(path.with_name(LMQ_FILE), "consumer offsets with light queues")
        self._lmq_table: dict[str, int] | None = None  # None: there is no such file
        # "topic@group" → queue id → offset, the form of the file and of the admin answer.
        self.table: dict[str, dict[int, int]] = {}
        # Where the group last pulled; only shown to admins, never stored.
        self._pulled: dict[str, dict[int, int]] = {}
        # Offsets that an admin set and that the group has not received yet; never stored.
        self._resets: dict[str, dict[int, int]] = {}
        self._writing = asyncio.Lock()
        self.after_log = False
        self.log_flushed: Callable[[], Awaitable[bool]] = _nothing_to_flush

    def load(self) -> None:
        """Read the file, or that of light queues. Raises ConfigFileError, OSError."""
        own = self._read(self._file, _Stored)
        self.table = own.offset_table
        written = self._lmq_file.written
        if not (written or self._lmq):
            return
        other = self._read(self._lmq_file, _StoredWithLmq)
        self._lmq_table = other.lmq_offset_table
        use_other = self._lmq
        if use_other is None:
            use_other = _age(other, written) > _age(own, self._file.written)
        if use_other and written:
            self.table = other.offset_table
            self.data_version = other.data_version or self.data_version
            log.warning(
                "consumer offsets are read from %s; from now on they are also written to %s",
                self._lmq_file.path, self._file.path.name,
            )  # fmt: skip
        else:
            self.data_version = own.data_version or self.data_version
        self._dirty = True  # both are to have the same

    def write(self, content: bytes) -> None:
        """Write what `unsaved` gave to both files, if there are two. Blocks. Raises OSError."""
        super().write(content)
        if self._lmq_table is None:
            return
        try:
            fields = fastjson.decode(content)
            fields[_LMQ_TABLE] = self._lmq_table
            self._lmq_file.write(self._lmq_file.encode(fields))
        except OSError:
            self.not_written()
            raise

    def save(self) -> None:
        """Write consumerOffset.json when something changed. Blocks. Raises OSError."""
        content = self.unsaved()
        if content is not None:
            self.write(content)

    async def flush(self) -> None:
        """Write consumerOffset.json, off the event loop, when something changed. Raises OSError."""
        # Cancelled, it would leave its thread writing beside the one of the next call.
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._writing:
            after_log, self.after_log = self.after_log, False
            content = self.unsaved()
            if content is None:
                return
            if after_log and not await self.log_flushed():
                self.after_log = True
                self.not_written()
                raise OSError("the commit log is not on the disk yet")
            await asyncio.to_thread(self.write, content)

    async def saved(self) -> None:
        """Wait until all changes so far are on the disk.

        Raises `RemotingError` (SERVICE_NOT_AVAILABLE) when they cannot be written now. They stay in
        memory then, and are written with the next `flush` that succeeds.
        """
        try:
            await self.flush()
        except OSError as error:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the broker cannot write the consumer offsets: {error}; it goes on trying",
            ) from None

    def document(self) -> dict[str, Any]:
        """Return the table as the file holds it and as GET_ALL_CONSUMER_OFFSET answers it."""
        groups: dict[str, list[str]] = {}
        for key in self.table:
            topic, _, group = key.partition(SEPARATOR)
            if SEPARATOR not in group:
                groups.setdefault(group, []).append(topic)
        return {
            "dataVersion": msgspec.to_builtins(self.data_version),
            "groupTopicMap": groups,
            "offsetTable": self.table,
        }

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store where `group` goes on in a queue."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self.table.get(key)
        if queues is None:
            queues = self.table[key] = {}
        queues[queue_id] = offset
        self._changed()

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the stored offset, or -1."""
        queues = self.table.get(f"{topic}{SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store where an admin wants `group` to go on. Until `take_reset` gives that to the pull
        of a consumer, the group's own commits are to be ignored."""
        self.commit(group, topic, queue_id, offset)
        self._resets.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether the group still has to be told a reset offset."""
        # Nearly always there are none at all, and every commit asks.
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}{SEPARATOR}{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the reset offset that the group must be told now; a second call returns None."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def forget_resets(self) -> None:
        """Forget which resets the groups were not told: another broker is master, and goes by the
        stored offsets."""
        self._resets.clear()

    def clone(self, source: str, destination: str, topic: str) -> None:
        """Give a group the offsets that another one has in a topic, if that has any."""
        queues = self.table.get(f"{topic}{SEPARATOR}{source}")
        if queues is not None:
            self.table[f"{topic}{SEPARATOR}{destination}"] = dict(queues)
            self._dirty = True

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note the offset of a pull, for admins."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._pulled.get(key)
        if queues is None:
            queues = self._pulled[key] = {}
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return where the group pulled last; the stored offset when it did not pull; -1 without
        both.
        """
        offset = self._pulled.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def topics_of(self, group: str) -> set[str]:
        """Return the topics that have a stored offset of `group`."""
        return {topic for topic, name in self.pairs() if name == group}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have a stored offset in `topic`."""
        return {group for name, group in self.pairs() if name == topic}

    def offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """Return all stored offsets of a group in a topic."""
        return self.table.get(f"{topic}{SEPARATOR}{group}", {})

    def follow(self, table: Mapping[str, dict[int, int]], version: DataVersion | None) -> None:
        """Take over what a master has stored, also where it is less; what only this broker has
        stays."""
        if version is not None:
            self.data_version = version
        if any(self.table.get(key) != queues for key, queues in table.items()):
            self.table.update(table)
            self._dirty = True

    def forget_topic(self, topic: str) -> None:
        """Forget a deleted topic: a new one of the same name starts without offsets."""
        self._forget(lambda name, group: name == topic)

    def forget_group(self, group: str) -> None:
        """Forget the offsets of a deleted group."""
        self._forget(lambda topic, name: name == group)

    def pairs(self) -> list[tuple[str, str]]:
        """Return (topic, group) of every stored offset."""
        # Entries of broadcasting groups, "topic@group@broadcast", are not pairs.
        split = [tuple(key.split(SEPARATOR)) for key in self.table]
        return [(components[0], components[1]) for components in split if len(components) == 2]

    def progress(self) -> Iterator[tuple[str, str, Mapping[int, int], Mapping[int, int]]]:
        """Yield topic, group, stored offsets and pulled offsets of every pair that there is now and
        still is when its turn comes; the last two by queue id, and live.
        """
        table, pulled = self.table, self._pulled
        for key in list(table):
            topic, _, group = key.partition(SEPARATOR)
            queues = table.get(key)
            if queues is not None and SEPARATOR not in group:
                yield topic, group, queues, pulled.get(key, _NONE)

    def _forget(self, concerned: Callable[[str, str], bool]) -> None:
        for table in (self.table, self._pulled, self._resets):
            for key in list(table):
                topic, _, group = key.partition(SEPARATOR)
                if concerned(topic, group):
                    del table[key]
                    self._dirty = True
