from __future__ import annotations

import errno
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pocketmq.message.buffers import Buffer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError, TopicNotExist
from pocketmq.remoting.headers import GetRouteInfoRequestHeader, Header
from pocketmq.remoting.serving.dispatch import (
    MOST_UNSUPPORTED,
    Dispatcher,
    ExecutedRead,
    ReadGuard,
)
from pocketmq.remoting.serving.request import Request, RequestConnection, RequestDecoder, Response
from pocketmq.remoting.serving.rpc_latency import RpcLatency


def request(code: int) -> Request[Header]:
    return Request(code=code, header=Header())


def answer(dispatcher: Dispatcher, code: int) -> Response:
    result = dispatcher.dispatch(request(code))
    assert isinstance(result, Response)
    return result


@pytest.fixture
def dispatcher() -> Dispatcher:
    return Dispatcher()


def test_the_handler_of_the_code_answers(dispatcher: Dispatcher) -> None:
    dispatcher.register(1, lambda request: Response(remark=f"one {request.code}"))
    dispatcher.register(2, lambda request: None)
    assert answer(dispatcher, 1) == Response(remark="one 1")
    assert dispatcher.dispatch(request(2)) is None


def test_an_unknown_code_is_answered_as_the_reference_does(dispatcher: Dispatcher) -> None:
    refusal = answer(dispatcher, 666)
    assert (refusal.code, refusal.remark) == (3, " request type 666 not supported")


def test_answers_to_unknown_codes_are_kept_until_they_are_known(dispatcher: Dispatcher) -> None:
    for code in range(1000):
        assert answer(dispatcher, code).remark == f" request type {code} not supported"
    assert 0 < len(dispatcher.unsupported) <= MOST_UNSUPPORTED
    assert answer(dispatcher, 999) is answer(dispatcher, 999)
    dispatcher.register(999, lambda request: Response())
    assert answer(dispatcher, 999) == Response()
    assert 999 not in dispatcher.unsupported


def test_a_remoting_error_answers_its_code_and_remark(dispatcher: Dispatcher) -> None:
    def fail(request: Request[Any]) -> Response:
        raise TopicNotExist("no route of T") if request.code == 1 else RemotingError(604, "late")

    dispatcher.register(1, fail)
    dispatcher.register(2, fail)
    assert answer(dispatcher, 1) == Response(17, "no route of T")
    assert answer(dispatcher, 2) == Response(604, "late")


def test_any_other_error_is_a_system_error_whose_text_is_logged_only(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(request: Request[Any]) -> Response:
        if request.code == 2:
            raise OSError(errno.EIO, "Input/output error", "/store/of/another")
        raise LookupError("of another")

    dispatcher.register(1, fail)
    dispatcher.register(2, fail)
    log = "; the server's log has the details"
    with caplog.at_level(logging.ERROR):
        assert answer(dispatcher, 1) == Response(1, f"LookupError{log}")
        assert answer(dispatcher, 2) == Response(1, f"OSError: Input/output error{log}")
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert "of another" in caplog.messages[0]
    assert "/store/of/another" in caplog.messages[1]


@pytest.mark.parametrize("error", [TopicNotExist("gone"), ValueError("odd")])
async def test_an_awaitable_handler_fails_the_same_way(
    dispatcher: Dispatcher, error: Exception
) -> None:
    async def wait(request: Request[Any]) -> Response | None:
        if request.code == 1:
            raise error
        return Response(remark="late")

    dispatcher.register(1, wait)
    dispatcher.register(2, wait)
    for code, expected in ((1, None), (2, "late")):
        result = dispatcher.dispatch(request(code))
        assert inspect.isawaitable(result)
        response = await cast(Awaitable[Response], result)
        if expected is None:
            assert response.code == (17 if isinstance(error, TopicNotExist) else 1)
        else:
            assert response.remark == expected


def test_a_code_has_one_handler(dispatcher: Dispatcher) -> None:
    dispatcher.register(1, lambda request: None)
    with pytest.raises(ValueError, match="1 is served"):
        dispatcher.register(1, lambda request: None)


def test_the_tables_are_live_and_read_only(dispatcher: Dispatcher) -> None:
    codes, types = dispatcher.codes, dispatcher.header_types
    decoder = RequestDecoder(types)
    dispatcher.register(105, lambda request: None, GetRouteInfoRequestHeader)
    dispatcher.register(106, lambda request: None)
    assert list(codes) == [105, 106]
    assert dict(types) == {105: GetRouteInfoRequestHeader, 106: None}
    assert codes[105].header is GetRouteInfoRequestHeader
    frame = b'{"code":105,"extFields":{"topic":"T"}}'
    decoded = decoder.decode(len(frame).to_bytes(4, "big") + frame)
    assert decoded.header == GetRouteInfoRequestHeader(topic="T")
    with pytest.raises(TypeError):
        codes[1] = codes[105]  # type: ignore[index]


def a_read_handler(
    connection: RequestConnection,
    data: Buffer,
    start: int,
    most: int,
    longest: int,
    *,
    guard: ReadGuard | None = None,
) -> ExecutedRead | None:
    return ExecutedRead(len(data), b"answers", 1, 20) if data else None


def test_nothing_is_served_past_a_check_or_a_wrapper() -> None:
    watches: list[Callable[[Dispatcher], None]] = [
        lambda dispatcher: dispatcher.protect(lambda request: None),
        lambda dispatcher: dispatcher.wrap(1, lambda handler: handler),
    ]
    for watch in watches:
        dispatcher = Dispatcher()
        dispatcher.register(1, lambda request: None)
        dispatcher.register(2, lambda request: None)
        dispatcher.serve_reads(a_read_handler, (1,))
        dispatcher.wrap(2, lambda handler: handler)
        assert dispatcher.read_handler is a_read_handler
        watch(dispatcher)
        assert dispatcher.read_handler is None


@pytest.mark.parametrize("can", [False, True])
def test_reads_are_served_with_a_guard_that_can_check_them(
    can: bool, dispatcher: Dispatcher
) -> None:
    given = []

    def handler(*read: Any, guard: ReadGuard | None = None) -> None:
        given.append(guard)

    guard: Any = SimpleNamespace(guards_reads=lambda codes: can and codes == (1,))
    dispatcher.serve_reads(handler, (1,))
    dispatcher.protect(lambda request: None, guard)
    assert (dispatcher.read_handler is not None) is can
    if dispatcher.read_handler is not None:
        dispatcher.read_handler(cast(RequestConnection, None), b"", 0, 32, 100)
        assert given == [guard]


def test_a_dispatcher_that_is_protected_serves_no_reads(dispatcher: Dispatcher) -> None:
    dispatcher.protect(lambda request: None)
    dispatcher.serve_reads(a_read_handler, (1,))
    assert dispatcher.read_handler is None


def test_requests_that_are_served_from_reads_are_measured(dispatcher: Dispatcher) -> None:
    dispatcher.register(RequestCode.SEND_MESSAGE, lambda request: None)
    dispatcher.serve_reads(a_read_handler, (RequestCode.SEND_MESSAGE,))
    times = iter((1.0, 1.5, 2.0))
    latency = RpcLatency(lambda: next(times))
    dispatcher.measure(latency)
    handler = dispatcher.read_handler
    assert handler is not None
    connection = cast(RequestConnection, None)
    assert handler(connection, b"data", 0, 32, 100) == (4, b"answers", 1, 20, 0, 0)
    assert handler(connection, b"", 0, 32, 100) is None
    [measured] = latency.figures()
    assert sum(measured.buckets) == 20
    assert measured.seconds == pytest.approx(0.5 * 20)
