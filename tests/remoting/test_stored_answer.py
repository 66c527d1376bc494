"""The prepared answer to a stored message is what the general way gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.answers.stored_answer import StoredAnswer
from pocketmq.remoting.frames.frame import encode_response_frame
from pocketmq.remoting.headers import SendMessageResponseHeader

JSON_OR_BINARY = st.sampled_from([0, 1])
I32 = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)


@given(JSON_OR_BINARY, I32, OFFSETS, I32, OFFSETS, st.text(max_size=40), st.booleans())
def test_the_bytes_are_the_same(
    kind: int,
    opaque: int,
    physical: int,
    queue_id: int,
    offset: int,
    transaction_id: str,
    trace: bool,
) -> None:
    header = SendMessageResponseHeader(
        msg_id=f"7F00000100002A9F{physical:016X}",
        queue_id=queue_id,
        queue_offset=offset,
        transaction_id=transaction_id,
        trace_on=trace,
    )
    answer = StoredAnswer.of_message(bytes.fromhex("7F00000100002A9F"), trace)
    assert answer.encode(
        kind, opaque, physical, queue_id, offset, transaction_id
    ) == encode_response_frame(kind, opaque, 0, None, header)


@given(
    JSON_OR_BINARY, I32, st.lists(OFFSETS, min_size=1, max_size=5), I32, OFFSETS,
    st.text(max_size=40), st.booleans(),
)  # fmt: skip
def test_the_bytes_are_the_same_for_a_batch(
    kind: int,
    opaque: int,
    physicals: list[int],
    queue_id: int,
    offset: int,
    transaction_id: str,
    trace: bool,
) -> None:
    msg_ids = ",".join(f"7F00000100002A9F{physical:016X}" for physical in physicals)
    header = SendMessageResponseHeader(
        msg_id=msg_ids,
        queue_id=queue_id,
        queue_offset=offset,
        transaction_id=transaction_id,
        trace_on=trace,
    )
    ids = msg_ids.encode()
    answer = StoredAnswer.of_batch(trace)
    assert answer.encode(
        kind, opaque, ids, queue_id, offset, transaction_id
    ) == encode_response_frame(kind, opaque, 0, None, header)
