"""What a broker tells name servers: its topics (REGISTER_BROKER)."""

from __future__ import annotations

import zlib
from struct import Struct as Layout
from typing import Annotated, Any, Self

import msgspec
from msgspec import field

from pocketmq.remoting.bodies.base import Body, enum
from pocketmq.remoting.bodies.route import TopicQueueMappingInfo
from pocketmq.remoting.errors import BodyError

MAPPING_SECTION_VERSION = 413
"""Release ordinal (5.0.0) from which brokers append the queue mappings to a compressed body."""

MAX_INFLATED = 64 << 20
"""Bytes that a compressed body may inflate to."""

_I32 = Layout(">i")


class DataVersion(Body):
    """The version of a table; two are equal when all three fields are. timestamp in ms."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(Body):
    """A topic at a broker. topic_sys_flag: 1 unit, 2 has unit subscription."""

    attributes: dict[str, str] = field(default_factory=dict)
    order: bool = False
    perm: int = 6
    read_queue_nums: int = 16
    topic_filter_type: Annotated[str, enum("SINGLE_TAG", "MULTI_TAG")] = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: int = 0
    write_queue_nums: int = 16

    def to_text(self) -> str:
        """Return the blank-separated form of compressed bodies; order and topic_sys_flag are not in
        it.
        """
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type} {msgspec.json.encode(self.attributes).decode()}"
        )

    @classmethod
    def from_text(cls, text: str) -> TopicConfig:
        """Read `to_text`; attributes may be missing. Raises `BodyError`."""
        parts = text.split(" ", 5)
        try:
            name, read, write, perm, filter_type = parts[:5]
            attributes = {}
            if len(parts) > 5:
                attributes = msgspec.json.decode(parts[5], type=dict[str, str])
            return cls(
                attributes=attributes,
                perm=int(perm),
                read_queue_nums=int(read),
                topic_filter_type=filter_type,
                topic_name=name,
                write_queue_nums=int(write),
            )
        except (ValueError, msgspec.MsgspecError) as error:
            raise BodyError(f"not a topic config: {text[:200]!r}: {error}") from None


class TopicConfigSerializeWrapper(Body):
    """The topic table of a broker. The mappings are those of static topics, by topic; of the detail
    map nothing is read. The deleted topics, with the physical offset at which the log ended then,
    are for slaves; official brokers neither give nor read them."""

    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    pocketmq_deleted_topics: dict[str, int] | None = None
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)


class RegisterBrokerBody(Body):
    """The body of REGISTER_BROKER, plain or compressed."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(
        default_factory=TopicConfigSerializeWrapper
    )

    def encode_compressed(self) -> bytes:
        """Return the zlib form: lengths, texts and JSON parts one after another."""
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        mappings = wrapper.topic_queue_mapping_info_map.values()
        parts = [_sized(wrapper.data_version.encode()), _I32.pack(len(topics))]
        parts += (_sized(topic.to_text().encode()) for topic in topics)
        parts.append(_sized(msgspec.json.encode(self.filter_server_list)))
        parts.append(_I32.pack(len(mappings)))
        parts += (_sized(mapping.encode()) for mapping in mappings)
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode_compressed(cls, data: bytes | bytearray | memoryview, broker_version: int) -> Self:
        """Read the zlib form of a broker whose release ordinal is `broker_version`.

        Raises:
            BodyError: it is cut short, malformed, or inflates to more than `MAX_INFLATED`.
        """
        reader = _Reader(_inflate(data))
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion.decode(reader.block()))
        for _ in range(reader.count()):
            topic = TopicConfig.from_text(reader.text())
            wrapper.topic_config_table[topic.topic_name] = topic
        filter_servers = reader.json(list[str])
        if broker_version >= MAPPING_SECTION_VERSION:
            for _ in range(reader.count()):
                mapping = TopicQueueMappingInfo.decode(reader.block())
                wrapper.topic_queue_mapping_info_map[mapping.topic] = mapping
        return cls(filter_server_list=filter_servers, topic_config_serialize_wrapper=wrapper)


def _sized(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def _inflate(data: bytes | bytearray | memoryview) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, MAX_INFLATED)
    except zlib.error as error:
        raise BodyError(f"the registration is not deflated: {error}") from None
    if stream.unconsumed_tail:
        raise BodyError(f"the registration inflates to more than {MAX_INFLATED} bytes")
    if not stream.eof:
        raise BodyError("the registration is cut short")
    return inflated


class _Reader:
    """Takes sized blocks from the front of a buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        if len(self._data) - self._at < 4:
            raise BodyError("the registration is cut short")
        (value,) = _I32.unpack_from(self._data, self._at)
        self._at += 4
        # Neither a block nor a count can be larger than what is left.
        if not 0 <= value <= len(self._data) - self._at:
            raise BodyError(f"a length of {value} in the registration")
        return int(value)

    def block(self) -> bytes:
        end = self.count() + self._at
        block = self._data[self._at : end]
        self._at = end
        return block

    def text(self) -> str:
        try:
            return self.block().decode()
        except UnicodeDecodeError as error:
            raise BodyError(f"a text of the registration is not UTF-8: {error}") from None

    def json(self, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self.block(), type=kind)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise BodyError(f"broken JSON in the registration: {error}") from None
