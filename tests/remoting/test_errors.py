from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.remoting import errors
from pocketmq.remoting.bodies.base import Body
from pocketmq.remoting.bodies.heartbeat import HeartbeatData
from pocketmq.remoting.bodies.pop import BatchAckMessageRequestBody
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody
from pocketmq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from pocketmq.remoting.errors import (
    FrameError,
    HeaderError,
    RemotingClosed,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    SystemBusy,
    TopicNotExist,
    error_for,
)
from pocketmq.remoting.headers import PullMessageRequestHeader
from pocketmq.remoting.serving.request import RequestDecoder

RETRIABLE = {17, 14, 1, 2, 16, 204, 205, 1500}


@pytest.mark.parametrize("code", list(ResponseCode))
def test_producers_retry_exactly_these_codes(code: int) -> None:
    error = error_for(code, "why", "broker-a")
    assert error.retriable == (code in RETRIABLE)
    assert (error.code, error.remark, error.broker) == (code, "why", "broker-a")


def test_no_answer_may_be_retried() -> None:
    for kind in (RemotingConnectError, RemotingTimeout, RemotingClosed):
        assert kind("10.0.0.1:10911").retriable
    assert not FrameError("").retriable


def test_one_class_per_code() -> None:
    classes = [
        cls
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.CodedError)
    ]
    assert len(classes) > 30
    for cls in (type(error_for(code)) for code in ResponseCode):
        assert issubclass(cls, RemotingError)
    assert type(error_for(17)) is TopicNotExist
    assert type(error_for(2)) is SystemBusy
    assert type(error_for(9999)) is RemotingError


def test_the_text_says_code_remark_and_broker() -> None:
    assert str(TopicNotExist("no T", "b0")) == "TOPIC_NOT_EXIST(17): no T [b0]"
    assert str(error_for(9999)) == "code 9999"


def test_errors_can_be_copied() -> None:
    for error in (TopicNotExist("no T", "b0"), RemotingError(9999, "odd", "b0")):
        other = copy.copy(error)
        assert type(other) is type(error)
        assert (other.code, other.remark, other.broker) == (error.code, error.remark, "b0")


def test_a_header_error_says_whom_to_answer() -> None:
    error = HeaderError("broken", opaque=3, flag=2, serialize_type=1)
    assert (error.code, error.opaque, error.flag, error.serialize_type) == (1, 3, 2, 1)


def test_numbers_of_the_reference() -> None:
    assert RequestCode(310).name == "SEND_MESSAGE_V2"
    assert RequestCode(200050).name == "POP_MESSAGE"
    assert RequestCode(666).name == "COMMON_BATCH_REQUEST"
    assert ResponseCode(21).name == "PULL_OFFSET_MOVED"
    assert [code.name for code in LanguageCode][9] == "GO"


class _Tracked(bytearray):
    """Bytes that can be seen to go."""


def _is_kept(text: bytes, read: Callable[[Any], object]) -> bool:
    """Tell whether bytes that cannot be read are kept, as by an error in a cycle with its
    traceback: a server collects garbage rarely, and the bytes of a frame are many."""
    collects = gc.isenabled()
    gc.disable()
    try:
        data = _Tracked(text)
        kept = weakref.ref(data)
        with contextlib.suppress(RemotingError):
            read(memoryview(data))
            pytest.fail("it could be read")
        del data
        return kept() is not None
    finally:
        if collects:
            gc.enable()


@pytest.mark.parametrize("kind", [HeartbeatData, LockBatchRequestBody, BatchAckMessageRequestBody])
@pytest.mark.parametrize(
    "text", [b"[" * 5000, b"[]", b'{"x":', b"\xff", b'{"acks":1,"consumerDataSet":1,"mqSet":1}']
)
def test_a_body_that_cannot_be_read_is_not_kept(kind: type[Body], text: bytes) -> None:
    assert not _is_kept(text, kind.decode)


@pytest.mark.parametrize(
    "head",
    [
        b'{"code":11,"opaque":1,"extFields":{"topic":"T"}}',
        b'{"code":11,"opaque":1,"extFields":{"topic":["T"]}}',
        b'{"opaque":1,"code":11,"extFields":{"queueId":"x"}}',
        b'{"opaque":1,"code":',
    ],
)
def test_a_request_whose_header_cannot_be_read_is_not_kept(head: bytes) -> None:
    decoder = RequestDecoder({11: PullMessageRequestHeader})
    assert not _is_kept(len(head).to_bytes(4, "big") + head + b"body", decoder.decode)
