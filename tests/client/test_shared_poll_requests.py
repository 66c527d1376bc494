"""Long polls that share a parent, when something is wrong with one or with the parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from pocketmq.client.batch_protocol import BatchProtocol
from pocketmq.client.consumer.fetch.shared_polls import SharedPolls
from pocketmq.remoting.answers.batch import child_frames
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import EncodeError
from pocketmq.remoting.frames.frame import Command, decode_command, encode_response_frame
from pocketmq.remoting.headers.admin import BatchRequestHeader
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeBroker, FakeServer

FOUND = "found"


class Broker(FakeServer):
    """Has a message for every poll; refuses parents of more than `most` children."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 1000
        self.sizes: list[int] = []
        self.refusing: Callable[[], object] = lambda: None
        self.on(
            RequestCode.PULL_MESSAGE,
            lambda request: FakeBroker.pulled(ResponseCode.SUCCESS, 1, 1),
            PullMessageRequestHeader,
        )
        self.on(RequestCode.COMMON_BATCH_REQUEST, self._parent, BatchRequestHeader)

    def _parent(self, request: Request[BatchRequestHeader]) -> Response:
        children = [decode_command(frame) for frame in child_frames(request.body)]
        self.sizes.append(len(children))
        if len(children) > self.most:
            self.refusing()
            remark = f"system error in processor: more than {self.most} children"
            return Response(ResponseCode.SYSTEM_ERROR, remark)
        return Response(body=[encode_response_frame(0, c.opaque, 0, FOUND) for c in children])


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    server = Broker()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def gatherer() -> AsyncIterator[SharedPolls]:
    async with ConnectionPool() as pool:
        yield SharedPolls(pool, BatchProtocol(pool), 1.0, 15.0)


def poll(queue_id: int, subscription: str = "*") -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=queue_id,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=6,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=subscription,
        expression_type="TAG",
    )


async def pull(
    gatherer: SharedPolls, broker: Broker, *polls: PullMessageRequestHeader
) -> list[Command | BaseException]:
    async with asyncio.timeout(10):
        return await asyncio.gather(
            *(gatherer.pull(broker.address, each) for each in polls), return_exceptions=True
        )


@pytest.mark.parametrize("bad", [0, 1, 2])
async def test_a_poll_that_can_not_be_written_fails_alone(
    gatherer: SharedPolls, broker: Broker, bad: int
) -> None:
    answers = await pull(
        gatherer, broker, *(poll(n, "\ud800" if n == bad else "*") for n in range(3))
    )
    assert isinstance(answers.pop(bad), EncodeError)
    assert [answer.remark for answer in answers if isinstance(answer, Command)] == [FOUND] * 2
    assert broker.sizes == [2]


async def test_polls_that_can_all_not_be_written(gatherer: SharedPolls, broker: Broker) -> None:
    answers = await pull(gatherer, broker, poll(0, "\ud800"), poll(1, "\ud800"))
    assert all(isinstance(answer, EncodeError) for answer in answers)
    assert not broker.seen


@pytest.mark.parametrize(
    ("most", "first", "then"), [(4, [10, 4, 4, 2], [4, 4, 2]), (1, [10], []), (0, [10], [])]
)
async def test_a_broker_that_takes_fewer_children(
    gatherer: SharedPolls, broker: Broker, most: int, first: list[int], then: list[int]
) -> None:
    broker.most = most
    for sizes in (first, then):
        broker.sizes.clear()
        answers = await pull(gatherer, broker, *(poll(n) for n in range(10)))
        assert [answer.code for answer in answers if isinstance(answer, Command)] == [0] * 10
        assert broker.sizes == sizes
    assert broker.seen[RequestCode.PULL_MESSAGE] == (0 if most > 1 else 20)


@pytest.mark.parametrize("most", [3, 1])
async def test_who_gave_up_is_not_asked_for_again(
    gatherer: SharedPolls, broker: Broker, most: int
) -> None:
    """By a queue that was given up, say, while the broker refused its parent."""
    broker.most = most
    polls = [asyncio.create_task(gatherer.pull(broker.address, poll(n))) for n in range(4)]
    broker.refusing = polls[1].cancel
    answers = await asyncio.gather(*polls, return_exceptions=True)
    assert isinstance(answers.pop(1), asyncio.CancelledError)
    assert [answer.code for answer in answers if isinstance(answer, Command)] == [0] * 3
    assert broker.sizes == ([4, 3] if most == 3 else [4])
    assert broker.seen[RequestCode.PULL_MESSAGE] == (0 if most == 3 else 3)
