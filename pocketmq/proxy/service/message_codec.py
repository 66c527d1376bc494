"""Converts messages between the forms of gRPC clients and of brokers. No I/O."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionError, CompressionType, decompress
from pocketmq.message.identity import host_text
from pocketmq.message.limits import MAX_BODY
from pocketmq.message.priority import priority_of
from pocketmq.message.record import Record
from pocketmq.message.sysflag import COMPRESSED, TRANSACTION_PREPARED
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.service.checks import REFUSED_USER_PROPERTIES

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

TRACE_CONTEXT: Final = "__TRACE_CONTEXT"
MOST_PLAIN: Final = 32 << 20
"""Bytes of bodies after which an answer gets no further message: 200 bytes may inflate to 4 MiB, so
one request could take all memory, and seconds of one turn."""
TURN_PLAIN: Final = 1 << 20
"""Bytes of bodies that are prepared in one turn of the event loop."""
DELAYED: Final = (
    names.DELAY,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
)


class PlainBodies:
    """The bytes of the bodies in one answer."""

    def __init__(self) -> None:
        self._of_answer = self._of_turn = 0

    def add(self, message: pb.Message, record: Record) -> None:
        """Count a message of the answer, the client's form of `record`."""
        size = len(message.body)
        self._of_answer += size
        plain = message.system_properties.body_encoding == pb.IDENTITY
        if plain and record.sys_flag & COMPRESSED and size == record.body_length:
            size = TURN_PLAIN  # it was inflated in vain
        self._of_turn += size

    @property
    def full(self) -> bool:
        """Whether the answer should get no further message."""
        return self._of_answer >= MOST_PLAIN

    def turn_is_over(self) -> bool:
        """Tell whether the next message has to wait for another turn, which begins with it."""
        over = self._of_turn >= TURN_PLAIN
        if over:
            self._of_turn = 0
        return over


class Outgoing(NamedTuple):
    """A client's message in the form for a broker; `message_type` is its type."""

    properties: dict[str, str]
    sys_flag: int
    born_timestamp: int
    message_type: pb.MessageType.ValueType


def outgoing(message: pb.Message, peer: tuple[str, int], now: int) -> Outgoing:
    """Return the broker's form of a checked message of the client at `peer`."""
    system = message.system_properties
    properties = dict(message.user_properties)
    properties[names.UNIQ_KEY] = system.message_id
    if system.HasField("tag"):
        properties[names.TAGS] = system.tag
    if system.keys:
        properties[names.KEYS] = names.KEY_SEPARATOR.join(system.keys)
    sys_flag = COMPRESSED if system.body_encoding == pb.GZIP else 0
    kind = pb.NORMAL
    if system.HasField("priority"):
        properties[names.PRIORITY] = str(system.priority)
        kind = pb.PRIORITY
    if system.HasField("message_group"):
        properties[names.SHARDING_KEY] = system.message_group
    if names.SHARDING_KEY in properties:  # a name that user properties may have, too
        kind = pb.FIFO
    if system.HasField("delivery_timestamp"):
        properties[names.TIMER_DELIVER_MS] = str(_ms(system.delivery_timestamp))
        kind = pb.DELAY
    if system.message_type == pb.TRANSACTION:
        properties[names.TRAN_MSG] = "true"
        properties[names.PGROUP] = message.topic.name
        sys_flag |= TRANSACTION_PREPARED
        kind = pb.TRANSACTION
        recovery = system.orphaned_transaction_recovery_duration.seconds
        if recovery:
            properties[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(recovery)
    born = _ms(system.born_timestamp) if system.HasField("born_timestamp") else now
    properties[names.BORN_TIMESTAMP] = str(born)
    properties[names.BORN_HOST] = system.born_host or peer[0]
    if system.HasField("trace_context"):
        properties[TRACE_CONTEXT] = system.trace_context
    if system.HasField("delivery_attempt"):
        properties[names.RECONSUME_TIME] = str(system.delivery_attempt)
    return Outgoing(properties, sys_flag, born, kind)


def incoming(
    record: Record,
    topic: str,
    *,
    handle: str | None = None,
    attempt: int | None = None,
    max_body: int = MAX_BODY,
) -> pb.Message:
    """Return the client's form of a stored message of `topic`. A body that would have more than
    `max_body` bytes stays compressed."""
    properties = record.properties
    message = pb.Message()
    message.topic.name = topic
    message.user_properties.update(
        {name: value for name, value in properties.items() if name not in REFUSED_USER_PROPERTIES}
    )
    message.user_properties.pop(TRACE_CONTEXT, None)
    system = message.system_properties
    if tag := properties.get(names.TAGS):
        system.tag = tag
    if keys := properties.get(names.KEYS):
        system.keys.extend(keys.split(names.KEY_SEPARATOR))
    system.message_id = properties.get(names.UNIQ_KEY, "")
    body = bytes(record.body)
    system.body_encoding = pb.IDENTITY
    if record.sys_flag & COMPRESSED:
        body, system.body_encoding = _decoded(body, record.sys_flag, max_body)
    message.body = body
    system.body_digest.type = pb.MD5
    system.body_digest.checksum = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    system.message_type = message_type(properties)
    set_ms(system.born_timestamp, record.born_timestamp)
    system.born_host = properties.get(names.BORN_HOST) or host_text(record.born_host)
    set_ms(system.store_timestamp, record.store_timestamp)
    system.store_host = host_text(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    delivery = properties.get(names.TIMER_DELIVER_MS, "")
    if delivery.isdecimal() and len(delivery) < 16:
        set_ms(system.delivery_timestamp, int(delivery))
    if group := properties.get(names.SHARDING_KEY):
        system.message_group = group
    priority = priority_of(properties)
    if priority is not None:
        system.priority = priority
    if context := properties.get(TRACE_CONTEXT):
        system.trace_context = context
    if origin := properties.get(names.DLQ_ORIGIN_TOPIC):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = properties.get(names.DLQ_ORIGIN_MESSAGE_ID, "")
    if handle is not None:
        system.receipt_handle = handle
    if attempt is not None:
        system.delivery_attempt = attempt
    recovery = properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS, "")
    if recovery.isdecimal() and len(recovery) < 10:
        system.orphaned_transaction_recovery_duration.seconds = int(recovery)
    return message


def message_type(properties: dict[str, str]) -> pb.MessageType.ValueType:
    """Return the type of a message, from its properties."""
    if properties.get(names.TRAN_MSG) == "true":
        return pb.TRANSACTION
    if any(name in properties for name in DELAYED):
        return pb.DELAY
    if names.SHARDING_KEY in properties:
        return pb.FIFO
    return pb.PRIORITY if names.PRIORITY in properties else pb.NORMAL


def now_ms() -> int:
    """Return the wall clock in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def set_ms(timestamp: Timestamp, ms: int) -> None:
    """Set a Timestamp to milliseconds since the epoch."""
    timestamp.seconds, rest = divmod(ms, 1000)
    timestamp.nanos = rest * 1_000_000


def _ms(timestamp: Timestamp) -> int:
    return timestamp.seconds * 1000 + timestamp.nanos // 1_000_000


def duration_ms(duration: Duration) -> int:
    """Return a Duration in milliseconds."""
    return duration.seconds * 1000 + duration.nanos // 1_000_000


def _decoded(body: bytes, sys_flag: int, most: int) -> tuple[bytes, pb.Encoding.ValueType]:
    """Return a compressed body in an encoding that clients know, and this."""
    try:
        if CompressionType.of(sys_flag) is CompressionType.ZLIB:
            # Clients that expect gzip's format also inflate zlib's.
            return body, pb.GZIP
        return decompress(body, sys_flag, most), pb.IDENTITY
    except CompressionError:
        return body, pb.IDENTITY  # the client reports a body that it cannot read


#: An offset in a transaction id: 63 bits.
_OFFSET: Final = re.compile("[0-9a-f]{1,15}|[0-7][0-9a-f]{15}")


class TransactionPlace(NamedTuple):
    """The position of a half message. The transaction id of clients contains it, so that any proxy
    can end the transaction, even after a restart."""

    unique_key: str
    broker_name: str
    queue_offset: int
    physical_offset: int

    def encode(self) -> str:
        """Return the transaction id for the client."""
        broker = base64.urlsafe_b64encode(self.broker_name.encode()).decode().rstrip("=")
        return f"{self.unique_key}@{broker}@{self.queue_offset:x}@{self.physical_offset:x}"


def decode_transaction_place(text: str) -> TransactionPlace:
    """Return the position in a transaction id. Raises ValueError."""
    key, *rest = text.rsplit("@", 3)
    if len(rest) != 3:
        raise ValueError(f"transaction id {text!r:.200} was not made by this kind of proxy")
    broker, queue_offset, physical_offset = rest
    try:
        if not (_OFFSET.fullmatch(queue_offset) and _OFFSET.fullmatch(physical_offset)):
            raise ValueError
        name = base64.b64decode(broker + "=" * (-len(broker) % 4), altchars=b"-_", validate=True)
        return TransactionPlace(key, name.decode(), int(queue_offset, 16), int(physical_offset, 16))
    except (binascii.Error, ValueError):
        raise ValueError(f"transaction id {text!r:.200} cannot be read") from None
