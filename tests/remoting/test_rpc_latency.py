"""The times of requests, and what a measured dispatcher answers: the same as any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.rpc_latency import RpcLatency

PULL = RequestCode.PULL_MESSAGE
SEND = RequestCode.SEND_MESSAGE_V2


class Time:
    """Seconds, and handlers that take some."""

    def __init__(self) -> None:
        self.now = 0.0
        self.latency = RpcLatency(lambda: self.now)
        self.dispatcher = Dispatcher()

    def serve(self, code: int, seconds: float, answer: Any) -> None:
        def handler(request: Request[Any]) -> Any:
            self.now += seconds
            if isinstance(answer, Exception):
                raise answer
            return answer

        def many(requests: Sequence[Request[Any]]) -> list[Any]:
            self.now += seconds
            return [answer] * len(requests)

        self.dispatcher.register(code, handler, many=many)

    def figures(self) -> list[tuple[str, str, str, int, float]]:
        return [
            (each.request_code, each.response_code, each.result, sum(each.buckets), each.seconds)
            for each in self.latency.figures()
        ]


class Channel:
    """Takes answers."""

    def __init__(self) -> None:
        self.answers: list[Response] = []

    def respond(self, request: Request[Any], response: Response) -> None:
        self.answers.append(response)


def request(code: int, *, oneway: bool = False) -> Request[Header]:
    return Request(code=code, header=Header(), flag=2 if oneway else 0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.mark.parametrize(
    ("answer", "code", "result"),
    [
        (b"frame", "success", "success"),
        (Response(ResponseCode.TOPIC_NOT_EXIST), "topic_not_exist", "success"),
        (RemotingError(ResponseCode.SYSTEM_BUSY, "busy"), "system_busy", "success"),
        (LookupError("bug"), "system_error", "process_request_failed"),
        (Response(999), "unknown", "success"),
    ],
)
def test_answers_are_counted_by_their_code(time: Time, answer: Any, code: str, result: str) -> None:
    time.serve(SEND, 0.002, answer)
    unmeasured = time.dispatcher.dispatch(request(SEND))
    time.dispatcher.measure(time.latency)
    assert time.dispatcher.dispatch(request(SEND)) == unmeasured
    assert time.figures() == [("send_message_v2", code, result, 1, 0.002)]
    (figure,) = time.latency.figures()
    assert figure.buckets == (0, 1, 0, 0, 0, 0, 0, 0, 0, 0)


def test_oneway_requests_say_so(time: Time) -> None:
    time.serve(SEND, 0.5, None)
    time.dispatcher.measure(time.latency)
    assert time.dispatcher.dispatch(request(SEND, oneway=True)) is None
    assert time.figures() == [("send_message_v2", "success", "oneway", 1, 0.5)]


@pytest.mark.parametrize(("code", "is_poll"), [(PULL, True), (SEND, False)])
def test_late_answers_are_measured_to_the_end(time: Time, code: int, is_poll: bool) -> None:
    time.serve(code, 0.001, None)
    time.dispatcher.measure(time.latency)
    late = request(code)
    channel = Channel()
    late.channel = channel  # type: ignore[assignment]
    assert time.dispatcher.dispatch(late) is None
    assert time.figures() == []
    time.now += 2
    answer = Response(ResponseCode.PULL_NOT_FOUND)
    late.reply(answer)
    assert channel.answers == [answer]
    (figure,) = time.latency.figures()
    assert (figure.response_code, figure.is_long_polling) == ("pull_not_found", is_poll)
    assert figure.seconds == pytest.approx(2.001)


async def test_awaited_answers_as_well(time: Time) -> None:
    async def answer(error: Exception | None) -> Response:
        time.now += 1
        if error is not None:
            raise error
        return Response()

    for code, error in ((1, None), (2, RemotingError(ResponseCode.SYSTEM_BUSY, "busy"))):
        time.serve(code, 0, answer(error))
    time.dispatcher.measure(time.latency)
    for code in (1, 2):
        awaitable: Any = time.dispatcher.dispatch(request(code))
        await awaitable
    assert [(code, took) for _, code, _, _, took in time.figures()] == [
        ("success", 1), ("system_busy", 1),
    ]  # fmt: skip


@pytest.mark.parametrize("answer", [b"frame", Response(ResponseCode.SYSTEM_BUSY)])
def test_many_requests_take_as_long_as_all_of_them(time: Time, answer: Any) -> None:
    time.serve(SEND, 0.004, answer)
    time.dispatcher.measure(time.latency)
    answers = time.dispatcher.dispatch_many([request(SEND)] * 3)
    assert answers == [answer] * 3
    ((_, _, _, count, seconds),) = time.figures()
    assert count == 3
    assert seconds == pytest.approx(0.012)


def test_codes_that_nobody_knows_are_one_series(time: Time) -> None:
    time.dispatcher.measure(time.latency)
    for code in range(6000, 6010):
        time.dispatcher.dispatch(request(code))
    assert time.figures() == [("unknown", "request_code_not_supported", "success", 10, 0)]


def test_listeners_hear_of_their_code(time: Time) -> None:
    heard: list[tuple[int, int, float]] = []
    time.latency = RpcLatency(
        lambda: time.now, {17: lambda request, answer, took: heard.append((17, answer, took))}
    )
    time.serve(17, 0.5, Response())
    time.serve(18, 0.5, Response())
    time.dispatcher.measure(time.latency)
    for code in (17, 18):
        time.dispatcher.dispatch(request(code))
    assert heard == [(17, 0, 0.5)]


def test_a_dispatcher_is_measured_once(time: Time) -> None:
    time.dispatcher.measure(time.latency)
    with pytest.raises(ValueError, match="already"):
        time.dispatcher.measure(time.latency)
