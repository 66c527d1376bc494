"""The offsets of a queue: its bounds, and offsets by time.

All offsets are queue offsets. Brokers answer 0 for an unknown topic or queue, as for an empty one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pocketmq.client.instance import ClientInstance
from pocketmq.client.parameters import shown
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)

#: Where to start reading a queue: an offset, one of its ends, or a store time.
Position = int | Literal["begin", "end"] | datetime


def milliseconds(time: datetime) -> int:
    """Return Unix milliseconds; a time without a time zone is local."""
    return int(time.timestamp() * 1000)


class QueueOffsets:
    """Asks the queue's master. Raises BrokerNotFound, NoRouteInfo and the errors of brokers."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    async def min(self, queue: MessageQueue) -> int:
        """Return the oldest offset that is still stored."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        ext = await self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return GetMinOffsetResponseHeader.from_ext(ext).offset

    async def max(self, queue: MessageQueue) -> int:
        """Return the offset of the next message."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        ext = await self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return GetMaxOffsetResponseHeader.from_ext(ext).offset

    async def at_time(self, queue: MessageQueue, timestamp: int) -> int:
        """Return the offset of the first message stored at or after `timestamp` (ms), or the end
        of the queue."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp
        )
        ext = await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return SearchOffsetResponseHeader.from_ext(ext).offset

    async def earliest_store_time(self, queue: MessageQueue) -> int | None:
        """Return the store time of the oldest message, ms; None if the queue is empty."""
        header = GetEarliestMsgStoretimeRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        ext = await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        timestamp = GetEarliestMsgStoretimeResponseHeader.from_ext(ext).timestamp
        return timestamp if timestamp >= 0 else None

    async def resolve(self, queue: MessageQueue, position: Position) -> int:
        """Return the current offset of a position."""
        if isinstance(position, datetime):
            return await self.at_time(queue, milliseconds(position))
        if isinstance(position, str):
            return await (self.min(queue) if position == "begin" else self.max(queue))
        return position

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> dict[str, str]:
        address = await self._instance.broker_address(queue)
        answer = await self._instance.request(address, code, header, broker=queue.broker_name)
        return answer.ext_fields


def check_position(position: Position, name: str = "position") -> Position:
    """Check a position; errors call it `name`.

    Raises:
        TypeError: it is not an int, a text or a datetime.
        ValueError: it is a negative offset, or a text other than "begin" and "end".
    """
    allowed = "a queue offset (int), 'begin', 'end', or a datetime (store time)"
    if isinstance(position, bool) or not isinstance(position, int | str | datetime):
        raise TypeError(f"{name} must be {allowed}, not {shown(position)}")
    if isinstance(position, str) and position not in ("begin", "end"):
        raise ValueError(f"{name} must be {allowed}, not {shown(position)}")
    if isinstance(position, int) and not 0 <= position < 1 << 63:
        raise ValueError(f"{name} must be a queue offset from 0 to 2**63 - 1, not {position}")
    return position


def consume_from_where(start: Position) -> str:
    """Return the name in heartbeats of the position at which a new group begins."""
    if isinstance(start, datetime):
        return "CONSUME_FROM_TIMESTAMP"
    return "CONSUME_FROM_FIRST_OFFSET" if start == "begin" else "CONSUME_FROM_LAST_OFFSET"
