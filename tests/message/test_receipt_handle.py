from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.receipt_handle import (
    ORDER_REVIVE_QUEUE,
    ReceiptHandle,
    ReceiptHandleError,
    decode_receipt_handle,
)
from pocketmq.message.retry_topic import TopicKind

OFFICIAL = "0 1795371170369 15000 0 0 b0 1 7"

handles = st.builds(
    ReceiptHandle,
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**40),
    st.integers(0, 999),
    st.sampled_from(TopicKind),
    st.text("abcXYZ019-_.", min_size=1),
    st.integers(0, 1000),
    st.integers(0, 2**62),
    st.integers(-1, 2**62),
)


@given(handles)
def test_a_handle_reads_back(handle: ReceiptHandle) -> None:
    assert decode_receipt_handle(handle.encode()) == handle


def test_of_the_official_broker_and_proxy() -> None:
    handle = decode_receipt_handle(OFFICIAL)
    assert handle == ReceiptHandle(0, 1795371170369, 15000, 0, TopicKind.NORMAL, "b0", 1, 7)
    assert handle.encode() == OFFICIAL
    assert handle.next_visible_time == 1795371185369
    assert decode_receipt_handle(OFFICIAL + " 241").physical_offset == 241


def test_the_topic_that_the_message_lies_in() -> None:
    handle = decode_receipt_handle(OFFICIAL)
    assert handle.stored_topic("T", "G") == "T"
    assert handle._replace(kind=TopicKind.RETRY_V1).stored_topic("T", "G") == "%RETRY%G_T"
    assert handle._replace(kind=TopicKind.RETRY_V2).stored_topic("T", "G") == "%RETRY%G+T"
    assert not handle.in_order
    assert handle._replace(revive_queue_id=ORDER_REVIVE_QUEUE).in_order


@pytest.mark.parametrize(
    "text", ["", "0 1", "a 1 2 0 0 b0 1 0", "0 1 2 0 3 b0 1 0", "0 1 2 0 0 b0 1"]
)
def test_other_texts(text: str) -> None:
    with pytest.raises(ReceiptHandleError, match="receipt handle"):
        decode_receipt_handle(text)
