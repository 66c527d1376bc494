"""What a broker of either make says of its store: every queue, entry, record and index answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pocketmq.message.record import iter_records
from pocketmq.message.sysflag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.message_query import QueryMessageRequestHeader
from pocketmq.remoting.headers.offset import GetMaxOffsetRequestHeader, GetMinOffsetRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.topic import QueryConsumeQueueRequestHeader
from tests.interop.harness import tables

from .ledger import Place

FOREVER: Final = 2**62
_IN_FLIGHT: Final = 8


class Stored(NamedTuple):
    """A message as the broker serves it.

    Attributes:
        size, tags_code: of its entry in the consume queue.
        record: all bytes of its record.
        keys: all by which the index should find it.
    """

    physical_offset: int
    size: int
    tags_code: int
    record: bytes
    body: bytes
    store_timestamp: int
    unique_key: str
    keys: tuple[str, ...]


@dataclass
class Answers:
    """Attributes:
    messages: every message of every topic, the broker's own topics included.
    bounds: topic and queue id to the queue's lowest and next queue offset.
    index: topic and key to the physical offsets that QUERY_MESSAGE finds.
    log_end: physical offset where the commit log ended before the first of these answers.
    odd: answers that no broker should give.
    """

    make: str
    log_end: int = 0
    messages: dict[Place, Stored] = field(default_factory=dict)
    bounds: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    index: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)

    @property
    def wanted_index(self) -> dict[tuple[str, str], set[int]]:
        """Topic and key to the physical offsets of the messages that have it."""
        wanted: dict[tuple[str, str], set[int]] = {}
        for place, stored in self.messages.items():
            for key in (*stored.keys, *filter(None, [stored.unique_key])):
                wanted.setdefault((place.topic, key), set()).add(stored.physical_offset)
        return wanted


async def read_answers(address: str, make: str, *, index: bool = True) -> Answers:
    """Ask the broker for everything it has, of the `index` only if asked to. The broker may go on
    to store messages of its own meanwhile."""
    connection = await Connection.open(address)
    try:
        answers = Answers(make)
        reader = _Reader(connection, answers)
        await reader.read_queues()
        if index:
            await reader.read_index()
        return answers
    finally:
        await connection.close()


class _Reader:
    def __init__(self, connection: Connection, answers: Answers) -> None:
        self._connection = connection
        self._answers = answers
        self._free = asyncio.Semaphore(_IN_FLIGHT)

    async def _ask(self, code: int, header: Any = None, **more: str) -> Command:
        async with self._free:
            return await self._connection.request(code, header, timeout=30.0, ext_fields=more)

    async def read_queues(self) -> None:
        answer = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        while answer.code != ResponseCode.SUCCESS:
            # The official broker has no figures in the first moment.
            await asyncio.sleep(0.1)
            answer = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        self._answers.log_end = int(json.loads(bytes(answer.body))["table"]["commitLogMaxOffset"])
        answer = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = json.loads(bytes(answer.body))["topicConfigTable"]
        async with asyncio.TaskGroup() as group:
            for topic, config in table.items():
                for queue_id in range(config["readQueueNums"]):
                    group.create_task(self._read_queue(topic, queue_id))

    async def _read_queue(self, topic: str, queue_id: int) -> None:
        begin = int((await self._ask(
            RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic, queue_id)
        )).ext_fields["offset"])  # fmt: skip
        end = int((await self._ask(
            RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic, queue_id)
        )).ext_fields["offset"])  # fmt: skip
        if not end:
            return
        self._answers.bounds[topic, queue_id] = begin, end
        entries = await self._read_entries(topic, queue_id, begin, end)
        offset = begin
        while offset < end:
            header = PullMessageRequestHeader(
                consumer_group="handover_reader",
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                max_msg_nums=32,
                sys_flag=4,  # No holding: the subscription of this request counts.
                commit_offset=0,
                suspend_timeout_millis=0,
                subscription="*",
            )
            answer = await self._ask(RequestCode.PULL_MESSAGE, header)
            where = f"{topic}/{queue_id} at {offset}"
            if answer.code != ResponseCode.SUCCESS:
                self._answers.odd.append(f"{where}: code {answer.code} {answer.remark}")
                return
            offset = int(answer.ext_fields["nextBeginOffset"])
            at = 0
            for record in iter_records(answer.body, strict=True):
                raw = bytes(answer.body[at : at + record.size])
                at += record.size
                if record.queue_offset >= end:  # stored since
                    break
                properties = record.properties
                physical, size, tags_code = entries.get(record.queue_offset, (-1, -1, 0))
                if (physical, size) != (record.physical_offset, record.size):
                    self._answers.odd.append(
                        f"{where}: the record at {record.physical_offset} of {record.size} bytes, "
                        f"by the entry {physical} and {size}"
                    )
                rolled_back = record.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
                place = Place(topic, queue_id, record.queue_offset)
                self._answers.messages[place] = Stored(
                    physical_offset=record.physical_offset,
                    size=size,
                    tags_code=tags_code,
                    record=raw,
                    body=bytes(record.body),
                    store_timestamp=record.store_timestamp,
                    unique_key="" if rolled_back else properties.get("UNIQ_KEY", ""),
                    keys=() if rolled_back else tuple(properties.get("KEYS", "").split()),
                )

    async def _read_entries(
        self, topic: str, queue_id: int, begin: int, end: int
    ) -> dict[int, tuple[int, int, int]]:
        """Queue offset to physical offset, size and tags code."""
        entries: dict[int, tuple[int, int, int]] = {}
        offset = begin
        while offset < end:
            header = QueryConsumeQueueRequestHeader(
                topic=topic, queue_id=queue_id, index=offset, count=end - offset
            )
            answer = await self._ask(RequestCode.QUERY_CONSUME_QUEUE, header)
            data = tables.fastjson(bytes(answer.body).decode()) if answer.body else {}
            page = data.get("queueData") or ()
            if not page:
                self._answers.odd.append(
                    f"{topic}/{queue_id}: no entries from {offset} on, of {end}: {answer.remark}"
                )
                break
            for entry in page:
                entries[offset] = entry["physicOffset"], entry["physicSize"], entry["tagsCode"]
                offset += 1
        return entries

    async def read_index(self) -> None:
        unique = {stored.unique_key for stored in self._answers.messages.values()}
        await asyncio.gather(
            *(
                self._find(topic, key, unique=key in unique)
                for topic, key in self._answers.wanted_index
            )
        )

    async def _find(self, topic: str, key: str, *, unique: bool) -> None:
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=64,
            begin_timestamp=0,
            end_timestamp=FOREVER,
            unique_key_query=unique,
        )
        answer = await self._ask(RequestCode.QUERY_MESSAGE, header)
        found: Iterable[Any] = ()
        if answer.code == ResponseCode.SUCCESS:
            found = iter_records(answer.body, strict=True)
        elif answer.code != ResponseCode.QUERY_NOT_FOUND:
            self._answers.odd.append(f"{topic} key {key}: code {answer.code} {answer.remark}")
        self._answers.index[topic, key] = [
            record.physical_offset for record in found if _has_key(record.properties, key)
        ]


def _has_key(properties: dict[str, str], key: str) -> bool:
    """Not by a hash alone."""
    return key == properties.get("UNIQ_KEY") or key in properties.get("KEYS", "").split()
