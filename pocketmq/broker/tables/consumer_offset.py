"""The consumer offsets of each group in each queue, saved in config/consumerOffset.json.

Commits only change memory; the file is written every 5 s if something changed, and at stop. Changes
by an admin are written before they are acknowledged (`saved`). An offset may be lower than the
current one (a client may rewind). Offsets are queue offsets of the next message to consume.

An official broker with enableLmq=true saves all offsets in config/lmqConsumerOffset.json instead,
those of the groups of light queues in a table of their own there. In a store that has this file,
both files are written with the same offsets, so that either broker continues where the other one
stopped.
Reference: broker ConsumerOffsetManager, LmqConsumerOffsetManager.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from pocketmq.broker.tables.offset_file import OffsetFile
from pocketmq.error_kind import kind_of
from pocketmq.message import fastjson
from pocketmq.message.limits import LIGHT_QUEUE_PREFIX
from pocketmq.message.multi_dispatch import LIGHT_QUEUE_ID
from pocketmq.remoting.bodies.registration import DataVersion
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers.base import I64
from pocketmq.remoting.serving.long_requests import Steps, in_turns
from pocketmq.store.config_file import ConfigFile

log = logging.getLogger(__name__)

SEPARATOR: Final = "@"
LMQ_FILE: Final = "lmqConsumerOffset.json"
_LMQ_TABLE: Final = "lmqOffsetTable"
OFFSETS_OF_LIGHT_QUEUE: Final = 10
"""Of all groups together, on average."""
_NONE: Final[Mapping[int, int]] = {}
_GROUPS_OF_STEP: Final = 200
_LIGHT_KEY: Final = str(LIGHT_QUEUE_ID)  # in the file
LOG_END: Final = "commitLogMaxOffset"
"""A field of the answer to GET_ALL_CONSUMER_OFFSET: the physical offset at which the log ends.
Official brokers do not have it."""


class _Stored(msgspec.Struct, rename="camel"):
    """The fields that are read from the file."""

    offset_table: dict[str, dict[int, I64]] = {}
    data_version: DataVersion | None = None


class _StoredWithLmq(_Stored, rename="camel"):
    """The same for the file of light queues, with the offsets of their groups by `topic@group`."""

    lmq_offset_table: dict[str, I64] = {}


def _age(stored: _Stored, written: int) -> tuple[int, int, int]:
    """Return a value that is larger for the newer of two files. The version alone is not enough: it
    increases only every 500 commits."""
    version = stored.data_version
    return (version.timestamp, version.counter, written) if version else (0, 0, written)


async def _nothing_to_flush() -> bool:
    return True


class ConsumerOffsets(OffsetFile):
    """The offset table of one broker.

    `clock` gives milliseconds; the data version increases every `version_step` commits. `lmq` is
    enableLmq: with True the offsets are read from lmqConsumerOffset.json in the directory of
    `path`, with False from `path`, and with None from the newer file. Clients name light queues and
    their groups as they like, so there are `most_light` entries of these at most.

    Attributes:
        log_flushed: waits until the log is on the disk, and returns whether it is. Each write waits
            for it: an offset may depend on a message stored before, such as the checkpoint of a pop
            or the copy of a message that was sent back. After a power cut, an offset without that
            message would skip another one.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], int],
        version_step: int = 500,
        lmq: bool | None = None,
        most_light: int = 200_000,
    ) -> None:
        super().__init__(path, "consumer offsets", clock, version_step)
        self._lmq = lmq
        self._lmq_file = ConfigFile(path.with_name(LMQ_FILE), "consumer offsets with light queues")
        self._writes_lmq = False
        self._most_light = most_light
        self._light = 0  # keys of light queues or their groups in the tables
        # "topic@group" → queue id → offset, as in the file and in the answer to admins.
        self.table: dict[str, dict[int, int]] = {}
        # The offsets of the last pulls; only shown to admins, never saved.
        self._pulled: dict[str, dict[int, int]] = {}
        # Offsets set by an admin that the group has not received yet; never saved.
        self._resets: dict[str, dict[int, int]] = {}
        # The keys of these tables by topic, each with its group, and by group, each with its topic:
        # there may be fifty thousand.
        self._by_topic: dict[str, dict[str, str]] = {}
        self._by_group: dict[str, dict[str, str]] = {}
        self._writing = asyncio.Lock()
        self.log_flushed: Callable[[], Awaitable[bool]] = _nothing_to_flush

    def load(self) -> None:
        """Read the file, or the file of light queues. Raises ConfigFileError, OSError."""
        self._load()
        for key in self.table:
            self._index(key)

    def _load(self) -> None:
        own = self._read(self._file, _Stored)
        self.table = own.offset_table
        written = self._lmq_file.written
        if not (written or self._lmq):
            return
        other = self._read(self._lmq_file, _StoredWithLmq)
        self._writes_lmq = True
        light = {key: {LIGHT_QUEUE_ID: offset} for key, offset in other.lmq_offset_table.items()}
        self.table = {**light, **self.table}
        use_other = self._lmq
        if use_other is None:
            use_other = _age(other, written) > _age(own, self._file.written)
        if use_other and written:
            self.table = {**other.offset_table, **light}
            self.data_version = other.data_version or self.data_version
            log.warning(
                "consumer offsets are read from %s; from now on they are also written to %s",
                self._lmq_file.path, self._file.path.name,
            )  # fmt: skip
        else:
            self.data_version = own.data_version or self.data_version
        self._dirty = True  # write the same offsets to both files

    def write(self, content: bytes) -> None:
        """Write the result of `unsaved` to the file, or to both files. Blocks. Raises OSError."""
        super().write(content)
        if not self._writes_lmq:
            return
        try:
            fields = fastjson.decode(content)
            table = fields["offsetTable"]
            fields[_LMQ_TABLE] = {
                key: table.pop(key).get(_LIGHT_KEY, 0) for key in list(table) if _is_of_light(key)
            }
            self._lmq_file.write(self._lmq_file.encode(fields))
        except OSError:
            self.not_written()
            raise

    def save(self) -> None:
        """Write consumerOffset.json if something changed. Blocks. Raises OSError."""
        content = self.unsaved()
        if content is not None:
            self.write(content)

    async def flush(self) -> None:
        """Write consumerOffset.json in a thread if something changed. Raises OSError."""
        # If it were cancelled, its thread would go on, and the next call could write at the same
        # time.
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._writing:
            if not self._dirty:
                return
            self._dirty = False
            content = self._file.encode(await in_turns(self.document_steps()))
            if not await self.log_flushed():
                self.not_written()
                raise OSError(errno.EAGAIN, "the commit log is not on the disk yet")
            await asyncio.to_thread(self.write, content)

    async def saved(self) -> None:
        """Wait until all changes so far are on the disk.

        Raises RemotingError (SERVICE_NOT_AVAILABLE) if they cannot be written now. They stay in
        memory, and are written by the next `flush` that succeeds.
        """
        try:
            await self.flush()
        except OSError as error:
            log.error("consumer offsets of an admin cannot be written: %s", error)
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the broker cannot write the consumer offsets: {kind_of(error)}; it keeps trying",
            ) from None

    def document(self) -> dict[str, Any]:
        """Return the table in the form of the file and of the answer to GET_ALL_CONSUMER_OFFSET."""
        return self._document(dict(self._topics_by_group()), self.table)

    def document_steps(self) -> Steps[dict[str, Any]]:
        """Return the same with both tables encoded, which takes a tenth of a second if there are
        thousands of groups."""
        groups: dict[str, list[str]] = {}
        for number, (group, topics) in enumerate(self._topics_by_group()):
            groups[group] = topics
            if number % _GROUPS_OF_STEP == 0:
                yield
        encoded = yield from fastjson.encode_steps(groups)
        return self._document(encoded, (yield from fastjson.encode_steps(self.table)))

    def _document(self, groups: object, table: object) -> dict[str, Any]:
        return {
            "dataVersion": msgspec.to_builtins(self.data_version),
            "groupTopicMap": groups,
            "offsetTable": table,
        }

    def _topics_by_group(self) -> Iterator[tuple[str, list[str]]]:
        for group in list(self._by_group):
            keys = {} if SEPARATOR in group else self._by_group.get(group, {})
            topics = [topic for key, topic in keys.items() if key in self.table]
            if topics:
                yield group, topics

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset at which `group` continues in a queue."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self.table.get(key)
        if queues is None:
            queues = self.table[key] = {}
            self._index(key)
        queues[queue_id] = offset
        self._changed()

    def has_room(self, group: str, topic: str) -> bool:
        """Tell whether there may be an entry of a group in a topic."""
        return (
            not (group.startswith(LIGHT_QUEUE_PREFIX) or topic.startswith(LIGHT_QUEUE_PREFIX))
            or self._light < self._most_light
            or f"{topic}{SEPARATOR}{group}" in self._by_topic.get(topic, ())
        )

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed offset; -1 if there is none."""
        queues = self.table.get(f"{topic}{SEPARATOR}{group}")
        return -1 if queues is None else queues.get(queue_id, -1)

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set the offsets by queue id at which an admin wants `group` to continue. The caller must
        ignore the group's commits until `take_reset` has returned them for a consumer's pulls."""
        key = f"{topic}{SEPARATOR}{group}"
        self.table.setdefault(key, {}).update(offsets)
        self._index(key)
        self._resets.setdefault(key, {}).update(offsets)
        self._changed()

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Tell whether the group has not yet received a reset offset."""
        # There are nearly never any, and every commit checks this.
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}{SEPARATOR}{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the reset offset to send to the group; a second call returns None."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def forget_resets(self) -> None:
        """Drop the resets that groups have not received: another broker has become master, and uses
        the committed offsets."""
        self._resets.clear()

    def clone(self, source: str, destination: str, topic: str) -> None:
        """Copy the offsets of a group in a topic to another group, if it has any."""
        queues = self.table.get(f"{topic}{SEPARATOR}{source}")
        if queues is not None:
            key = f"{topic}{SEPARATOR}{destination}"
            self.table[key] = dict(queues)
            self._index(key)
            self._dirty = True

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record the offset of a pull, for admins."""
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._pulled.get(key)
        if queues is None:
            if not self.has_room(group, topic):
                return
            queues = self._pulled[key] = {}
            self._index(key)
        queues[queue_id] = offset

    def query_pulled(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset of the group's last pull, or else the committed offset; -1 if there is
        neither.
        """
        offset = self._pulled.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which `group` has a committed offset."""
        return self._paired(self._by_group.get(group, {}))

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have a committed offset in `topic`."""
        return self._paired(self._by_topic.get(topic, {}))

    def offsets(self, group: str, topic: str) -> Mapping[int, int]:
        """Return all committed offsets of a group in a topic."""
        return self.table.get(f"{topic}{SEPARATOR}{group}", {})

    def follow(self, table: Mapping[str, dict[int, int]], version: DataVersion | None) -> None:
        """Copy a master's offsets, even if they are lower; offsets that only this broker has
        stay."""
        if version is not None:
            self.data_version = version
        if any(self.table.get(key) != queues for key, queues in table.items()):
            for key in table.keys() - self.table.keys():
                self._index(key)
            self.table.update(table)
            self._dirty = True

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic: a new topic of the same name starts without offsets."""
        self._forget(self._by_topic.get(topic, ()))

    def forget_group(self, group: str) -> None:
        """Remove the offsets of a deleted group."""
        self._forget(self._by_group.get(group, ()))

    def _paired(self, others: Mapping[str, str]) -> set[str]:
        # Entries of broadcasting groups, "topic@group@broadcast", are not pairs.
        table = self.table
        return {
            other for key, other in others.items() if key.count(SEPARATOR) == 1 and key in table
        }

    def progress(self) -> Iterator[tuple[str, str, Mapping[int, int], Mapping[int, int]]]:
        """Yield topic, group, committed offsets and pulled offsets of every pair that exists now
        and still exists when it is reached. The offsets are by queue id, and are not copies.
        """
        table, pulled = self.table, self._pulled
        for key in list(table):
            topic, _, group = key.partition(SEPARATOR)
            queues = table.get(key)
            if queues is not None and SEPARATOR not in group:
                yield topic, group, queues, pulled.get(key, _NONE)

    def _index(self, key: str) -> None:
        topic, group = _pair(key)
        if LIGHT_QUEUE_PREFIX in key:
            self._light += key not in self._by_topic.get(topic, ())
        self._by_topic.setdefault(topic, {})[key] = group
        self._by_group.setdefault(group, {})[key] = topic

    def _forget(self, keys: Iterable[str]) -> None:
        for key in list(keys):
            topic, group = _pair(key)
            self._light -= LIGHT_QUEUE_PREFIX in key
            for index, name in ((self._by_topic, topic), (self._by_group, group)):
                del index[name][key]
                if not index[name]:
                    del index[name]
            for table in (self.table, self._pulled, self._resets):
                table.pop(key, None)
            self._dirty = True


def _pair(key: str) -> tuple[str, str]:
    """Return topic and group of a key. The names of light queues and of their groups may have
    separators in them."""
    topic, _, group = key.partition(SEPARATOR)
    if topic.startswith(LIGHT_QUEUE_PREFIX):
        topic, found, group = key.partition(SEPARATOR + LIGHT_QUEUE_PREFIX)
        if found:
            return topic, LIGHT_QUEUE_PREFIX + group
        topic, _, group = key.rpartition(SEPARATOR)
    return topic, group


def _is_of_light(key: str) -> bool:
    """Tell whether this is the key of a group of light queues."""
    return _pair(key)[1].startswith(LIGHT_QUEUE_PREFIX)
