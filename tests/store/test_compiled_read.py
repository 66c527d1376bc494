"""What the accelerator reads of a queue, against the same in Python."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.record_layout import HEAD_SIZE
from pocketmq.message.sysflag import BORN_HOST_V6
from pocketmq.store.encoding.queue_entry import CONSUME_QUEUE_UNIT, iter_entries
from pocketmq.store.encoding.record_encoder import TopicField, head_size
from tests.store.made_store import V4, MadeStore

_compiled_read = pytest.importorskip("pocketmq.store._compiled_read", reason="make accelerator")

V6 = V4 + bytes(12)
HEAD = Struct(">iI4xi4xqqi")
TOPICS = ["T", "a topic of more than a few characters", "t" * 200]

#: Messages, their bytes, where the last one ends, and slices of them or one copy.
Read = tuple[int, int, int, list[bytes | memoryview]] | None


class Written(NamedTuple):
    """A log that begins at `base`, and the entries of one queue from `first` on."""

    log: bytes
    base: int
    entries: bytes
    first: int
    topic: TopicField
    queue_id: int


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Some messages lie side by side, others do not."""
    store = MadeStore(Path("unused"), segment_size=1 << 20)
    topic, queue_id = draw(st.sampled_from(TOPICS)), draw(st.integers(0, 3))
    shapes = st.tuples(st.integers(0, 300), st.booleans(), st.sampled_from([0, 0, BORN_HOST_V6]))
    for length, apart, flag in draw(st.lists(shapes, min_size=1, max_size=12)):
        host = V6 if flag else V4
        store.put(topic, queue_id, bytes(length), {"a": "b"}, sys_flag=flag, born_host=host)
        if apart:
            store.put("other", 0, b"?" * (length % 7))
    entries = bytes(store.entries[topic, queue_id])
    first = draw(st.integers(0, len(entries) // CONSUME_QUEUE_UNIT - 1))
    entries = entries[first * CONSUME_QUEUE_UNIT :]
    base = draw(st.sampled_from([0, next(iter_entries(entries))[0]]))
    return Written(bytes(store.log[base:]), base, entries, first, TopicField.of(topic), queue_id)


def compiled(one: Written, most_bytes: int, small: int) -> Read:
    magic, topic, _ = one.topic
    found: Read = _compiled_read.read_together(
        one.entries,
        memoryview(one.log),
        one.base,
        one.first,
        one.queue_id,
        magic,
        topic,
        most_bytes,
        small,
    )
    return found


def in_python(one: Written, most_bytes: int, small: int) -> Read:
    records: list[bytes] = []
    places: list[tuple[int, int]] = []
    for physical, size, _ in iter_entries(one.entries):
        at = physical - one.base
        if not 0 <= at <= len(one.log) - size or size < HEAD_SIZE:
            return None
        if records and sum(map(len, records)) + size > most_bytes:
            break
        records.append(one.log[at : at + size])
        places.append((at, at + size))
    for number, (record, place) in enumerate(zip(records, places, strict=True)):
        *head, flag = HEAD.unpack_from(record)
        expected = len(record), one.topic.magic, one.queue_id, one.first + number
        if tuple(head) != (*expected, one.base + place[0]):
            return None
        body = head_size(flag)
        length = int.from_bytes(record[body - 4 : body])
        topic = record[body + length :][: len(one.topic.encoded)]
        is_whole = body + length + len(topic) + 2 <= len(record)
        if number in (0, len(records) - 1) and not (is_whole and topic == one.topic.encoded):
            return None
    gaps = [(end, at) for (_, end), (at, _) in pairwise(places) if at != end]
    borders = [places[0][0], *chain.from_iterable(gaps), places[-1][1]]
    slices: list[bytes | memoryview]
    slices = [one.log[at:end] for at, end in zip(borders[::2], borders[1::2], strict=True)]
    total = sum(map(len, records))
    if len(slices) > 1 and total < small * len(slices):
        slices = [b"".join(records)]
    return len(records), total, places[-1][1], slices


bounds = st.integers(0, 4000), st.sampled_from([0, 200, 8192])


@given(written(), *bounds)
def test_messages_are_the_same(one: Written, most_bytes: int, small: int) -> None:
    found = compiled(one, most_bytes, small)
    assert found is not None
    assert found == in_python(one, most_bytes, small)


@given(written(), *bounds, st.data())
def test_so_are_those_of_damaged_files(
    one: Written, most_bytes: int, small: int, data: st.DataObject
) -> None:
    log, entries = bytearray(one.log), bytearray(one.entries)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged = data.draw(st.sampled_from([log, entries]))
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(log)) | st.just(len(log)))
    one = one._replace(log=bytes(log[:cut]), entries=bytes(entries))
    assert compiled(one, most_bytes, small) == in_python(one, most_bytes, small)


def test_there_may_be_nothing_to_read() -> None:
    topic = TopicField.of("T")
    assert compiled(Written(b"", 0, b"", 0, topic, 0), 100, 100) is None
    assert compiled(Written(b"", 0, bytes(19), 0, topic, 0), 100, 100) is None
    assert compiled(Written(b"", 0, bytes(20), 0, topic, 0), 100, 100) is None
