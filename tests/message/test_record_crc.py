"""The checksum of a whole record: its layout, and what it finds."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.properties import decode
from pocketmq.message.record_crc import (
    BLANK_FIELD,
    FIELD_SIZE,
    field,
    fill_in,
    is_altered,
    stated_crc,
    with_room,
)


def test_the_layout_of_the_official_broker() -> None:
    """Ten digits, the least significant one first."""
    record = b"123456789"
    assert zlib.crc32(record) & 0x7FFFFFFF == 1274296614
    assert field(record) == b"__CRC32#\x014166924721\x02"
    assert zlib.crc32(b"138401") & 0x7FFFFFFF == 7222
    assert field(b"138401") == b"__CRC32#\x012227000000\x02"
    assert len(field(record)) == len(BLANK_FIELD) == FIELD_SIZE == 20


@pytest.mark.parametrize(
    ("properties", "before"),
    [
        (b"", b""),
        (b"TAGS\x01a\x02", b"TAGS\x01a\x02"),
        (b"TAGS\x01a", b"TAGS\x01a\x02"),
        (field(b"another") + b"TAGS\x01a\x02", b"TAGS\x01a\x02"),
        (b"TAGS\x01a\x02__CRC32#\x01?", b"TAGS\x01a\x02"),
        (field(b"another"), b""),
        (b"x__CRC32#\x01?\x02", b"x__CRC32#\x01?\x02"),
    ],
)
def test_the_field_is_the_last_property_and_the_only_one(properties: bytes, before: bytes) -> None:
    assert with_room(properties) == before + BLANK_FIELD


@given(st.dictionaries(st.sampled_from("abc"), st.text("xyz", min_size=1)), st.binary())
def test_the_other_properties_stay(properties: dict[str, str], other: bytes) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    found = decode(with_room(field(other) + text))
    assert found.pop("__CRC32#") == "0" * 10
    assert found == properties


@given(st.lists(st.binary(min_size=4, max_size=50), min_size=1, max_size=4), st.data())
def test_every_change_of_a_byte_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    records = [
        (len(body) + 4 + FIELD_SIZE).to_bytes(4, "big") + body + BLANK_FIELD for body in bodies
    ]
    buffer = bytearray(b"".join(records))
    fill_in(memoryview(buffer))
    at = 0
    for record in records:
        whole = buffer[at : at + len(record)]
        at += len(record)
        assert whole[:-FIELD_SIZE] == record[:-FIELD_SIZE]
        assert not is_altered(memoryview(whole))
        place = data.draw(st.integers(0, len(record) - FIELD_SIZE - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
        assert is_altered(memoryview(whole))


@pytest.mark.parametrize(
    "end", [b"", b"TAGS\x01a\x02", b"__CRC32#\x01123\x02", b"__CRC32#\x01?123456789\x02", b"\x02"]
)
def test_a_record_without_the_field_states_nothing(end: bytes) -> None:
    record = memoryview(b"." * 100 + end)
    assert stated_crc(record) is None
    assert not is_altered(record)
