"""Offsets of streams as they lie in Spark's checkpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.store.scan.stream_offsets import (
    Mark,
    OffsetsError,
    Position,
    StreamQueue,
    from_json,
    offsets_of,
    to_json,
)

QUEUES = st.builds(StreamQueue, st.text(max_size=3), st.text(max_size=3), st.integers(0, 2**31))
NUMBERS = st.integers(0, 2**62)
MARKED = st.builds(
    lambda before, mark: Position(mark.offset + 1 + before, mark),
    NUMBERS,
    st.builds(Mark, NUMBERS, NUMBERS, NUMBERS),
)
POSITIONS = st.dictionaries(QUEUES, MARKED | NUMBERS.map(Position), max_size=20)


@given(POSITIONS, st.randoms())
def test_the_same_positions_make_the_same_text(
    positions: dict[StreamQueue, Position], random: Any
) -> None:
    items = list(positions.items())
    random.shuffle(items)
    text = json.dumps(to_json(dict(items)))
    assert text == json.dumps(to_json(positions))
    assert from_json(json.loads(text)) == positions
    assert offsets_of(json.loads(text)) == {queue: at.offset for queue, at in positions.items()}


def test_the_form() -> None:
    queues = [StreamQueue("orders", "broker-a", number) for number in (10, 9, 0)]
    positions = [Position(33), Position(32, Mark(31, 8192, 7)), Position(23)]
    nested = to_json(dict(zip(queues, positions, strict=True)))
    expected = '{"orders": {"broker-a": {"0": 23, "9": [32, 31, 8192, 7], "10": 33}}}'
    assert json.dumps(nested) == expected


@pytest.mark.parametrize(
    "nested",
    [
        7,
        [],
        {"orders": 3},
        {"orders": {"0": 3}},
        {"o": {"b": {"x": 1}}},
        *(
            {"o": {"b": {"0": odd}}}
            for odd in (-1, [3], [3, 2, 1], [3, 2, 1, -1], [3, 4, 1, 1], 1.5)
        ),
    ],
)
def test_offsets_of_another_source(nested: Any) -> None:
    with pytest.raises(OffsetsError, match="Does the checkpoint belong to another source"):
        from_json(nested)
