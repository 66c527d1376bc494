"""Children that become tasks, as singles may: as many per connection, and none beyond the server's
end. And children whose execution fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.batch import BatchProcessor, PullStrategy
from pocketmq.remoting.answers.batch import decode_answers
from pocketmq.remoting.answers.batch_answers import BatchAnswers
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingClosed
from pocketmq.remoting.headers import GetMaxOffsetRequestHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import TURN, LongRequests
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer
from tests.broker.batch.batches import Child, batch, held, parent, pull, send
from tests.broker.conftest import Client, Connect, StartBroker, serving

QUICK, SLOW = 1, 2
LIMIT = 5
OK, BUSY = ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY


class Slow:
    """A server whose requests of code SLOW wait, as children and alone; LIMIT of them at once.

    `step` is how long each step of a parent seems to take, as a multiple of `TURN`.
    """

    def __init__(self, broker: Broker, step: float = 0.0) -> None:
        now = count(0.0, step * TURN)
        self.begun = 0
        self.ended = 0
        self.enough = asyncio.Event()
        self.go_on = asyncio.Event()
        dispatcher = Dispatcher()
        dispatcher.register(QUICK, lambda request: Response())
        dispatcher.register(SLOW, self.wait)
        holds = broker.components.pulls.holds
        long = LongRequests(clock=lambda: next(now))
        BatchProcessor(broker.config, dispatcher, holds, long).register(dispatcher)
        self.server = RemotingServer(dispatcher, max_tasks=LIMIT)
        self.client = Client()

    async def open(self) -> None:
        await self.server.start()
        await self.client.open(f"127.0.0.1:{self.server.port}")

    async def wait(self, request: Request[Any]) -> Response:
        self.begun += 1
        if self.begun == LIMIT:
            self.enough.set()
        try:
            await self.go_on.wait()
        finally:
            self.ended += 1
        return Response()

    async def codes(self, children: list[Child], code: int = SLOW) -> list[int]:
        return [answer.code for answer in await batch(self.client, children, code=code)]


@pytest.fixture
async def slow(broker: Broker) -> AsyncIterator[Slow]:
    server = Slow(broker)
    await server.open()
    yield server
    await server.client.close()
    server.go_on.set()
    await server.server.stop()


async def test_a_parent_that_is_divided_has_as_many_tasks(broker: Broker) -> None:
    slow = Slow(broker, step=1.0)
    await slow.open()
    task = asyncio.create_task(slow.codes([Child(SLOW)] * (LIMIT + 3)))
    await slow.enough.wait()
    slow.go_on.set()
    assert await task == [OK] * LIMIT + [BUSY] * 3
    assert slow.begun == LIMIT
    assert await slow.codes([Child(SLOW)] * LIMIT) == [OK] * LIMIT
    await slow.client.close()
    await slow.server.stop()


async def test_children_above_the_limit_of_tasks_are_refused(slow: Slow) -> None:
    task = asyncio.create_task(slow.codes([Child(SLOW)] * (LIMIT + 3)))
    await slow.enough.wait()
    assert len(slow.server.tasks) == LIMIT
    # As long as they run, nothing else of this connection does.
    assert (await parent(slow.client, [Child(SLOW)])).code == BUSY
    assert (await slow.client.request(QUICK)).code == BUSY
    slow.go_on.set()
    assert await task == [OK] * LIMIT + [BUSY] * 3
    assert slow.begun == LIMIT
    assert await slow.codes([Child(SLOW)] * LIMIT) == [OK] * LIMIT
    assert (await slow.client.request(QUICK)).code == OK


async def test_parents_of_one_read_share_the_limit(slow: Slow) -> None:
    tasks = [asyncio.create_task(parent(slow.client, [Child(SLOW)] * 3)) for _ in range(3)]
    await slow.enough.wait()
    slow.go_on.set()
    answers = await asyncio.gather(*tasks)
    assert [answer.code for answer in answers] == [OK, OK, BUSY]
    codes = [child.code for child in decode_answers(answers[1].body).values()]
    assert sorted(codes) == [OK, OK, BUSY]


async def test_single_requests_and_children_share_the_limit(slow: Slow) -> None:
    single = [asyncio.create_task(slow.client.request(SLOW)) for _ in range(LIMIT - 1)]
    task = asyncio.create_task(slow.codes([Child(SLOW)] * 2))
    await slow.enough.wait()
    slow.go_on.set()
    assert await task == [OK, BUSY]
    assert {answer.code for answer in await asyncio.gather(*single)} == {OK}


async def test_the_servers_stop_ends_the_tasks_of_children(slow: Slow) -> None:
    task = asyncio.create_task(slow.codes([Child(SLOW)] * LIMIT))
    await slow.enough.wait()
    await slow.server.stop()
    assert slow.ended == LIMIT
    with pytest.raises(RemotingClosed):
        await task


async def test_sends_that_create_topics_are_bounded_too(broker: Broker, topic: str) -> None:
    """Runs end where a child becomes a task."""
    children = [send(topic), send("New_1"), send(topic), send("New_2"), send(topic), send("New_3")]
    async with serving(broker.dispatcher, broker, max_tasks=2) as client:
        await client.send(topic)
        answers = await batch(client, children)
    assert [answer.code for answer in answers] == [OK, OK, OK, OK, BUSY, BUSY]
    assert broker.tables.topics.get("New_3") is None


# What fails in a way that nobody thought of


async def test_a_foreign_child_where_there_is_enough_already(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(batch_pull_enough_messages=1)
    client = await connect(broker)
    await batch(client, [send("A"), send("B")])
    foreign = Child(30, GetMaxOffsetRequestHeader(topic="A", queue_id=0))
    for _ in range(10):  # they begin anywhere
        answers = await batch(client, [pull("B", 1, hold=60_000), pull("A"), foreign], code=11)
        assert [answer.code for answer in answers] == [19, 0, 1]
        assert "request code 30 in a batch of 11" in (answers[2].remark or "")
        assert held(broker) == 0


@pytest.mark.parametrize("omit", [True, None])
async def test_an_unforeseen_failure_is_its_childs_own(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, omit: bool | None
) -> None:
    await batch(client, [send("A"), send("B")])

    def broken(self: PullStrategy, answers: BatchAnswers, child: Request[Any]) -> bool:
        return 1 // (child.opaque - 101) > 1

    monkeypatch.setattr(PullStrategy, "skips", broken)
    monkeypatch.setattr(PullStrategy, "order", lambda self, children: children)
    children = [pull("B", 1, hold=60_000), pull("A", 1), pull("A", 1)]
    answer = await parent(client, children, omit=omit)
    answers = decode_answers(answer.body)
    assert {opaque: a.code for opaque, a in answers.items()} == {
        101: ResponseCode.SYSTEM_ERROR,
        102: ResponseCode.PULL_NOT_FOUND,
    } | ({} if omit else {100: ResponseCode.PULL_NOT_FOUND})
    assert "ZeroDivisionError" in (answers[101].remark or "")
    async with asyncio.timeout(10):
        while held(broker):  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.01)


async def test_a_refused_header_ends_the_wait(broker: Broker, client: Client) -> None:
    await batch(client, [send("A")])
    broken = Child(11, None, b"", {"topic": "A"})
    answers = await batch(client, [pull("A", 1, hold=60_000), broken], code=11, timeout=10)
    assert [answer.code for answer in answers] == [19, 1]
    assert "PullMessageRequestHeader" in (answers[1].remark or "")
    assert held(broker) == 0
    answer = await parent(client, [pull("A", 1, hold=60_000), broken], code=11, omit=True)
    assert list(decode_answers(answer.body)) == [101]
