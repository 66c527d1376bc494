"""The bytes of classic HA; the golden ones were recorded between two official brokers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.replication.frames import (
    MOST_BODY,
    BadFrame,
    FrameReader,
    Head,
    ReportReader,
    decode_head,
    encode_head,
    encode_report,
)


def test_golden_bytes() -> None:
    assert encode_report(0) == bytes(8)
    assert encode_head(0, 0) == bytes(12)
    assert encode_head(1580, 5).hex() == "000000000000062c00000005"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.binary(max_size=50)), max_size=8),
    st.lists(st.integers(0, 1000)),
)
def test_frames_cut_anywhere(frames: list[tuple[int, bytes]], places: list[int]) -> None:
    data = b"".join(encode_head(offset, len(body)) + body for offset, body in frames)
    reader = FrameReader()
    heads: list[Head] = []
    bodies: list[bytes] = []
    for piece in cut(data, places):
        for found in reader.feed(memoryview(piece)):
            if isinstance(found, Head):
                heads.append(found)
                bodies.append(b"")
            else:
                bodies[-1] += found
    assert [(head.offset, body) for head, body in zip(heads, bodies, strict=True)] == frames


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.lists(st.integers(0, 1000)))
def test_of_several_reports_the_last_complete_one_counts(
    offsets: list[int], places: list[int]
) -> None:
    reader = ReportReader()
    data = b"".join(map(encode_report, offsets))
    last = None
    got = 0
    for piece in cut(data, places):
        got += len(piece)
        found = reader.feed(piece)
        if found is not None:
            last = found
            assert found == offsets[got // 8 - 1]
    assert last == offsets[-1]


@pytest.mark.parametrize("head", [(-1, 0), (0, -1), (0, MOST_BODY + 1)])
def test_impossible_heads(head: tuple[int, int]) -> None:
    with pytest.raises(BadFrame, match=str(head[1])):
        decode_head(encode_head(*head))


def test_a_negative_report() -> None:
    with pytest.raises(BadFrame, match="-5"):
        ReportReader().feed(encode_report(-5))
