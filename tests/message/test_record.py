from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import record as records
from pocketmq.message import record_layout as layout
from pocketmq.message.checksum import body_crc
from pocketmq.message.identity import pack_host
from pocketmq.message.record import Record
from pocketmq.message.record_layout import CorruptRecord, RecordError, TruncatedRecord

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(codec="utf-8"), max_size=60).map(str.encode)


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """The arguments of encode_into but the place and the size, consistent with each other."""
    sys_flag = draw(st.integers(0, 0x7FF))
    body = draw(st.binary(max_size=300))
    topic = draw(names)
    return {
        "magic": draw(st.sampled_from([layout.MAGIC_V1, layout.MAGIC_V2]))
        if len(topic) <= layout.MAX_TOPIC_V1
        else layout.MAGIC_V2,
        "body_crc": body_crc(body),
        "queue_id": draw(i32),
        "flag": draw(i32),
        "queue_offset": draw(i64),
        "physical_offset": draw(i64),
        "sys_flag": sys_flag,
        "born_timestamp": draw(i64),
        "born_host": draw(st.binary(min_size=20, max_size=20))[: 20 if sys_flag & 0x10 else 8],
        "store_timestamp": draw(i64),
        "store_host": draw(st.binary(min_size=20, max_size=20))[: 20 if sys_flag & 0x20 else 8],
        "reconsume_times": draw(i32),
        "prepared_transaction_offset": draw(i64),
        "body": body,
        "topic": topic,
        "properties": draw(st.binary(max_size=300)),
    }


def encoded(values: dict[str, Any]) -> bytes:
    size = layout.record_size(
        len(values["body"]),
        len(values["topic"]),
        len(values["properties"]),
        values["sys_flag"],
        1 if values["magic"] == layout.MAGIC_V1 else 2,
    )
    buffer = bytearray(size)
    layout.encode_into(buffer, 0, size=size, **values)
    assert len(buffer) == size
    return bytes(buffer)


def a_record(**changes: Any) -> bytes:
    values: dict[str, Any] = {
        "magic": layout.MAGIC_V1,
        "body_crc": body_crc(b"hello"),
        "queue_id": 3,
        "flag": 7,
        "queue_offset": 11,
        "physical_offset": 4096,
        "sys_flag": 0,
        "born_timestamp": 1_795_240_640_388,
        "born_host": pack_host("127.0.0.1", 41394),
        "store_timestamp": 1_795_240_640_488,
        "store_host": pack_host("127.0.0.1", 10911),
        "reconsume_times": 2,
        "prepared_transaction_offset": 5,
        "body": b"hello",
        "topic": b"TopicTest",
        "properties": b"TAGS\x01TagA\x02",
    }
    return encoded(values | changes)


def patched(raw: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(raw)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


@given(fields(), st.binary(max_size=20), st.binary(max_size=20))
def test_round_trip_within_other_bytes(values: dict[str, Any], before: bytes, after: bytes) -> None:
    raw = encoded(values)
    record = records.decode(before + raw + after, len(before))
    assert record.size == len(raw)
    assert record.topic.encode() == values["topic"]
    assert record.body == values["body"]
    assert record.properties_bytes == values["properties"]
    for name in values.keys() - {"topic", "body", "properties"}:
        assert getattr(record, name) == values[name], name


@given(fields(), st.data())
def test_the_properties_alone(values: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(encoded(values))
    assert layout.properties_of(memoryview(raw)) == records.decode(raw).properties

    with pytest.raises(CorruptRecord):
        layout.properties_of(memoryview(raw)[: data.draw(st.integers(0, len(raw) - 1))])
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    # Damage that it does not look at hides nothing from it; what both read is the same.
    with contextlib.suppress(RecordError):
        found = layout.properties_of(memoryview(raw))
        assert found == records.decode(raw, check_crc=False).properties


@given(fields(), st.data())
def test_a_record_cut_short_is_an_error(values: dict[str, Any], data: st.DataObject) -> None:
    raw = encoded(values)
    length = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(TruncatedRecord):
        records.decode(raw[:length])


@given(fields(), st.data())
def test_damage_is_found_or_changes_no_length(values: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(encoded(values))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        record = records.decode(raw)
    except RecordError:
        return
    assert record.size == len(raw)
    assert body_crc(record.body) == record.body_crc or not record.body


@given(st.binary(max_size=400))
def test_any_bytes_are_a_record_or_an_error(raw: bytes) -> None:
    with pytest.raises(RecordError):
        records.decode(raw)
    assert list(records.iter_records(raw)) == []


def test_layout_of_a_record() -> None:
    raw = a_record()
    assert len(raw) == layout.MIN_RECORD + 5 + 9 + 10
    assert struct.unpack_from(">q", raw, layout.QUEUE_OFFSET_AT) == (11,)
    assert struct.unpack_from(">q", raw, layout.PHYSICAL_OFFSET_AT) == (4096,)
    assert struct.unpack_from(">i", raw, layout.SYS_FLAG_AT) == (0,)
    assert struct.unpack_from(">q", raw, layout.STORE_TIMESTAMP_AT) == (1_795_240_640_488,)
    assert raw.endswith(b"hello\x09TopicTest\x00\x0aTAGS\x01TagA\x02")
    assert raw[4:8] == bytes.fromhex("DAA320A7")


def test_version_2_has_a_topic_length_of_two_bytes() -> None:
    topic = b"T" * 300
    raw = a_record(magic=layout.MAGIC_V2, topic=topic)
    assert raw[4:8] == bytes.fromhex("DAA320AB")
    assert raw[88 + 5 : 88 + 5 + 2] == b"\x01\x2c"
    assert records.decode(raw).topic == topic.decode()


def test_ipv6_hosts_are_announced_by_the_sysflag() -> None:
    v6 = pack_host("2001:db8::7", 1)
    for sys_flag, hosts in ((0x10, ("born_host",)), (0x20, ("store_host",))):
        raw = a_record(sys_flag=sys_flag, **dict.fromkeys(hosts, v6))
        assert len(raw) == len(a_record()) + 12
        assert getattr(records.decode(raw), hosts[0]) == v6


def test_body_stays_a_slice_of_the_buffer() -> None:
    buffer = bytearray(a_record())
    record = records.decode(buffer)
    buffer[88:93] = b"HELLO"
    assert bytes(record.body) == b"HELLO"


def test_properties_are_decoded_once() -> None:
    record = records.decode(a_record())
    assert record.properties_text == "TAGS\x01TagA\x02"
    assert record.properties == {"TAGS": "TagA"}
    assert record.properties is record.properties


def test_a_wrong_checksum_is_told_unless_unasked() -> None:
    raw = patched(a_record(), 8, ">i", 1)
    with pytest.raises(CorruptRecord, match="CRC"):
        records.decode(raw)
    assert records.decode(raw, check_crc=False).body.tobytes() == b"hello"


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (4, ">I", 0xDAA320A8, "magic 0xdaa320a8"),
        (4, ">I", layout.BLANK_MAGIC, "a blank"),
        (0, ">i", 90, "body of 5 bytes"),
        (0, ">i", -1, "body of 5 bytes"),
        (0, ">i", 114, "do not add up"),
        (84, ">i", -1, "body of -1 bytes"),
        (84, ">i", 2**31 - 1, "body of 2147483647 bytes"),
        (88 + 5, ">B", 255, "topic of 255 bytes"),
        (88 + 5, ">B", 8, "do not add up"),
        (88 + 5 + 1 + 9, ">H", 9, "do not add up"),
        (88 + 5 + 1, ">B", 0xFF, "not UTF-8"),
    ],
)
def test_what_is_wrong_is_told(at: int, layout: str, value: int, reason: str) -> None:
    raw = patched(a_record(), at, layout, value)
    with pytest.raises(CorruptRecord, match=reason):
        records.decode(raw)


def test_a_size_beyond_the_buffer_is_truncation() -> None:
    with pytest.raises(TruncatedRecord, match="the record has 116 bytes, 115 are left"):
        records.decode(patched(a_record(), 0, ">i", 116))


def test_what_does_not_decode_ends_the_list() -> None:
    good, other = a_record(), a_record(queue_offset=12)
    buffer = good + other + good[:50]
    assert [r.queue_offset for r in records.iter_records(buffer)] == [11, 12]
    taken: list[Record] = []
    with pytest.raises(TruncatedRecord) as caught:
        taken.extend(records.iter_records(buffer, strict=True))
    assert caught.value.offset == len(good) + len(other)


def test_blank() -> None:
    buffer = bytearray(b"x" * 64)
    layout.encode_blank_into(buffer, 24, 40)
    assert layout.peek(buffer, 24) == (40, layout.BLANK_MAGIC)
    assert buffer[:24] + buffer[32:] == b"x" * 56  # only the head is written
    with pytest.raises(TruncatedRecord):
        layout.peek(buffer, 60)


@given(fields(), st.data())
def test_the_end_that_a_head_claims(values: dict[str, Any], data: st.DataObject) -> None:
    """Of a record that was written up to any place after its head, with its size or without."""
    raw = encoded(values)
    head = layout.record_size(0, 0, 0, values["sys_flag"]) - 3
    body_end = head + len(values["body"])
    cut = data.draw(st.integers(head, len(raw)))
    written = raw[:cut] + bytes(len(raw) - cut + 9)
    own = values["physical_offset"]
    assert layout.claimed_end(b"xy" + written, 2, own) == 2 + len(raw)
    unsized = bytes(4) + written[4:]
    assert body_end <= layout.claimed_end(unsized, 0, own) <= len(unsized)
    assert layout.claimed_end(unsized, 0, own ^ 1) == 0
    assert layout.claimed_end(written[: head - 1], 0, own) == 0
    assert layout.claimed_end(patched(written, head - 4, ">i", len(raw)), 0, own) == 0
