"""Messages as users hold them: to be sent, and as received."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import UnionType
from typing import Any, Final, NamedTuple, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from pocketmq.message import properties as names
from pocketmq.message.alike_records import read_alike
from pocketmq.message.compression import MAX_DECOMPRESSED, CompressionError, decompress
from pocketmq.message.identity import encode_offset_msg_id, host_text
from pocketmq.message.limits import DLQ_PREFIX, RETRY_PREFIX
from pocketmq.message.payload import decode_payload, encode_payload
from pocketmq.message.priority import priority_of
from pocketmq.message.record import Record
from pocketmq.message.record_layout import MAX_TOPIC_V1, MIN_RECORD, Parts, decode_parts
from pocketmq.message.sysflag import COMPRESSED

P = TypeVar("P")

SHOWN_BODY: Final = 64
"""Bytes of a body that `repr` shows."""
MOST_DIGITS: Final = 18
"""Of a number of milliseconds that another system provides."""
MESSAGE_OVERHEAD: Final = 1024
"""Approximate bytes in memory of a received message, besides its body."""
MOST_FOR_A_BYTE: Final = MESSAGE_OVERHEAD // MIN_RECORD + 1
"""Bytes in memory for each byte of a record that is not compressed, at most."""


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


class MessageFields(TypedDict, total=False):
    """The fields of a Message besides its topic and its body."""

    tags: str | None
    keys: Sequence[str]
    properties: dict[str, str]
    flag: int
    delay_level: int
    wait_stored: bool
    deliver_at: int | datetime
    delay: float | timedelta
    priority: int | None


class Message(msgspec.Struct):
    """A message to send.

    Attributes:
        topic: where to.
        body: 1 byte to 4 MiB.
        tags: one tag, for consumers that filter.
        keys: index keys, to find the message by; a list of texts without spaces.
        properties: the application's own; RocketMQ's reserved names are refused by the producer.
        flag: an integer handed through untouched.
        delay_level: 1…18 (1 s … 2 h) to have it delivered later; 0 for at once.
        wait_stored: answer after the broker's flush policy is met, not just after the append.
        deliver_at: when to have it delivered: a datetime (local time if it has no time zone) or
            Unix milliseconds, which may be in the past; 0 for at once.
        delay: seconds, or a timedelta, to have it delivered later; 0 for at once.
        priority: from 0 on, for topics of priority messages (RIP-80, since 5.4); None for none.

    Of delay_level, deliver_at, delay and priority at most one may be set.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = {}  # each instance has its own
    flag: int = 0
    delay_level: int = 0
    wait_stored: bool = True
    deliver_at: int | datetime = 0
    delay: float | timedelta = 0.0
    priority: int | None = None

    def __repr__(self) -> str:
        return _short_repr(self, self.__struct_fields__)

    @classmethod
    def of(cls, topic: str, payload: object, **fields: Unpack[MessageFields]) -> Self:
        """Make a message whose body is `payload` as JSON; `fields` are the other attributes.

        `payload` may be a `msgspec.Struct`, a dataclass, a pydantic model, a dict, a list, ….
        Consumers get it back by `message.payload(Type)` or by handlers with `payload=Type`.

        Raises:
            TypeError: JSON has no form for it.
        """
        return cls(topic, encode_payload(payload), **fields)


def in_milliseconds(delay: float | timedelta) -> int:
    """A duration in seconds, or a timedelta, in whole milliseconds."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    return round(seconds * 1000)


class Origin(NamedTuple):
    """Where a retried or dead message was stored first.

    Attributes:
        topic: the topic it was sent to.
        msg_id: the offset message id of its first record.
        group: the consumer group that could not consume it; None if the topic does not name it.
    """

    topic: str
    msg_id: str
    group: str | None


class MessageExt(msgspec.Struct):
    """A message as a consumer holds it.

    Properties, ids and hosts, which most consumers never use, are read from the stored bytes on
    first access: that saves two thirds of the work for a received message.

    Attributes not obvious from their names:
        topic: the topic the record names.
        body: decompressed.
        properties_bytes: the properties text as stored.
        sys_flag: as stored, without the COMPRESSED bit of a body that was decompressed.
        packed_born_host, packed_store_host: 8 or 20 bytes (`identity.unpack_host`).
        store_size: bytes of the stored record.
        body_crc: of the body as stored.
        broker_name: the broker it was pulled from; "" when it came straight from a store.
    Times are Unix milliseconds.
    """

    topic: str
    body: bytes
    properties_bytes: bytes
    flag: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    packed_born_host: bytes
    store_timestamp: int
    packed_store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int
    body_crc: int
    broker_name: str = ""
    _properties: dict[str, str] | None = None

    @classmethod
    def from_record(
        cls, record: Record, broker_name: str = "", max_body: int = MAX_DECOMPRESSED
    ) -> Self:
        """Copy and decompress what `record` holds.

        Raises:
            CompressionError: the body is compressed and does not decompress to ≤ `max_body` bytes.
        """
        *head, body, topic, properties, _ = msgspec.structs.astuple(record)
        parts = tuple(head), bytes(body), topic, bytes(properties)
        return cls.from_parts(parts, broker_name, max_body)

    @classmethod
    def from_parts(
        cls, parts: Parts, broker_name: str = "", max_body: int | None = MAX_DECOMPRESSED
    ) -> Self:
        """Make a message as `from_record` does, from parts: a sixth of the work for each message
        that is pulled. Body and properties must be bytes. If `max_body` is None, a compressed body
        stays as it is, with its flag set."""
        head, body, topic, properties = parts
        (
            size, _, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag,
            born_timestamp, born_host, store_timestamp, store_host, reconsume_times,
            prepared_transaction_offset, _,
        ) = head  # fmt: skip
        if sys_flag & COMPRESSED and max_body is not None:
            body = decompress(body, sys_flag, max_body)
            sys_flag &= ~COMPRESSED
        return cls(
            topic,
            body,
            properties,
            flag,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            size,
            body_crc,
            broker_name,
        )

    @classmethod
    def read_into(
        cls,
        messages: list[Self],
        data: bytes,
        broker_name: str,
        undecodable: Callable[[Self, CompressionError], object],
        at: int = 0,
        room: int = sys.maxsize,
    ) -> int:
        """Append the messages whose records `data` holds from `at` on, one after another, as in
        answers to pulls. A body that cannot be decompressed stays as it is, and `undecodable` is
        called.

        Stop at the end, or as soon as the messages take `room` bytes in memory: the last one may
        exceed it. Return the position of the end.

        Raises RecordError at the first bytes that are not a record; messages before it have been
        appended.
        """
        end = len(data)
        topic, topic_field = "", b""
        while at < end and room > 0:
            if topic_field and room >= (end - at) * MOST_FOR_A_BYTE:
                # All remaining records have room, unless they are compressed.
                here = at
                at = read_alike(cls, messages, data, at, topic, topic_field, broker_name)
                room -= (at - here) * MOST_FOR_A_BYTE
                if at == end:
                    break
            parts = decode_parts(data, at)
            try:
                message = cls.from_parts(parts, broker_name)
            except CompressionError as error:
                message = cls.from_parts(parts, broker_name, None)
                undecodable(message, error)
            messages.append(message)
            at += message.store_size
            room -= len(message.body) + MESSAGE_OVERHEAD
            topic = message.topic
            encoded = topic.encode()
            topic_field = bytes((len(encoded),)) + encoded if len(encoded) <= MAX_TOPIC_V1 else b""
        return at

    @overload
    def payload(self) -> Any: ...

    @overload
    def payload(self, kind: type[P]) -> P: ...

    @overload
    def payload(self, kind: UnionType) -> Any: ...

    def payload(self, kind: Any = Any) -> Any:
        """Decode the body, which is JSON, as `kind`; without it, as plain JSON values.

        `kind` may be a `msgspec.Struct`, a dataclass, a pydantic model, `dict[str, int]`, ….

        Raises:
            PayloadError: the body is not JSON, or does not fit; the text names the fields.
            TypeError: `kind` is not a type that can be decoded.
        """
        return decode_payload(self.body, kind)

    @property
    def properties(self) -> dict[str, str]:
        """The application's properties and RocketMQ's."""
        if self._properties is None:
            self._properties = names.decode(self.properties_bytes)
        return self._properties

    @property
    def user_properties(self) -> dict[str, str]:
        """The application's own properties, without RocketMQ's."""
        return {
            name: value
            for name, value in self.properties.items()
            if name not in names.RESERVED and not name.startswith(names.TRANSIENT_PREFIX)
        }

    @property
    def key(self) -> str | None:
        """The sharding key that it was sent with (`send(key=...)`, as text), which chose its
        queue; None without one. gRPC clients call it the message group."""
        return self.properties.get(names.SHARDING_KEY)

    @property
    def priority(self) -> int | None:
        """The priority that it was sent with; None without one."""
        return priority_of(self.properties)

    @property
    def origin(self) -> Origin | None:
        """The origin of a message in a retry or dead-letter topic; None for any other."""
        properties = self.properties
        topic = properties.get(names.DLQ_ORIGIN_TOPIC) or properties.get(names.RETRY_TOPIC)
        if topic is None:
            return None
        msg_id = (
            properties.get(names.DLQ_ORIGIN_MESSAGE_ID)
            or properties.get(names.ORIGIN_MESSAGE_ID)
            or self.msg_id
        )
        group = None
        for name in (self.topic, properties.get(names.REAL_TOPIC, "")):
            for prefix in (DLQ_PREFIX, RETRY_PREFIX):
                if group is None and name.startswith(prefix):
                    group = name.removeprefix(prefix)
        return Origin(topic, msg_id, group)

    @property
    def deadline(self) -> int | None:
        """Until when the sender of a request waits for the reply; None for any other message.

        It counts from the later of the sender's and the broker's timestamp, so that a request does
        not look expired because the sender's clock is slow. For a redelivered request it counts
        from the sender's timestamp.
        """
        properties = self.properties
        wait = properties.get(names.TTL, "")
        if names.REPLY_TO_CLIENT not in properties or not (wait.isascii() and wait.isdigit()):
            return None
        sent = self.born_timestamp
        if not self.reconsume_times:
            sent = max(sent, self.store_timestamp)
        return sent + int(wait[:MOST_DIGITS])

    def to_message(self, topic: str | None = None) -> Message:
        """A new message to send: topic, body, tag, keys, flag, priority and the application's
        properties.

        `topic` sends it elsewhere; a retried or dead message goes to its original topic by default.
        """
        origin = self.origin
        if topic is None:
            topic = self.topic if origin is None else origin.topic
        return Message(
            topic,
            self.body,
            tags=self.tags,
            keys=self.keys,
            properties=self.user_properties,
            flag=self.flag,
            priority=self.priority,
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, msg_id={self.msg_id!r}, "
            f"queue_id={self.queue_id}, queue_offset={self.queue_offset}, tags={self.tags!r}, "
            f"keys={self.keys!r}, body={_short_body(self.body)})"
        )

    @property
    def tags(self) -> str | None:
        """The message's tag."""
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        """Index keys, the parts of the property KEYS."""
        return split_keys(self.properties)

    @property
    def msg_id(self) -> str:
        """The producer's unique id, or else the offset message id."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    @property
    def offset_msg_id(self) -> str:
        """The offset message id: it names the storing broker and the physical offset there."""
        return encode_offset_msg_id(self.packed_store_host, self.physical_offset)

    @property
    def born_host(self) -> str:
        """The producer, `ip:port`."""
        return host_text(self.packed_born_host)

    @property
    def store_host(self) -> str:
        """The storing broker, `ip:port`."""
        return host_text(self.packed_store_host)

    @property
    def queue(self) -> MessageQueue:
        """The queue it was pulled from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def split_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the index keys in `properties`: the non-empty, blank-separated parts of KEYS."""
    keys = properties.get(names.KEYS)
    return tuple(filter(None, keys.split(names.KEY_SEPARATOR))) if keys else ()


def _short_body(body: bytes | bytearray | memoryview) -> str:
    if not isinstance(body, bytes | bytearray | memoryview) or len(body) <= SHOWN_BODY:
        return repr(bytes(body) if isinstance(body, bytearray | memoryview) else body)
    return f"{bytes(body[:SHOWN_BODY])!r}... ({len(body)} bytes)"


def _short_repr(message: Message, fields: Sequence[str]) -> str:
    """The fields that are set; the body cut."""
    told = [f"{message.topic!r}", _short_body(message.body)]
    defaults = Message.__struct_defaults__
    for name, default in zip(reversed(fields), reversed(defaults), strict=False):
        value = getattr(message, name)
        if value != (default() if callable(default) else default) and (value or value == 0):
            told.insert(2, f"{name}={value!r}")
    return f"{type(message).__name__}({', '.join(told)})"
