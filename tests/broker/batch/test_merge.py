"""The Batch-Protocol without a broker: taking parents apart, merging answers, both strategies."""

from __future__ import annotations

import contextlib
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.processors.batch import BaseStrategy, PullStrategy
from pocketmq.broker.processors.pull import COMMIT_OFFSET
from pocketmq.remoting.answers.batch import (
    MAX_CHILDREN,
    NOT_FOUND_REMARK,
    SUCCESS_REMARK,
    BatchError,
    Children,
    decode_answers,
)
from pocketmq.remoting.answers.batch_answers import BatchAnswers, is_heard
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import SerializeType, encode_command
from pocketmq.remoting.frames.splitter import MAX_FRAME
from pocketmq.remoting.headers import PullMessageRequestHeader, PullMessageResponseHeader
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response

DECODER = RequestDecoder({RequestCode.PULL_MESSAGE: PullMessageRequestHeader, 34: None})


def pull_frame(opaque: int, *, serialize_type: int = 0, **fields: Any) -> bytes:
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=opaque,
        queue_offset=fields.pop("queue_offset", 0),
        max_msg_nums=32,
        sys_flag=6,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )
    code = RequestCode.PULL_MESSAGE
    return encode_command(code, opaque, header=header, serialize_type=serialize_type, **fields)


def decoded(body: bytes) -> Children:
    children = Children(body, DECODER)
    for _ in children.decode():
        pass
    return children


def body_of(response: Response) -> bytes:
    assert not isinstance(response.body, bytes | bytearray | memoryview)
    return b"".join(response.body)


def answers_for(count: int, strategy: Any) -> tuple[BatchAnswers, list[Request[Any]]]:
    children = decoded(b"".join(pull_frame(n) for n in range(count)))
    return BatchAnswers(children, strategy), children.requests


def pull_strategy(**limits: int) -> tuple[PullStrategy, list[Request[Any]]]:
    released: list[Request[Any]] = []
    limits = {"enough_bytes": 1 << 22, "enough_messages": 10_000} | limits
    return PullStrategy(released.append, **limits), released


@given(
    st.dictionaries(
        st.integers(-(2**31), 2**31 - 1),
        st.tuples(st.integers(0, 400), st.none() | st.text(max_size=20), st.binary(max_size=50)),
        min_size=1,
        max_size=100,
    ),
    st.lists(st.sampled_from([0, 1]), min_size=100, max_size=100),
)
def test_merged_answers_read_back_by_opaque(
    wanted: dict[int, tuple[int, str | None, bytes]], kinds: list[int]
) -> None:
    frames = [
        pull_frame(opaque, serialize_type=kind) for opaque, kind in zip(wanted, kinds, strict=False)
    ]
    children = decoded(b"".join(frames))
    answers = BatchAnswers(children, BaseStrategy())
    for child in children.requests:
        code, remark, body = wanted[child.opaque]
        answers.respond(child, Response(code, remark, body=body))
    assert answers.executed()
    merged = answers.merge()
    assert (merged.code, merged.remark) == (ResponseCode.SUCCESS, SUCCESS_REMARK)
    read = decode_answers(body_of(merged))
    assert [c.serialize_type for c in read.values()] == kinds[: len(wanted)]
    assert {opaque: (c.code, c.remark or None, bytes(c.body)) for opaque, c in read.items()} == {
        opaque: (code, remark or None, body) for opaque, (code, remark, body) in wanted.items()
    }


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no child"),
        (b"\0\0", "behind the last child"),
        (pull_frame(1) + b"\0\0\0", "behind the last child"),
        (pull_frame(1)[:-1], "child frame of"),
        (b"\xff\xff\xff\xff" + pull_frame(1), "child frame of"),
        (b"\0\0\0\x01\0", "child frame of"),
        (pull_frame(1) + pull_frame(2) + pull_frame(1), "duplicated key 1"),
        (encode_command(34, 1, flag=1), "is an answer"),
        (b"\0\0\0\x08\x07\0\0\x04abcd", "unknown serialize type"),
        (b"\0\0\0\x06\0\0\0\x02{]", "child 1"),
        (b"".join(pull_frame(n) for n in range(MAX_CHILDREN + 1)), "more than 1000"),
    ],
)
def test_a_broken_parent_is_refused_whole(body: bytes, reason: str) -> None:
    with pytest.raises(BatchError, match=reason):
        decoded(body)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_parsed(body: bytes) -> None:
    for parse in (lambda: decoded(body), lambda: decode_answers(body)):
        with contextlib.suppress(BatchError):
            parse()


def test_a_child_that_lacks_a_field_fails_alone() -> None:
    broken = encode_command(RequestCode.PULL_MESSAGE, 7, ext_fields={"topic": "T"})
    children = decoded(pull_frame(1) + broken)
    answers = BatchAnswers(children, BaseStrategy())
    answers.respond(children.requests[0], Response())
    read = decode_answers(body_of(answers.merge()))
    assert read[1].code == ResponseCode.SUCCESS
    assert read[7].code == ResponseCode.SYSTEM_ERROR
    assert "PullMessageRequestHeader" in (read[7].remark or "")


def test_oneway_children_are_answered() -> None:
    children = decoded(pull_frame(1, flag=2))
    assert not children.requests[0].oneway


def test_base_waits_for_the_very_last_child() -> None:
    answers, children = answers_for(40, BaseStrategy())
    completed: list[int] = []
    answers.on_complete = lambda: completed.append(answers.waiting)
    for child in children[:20]:
        answers.respond(child, Response(body=b"early"))
    assert not answers.executed()
    for child in children[20:39]:
        answers.respond(child, Response(22))
    assert completed == []
    answers.respond(children[39], Response(22))
    assert completed == [0]
    read = decode_answers(body_of(answers.merge()))
    assert [read[n].code for n in range(40)] == [0] * 20 + [22] * 20


def test_pull_is_complete_as_soon_as_some_are_ready() -> None:
    strategy, released = pull_strategy()
    answers, children = answers_for(40, strategy)
    for child in children[:20]:
        answers.respond(child, Response(body=b"x"))
    assert answers.executed()
    read = decode_answers(body_of(answers.merge()))
    assert [read[n].code for n in range(40)] == [0] * 20 + [19] * 20
    assert {read[n].remark for n in range(20, 40)} == {NOT_FOUND_REMARK}
    assert not any(read[n].ext_fields for n in range(20, 40))
    assert released == children[20:]


@given(st.integers(0, 19))
def test_pull_waits_for_any_one(which: int) -> None:
    strategy, released = pull_strategy()
    answers, children = answers_for(20, strategy)
    completed: list[int] = []
    answers.on_complete = lambda: completed.append(answers.waiting)
    assert not answers.executed()
    answers.respond(children[which], Response(body=b"x"))
    assert completed == [19]
    read = decode_answers(body_of(answers.merge()))
    assert [read[n].code for n in range(20)] == [0 if n == which else 19 for n in range(20)]
    answers.respond(children[which - 1], Response(body=b"too late"))
    assert len(released) == 19


def test_pull_stops_at_enough_messages_or_bytes() -> None:
    strategy, _ = pull_strategy(enough_messages=64)
    answers, children = answers_for(4, strategy)
    answers.respond(children[0], Response(header=PullMessageResponseHeader(next_begin_offset=32)))
    assert not strategy.skips(answers, children[1])
    answers.respond(children[1], Response(header=PullMessageResponseHeader(next_begin_offset=32)))
    assert strategy.skips(answers, children[2])
    children[3].header.sys_flag |= COMMIT_OFFSET
    assert not strategy.skips(answers, children[3]), "its offset is to be stored"
    strategy, _ = pull_strategy(enough_bytes=1000)
    answers, children = answers_for(3, strategy)
    answers.respond(children[0], Response(body=bytes(1000)))
    assert strategy.skips(answers, children[1])


def test_pulls_begin_at_any_child_and_keep_their_order() -> None:
    """Not in turn: clients that ask in turn would get the same children each time."""
    strategy, _ = pull_strategy()
    _, children = answers_for(3, strategy)
    orders = [[child.opaque for child in strategy.order(children)] for _ in range(200)]
    assert {tuple(order) for order in orders} == {(0, 1, 2), (1, 2, 0), (2, 0, 1)}
    assert orders[3:] != orders[:-3]
    assert list(strategy.order([])) == []


def test_a_refused_child_is_an_answer_to_a_parent_of_pulls() -> None:
    strategy, _ = pull_strategy()
    broken = encode_command(RequestCode.PULL_MESSAGE, 7, ext_fields={"topic": "T"})
    answers = BatchAnswers(decoded(pull_frame(1) + broken), strategy)
    assert answers.executed()


def test_an_answer_that_does_not_fit_in_the_frame_is_an_error_for_its_child_only() -> None:
    answers, children = answers_for(3, BaseStrategy())
    for child, size in zip(children, (9 << 20, 9 << 20, 10), strict=True):
        answers.respond(child, Response(body=bytes(size)))
    read = decode_answers(body_of(answers.merge()))
    assert [read[n].code for n in range(3)] == [0, ResponseCode.SYSTEM_ERROR, 0]
    assert "does not fit" in (read[1].remark or "")


MEBI = 1 << 20


@given(
    st.lists(
        st.tuples(
            st.sampled_from([10, 1 * MEBI, 6 * MEBI, 9 * MEBI, MAX_FRAME, MAX_FRAME - 1100]),
            st.sampled_from([bytes, Response, None]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_answers_of_a_run_that_do_not_fit_are_errors_for_their_children_only(
    wanted: list[tuple[int, type | None]], late: bool
) -> None:
    answers, children = answers_for(len(wanted), BaseStrategy())
    run: list[Response | bytes | None] = []
    for child, (size, kind) in zip(children, wanted, strict=True):
        if kind is None:
            run.append(None)
        elif kind is Response:
            run.append(Response(body=bytes(size)))
        else:
            run.append(encode_command(0, child.opaque, flag=1, body=bytes(size)))
    answers.respond_all(children, run)
    assert answers.waiting == run.count(None)
    if late:
        for child, answer in zip(children, run, strict=True):
            if answer is None:
                answers.respond(child, Response(body=b"late"))
    merged = body_of(answers.merge())
    assert len(merged) <= MAX_FRAME - 1024
    read = decode_answers(merged)
    assert len(read) == len(wanted), "each has its answer"
    size = 0
    for n, (length, kind) in enumerate(wanted):
        if kind is not None and read[n].code == ResponseCode.SYSTEM_ERROR:
            assert "does not fit" in (read[n].remark or "")
            assert size + length > MAX_FRAME - 1024 - len(wanted) * 500
        elif kind is not None:
            assert len(read[n].body) == length
            size += length


def test_many_answers_that_do_not_fit_leave_room_to_say_so() -> None:
    answers, children = answers_for(1000, BaseStrategy())
    run = [encode_command(0, child.opaque, flag=1, body=bytes(20_000)) for child in children]
    answers.respond_all(children, run)
    read = decode_answers(body_of(answers.merge()))
    assert len(read) == 1000
    assert 780 < sum(1 for answer in read.values() if answer.code == 0) < 838


def test_who_hears_an_answer() -> None:
    strategy, _ = pull_strategy()
    answers, (one, other, third) = answers_for(3, strategy)
    connection: Any = SimpleNamespace(closed=False)
    for child in (one, other, third):
        child.connection = connection
    assert is_heard(one)
    answers.respond(one, Response())
    assert not is_heard(one), "it has its answer"
    assert is_heard(other)
    answers.respond(other, Response(body=bytes(MAX_FRAME - 3000)))
    assert not is_heard(third), "there is no room"
    answers, (one, other, third) = answers_for(3, strategy)
    for child in (one, other, third):
        child.connection = connection
    answers.merge_answered()
    assert not is_heard(one), "the answer has left"
    one.channel = connection
    assert is_heard(one)
    one.flag = 2
    assert not is_heard(one)
    one.flag = 0
    connection.closed = True
    assert not is_heard(one)


def test_messages_that_do_not_fit_in_the_frame_are_left_for_the_next_pull() -> None:
    strategy, _ = pull_strategy()
    answers, children = answers_for(2, strategy)
    for child in children:
        answers.respond(child, Response(body=[bytes(5 << 20), bytes(4 << 20)]))
    read = decode_answers(body_of(answers.merge()))
    assert [read[n].code for n in range(2)] == [0, ResponseCode.PULL_NOT_FOUND]


def test_an_answer_that_can_not_be_written_is_an_error_for_its_child_only() -> None:
    children = decoded(pull_frame(1) + pull_frame(2, serialize_type=1))
    answers = BatchAnswers(children, BaseStrategy())
    for child in children.requests:
        answers.respond(child, Response(200_000))  # beyond a binary header's 16 bits
    read = decode_answers(body_of(answers.merge()))
    assert [read[1].code, read[2].code] == [200_000, ResponseCode.SYSTEM_ERROR]


def test_a_body_that_is_none_is_an_error_for_its_child_only() -> None:
    answers, children = answers_for(2, BaseStrategy())
    answers.respond(children[0], Response(body=17))  # type: ignore[arg-type]
    answers.respond(children[1], Response())
    read = decode_answers(body_of(answers.merge()))
    assert [read[n].code for n in range(2)] == [ResponseCode.SYSTEM_ERROR, 0]


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_children_are_taken_apart_without_copies_of_those_behind_them(
    serialize_type: SerializeType,
) -> None:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0,
        commit_offset=0, suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    body = b"".join(
        encode_command(11, n, header=header, body=bytes(64 << 10), serialize_type=serialize_type)
        for n in range(100)
    )
    tracemalloc.start()
    try:
        children = decoded(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(children.requests) == 100
    assert peak < len(body) // 4


def test_children_with_long_headers_are_fewer() -> None:
    child = encode_command(4711, 0, ext_fields={"consumerGroup": "G" * (200 << 10)})
    with pytest.raises(BatchError, match=r"more than \d\d children"):
        decoded(child * 100)
    with pytest.raises(BatchError, match="more than 1 children"):
        decoded(encode_command(11, 0, ext_fields={"a": "G" * (5 << 20)}) * 2)


def test_parents_whose_decoding_alternates_share_no_limit() -> None:
    unusual = b"".join(
        encode_command(11, number, ext_fields={"x": "y" * 1000}) for number in range(100)
    )
    decoder = RequestDecoder({})
    parents = [Children(unusual, decoder) for _ in range(3)]
    steps = [each.decode() for each in parents]
    for each in steps:
        next(each)
    for each in steps:
        assert list(each) == []
    assert [len(each.requests) for each in parents] == [100] * 3
