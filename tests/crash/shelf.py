"""What a broker serves: the messages of its queues, and what its index finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageRequestHeader,
)

READER = "reading"
AT_ONCE = 256
NO_HOLDING = 4  # sysFlag: the subscription of this request counts


class Stored(NamedTuple):
    """A message in a queue; `stored` is its store time in Unix ms."""

    body: bytes
    physical_offset: int
    stored: int

    def __repr__(self) -> str:
        return f"{self.body[:12]!r} at {self.physical_offset}, stored {self.stored}"


class Shelf:
    """What was read of each queue; the index in a list is the queue offset."""

    def __init__(self) -> None:
        self.queues: defaultdict[tuple[str, int], list[Stored]] = defaultdict(list)

    async def read(
        self, connection: Connection, topic: str, queue_id: int, again: int | None = None
    ) -> bool:
        """Read a queue: all of it, or its last `again` known messages and what follows them.

        Return whether the topic exists. Raises AssertionError when the queue is not whole.
        """
        known = self.queues[topic, queue_id]
        del known[0 if again is None else max(0, len(known) - again) :]
        where = f"{topic}/{queue_id}"
        while True:
            header = PullMessageRequestHeader(
                consumer_group=READER,
                topic=topic,
                queue_id=queue_id,
                queue_offset=len(known),
                max_msg_nums=AT_ONCE,
                sys_flag=NO_HOLDING,
                commit_offset=0,
                suspend_timeout_millis=0,
                sub_version=0,
                subscription="*",
                large_transfer=True,
            )
            answer = await connection.request(RequestCode.PULL_MESSAGE, header, timeout=30.0)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                return False
            bounds = PullMessageResponseHeader.from_ext(answer.ext_fields)
            if answer.code == ResponseCode.PULL_OFFSET_MOVED:
                raise AssertionError(
                    f"{where} has the messages {bounds.min_offset} to {bounds.max_offset}, "
                    f"and {len(known)} was there before"
                )
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                return True
            assert answer.code == ResponseCode.SUCCESS, (
                f"{where} at {len(known)}: code {answer.code} {answer.remark}"
            )
            for record in iter_records(answer.body):
                assert (record.topic, record.queue_id, record.queue_offset) == (
                    topic, queue_id, len(known),
                ), (
                    f"{where} serves message {record.queue_offset} of {record.topic}/"
                    f"{record.queue_id} at {len(known)}"
                )  # fmt: skip
                stored = Stored(bytes(record.body), record.physical_offset, record.store_timestamp)
                known.append(stored)
            assert bounds.next_begin_offset == len(known), (
                f"{where} jumps from {len(known)} to {bounds.next_begin_offset}"
            )


async def find(
    connection: Connection, topic: str, key: str, *, unique: bool
) -> Sequence[tuple[bytes, int]]:
    """Return body and physical offset of the messages that the index finds."""
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=64,
        begin_timestamp=0,
        end_timestamp=2**62,
        unique_key_query=unique,
    )
    answer = await connection.request(RequestCode.QUERY_MESSAGE, header, timeout=30.0)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return ()
    assert answer.code == ResponseCode.SUCCESS, f"query of {key}: {answer.code} {answer.remark}"
    return [
        (bytes(record.body), record.physical_offset)
        for record in iter_records(answer.body)
        if record.topic == topic
    ]


async def committed_offset(connection: Connection, group: str, topic: str, queue_id: int) -> int:
    """Return the offset of a group; -1 without one."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
    )
    answer = await connection.request(RequestCode.QUERY_CONSUMER_OFFSET, header, timeout=30.0)
    if answer.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST):
        return -1
    assert answer.code == ResponseCode.SUCCESS, f"offset: {answer.code} {answer.remark}"
    offset = QueryConsumerOffsetResponseHeader.from_ext(answer.ext_fields).offset
    assert offset is not None
    return offset
