"""One pull: the request, its answer as messages, and the replica for the next pull.

A pull contains its subscription (sysFlag bit 2), so it works without heartbeats. The broker
compares hashes of tags, which may collide, so messages are filtered again by the tags themselves.
Reference: PullAPIWrapper.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from pocketmq.client.consumer.expression import Expression
from pocketmq.client.consumer.fetch.shared_polls import SharedPolls
from pocketmq.client.errors import RemotingError, error_for
from pocketmq.client.instance import ClientInstance
from pocketmq.client.log_fields import fields
from pocketmq.limited_log import LimitedLog
from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionError
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.message.record_layout import RecordError
from pocketmq.remoting.codes import Code, RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

log = logging.getLogger(__name__)

SUSPEND = 0x2
SUBSCRIPTION = 0x4


class PullStatus(Code):
    """The result of a pull, numbered after the response codes; other codes are errors."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW_MSG = ResponseCode.PULL_NOT_FOUND
    NO_MATCHED_MSG = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


_STATUS_BY_CODE = {int(status): status for status in PullStatus}


M = TypeVar("M", bound=MessageExt)


class Unread:
    """The records of an answer from the first one without room."""

    __slots__ = ("at", "data", "following", "max_offset", "min_offset")

    def __init__(self, data: bytes, result: PullResult[Any]) -> None:
        self.data = data
        self.at = 0
        self.following = result.next_begin_offset
        self.min_offset = result.min_offset
        self.max_offset = result.max_offset

    def __len__(self) -> int:
        """Memory that it takes, bytes."""
        return len(self.data)


class PullResult(msgspec.Struct, Generic[M]):
    """`messages` passed the filter. Continue at `next_begin_offset` with any status: with
    OFFSET_ILLEGAL it is the nearest offset that exists. `max_offset` is the last offset plus 1."""

    status: PullStatus
    messages: list[M]
    next_begin_offset: int
    min_offset: int
    max_offset: int

    def leads_nowhere(self, offset: int) -> bool:
        """Return whether the result has no messages and says to pull at `offset` again: that is how
        a slave sends its readers to the master."""
        return self.status is PullStatus.NO_MATCHED_MSG and self.next_begin_offset == offset


class BrokenRecord(BodyError):
    """The first record of an answer cannot be decoded."""


class Puller(Generic[M]):
    """Pulls for one consumer group; creates messages of the given type."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        message_type: type[M],
        *,
        suspend: float,
        share_polls: bool,
        hold_slack: float,
    ) -> None:
        """`suspend`: seconds that long polls are held. `share_polls`: send those to one broker
        together if it supports that (`shared_polls.py`). `hold_slack`: seconds that an answer may
        take beyond the hold time."""
        self._instance = instance
        self._polls = None
        if share_polls and suspend > 0:
            self._polls = SharedPolls(instance.pool, instance.batch_protocol, suspend, hold_slack)
        self._suspend = suspend
        self._hold_slack = hold_slack
        self.group = group
        self._message_type = message_type
        self._log = LimitedLog(log)
        self._replicas: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        *,
        max_messages: int,
        suspend: float,
        timeout: float | None = None,
        room: int = sys.maxsize,
    ) -> PullResult[M]:
        """Return at most `max_messages` messages from `offset` on; the broker may return fewer.
        They fit into `room` bytes of memory, except the first one.

        If there are no messages, the broker holds the request for up to `suspend` seconds (0: not
        at all). `timeout`, in seconds, is for the answer; by default long enough for that.

        Raises NoRouteInfo, BrokerNotFound, the error of an error answer, RemotingConnectError,
        RemotingTimeout, RemotingClosed, and BrokenRecord if the first record cannot be decoded.
        """
        asking = self._instance.pool.request(
            await self._address(queue),
            RequestCode.PULL_MESSAGE,
            self._header(queue, offset, expression, max_messages, suspend),
            timeout=suspend + self._hold_slack if timeout is None else timeout,
        )
        result, _ = await self._answered(asking, queue, offset, expression, lambda: room)
        return result

    async def poll(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        max_messages: int,
        room: Callable[[], int],
    ) -> tuple[PullResult[M], Unread | None]:
        """Make a long poll, perhaps in one request with those of the consumer's other queues
        (`shared_polls.py`). Raises as `pull`.

        `room` is called when the answer has arrived. `read_on` reads messages without room.
        """
        suspend = self._suspend
        address = await self._address(queue)
        header = self._header(queue, offset, expression, max_messages, suspend)
        asking: Awaitable[Command]
        if self._polls is None or suspend <= 0:
            asking = self._instance.pool.request(
                address, RequestCode.PULL_MESSAGE, header, timeout=suspend + self._hold_slack
            )
        else:
            asking = self._polls.pull(address, header)
        return await self._answered(asking, queue, offset, expression, room)

    def read_on(
        self, queue: MessageQueue, expression: Expression, unread: Unread, room: int
    ) -> tuple[PullResult[M], Unread | None]:
        """Read messages of an answer that had no room so far; raises BrokenRecord as `poll`."""
        result: PullResult[M] = PullResult(
            PullStatus.FOUND, [], unread.following, unread.min_offset, unread.max_offset
        )
        return result, self._decode(result, unread, queue, expression, room)

    def forget(self, queue: MessageQueue) -> None:
        """Forget a queue that is not pulled any more."""
        self._replicas.pop(queue, None)
        if self._polls is not None:
            self._polls.forget(queue.topic, queue.queue_id)

    def _header(
        self,
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        max_messages: int,
        suspend: float,
    ) -> PullMessageRequestHeader:
        return PullMessageRequestHeader(
            consumer_group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=SUBSCRIPTION | (SUSPEND if suspend > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=int(suspend * 1000),
            sub_version=0,
            subscription=expression.text,
            expression_type=expression.type,
            large_transfer=True,
        )

    async def _answered(
        self,
        asking: Awaitable[Command],
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        room: Callable[[], int],
    ) -> tuple[PullResult[M], Unread | None]:
        as_master = queue not in self._replicas
        try:
            answer = await asking
            status = _STATUS_BY_CODE.get(answer.code)
            if status is None:
                raise error_for(answer.code, answer.remark, queue.broker_name)
            result, unread = self._result(status, answer, queue, offset, expression, room)
        except RemotingError:
            # A replica that is down cannot send its readers back to the master.
            self._replicas.pop(queue, None)
            raise
        if as_master and queue not in self._replicas and result.leads_nowhere(offset):
            # A slave answered at the master's address: the route is out of date.
            self._instance.routes.doubt(queue.topic, time.monotonic())
        return result, unread

    async def _address(self, queue: MessageQueue) -> str:
        address = await self._instance.broker_address(queue)
        replica = self._replicas.get(queue)
        if replica is None:
            return address
        return self._instance.routes.address(queue.broker_name, replica)

    def _result(
        self,
        status: PullStatus,
        answer: Command,
        queue: MessageQueue,
        offset: int,
        expression: Expression,
        room: Callable[[], int],
    ) -> tuple[PullResult[M], Unread | None]:
        header = PullMessageResponseHeader.from_ext(answer.ext_fields)
        if header.next_begin_offset is None:
            raise BodyError("the answer to a pull lacks nextBeginOffset", queue.broker_name)
        if header.suggest_which_broker_id:
            self._replicas[queue] = header.suggest_which_broker_id
        else:
            self._replicas.pop(queue, None)
        result: PullResult[M] = PullResult(
            status, [], header.next_begin_offset, header.min_offset or 0, header.max_offset or 0
        )
        if status is not PullStatus.FOUND:
            return result, None
        # Slicing bytes is faster than slicing a view and copying each piece.
        every = Unread(bytes(answer.body), result)
        left = room()
        if left <= 0:
            result.next_begin_offset = offset
            return result, every
        return result, self._decode(result, every, queue, expression, left)

    def _decode(
        self,
        result: PullResult[M],
        unread: Unread,
        queue: MessageQueue,
        expression: Expression,
        room: int,
    ) -> Unread | None:
        tags = expression.tags
        messages = result.messages
        rest = None
        try:
            unread.at = self._message_type.read_into(
                messages, unread.data, queue.broker_name, self._as_stored, unread.at, room
            )
            if unread.at < len(unread.data):
                rest = unread
                result.next_begin_offset = messages[-1].queue_offset + 1
        except RecordError as error:
            if not messages:
                raise BrokenRecord(
                    f"a record at {queue} offset {result.next_begin_offset} or before cannot be "
                    f"decoded: {error}; seek past it to continue",
                    queue.broker_name,
                ) from error
            # Keep the messages before it; the next pull begins with the broken record.
            self._log.warning(
                "pull of %s: %s", queue, error, extra=fields(queue=queue, group=self.group)
            )
            result.next_begin_offset = messages[-1].queue_offset + 1
        if not tags.matches_all:
            result.messages = [m for m in messages if tags.matches(m.properties.get(names.TAGS))]
        return rest

    def _as_stored(self, message: M, error: CompressionError) -> None:
        """Log that a message is delivered as stored, because it cannot be decompressed: the user
        may know how."""
        self._log.warning(
            "%s offset %d is delivered as stored: %s",
            message.queue,
            message.queue_offset,
            error,
            extra=fields(queue=message.queue, group=self.group),
        )
