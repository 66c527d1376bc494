"""The bytes of classic HA; the golden ones were recorded between two official brokers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.controller.ha_frames import Handshake, encode_handshake
from pocketmq.broker.replication.feed import Feed, LogSpan
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
from pocketmq.broker.replication.intake import Intake
from pocketmq.broker.replication.replica_waits import CopyStarts

RECORDED = Path(__file__).parents[2] / "data" / "replication" / "classic.json"
MIB = 1 << 20


def test_what_official_brokers_say_to_each_other() -> None:
    """Recorded by tests/interop/record_ha.py: an empty slave, heartbeats, a file border, and a
    connection that was cut."""
    recorded = json.loads(RECORDED.read_text())
    reports = [ReportReader().feed(bytes.fromhex(each["hex"])) for each in recorded["reports"]]
    heads = [decode_head(bytes.fromhex(head)) for head in recorded["heads"]]
    assert reports[0] == 0
    assert None not in reports
    assert reports == sorted(reports)  # type: ignore[type-var]
    assert any(head.size == 0 for head in heads)
    # Our master would send the same frames, had its log grown in the same way.
    timing = {"batch_size": 32 * 1024, "heartbeat_interval": 1.0, "housekeeping_interval": 20.0}
    feed = Feed(CopyStarts(), now=0.0, **timing)  # type: ignore[arg-type]
    feed.report(0, LogSpan(0, 0, MIB), 0.0)
    intake = Intake(MIB, heartbeat_interval=1.0, housekeeping_interval=20.0, now=0.0)
    own_end = 0
    for number, head in enumerate(heads, 1):
        end = head.offset + head.size
        assert feed.next_frame(LogSpan(0, end, MIB), 2.0 * number) == head
        intake.check(head, own_end, 2.0 * number)
        own_end = end
    assert own_end == reports[-1]
    assert own_end > MIB


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


@pytest.mark.parametrize("heard", [0, 8])
def test_the_handshake_of_a_controller_group_is_not_a_report(heard: int) -> None:
    reader, data = ReportReader(), encode_handshake(Handshake(2))
    reader.feed(data[:heard])
    with pytest.raises(BadFrame, match="enableControllerMode must be the same"):
        reader.feed(data[heard:])


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.lists(st.integers(0, 1000)))
def test_of_several_reports_the_last_complete_one_counts(
    offsets: list[int], places: list[int]
) -> None:
    reader = ReportReader()
    offsets.sort()
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
