"""What the accelerator finds out of thousands of records, against Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import record_layout as layout
from pocketmq.message.checksum import body_crc
from pocketmq.message.record_layout import MIN_RECORD
from pocketmq.store.log.record_blocks import (
    TopicNames,
    first_wrong_crc,
    first_wrong_crc_in_python,
    heads,
    heads_in_python,
    properties_begins,
    properties_begins_in_python,
    record_places,
    record_places_in_python,
    rows_with,
    rows_with_in_python,
    tags_codes,
    tags_codes_in_python,
    topic_numbers,
    topic_numbers_in_python,
)

entries = st.sampled_from(
    ["TAGS\x01a\x02", "TAGS\x01\x02", "TAGS\x01名\x02", "XTAGS\x01b\x02", "KEYS\x01TAGS\x01c\x02",
     "TAGS\x01", "TAGS", "\x02", "k\x01v\x02"]
)  # fmt: skip
tags = st.integers(0, 40).map(lambda n: f"TAGS\x01t{n}\x02")
texts = st.lists(entries | tags, max_size=4).map(lambda them: "".join(them).encode())


def joined(contents: list[bytes]) -> tuple[memoryview, np.ndarray, np.ndarray]:
    """Contents with gaps between them, and where they begin and end."""
    view = memoryview(b"".join(b"TAGS" + content for content in contents))
    ends = np.cumsum([4 + len(content) for content in contents], dtype=np.int64)
    return view, ends - [len(content) for content in contents], ends


@given(st.lists(texts | st.binary(max_size=12), min_size=1, max_size=60))
def test_tags_codes(contents: list[bytes]) -> None:
    view, begins, ends = joined(contents)
    found = tags_codes(view, begins, ends)
    assert found.tolist() == tags_codes_in_python(view, begins, ends).tolist()


@given(st.lists(texts | st.binary(max_size=12), min_size=1, max_size=60))
def test_rows_with_a_part(contents: list[bytes]) -> None:
    view, begins, ends = joined(contents)
    for part in (b"TAGS\x01", b"\x02", b"t1"):
        expected = [row for row, content in enumerate(contents) if part in content]
        assert rows_with(view, begins, ends, part).tolist() == expected
        assert rows_with_in_python(view, begins, ends, part).tolist() == expected


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20), st.data())
def test_the_first_wrong_crc(contents: list[bytes], data: st.DataObject) -> None:
    view, begins, ends = joined(contents)
    expected = np.array([body_crc(content) for content in contents], np.int32)
    wrong = data.draw(st.sets(st.integers(0, len(contents) - 1), max_size=3))
    expected[list(wrong)] ^= 1
    bad = [n for n in sorted(wrong) if contents[n]]
    arguments = view, begins, ends - begins, expected
    assert first_wrong_crc(*arguments) == (bad[0] if bad else len(contents))
    assert first_wrong_crc_in_python(*arguments) == first_wrong_crc(*arguments)


@given(st.lists(st.text(max_size=3).map(str.encode) | st.binary(max_size=3), min_size=1))
def test_numbers_of_topics(contents: list[bytes]) -> None:
    view, begins, ends = joined(contents)
    names, names_in_python = TopicNames(), TopicNames()
    found = topic_numbers(view, begins, ends - begins, names).tolist()
    expected = topic_numbers_in_python(view, begins, ends - begins, names_in_python).tolist()
    for content, number, number_in_python in zip(contents, found, expected, strict=True):
        if number_in_python < 0:
            assert number < 0
        else:
            assert names.names[number] == names_in_python.names[number_in_python]
            assert names.names[number].encode() == content


sizes = st.integers(MIN_RECORD, MIN_RECORD + 20) | st.sampled_from(
    [0, 1, MIN_RECORD - 1, -1, 2**31 - 1, -(2**31)]
)


@given(st.lists(sizes | st.just(MIN_RECORD + 7), max_size=40), st.integers(0, 3), st.data())
def test_places_of_records(wanted: list[int], at: int, data: st.DataObject) -> None:
    whole = [size.to_bytes(4, "big", signed=True) + bytes(min(size, 200) - 4) for size in wanted
             if size >= 4]  # fmt: skip
    view = memoryview(bytes(at) + b"".join(whole) + bytes(data.draw(st.integers(0, 120))))
    stop = data.draw(st.integers(0, len(view)))
    places, behind = record_places(view, at, stop, 64)
    expected, expected_behind = record_places_in_python(view, at, stop, 64)
    assert (places.tolist(), behind) == (expected.tolist(), expected_behind)


HOSTS = (bytes(8), bytes(20))


@st.composite
def encoded_records(draw: st.DrawFn) -> bytes:
    """Some records that follow each other from physical offset 1000 on, a few bytes of them
    changed."""
    whole = bytearray()
    for number in range(draw(st.integers(1, 6))):
        topic = b"t" * draw(st.integers(1, 4) | st.just(200))
        flags = draw(st.sampled_from((0, 16, 32, 48)))
        body = draw(st.binary(max_size=6))
        magic = layout.MAGIC_V2 if len(topic) > 127 else layout.MAGIC_V1
        properties = draw(texts)
        size = layout.record_size(
            len(body), len(topic), len(properties), flags, 2 if magic == layout.MAGIC_V2 else 1
        )
        content = bytearray(size)
        layout.encode_into(
            content, 0, size=size, magic=magic, body_crc=body_crc(body), queue_id=-number, flag=0,
            queue_offset=number << 33, physical_offset=1000 + len(whole), sys_flag=flags,
            born_timestamp=1, born_host=HOSTS[flags >> 4 & 1], store_timestamp=2,
            store_host=HOSTS[flags >> 5 & 1], reconsume_times=0, prepared_transaction_offset=0,
            body=body, topic=topic, properties=properties,
        )  # fmt: skip
        whole += content
    for _ in range(draw(st.integers(0, 2))):
        whole[draw(st.integers(0, len(whole) - 1))] = draw(st.integers(0, 255))
    return bytes(whole)


@given(encoded_records())
def test_heads_and_properties(content: bytes) -> None:
    view = memoryview(content)
    at, _ = record_places(view, 0, len(view), 64)
    found, expected = heads(view, 1000, at), heads_in_python(view, 1000, at)
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]
    good = at[: len(found.size)]
    begins = properties_begins(view, good).tolist()
    assert begins == properties_begins_in_python(view, good).tolist()
    assert begins == (found.topic + found.topic_length + 2).tolist()
