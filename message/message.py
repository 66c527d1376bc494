"""Messages as users hold them: to be sent, and as received."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from message import properties as names
from message.compression import MAX_DECOMPRESSED, decompress
from message.identity import encode_offset_msg_id, host_text
from message.record import Record
from message.sysflag import COMPRESSED


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
        topic: where to.
        body: 1 byte to 4 MiB.
        tags: one tag, for consumers that filter.
        keys: index keys, to find the message by; each without blanks.
        properties: the application's own; RocketMQ's reserved names are refused by the producer.
        flag: an integer handed through untouched.
        delay_level: 1…18 (1 s … 2 h) to have it delivered later; 0 for at once.
        wait_stored: answer after the broker's flush policy is met, not just after the append.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    wait_stored: bool = True

    def all_properties(self) -> dict[str, str]:
        """The properties to send: the application's and those that the other fields stand for."""
        properties = dict(self.properties)
        if self.keys:
            properties[names.KEYS] = names.KEY_SEPARATOR.join(self.keys)
        if self.tags:
            properties[names.TAGS] = self.tags
        if self.delay_level:
            properties[names.DELAY] = str(self.delay_level)
        properties[names.WAIT] = "true" if self.wait_stored else "false"
        return properties


class MessageExt(msgspec.Struct):
    """A message as a consumer holds it.

    Attributes not obvious from their names:
        topic: the topic the record names.
        body: decompressed.
        keys: index keys, the parts of the property KEYS.
        sys_flag: as stored, without the COMPRESSED bit of a body that was decompressed.
        born_host, store_host: ``ip:port``.
        store_size: bytes of the stored record.
        body_crc: of the body as stored.
        msg_id: the producer's unique id, or the offset message id where there is none.
        offset_msg_id: names the storing broker and the physical offset there.
        broker_name: the broker it was pulled from; "" when it came straight from a store.
    Times are Unix milliseconds.
    """

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    flag: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int
    body_crc: int
    msg_id: str
    offset_msg_id: str
    broker_name: str = ""

    @classmethod
    def from_record(
        cls, record: Record, broker_name: str = "", max_body: int = MAX_DECOMPRESSED
    ) -> "MessageExt":
        """Copy and decompress what `record` holds.

        Raises:
            CompressionError: the body is compressed and does not decompress to ≤ `max_body` bytes.
        """
        properties = record.properties
        sys_flag = record.sys_flag
        if sys_flag & COMPRESSED:
            body = decompress(record.body, sys_flag, max_body)
            sys_flag &= ~COMPRESSED
        else:
            body = record.body.tobytes()
        offset_msg_id = encode_offset_msg_id(record.store_host, record.physical_offset)
        return cls(
            record.topic,
            body,
            properties.get(names.TAGS),
            split_keys(properties),
            properties,
            record.flag,
            record.queue_id,
            record.queue_offset,
            record.physical_offset,
            sys_flag,
            record.born_timestamp,
            host_text(record.born_host),
            record.store_timestamp,
            host_text(record.store_host),
            record.reconsume_times,
            record.prepared_transaction_offset,
            record.size,
            record.body_crc,
            properties.get(names.UNIQ_KEY) or offset_msg_id,
            offset_msg_id,
            broker_name,
        )

    @property
    def queue(self) -> MessageQueue:
        """The queue it was pulled from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def split_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The index keys in `properties`: the non-empty, blank-separated parts of KEYS."""
    keys = properties.get(names.KEYS)
    return tuple(filter(None, keys.split(names.KEY_SEPARATOR))) if keys else ()
