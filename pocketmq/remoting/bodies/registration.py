"""What a broker tells name servers: its topics (REGISTER_BROKER)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator
from struct import Struct as Layout
from typing import Annotated, Any, Final

import msgspec
from msgspec import field

from pocketmq.message.fastjson_text import has_reference
from pocketmq.remoting.bodies.base import Body, enum
from pocketmq.remoting.bodies.route import TopicQueueMappingInfo
from pocketmq.remoting.errors import BodyError
from pocketmq.remoting.headers.base import I32

MAPPING_SECTION_VERSION = 413
"""Release ordinal (5.0.0) from which brokers append the queue mappings to a compressed body."""

MAX_INFLATED = 16 << 20
"""Bytes that a compressed body may inflate to."""

MOST_TOPICS: Final = 100_000
"""Topics of one registration. In the plain form, 87,000 official ones fill a frame."""

MOST_ENTRY: Final = 256 << 10
"""Bytes of one topic in it."""

_PIECE: Final = 64 << 10
"""Bytes of topics that are read in one step; shorter bodies are read at once."""
_BLOCKS: Final = 200
"""The same for the compressed form, in topics."""
_ATTEMPTS: Final = 24
_BARE_KEY: Final = re.compile(rb"([{,]\s*)(-?[0-9]+)(?=\s*:)")
_ENTRY_END: Final = re.compile(rb"\}\s*,\s*(?=\")")

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
    perm: I32 = 6
    read_queue_nums: I32 = 16
    topic_filter_type: Annotated[str, enum("SINGLE_TAG", "MULTI_TAG")] = "SINGLE_TAG"
    topic_name: str = ""
    topic_sys_flag: I32 = 0
    write_queue_nums: I32 = 16

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
                perm=_i32(perm),
                read_queue_nums=_i32(read),
                topic_filter_type=filter_type,
                topic_name=name,
                write_queue_nums=_i32(write),
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
    def decode_steps(
        cls, data: bytes, *, table_alone: bool = False
    ) -> Generator[None, None, RegisterBrokerBody]:
        """Read the plain form, a bounded part of it in each step; `table_alone` is the older one, a
        `TopicConfigSerializeWrapper`.

        Raises:
            BodyError: it cannot be read, or has too many topics or too large ones.
        """
        if len(data) <= _PIECE:
            if not table_alone:
                return cls.decode(data)
            return cls(topic_config_serialize_wrapper=TopicConfigSerializeWrapper.decode(data))
        if has_reference(data):
            raise BodyError(f"references in a registration of more than {_PIECE} bytes")
        try:
            try:
                msgspec.json.decode(data, type=msgspec.Raw)
            except msgspec.DecodeError:
                data = yield from _with_quoted_keys(data)
            yield
            parts = _Parts(topic_config_serialize_wrapper=msgspec.Raw(data))
            if not table_alone:
                parts = msgspec.json.decode(data, type=_Parts)
            table = msgspec.json.decode(parts.topic_config_serialize_wrapper, type=_TableParts)
            yield
            servers = _small(parts.filter_server_list)
            body = cls(filter_server_list=msgspec.json.decode(servers, type=list[str]))
            wrapper = body.topic_config_serialize_wrapper
            wrapper.data_version = DataVersion.decode(_small(table.data_version))
            for piece in _pieces(bytes(table.topic_config_table)):
                some = TopicConfigSerializeWrapper.decode(b'{"topicConfigTable":%b}' % piece)
                wrapper.topic_config_table |= some.topic_config_table
                _check_count(len(wrapper.topic_config_table))
                yield
            for piece in _pieces(bytes(table.topic_queue_mapping_info_map)):
                some = TopicConfigSerializeWrapper.decode(
                    b'{"topicQueueMappingInfoMap":%b}' % piece
                )
                wrapper.topic_queue_mapping_info_map |= some.topic_queue_mapping_info_map
                _check_count(len(wrapper.topic_queue_mapping_info_map))
                yield
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise BodyError(f"the body is not a registration: {error}") from None
        return body

    @classmethod
    def decode_compressed_steps(
        cls, data: bytes | bytearray | memoryview, broker_version: int
    ) -> Generator[None, None, RegisterBrokerBody]:
        """Read the zlib form of a broker whose release ordinal is `broker_version`, a bounded part
        of it in each step.

        Raises:
            BodyError: it is cut short, malformed, inflates to more than `MAX_INFLATED`, or has too
                many topics or too large ones.
        """
        inflated = _inflate(data)
        yield
        reader = _Reader(inflated)
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion.decode(reader.block()))
        for left in range(reader.topic_count(), 0, -1):
            topic = TopicConfig.from_text(reader.text())
            wrapper.topic_config_table[topic.topic_name] = topic
            if not left % _BLOCKS:
                yield
        filter_servers = reader.json(list[str])
        if broker_version >= MAPPING_SECTION_VERSION:
            for left in range(reader.topic_count(), 0, -1):
                mapping = TopicQueueMappingInfo.decode(reader.block())
                wrapper.topic_queue_mapping_info_map[mapping.topic] = mapping
                if not left % _BLOCKS:
                    yield
        return cls(filter_server_list=filter_servers, topic_config_serialize_wrapper=wrapper)


class _Parts(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: msgspec.Raw
    filter_server_list: msgspec.Raw = msgspec.Raw(b"[]")


class _TableParts(msgspec.Struct, rename="camel"):
    topic_config_table: msgspec.Raw
    data_version: msgspec.Raw = msgspec.Raw(b"{}")
    topic_queue_mapping_info_map: msgspec.Raw = msgspec.Raw(b"{}")


def _with_quoted_keys(data: bytes) -> Generator[None, None, bytes]:
    """Quote the bare integers that fastjson writes as keys. If there is one within a text, the
    result is not JSON."""
    parts = []
    start = 0
    while start < len(data):
        stop = data.find(b",", start + _PIECE)
        stop = len(data) if stop < 0 else stop
        parts.append(_BARE_KEY.sub(rb'\1"\2"', data[start:stop]))
        start = stop
        yield
    return b"".join(parts)


def _small(part: msgspec.Raw) -> bytes:
    if len(data := bytes(part)) > _PIECE:
        raise BodyError(f"a part of the registration has {len(data)} bytes, at most {_PIECE}")
    return data


def _check_count(topics: int) -> int:
    if topics > MOST_TOPICS:
        raise BodyError(f"the registration has more than {MOST_TOPICS} topics")
    return topics


def _pieces(table: bytes) -> Iterator[bytes]:
    """Yield the entries of an object of objects, some at a time, as objects.

    A place that looks like the end of an entry may be within one; then what comes before it is not
    a whole object.
    """
    start, end = table.find(b"{") + 1, table.rfind(b"}")
    while start and start < end:
        at = start
        last = min(end, start + MOST_ENTRY)
        for attempt in range(_ATTEMPTS):
            found = _ENTRY_END.search(table, max(at, start + (_PIECE << attempt // 8)), last)
            stop, at = (found.start() + 1, found.end()) if found else (last, last)
            piece = b"{%b}" % table[start:stop]
            try:
                msgspec.json.decode(piece, type=msgspec.Raw)
            except msgspec.DecodeError:
                if found is None:
                    break
            else:
                yield piece
                start = at
                break
        if start != at:
            raise BodyError(f"an entry of the registration has more than {MOST_ENTRY} bytes")


def _i32(text: str) -> int:
    value = int(text)
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{text[:100]} is out of range")
    return value


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

    def topic_count(self) -> int:
        return _check_count(self.count())

    def block(self) -> bytes:
        if (size := self.count()) > MOST_ENTRY:
            raise BodyError(f"a part of the registration has {size} bytes, at most {MOST_ENTRY}")
        end = size + self._at
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
