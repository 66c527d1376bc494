"""A message ready to send: checked, with its unique id, encoded properties and the body as sent.

It is made once per send and used by all attempts, so that the unique id stays the same. The user's
Message is not changed. Reference: DefaultMQProducerImpl.sendKernelImpl.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

import msgspec

from pocketmq.client.errors import InvalidMessage, error_for
from pocketmq.client.parameters import point_in_time, seconds, shown, whole
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.client.validation import (
    check_properties,
    check_properties_length,
    check_tags,
    is_delayed,
    joined_keys,
)
from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.limits import DEFAULT_REGION, MAX_DELAY_LEVEL
from pocketmq.message.message import Message, MessageQueue, in_milliseconds
from pocketmq.message.priority import MOST_PRIORITY
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import BodyError
from pocketmq.remoting.frames.frame import Command

#: Bodies of at least this size in bytes are compressed in a thread: below it, switching threads
#: costs more than the event loop is blocked.
COMPRESS_IN_THREAD = 64 * 1024

#: ASCII properties of this length fit into a message with all system properties.
SHORT = 30_000

#: The names that `Compression.named` knows.
COMPRESSIONS = tuple(kind.name.lower() for kind in CompressionType)

_STATUS_BY_CODE = {int(status): status for status in SendStatus}
_UNIQ_KEY = f"{names.UNIQ_KEY}\x01"
_WAIT, _NO_WAIT = f"{names.WAIT}\x01true\x02", f"{names.WAIT}\x01false\x02"
_MSG_REGION, _TRACE_ON = names.MSG_REGION, names.TRACE_ON
# Before Python 3.12, looking up an enum member takes as long as all checks of a message.
_SEND = RequestCode.SEND_MESSAGE_V2


class Compression(msgspec.Struct, frozen=True):
    """Bodies of at least `threshold` bytes are compressed by `kind` at `level`."""

    kind: CompressionType
    threshold: int = 4096
    level: int = 5

    @classmethod
    def named(cls, name: str | None, threshold: int, level: int) -> Compression | None:
        """Return the compression named "zlib", "lz4" or "zstd"; None for None. Raises ValueError
        for another name, and for a level that it does not have."""
        if name is None:
            return None
        try:
            kind = CompressionType[name.upper()]
        except KeyError:
            known = ", ".join(map(repr, COMPRESSIONS))
            raise ValueError(f"compression {name!r} is none of {known} or None") from None
        try:
            compress(b"", kind, level)
        except (ValueError, zlib.error) as error:
            raise ValueError(
                f"compression_level: compression {name!r} has no level {level}: {error}"
            ) from None
        return cls(kind, threshold, level)


class PreparedMessage(msgspec.Struct, gc=False):
    """The request of one send, the same for every attempt.

    `msg_ids` has the unique id of each message of a batch, or of the single message. `shared`: it
    shares a request with others to its broker at the same time (`client.batch_protocol`).
    """

    code: RequestCode
    topic: str
    body: bytes | bytearray | memoryview
    properties: str
    msg_ids: Sequence[str]
    flag: int = 0
    sys_flag: int = 0
    batch: bool = False
    shared: bool = False

    def result(self, answer: Command, queue: MessageQueue) -> SendResult:
        """Decode the answer to a single message; raises the error of an error answer."""
        status, stored, offset, offset_msg_id = _read(answer, queue)
        extra = answer.ext_fields.get
        return SendResult(
            status,
            self.msg_ids[0],
            offset_msg_id,
            stored,
            offset,
            extra("transactionId"),
            extra("recallHandle"),
            extra(_MSG_REGION, DEFAULT_REGION),
            extra(_TRACE_ON) != "false",
        )

    def results(self, answer: Command, queue: MessageQueue) -> list[SendResult]:
        """Decode the answer to a batch; raises the error of an error answer."""
        status, stored, offset, joined = _read(answer, queue)
        ids = joined.split(",")
        if len(ids) != len(self.msg_ids):
            # An inner batch is one record: its messages share one id.
            ids = [joined] * len(self.msg_ids)
        region = answer.ext_fields.get(_MSG_REGION, DEFAULT_REGION)
        trace_on = answer.ext_fields.get(_TRACE_ON) != "false"
        return [
            SendResult(
                status,
                msg_id,
                offset_msg_id,
                stored,
                offset + index,
                None,
                None,
                region,
                trace_on,
            )
            for index, (msg_id, offset_msg_id) in enumerate(zip(self.msg_ids, ids, strict=True))
        ]


def _read(answer: Command, queue: MessageQueue) -> tuple[SendStatus, MessageQueue, int, str]:
    """Return the status, the queue, the queue offset and the offset message ids of an answer."""
    status = _STATUS_BY_CODE.get(answer.code)
    if status is None:
        raise error_for(answer.code, answer.remark, queue.broker_name)
    ext = answer.ext_fields
    try:
        queue_id = int(ext["queueId"])
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return status, queue, int(ext["queueOffset"]), ext["msgId"]
    except (KeyError, ValueError) as error:
        raise BodyError(
            f"the answer to a send lacks queueId, queueOffset or msgId: {ext}",
            queue.broker_name,
        ) from error


def message_properties(message: Message, msg_id: str) -> str:
    """Encode the properties of one message, except WAIT and the delay, which messages of a batch do
    not have. Raises InvalidMessage, also for the flag."""
    text = f"{_UNIQ_KEY}{msg_id}\x02"
    tags = message.tags
    if tags is not None:
        check_tags(tags)
        text += f"{names.TAGS}\x01{tags}\x02"
    keys = message.keys
    if keys:
        text += f"{names.KEYS}\x01{joined_keys(keys)}\x02"
    if message.properties:
        check_properties(message.properties)
        text += names.encode(message.properties)
    flag = message.flag
    if flag or type(flag) is not int:
        _check_flag(flag)
    return text


def _check_flag(flag: object) -> None:
    if not isinstance(flag, int) or not -0x8000_0000 <= flag <= 0x7FFF_FFFF:
        raise InvalidMessage(f"flag must be an integer of 32 bits, not {shown(flag)}")


def _delay_property(message: Message) -> str:
    level, deliver_at = message.delay_level, message.deliver_at
    if bool(level) + bool(deliver_at) + bool(message.delay) > 1:
        raise InvalidMessage("only one of delay_level, deliver_at and delay may be set")
    try:
        if level:
            return f"{names.DELAY}\x01{whole('delay_level', level, 1, MAX_DELAY_LEVEL)}\x02"
        if deliver_at:
            return f"{names.TIMER_DELIVER_MS}\x01{point_in_time('deliver_at', deliver_at)}\x02"
        delay = seconds("delay", message.delay)
    except (TypeError, ValueError) as error:
        raise InvalidMessage(str(error)) from None
    return f"{names.TIMER_DELAY_MS}\x01{in_milliseconds(delay)}\x02"


def _priority_property(message: Message, extra: str) -> str:
    """Encode the priority. Brokers remove it from a message that is delayed, ordered or part of a
    transaction."""
    given = names.decode(extra)
    others = {
        "a delay": is_delayed(message),
        "a key": names.SHARDING_KEY in given or names.SHARDING_KEY in message.properties,
        "a transaction": names.TRAN_MSG in given,
    }
    for other, is_set in others.items():
        if is_set:
            raise InvalidMessage(f"a message cannot have a priority together with {other}")
    try:
        priority = whole("priority", message.priority, 0, MOST_PRIORITY)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidMessage(str(error)) from None
    return f"{names.PRIORITY}\x01{priority}\x02"


def wait_property(wait_stored: bool) -> str:
    """Encode the property WAIT, which a batch has once for all messages."""
    return _WAIT if wait_stored else _NO_WAIT


def prepare(message: Message, msg_id: str, *, extra: str = "") -> PreparedMessage:
    """Prepare a checked message; raises InvalidMessage for its properties.

    `extra`: encoded system properties, which a message may not set itself.
    """
    properties = message_properties(message, msg_id)
    if message.delay_level or message.deliver_at or message.delay:
        properties += _delay_property(message)
    if message.priority is not None:
        properties += _priority_property(message, extra)
    properties += extra + (_WAIT if message.wait_stored else _NO_WAIT)
    if len(properties) > SHORT or not properties.isascii():
        check_properties_length(properties)
    return PreparedMessage(
        _SEND,
        message.topic,
        message.body,
        properties,
        (msg_id,),
        message.flag,
    )


async def compress_body(outgoing: PreparedMessage, compression: Compression) -> None:
    """Compress the body in place, in a thread if it is large; keep it as it is if that does not
    make it smaller."""
    body = outgoing.body
    kind, level = compression.kind, compression.level
    if len(body) < COMPRESS_IN_THREAD:
        compressed = compress(body, kind, level)
    else:
        compressed = await asyncio.to_thread(compress, body, kind, level)
    if len(compressed) < len(body):
        outgoing.body = compressed
        outgoing.sys_flag |= COMPRESSED | kind.flag
