"""The fast encoder writes exactly what `pocketmq.message.record_layout` says a record is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.checksum import body_crc
from pocketmq.message.record import decode
from pocketmq.message.record_layout import encode_into, record_size
from pocketmq.store.encoding import record_encoder
from pocketmq.store.encoding.record_encoder import TopicField, record_parts

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)


@given(
    st.sampled_from(["T", "T" * 127, "T" * 128, "%RETRY%group"]),
    st.binary(max_size=300),
    st.binary(max_size=100),
    st.tuples(I32, I64, I64, I64, I64, I32, I64),
    st.booleans(),
    st.booleans(),
)
def test_a_record_is_what_the_message_package_encodes(
    topic: str, body: bytes, properties: bytes, numbers: tuple[int, ...], born_v6: bool, v6: bool
) -> None:
    flag, queue_offset, physical, born_time, store_time, reconsumed, prepared = numbers
    sys_flag = (0x10 if born_v6 else 0) | (0x20 if v6 else 0)
    born_host, store_host = b"b" * (20 if born_v6 else 8), b"s" * (20 if v6 else 8)
    field = TopicField.of(topic)
    name = topic.encode()
    size = record_size(len(body), len(name), len(properties), sys_flag, 2 if len(name) > 127 else 1)
    expected = bytearray(size)
    encode_into(
        expected, 0, size, field.magic, body_crc(body), 3, flag, queue_offset, physical, sys_flag,
        born_time, born_host, store_time, store_host, reconsumed, prepared, body, name, properties,
    )  # fmt: skip
    parts = record_parts(
        size, field, body_crc(body), 3, flag, queue_offset, physical, sys_flag, born_time,
        born_host, store_time, store_host, reconsumed, prepared, body, properties,
    )  # fmt: skip
    assert b"".join(parts) == expected
    overhead = record_encoder.head_size(sys_flag) + field.overhead
    assert overhead + len(body) + len(properties) == size


def test_the_topic_length_of_version_2_has_two_bytes() -> None:
    field = TopicField.of("T" * 300)
    size = record_encoder.head_size(0) + field.overhead
    parts = record_parts(
        size, field, 0, 0, 0, 0, 0, 0, 0, b"b" * 8, 0, b"s" * 8, 0, 0, b"", b""
    )  # fmt: skip
    record = decode(b"".join(parts))
    assert record.topic == "T" * 300
