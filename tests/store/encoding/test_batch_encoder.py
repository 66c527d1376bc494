"""A batch becomes the records that its messages would have become one by one."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import properties as names
from pocketmq.message.batch_body import BatchBodyError, ReservedInBatch, encode_batch
from pocketmq.message.record import Record, iter_records
from pocketmq.message.reserved import NOT_IN_BATCHES
from pocketmq.message.sysflag import BORN_HOST_V6, STORE_HOST_V6
from pocketmq.message.tags import tag_hash
from pocketmq.store.encoding.batch import Batch, Shared
from pocketmq.store.encoding.batch_encoder import batch_taker, take_apart
from pocketmq.store.encoding.mixed_batch import MixedBatch
from pocketmq.store.encoding.queue_entry import iter_entries
from pocketmq.store.encoding.record_encoder import TopicField
from pocketmq.store.encoding.tags_codes import MOST_TAGS, known_tags
from pocketmq.store.encoding.uniform_batch import UniformBatch, take_apart_uniform
from pocketmq.store.numpy_loader import numpy_loader
from tests.mutation import broken

take_apart_compiled = batch_taker()
compiled_only = pytest.mark.skipif(take_apart_compiled is take_apart, reason="make accelerator")

Item = tuple[int, bytes, bytes]  # flag, body, encoded properties

I32 = st.integers(-(2**31), 2**31 - 1)
PROPERTIES = st.dictionaries(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "other", "TAG", "xTAGS"]),
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)


def shared(suffix: bytes = b"", v6: bool = False) -> Shared:
    sys_flag, size = (BORN_HOST_V6 | STORE_HOST_V6, 20) if v6 else (0, 8)
    return Shared(TopicField.of("Topic"), suffix, 2, sys_flag, 11, b"b" * size, 12, b"s" * size, 1)


def encode(
    items: list[Item], suffix: bytes = b"", place: int = 1000, v6: bool = False
) -> tuple[bytes, list[int]]:
    """The records at physical offset `place`, with queue offsets from 40 on, and the entries.

    The batch expected to lie at 1000. As columns, if that can be done, it is the same, and by
    compiled code, if that is there.
    """
    body = encode_batch(items)
    one_by_one = _encode(take_apart(body, shared(suffix, v6), 40, 1000), len(items), place)
    compiled = take_apart_compiled(body, shared(suffix, v6), 40, 1000)
    assert _encode(compiled, len(items), place) == one_by_one
    as_columns = take_apart_uniform(body, shared(suffix, v6), 40)
    if as_columns is not None:
        assert _encode(as_columns, len(items), place) == one_by_one
    else:
        assert len({(flag, len(body), len(props)) for flag, body, props in items}) > 1 or suffix
    return one_by_one


def _encode(batch: Batch, count: int, place: int) -> tuple[bytes, list[int]]:
    assert batch.count == count
    buffer = bytearray(batch.size + 20)
    entries, physical_offsets = batch.encode_into(buffer, 10, place)
    assert buffer[:10] == buffer[10 + batch.size :] == bytes(10)
    flat = [number for entry in iter_entries(entries) for number in entry]
    assert list(physical_offsets) == flat[::3]
    return bytes(buffer[10 : 10 + batch.size]), flat


def check(
    items: list[Item], suffix: bytes = b"", place: int = 1000, v6: bool = False
) -> list[Record]:
    """Each message keeps its flag and body, gets the suffix behind its properties, and the entries
    say where it lies and what its tag's hash is, whether its separator is there or not."""
    data, entries = encode(items, suffix, place, v6)
    records = list(iter_records(data, strict=True))
    assert len(records) == len(items)
    for index, (record, (flag, body, properties)) in enumerate(zip(records, items, strict=True)):
        assert (record.flag, bytes(record.body), record.topic) == (flag, body, "Topic")
        assert (record.queue_id, record.queue_offset) == (2, 40 + index)
        assert record.physical_offset == place
        separator = b"\x02" if properties and suffix and properties[-1:] != b"\x02" else b""
        text = (properties + separator + suffix).decode()
        assert record.properties == names.decode(text)
        code = tag_hash(record.properties.get("TAGS", ""))
        assert entries[3 * index : 3 * index + 3] == [place, record.size, code]
        place += record.size
    return records


@given(
    st.lists(
        st.tuples(I32, st.binary(min_size=1, max_size=5000), PROPERTIES, st.booleans()),
        min_size=1,
        max_size=8,
    ),
    PROPERTIES,
    st.sampled_from([1000, 2000]),
)
def test_messages_of_any_lengths(
    messages: list[tuple[int, bytes, dict[str, str], bool]], suffix: dict[str, str], place: int
) -> None:
    items = []
    for flag, body, properties, trailing in messages:
        text = names.encode(properties)
        items.append((flag, body, (text if trailing else text[:-1]).encode()))
    check(items, names.encode(suffix).encode(), place)


@given(
    st.integers(1, 150),
    st.integers(1, 40),
    st.sampled_from(
        [
            b"",
            b"TAGS\x01tag\x02",
            b"UNIQ_KEY\x01#\x02TAGS\x01tag\x02",
            b"UNIQ_KEY\x01#\x02TAGS\x01tag#\x02",
            b"UNIQ_KEY\x01#\x02TAGS\x01tag",
            b"TAGS\x01old\x02k\x01#\x02TAGS\x01new\x02",
            b"xTAGS\x01#\x02KEYS\x01k\x02",
            b"TAGS\x01#",
        ]
    ),
    PROPERTIES,
    st.sampled_from([1000, 2000]),
    I32,
    st.booleans(),
)
def test_messages_of_one_length(
    count: int,
    length: int,
    properties: bytes,
    suffix: dict[str, str],
    place: int,
    flag: int,
    v6: bool,
) -> None:
    items = [
        (flag, bytes([n]) * length, properties.replace(b"#", b"%03d" % n)) for n in range(count)
    ]
    check(items, names.encode(suffix).encode(), place, v6)


def test_one_length_but_flags_of_their_own() -> None:
    check([(flag, b"body", b"") for flag in (0, 1, -1)])


@given(st.lists(st.sampled_from([b"a\x01b\x02", b"a\x01bc", b"TAGS\x01"]), min_size=1, max_size=5))
def test_one_length_but_not_one_way_to_end(properties: list[bytes]) -> None:
    check([(0, b"body", own.ljust(8, b"x")) for own in properties], b"more\x01value\x02")


def test_one_length_but_a_tag_that_only_some_have() -> None:
    first, second = b"k\x01v\x02TAGS\x01t\x02", b"k\x01v\x02TAGZ\x01t\x02"
    twice = b"k\x01\x02TAGS\x01t\x02"
    check([(0, b"b", first), (0, b"b", second)])
    check([(0, b"b", second), (0, b"b", first)])
    check([(0, b"b", first), (0, b"b", twice + b"\x02")])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 19, "19 bytes at byte 0"),
        (b"\0" * 22, "a message of 0 bytes"),
        (encode_batch([(0, b"body", b""), (0, b"", b"")]), "no body"),
        (encode_batch([(0, b"", b"k\x01v\x02")]), "no body"),
        (encode_batch([(0, b"body", b"")])[:-1], "26 bytes with a body of 4, 25 bytes are left"),
        (encode_batch([(0, b"body", b"k\x01v\x02")])[:25] + b"\x09" + b"k\x01v\x02", "add up"),
        (b"\0\0\0\0" + encode_batch([(0, b"body", b"")])[4:], "a message of 0 bytes"),
        (encode_batch([(0, b"body", b"")] * 2)[:-3], "23 bytes are left"),
        (encode_batch([(0, b"b", b"p" * 32_760)]), "properties of 32772 bytes"),
        (encode_batch([(0, b"b", b"p" * 32_760)] * 2), "properties of 32772 bytes"),
        (
            encode_batch([(0, b"bo", b"")]) + encode_batch([(0, b"b", b"pp")])[:-3] + b"\1pp",
            "add up",
        ),
    ],
)
def test_what_is_no_batch_is_refused(body: bytes, reason: str) -> None:
    for take in (take_apart, take_apart_compiled):
        with pytest.raises(BatchBodyError, match=reason):
            take(body, shared(b"more\x01value\x02"), 0, 0)
    assert take_apart_uniform(body, shared(b"more\x01value\x02"), 0) is None


@pytest.mark.parametrize("name", sorted(NOT_IN_BATCHES))
@pytest.mark.parametrize(
    "text", ["{}\x01v\x02", "k\x01v\x02{}\x01v", "{0}\x01\x02{0}\x01v\x02k\x01v"]
)
def test_a_property_that_no_message_of_a_batch_can_have(name: str, text: str) -> None:
    """Its sender is told, or it is removed; it is not stored."""
    fine, wrong = (0, b"body", b"k" * (len(text.format(name)) - 2) + b"\x01v"), text.format(name)
    body = encode_batch([fine] * 300 + [(0, b"body", wrong.encode())])
    for take in (take_apart, take_apart_compiled):
        with pytest.raises(ReservedInBatch):
            take(body, shared(), 0, 0)
    assert take_apart_uniform(body, shared(), 0) is None


@pytest.mark.parametrize(
    "properties",
    [
        b"xDELAY\x013",
        b"DELAYED\x013",
        b"k\x01DELAY",
        b"DELAY\x01\x02",
        b"INNER_MULTI_DISPATCH\x01q",
    ],
)
def test_a_property_that_only_looks_like_one_of_these(properties: bytes) -> None:
    check([(0, b"body", properties), (0, b"body", b"TAGS\x01a")])


@compiled_only
@given(
    st.lists(
        st.tuples(I32, st.binary(min_size=1, max_size=50), PROPERTIES), min_size=1, max_size=5
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([b"", b"TAGS\x01a\x02", b"k\x01v\x02"]),
)
def test_compiled_code_takes_no_broken_batch(
    messages: list[tuple[int, bytes, dict[str, str]]], chance: Random, suffix: bytes
) -> None:
    items = [(flag, body, names.encode(each).encode()) for flag, body, each in messages]
    body = broken(encode_batch(items), chance)
    try:
        expected = MixedBatch(body, shared(suffix), 40, 1000)
    except BatchBodyError as error:
        with pytest.raises(BatchBodyError, match=re.escape(str(error))):
            take_apart_compiled(body, shared(suffix), 40, 1000)
    else:
        found = take_apart_compiled(memoryview(body), shared(suffix), 40, 1000)
        assert not isinstance(found, MixedBatch)
        assert _encode(found, expected.count, 7) == _encode(expected, expected.count, 7)


@compiled_only
@pytest.mark.parametrize("at", [-1, 1, 10_000])
def test_compiled_code_writes_nothing_outside_of_the_buffer(at: int) -> None:
    batch = take_apart_compiled(encode_batch([(0, b"body", b"")]), shared(), 0, 0)
    with pytest.raises(ValueError, match="room"):
        batch.encode_into(bytearray(batch.size), at, 0)


def test_large_batches_of_one_length_are_stored_as_columns() -> None:
    numpy_loader.load().join()
    items = [(0, b"%04d" % n * 256, b"TAGS\x01tag\x02") for n in range(32)]
    assert isinstance(take_apart(encode_batch(items), shared(b""), 40, 1000), UniformBatch)
    assert not isinstance(take_apart(encode_batch(items[:3]), shared(b""), 40, 1000), UniformBatch)
    check(items)
    large = [(0, bytes(20_000), b"") for _ in range(2)]
    assert not isinstance(take_apart(encode_batch(large), shared(b""), 40, 1000), UniformBatch)


def test_more_tags_than_are_remembered() -> None:
    """A peer that sends ever new tags costs no memory, and every code is right."""
    for start in range(0, 5000, 500):
        check([(0, b"b", b"TAGS\x01tag%d\x02" % n) for n in range(start, start + 500)])
    assert len(known_tags) <= MOST_TAGS
