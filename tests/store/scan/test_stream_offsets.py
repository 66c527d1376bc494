"""Offsets of streams as they lie in Spark's checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.scan.stream_offsets import OffsetsError, StreamQueue, from_json, to_json

QUEUES = st.builds(StreamQueue, st.text(max_size=3), st.text(max_size=3), st.integers(0, 2**31))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**62), max_size=20)


@given(OFFSETS, st.randoms())
def test_the_same_offsets_make_the_same_text(offsets: dict[StreamQueue, int], random: Any) -> None:
    items = list(offsets.items())
    random.shuffle(items)
    text = json.dumps(to_json(dict(items)))
    assert text == json.dumps(to_json(offsets))
    assert from_json(json.loads(text)) == offsets


def test_the_form() -> None:
    offsets = {StreamQueue("orders", "broker-a", queue): 23 + queue for queue in (10, 9, 0)}
    nested = to_json(offsets)
    assert json.dumps(nested) == '{"orders": {"broker-a": {"0": 23, "9": 32, "10": 33}}}'


@pytest.mark.parametrize(
    "nested",
    [7, [], {"orders": 3}, {"orders": {"0": 3}}, {"o": {"b": {"x": 1}}}, {"o": {"b": {"0": -1}}}],
)
def test_offsets_of_another_source(nested: Any) -> None:
    with pytest.raises(OffsetsError, match="Is the checkpoint that of another source"):
        from_json(nested)
