"""Records of the revive log: their JSON, which is the official broker's, and their bits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.pop.check_point import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    AckMessage,
    BatchAckMessage,
    CheckPoint,
    CheckPointId,
    decode_revive_record,
    revive_topic,
    unique_key,
)
from pocketmq.remoting.errors import BodyError

# As an official broker 5.3.3 wrote them.
CHECK_POINT = (
    '{"bm":0,"bn":"b0","c":"G","d":[0,2],"it":60000,"n":2,"pt":1795371170369,"q":1,'
    '"reviveTime":1795371230369,"ro":0,"so":7,"t":"T"}'
)
ACK = '{"ao":9,"bn":"b0","c":"G","pt":1795371170369,"q":1,"so":7,"t":"T"}'
BATCH_ACK = '{"ao":-1,"aol":[7,9],"bn":"b0","c":"G","pt":1795371170369,"q":1,"so":7,"t":"T"}'
ID = CheckPointId("T", "G", 1, 7, 1795371170369)


def test_of_the_official_broker() -> None:
    point = decode_revive_record(CHECK_POINT_TAG, CHECK_POINT.encode())
    assert isinstance(point, CheckPoint)
    assert (point.id, point.revive_time) == (ID, 1795371230369)
    assert point.unacknowledged() == [7, 9]
    assert json.loads(point.encode()) == json.loads(CHECK_POINT)
    ack = decode_revive_record(ACK_TAG, ACK.encode())
    assert isinstance(ack, AckMessage)
    assert (ack.id, ack.offsets) == (ID, (9,))
    assert json.loads(ack.encode()) == json.loads(ACK)
    batch = decode_revive_record(BATCH_ACK_TAG, BATCH_ACK.encode())
    assert isinstance(batch, BatchAckMessage)
    assert (batch.id, batch.offsets) == (ID, [7, 9])
    assert json.loads(batch.encode()) == json.loads(BATCH_ACK)


def test_of_later_releases() -> None:
    for text, suspend in (("false", False), ("true", True)):
        written = CHECK_POINT.replace('"t":', f'"sp":{text},"t":')
        point = CheckPoint.decode(written.encode())
        assert point.suspend is suspend
        assert json.loads(point.encode()) == json.loads(written)


def test_other_records_mean_nothing_and_broken_ones_are_errors() -> None:
    assert decode_revive_record("other", b"{") is None
    with pytest.raises(BodyError):
        decode_revive_record(ACK_TAG, b"{")


def test_the_names() -> None:
    assert revive_topic("C0") == "rmq_sys_REVIVE_LOG_C0"
    point = CheckPoint.decode(CHECK_POINT.encode())
    assert unique_key(point, CHECK_POINT_TAG, "own") == "T@1@7@G@1795371170369@b0@ck"
    ack = AckMessage.decode(ACK.encode())
    assert unique_key(ack, ACK_TAG, "own") == "T@1@9@G@1795371170369@b0@ack"
    assert unique_key(AckMessage(topic="T", group="G"), ACK_TAG, "own") == "T@0@0@G@0@own@ack"


differences = st.lists(st.integers(0, 800), min_size=1, max_size=32, unique=True).map(sorted)


@given(st.integers(0, 2**40), differences, st.data())
def test_what_is_acknowledged_is_not_left(
    start: int, differences: list[int], data: st.DataObject
) -> None:
    offsets = [start + difference for difference in differences]
    acked = data.draw(st.sets(st.sampled_from(offsets)))
    point = CheckPoint(start_offset=start, num=len(offsets), differences=differences)
    for offset in acked:
        assert point.ack(offset)
    again = CheckPoint.decode(point.encode())
    assert again.unacknowledged() == [offset for offset in offsets if offset not in acked]
    assert not point.ack(offsets[-1] + 1)
    assert not point.ack(start - 1)


def test_of_old_releases_the_messages_lie_side_by_side() -> None:
    point = CheckPoint(start_offset=5, num=3)
    assert point.ack(6)
    assert point.unacknowledged() == [5, 7]
    assert not point.ack(8)


def test_a_negative_bit_map_is_that_of_a_full_int() -> None:
    point = CheckPoint(bit_map=-1, start_offset=5, num=32)
    assert point.unacknowledged() == []
