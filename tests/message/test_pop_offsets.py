from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.pop_offsets import (
    PopOffsetsError,
    QueueKey,
    message_count_entry,
    message_offset_entry,
    parse_message_offsets,
    parse_order_counts,
    parse_start_offsets,
    queue_count_entry,
    start_offset_entry,
)
from pocketmq.message.retry_topic import TopicKind

keys = st.builds(QueueKey, st.sampled_from(TopicKind), st.integers(0, 99))
offsets = st.lists(st.integers(0, 2**62), min_size=1, max_size=32)


@given(st.dictionaries(keys, offsets, max_size=5))
def test_offsets_read_back(table: dict[QueueKey, list[int]]) -> None:
    starts = ";".join(start_offset_entry(*key, some[0]) for key, some in table.items())
    assert parse_start_offsets(starts) == {key: some[0] for key, some in table.items()}
    text = ";".join(message_offset_entry(*key, some) for key, some in table.items())
    assert parse_message_offsets(text) == table


@given(st.dictionaries(keys, offsets, max_size=5), st.integers(0, 99))
def test_counts_read_back(table: dict[QueueKey, list[int]], count: int) -> None:
    entries = []
    for (kind, queue_id), some in table.items():
        entries += [message_count_entry(kind, queue_id, offset, count) for offset in some]
        entries.append(queue_count_entry(kind, queue_id, count))
    counts = parse_order_counts(";".join(entries))
    assert counts.queues == dict.fromkeys(table, count)
    assert counts.messages == {
        (kind, queue_id, offset): count
        for (kind, queue_id), some in table.items()
        for offset in some
    }


def test_as_the_official_broker_writes_them() -> None:
    assert start_offset_entry(TopicKind.NORMAL, 2, 7) == "0 2 7"
    assert message_offset_entry(TopicKind.RETRY_V1, 0, [7, 9]) == "1 0 7,9"
    assert message_count_entry(TopicKind.NORMAL, 2, 7, 1) == "0 qo2%7 1"
    assert queue_count_entry(TopicKind.NORMAL, 2, 0) == "0 2 0"
    assert parse_start_offsets(None) == parse_start_offsets("") == {}


@pytest.mark.parametrize("text", ["0 1", "9 1 2", "0 x 2", "0 1 x", ";", "0 1 2;"])
def test_other_texts(text: str) -> None:
    with pytest.raises(PopOffsetsError):
        parse_start_offsets(text)
