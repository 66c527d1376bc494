"""The fast encoder writes exactly what `message.record` says a record is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message import properties as names
from message.batch_body import BatchBodyError, encode_batch
from message.checksum import body_crc
from message.record import decode, encode_into, iter_records, record_size
from message.tags import tag_hash
from store import record_encoder
from store.record_encoder import SIZE_BYTES, TopicField, encode_record

I64 = st.integers(-(2**63), 2**63 - 1)
I32 = st.integers(-(2**31), 2**31 - 1)
PROPERTIES = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "other", "TAG", "xTAGS"]),
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)


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
    data = encode_record(
        field, body_crc(body), 3, flag, queue_offset, physical, sys_flag, born_time, born_host,
        store_time, store_host, reconsumed, prepared, body, properties,
    )  # fmt: skip
    assert data == expected[SIZE_BYTES:]
    overhead = record_encoder.head_size(sys_flag) + field.overhead
    assert overhead + len(body) + len(properties) == size


@given(
    st.lists(
        st.tuples(I32, st.binary(max_size=5000), PROPERTIES, st.booleans()), min_size=1, max_size=8
    ),
    PROPERTIES,
)
def test_a_batch_becomes_one_record_per_message(
    messages: list[tuple[int, bytes, dict[str, str], bool]], suffix: dict[str, str]
) -> None:
    """Each message keeps its flag and body, gets the suffix behind its properties, and the entries
    say where it lies and what its tag's hash is, whether its separator is there or not."""
    items = []
    for flag, body, properties, trailing in messages:
        text = names.encode(properties)
        items.append((flag, body, (text if trailing else text[:-1]).encode()))
    added = names.encode(suffix).encode()
    batch = record_encoder.encode_batch(
        TopicField.of("Topic"), encode_batch(items), added, 2, 40, 1000, 0, 11, b"b" * 8, 12,
        b"s" * 8, 1,
    )  # fmt: skip
    data = batch.first_size.to_bytes(4, "big") + batch.data
    records = list(iter_records(data, strict=True))
    assert len(records) == len(messages)
    place = 1000
    for index, (record, (flag, body, properties, _)) in enumerate(
        zip(records, messages, strict=True)
    ):
        assert (record.flag, record.body, record.topic) == (flag, body, "Topic")
        assert (record.queue_id, record.queue_offset) == (2, 40 + index)
        assert record.physical_offset == place
        # An empty value counts for nothing, also where it comes later.
        expected = {key: value for key, value in properties.items() if value}
        expected |= {key: value for key, value in suffix.items() if value}
        assert record.properties == expected
        code = tag_hash(expected.get("TAGS", ""))
        assert batch.entries[3 * index : 3 * index + 3] == [place, record.size, code]
        place += record.size


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 19, "19 bytes at byte 0"),
        (encode_batch([(0, b"body", b"")])[:-1], "26 bytes with a body of 4, 25 bytes are left"),
        (encode_batch([(0, b"body", b"k\x01v\x02")])[:25] + b"\x09" + b"k\x01v\x02", "add up"),
        (b"\0\0\0\0" + encode_batch([(0, b"body", b"")])[4:], "a message of 0 bytes"),
        (encode_batch([(0, b"body", b"")] * 2)[:-3], "23 bytes are left"),
        (encode_batch([(0, b"", b"p" * 32_760)]), "properties of 32772 bytes"),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(BatchBodyError, match=reason):
        record_encoder.encode_batch(
            TopicField.of("Topic"), body, b"more\x01value\x02", 0, 0, 0, 0, 0, b"b" * 8, 0,
            b"s" * 8, 0,
        )  # fmt: skip


def test_more_tags_than_are_remembered() -> None:
    """A peer that sends ever new tags costs no memory, and every code is right."""
    for start in range(0, 5000, 500):
        items = [(0, b"", b"TAGS\x01tag%d\x02" % n) for n in range(start, start + 500)]
        batch = record_encoder.encode_batch(
            TopicField.of("T"), encode_batch(items), b"", 0, 0, 0, 0, 0, b"b" * 8, 0, b"s" * 8, 0
        )
        assert batch.entries[2::3] == [tag_hash(f"tag{n}") for n in range(start, start + 500)]
    assert len(record_encoder._known_tags) <= record_encoder._MOST_TAGS


def test_the_topic_length_of_version_2_has_two_bytes() -> None:
    data = encode_record(
        TopicField.of("T" * 300), 0, 0, 0, 0, 0, 0, 0, b"b" * 8, 0, b"s" * 8, 0, 0, b"", b""
    )
    record = decode((len(data) + 4).to_bytes(4, "big") + data)
    assert record.topic == "T" * 300
