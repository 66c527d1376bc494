"""Message trace: records every send, and every handling of a message, in a topic.

    Producer("orders", trace=True)
    PushConsumer("billing", trace=True)

Records are collected and sent in the background. They never delay a message: if the trace topic
cannot keep up, records are dropped and counted. The official tools can read them (mqadmin
queryMsgTraceById, the dashboard).
Reference: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache

from pocketmq.client.errors import RemotingError
from pocketmq.client.log_fields import fields
from pocketmq.client.observation.consume_hooks import ConsumeContext
from pocketmq.client.observation.send_hooks import SendContext, SendKind
from pocketmq.client.observation.trace_record import (
    ConsumeReturn,
    MessageType,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TraceRecord,
)
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.client.validation import is_delayed
from pocketmq.message import properties as names
from pocketmq.message.identity import InvalidMessageId, decode_offset_msg_id, new_unique_id
from pocketmq.message.limits import DEFAULT_REGION, TRACE_TOPIC
from pocketmq.message.message import Message, MessageExt

log = logging.getLogger(__name__)

#: How long a record waits for others, seconds.
PERIOD = 1.0
#: This many waiting records are sent at once.
READY = 500
#: The most waiting records; further ones are dropped.
LIMIT = 20_000
#: Limits of one trace message, bytes: its body, and its index keys, which share 32 KiB with the
#: other properties.
MAX_BODY = 128_000
MAX_KEYS = 16_000
#: Timeout of the last records at a shutdown, seconds.
LAST_FLUSH_TIMEOUT = 3.0

#: Digits of the offset at the end of an offset message id, after the broker's address and port.
_OFFSET_DIGITS = 16
# Before Python 3.12 the members of enums take as long to look up as a record to make.
_HALF, _NORMAL, _SEND_OK = SendKind.HALF, MessageType.NORMAL, SendStatus.SEND_OK
_REQUEST_ID = "pocketmq.client.observation.trace.request_id"


class TraceDispatcher:
    """Collects records and sends them with `send(message)`, a coroutine function.

    Records wait for others for up to `period` seconds; at most `limit` wait. `dropped` counts the
    records that exceeded the limit or could not be sent.
    """

    def __init__(
        self,
        send: Callable[[Message], Awaitable[object]],
        topic: str = TRACE_TOPIC,
        *,
        period: float = PERIOD,
        limit: int = LIMIT,
    ) -> None:
        self._period = period
        self._limit = limit
        self.topic = topic
        self.dropped = 0
        self._send = send
        self._records: deque[TraceRecord] = deque()
        self._ready = asyncio.Event()
        self._sending = asyncio.Lock()

    def append(self, record: TraceRecord) -> None:
        """Queue one record."""
        if len(self._records) >= self._limit:
            self.dropped += 1
            return
        self._records.append(record)
        if len(self._records) >= READY:
            self._ready.set()

    async def run(self) -> None:
        """Send the collected records until cancelled; those not sent by then are lost."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._period):
                        await self._ready.wait()
                except TimeoutError:
                    pass
                self._ready.clear()
                await self.flush()
        finally:
            if self._records:
                self.dropped += len(self._records)
                told, left = fields(topic=self.topic), len(self._records)
                log.warning("%d trace records are lost: they came too late", left, extra=told)
                self._records.clear()

    async def flush(self) -> None:
        """Send the records collected so far, and wait for pending ones."""
        async with self._sending:
            while self._records:
                text, keys, count = self._take()
                try:
                    await self._send(Message(self.topic, text.encode(), keys=keys))
                except RemotingError as error:
                    self.dropped += count
                    log.warning("%d trace records are lost: %s", count, error, extra=fields(error))
                except Exception:  # of the application, such as a queue filter
                    self.dropped += count
                    log.exception(
                        "%d trace records are lost", count, extra=fields(topic=self.topic)
                    )
                except BaseException:  # a cancellation: the result stays unknown
                    self.dropped += count
                    raise

    async def finish(self) -> None:
        """Send the collected records at a shutdown, for up to `LAST_FLUSH_TIMEOUT` seconds: a trace
        topic without a broker must not delay the shutdown."""
        try:
            async with asyncio.timeout(LAST_FLUSH_TIMEOUT):
                await self.flush()
        except TimeoutError:
            log.warning("the last trace records are lost", extra=fields(topic=self.topic))

    def _take(self) -> tuple[str, list[str], int]:
        parts: list[str] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while self._records and size < MAX_BODY:
            added = self._records[0].index_keys()
            keys_size += sum(len(key.encode()) + 1 for key in added)
            if parts and keys_size > MAX_KEYS:
                break
            parts.append(self._records.popleft().encode())
            size += len(parts[-1])
            keys.update(dict.fromkeys(added))
        return "".join(parts), list(keys), len(parts)


class SendTrace:
    """The hook that records the sends of one producer."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def after_send(self, context: SendContext, /) -> None:
        """Record a send, unless the broker has tracing off."""
        dispatcher = self._dispatcher
        for place, result in enumerate(context.results):
            if result is not None and result.trace_on:
                message = context.messages[place]
                if message.topic != dispatcher.topic:
                    dispatcher.append(_published(context, message, result))


def _published(context: SendContext, message: Message, result: SendResult) -> PubRecord:
    kind = _NORMAL
    if context.kind is _HALF:
        kind = MessageType.HALF
    elif is_delayed(message):
        kind = MessageType.DELAY
    return PubRecord(
        time=int(context.began * 1000),
        group=context.group,
        topic=message.topic,
        msg_id=result.msg_id,
        tags=message.tags or "",
        keys=names.KEY_SEPARATOR.join(message.keys),
        store_host=store_host(result),
        body_length=len(message.body),
        cost=int(context.elapsed * 1000 / len(context.results)),
        message_type=kind,
        offset_msg_id=result.offset_msg_id,
        region=result.region_id,
        success=result.status is _SEND_OK,
    )


def recalled(group: str, topic: str, msg_id: str) -> RecallRecord:
    """Return the record of a message that was just recalled."""
    now = time.time_ns() // 1_000_000
    return RecallRecord(time=now, group=group, topic=topic, msg_id=msg_id, success=True)


def store_host(result: SendResult) -> str:
    """Return `ip:port` of the broker that stored a message; "" if its id does not contain it."""
    return _host(result.offset_msg_id[:-_OFFSET_DIGITS])


@lru_cache(maxsize=1024)
def _host(digits: str) -> str:
    try:
        place = decode_offset_msg_id(digits + "0" * _OFFSET_DIGITS)
    except InvalidMessageId:
        return ""
    return f"{place.host}:{place.port}"


class ConsumeTrace:
    """The hook that records how a consumer handles messages."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self._dispatcher = dispatcher

    def before_consume(self, context: ConsumeContext, /) -> None:
        request_id = context.attributes[_REQUEST_ID] = new_unique_id()
        for message in _traced(context):
            self._dispatcher.append(
                SubBeforeRecord(
                    time=int(context.began * 1000),
                    group=context.group,
                    request_id=request_id,
                    msg_id=message.msg_id,
                    retry_times=message.reconsume_times,
                    keys=message.properties.get(names.KEYS, ""),
                    region=message.properties.get(names.MSG_REGION, DEFAULT_REGION),
                )
            )

    def after_consume(self, context: ConsumeContext, /) -> None:
        returned = context.returned
        for message in _traced(context):
            self._dispatcher.append(
                SubAfterRecord(
                    time=int((context.began + context.elapsed) * 1000),
                    group=context.group,
                    request_id=context.attributes[_REQUEST_ID],
                    msg_id=message.msg_id,
                    keys=message.properties.get(names.KEYS, ""),
                    cost=int(context.elapsed * 1000 / len(context.messages)),
                    success=returned is ConsumeReturn.SUCCESS,
                    returned=returned,
                )
            )


def _traced(context: ConsumeContext) -> list[MessageExt]:
    """Return the messages without those of brokers that have tracing off."""
    return [
        message for message in context.messages if message.properties.get(names.TRACE_ON) != "false"
    ]
