from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.batch_body import (
    MIN_ITEM,
    BatchBody,
    BatchBodyError,
    encode_batch,
    iter_batch,
)

messages = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=80), st.binary(max_size=80)),
    max_size=8,
)


@given(messages)
def test_round_trip(items: list[tuple[int, bytes, bytes]]) -> None:
    body = encode_batch(items)
    assert len(body) == sum(MIN_ITEM + len(b) + len(p) for _, b, p in items)
    found = list(iter_batch(body))
    assert [(item.flag, bytes(item.body), item.properties) for item in found] == items


@given(messages.filter(bool), st.data())
def test_a_body_cut_short_gives_what_is_whole_and_an_error(
    items: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    body = encode_batch(items)
    length = data.draw(st.integers(0, len(body)))
    whole = [encode_batch(items[:n]) for n in range(len(items) + 1)]
    found: list[tuple[int, bytes, bytes]] = []
    try:
        found.extend((i.flag, bytes(i.body), i.properties) for i in iter_batch(body[:length]))
    except BatchBodyError:
        assert body[:length] not in whole
    else:
        assert body[:length] in whole
    assert found == items[: len(found)]


@given(st.binary(max_size=100))
def test_any_bytes_are_a_body_or_an_error(raw: bytes) -> None:
    try:
        items = list(iter_batch(raw))
    except BatchBodyError:
        return
    assert sum(MIN_ITEM + len(i.body) + len(i.properties) for i in items) == len(raw)


@given(messages.filter(bool), st.integers(0, 300))
def test_a_body_grows_up_to_its_limit(items: list[tuple[int, bytes, bytes]], limit: int) -> None:
    body = BatchBody()
    taken = []
    for item in items:
        before = body.size
        size = body.add(*item, limit)
        assert body.size == before + size
        if size:
            taken.append(item)
        else:
            assert before + MIN_ITEM + len(item[1]) + len(item[2]) > limit
    assert body.size <= limit or len(taken) == 1
    assert body.first() == items[0] == taken[0]
    assert body.encode() == encode_batch(taken)
    assert len(body.encode()) == body.size
    body.clear()
    assert body.encode() == b""


EXAMPLE = bytes.fromhex(
    "00000033 00000000 00000000 00000000 00000002 6869 001b"
    "4b455953016b02 57414954017472756502 54414753015461674102"
)


def test_the_body_of_the_specification() -> None:
    text = b"KEYS\x01k\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    assert encode_batch([(0, b"hi", text)]) == EXAMPLE
    (item,) = iter_batch(EXAMPLE)
    assert (item.flag, bytes(item.body), item.properties) == (0, b"hi", text)


def test_bodies_are_slices() -> None:
    buffer = bytearray(EXAMPLE)
    (item,) = iter_batch(buffer)
    buffer[20:22] = b"HI"
    assert bytes(item.body) == b"HI"


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (0, ">i", 0),
        (0, ">i", -1),
        (0, ">i", 0x32),
        (0, ">i", 0x34),
        (16, ">i", -1),
        (16, ">i", 3),
        (16, ">i", 0x7FFFFFFF),
        (22, ">h", 0x1A),
        (22, ">h", -1),
    ],
)
def test_lengths_that_do_not_add_up(at: int, layout: str, value: int) -> None:
    raw = bytearray(EXAMPLE)
    struct.pack_into(layout, raw, at, value)
    with pytest.raises(BatchBodyError):
        list(iter_batch(raw))


def test_properties_too_long_for_their_length_field() -> None:
    with pytest.raises(BatchBodyError, match="32768 bytes, 32767 are allowed"):
        encode_batch([(0, b"", b"x" * 32_768)])
