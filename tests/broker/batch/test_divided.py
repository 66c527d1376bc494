"""Parents that take long are divided: other requests are handled between their children."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.batch import BatchProcessor
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import TURN, LongRequests
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.store.writer import Put, Stored
from tests.broker.batch.batches import Child, batch, parent, send
from tests.broker.conftest import Client

SLOW = 1
TOGETHER = 2
COUNT = 20
OTHER = "another callback of the event loop"


class Divided:
    """A server whose requests of code SLOW take half a turn each, by a clock of their own; those
    of code TOGETHER are executed together."""

    def __init__(self, broker: Broker) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.together: list[int] = []
        self.begun = asyncio.Event()
        dispatcher = Dispatcher()
        dispatcher.register(SLOW, self.work)
        dispatcher.register(TOGETHER, self.work, many=self.work_together)
        holds = broker.components.pulls.holds
        long = LongRequests(clock=lambda: self.now)
        BatchProcessor(broker.config, dispatcher, holds, long).register(dispatcher)
        self.server = RemotingServer(dispatcher)

    def work(self, request: Request[Any]) -> Response:
        if not self.begun.is_set():
            asyncio.get_running_loop().call_soon(self.done.append, OTHER)
            self.begun.set()
        self.now += TURN / 2
        self.done.append(bytes(request.body).decode())
        return Response(body=request.body)

    def work_together(self, requests: Sequence[Request[Any]]) -> list[Response | bytes | None]:
        self.together.append(len(requests))
        return [self.work(request) for request in requests]


@pytest.fixture
async def divided(broker: Broker) -> AsyncIterator[Divided]:
    server = Divided(broker)
    await server.server.start()
    yield server
    await server.server.stop()


async def connect(divided: Divided) -> Client:
    client = Client()
    await client.open(f"127.0.0.1:{divided.server.port}")
    return client


def children(name: str) -> list[Child]:
    return [Child(SLOW, None, f"{name}{number}".encode()) for number in range(COUNT)]


def names(name: str) -> list[str]:
    return [f"{name}{number}" for number in range(COUNT)]


async def test_others_are_served_between_the_children(divided: Divided) -> None:
    client = await connect(divided)
    answers = await batch(client, children("a"), code=SLOW)
    assert [bytes(answer.body).decode() for answer in answers] == names("a")
    assert divided.done.index(OTHER) < COUNT
    await client.close()


async def test_large_children_that_are_executed_together_are_divided(divided: Divided) -> None:
    client = await connect(divided)
    bodies = [b"%d." % number + b"x" * 200_000 for number in range(COUNT)]
    sent = [Child(TOGETHER, None, body) for body in bodies]
    answers = await batch(client, sent, code=TOGETHER)
    assert [bytes(answer.body) for answer in answers] == bodies
    assert sum(divided.together) == COUNT > len(divided.together) > 1
    assert divided.done.index(OTHER) == divided.together[0]
    await client.close()


async def test_sends_that_have_to_wait_first_are_divided(
    broker: Broker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await batch(client, [send(topic)])
    together: list[int] = []
    put_many = broker.store.put_many

    def counted(puts: Sequence[Put], *, accepted: bool = False) -> list[Stored]:
        together.append(len(puts))
        return put_many(puts, accepted=accepted)

    monkeypatch.setattr(broker.store, "put_many", counted)
    delayed = {"TIMER_DELAY_SEC": "3000"}
    answers = await batch(client, [send(topic, properties=delayed) for _ in range(300)])
    assert {answer.code for answer in answers} == {0}
    assert broker.store.max_offset(TIMER_TOPIC, 0) == 300
    assert len(together) > 3
    assert max(together) < 100


async def test_parents_of_one_connection_keep_their_order(divided: Divided) -> None:
    client = await connect(divided)
    await asyncio.gather(*(batch(client, children(name), code=SLOW) for name in "abc"))
    divided.done.remove(OTHER)
    assert divided.done == names("a") + names("b") + names("c")
    await client.close()


async def test_a_parent_that_was_begun_is_executed_although_its_client_leaves(
    divided: Divided,
) -> None:
    client = await connect(divided)
    waiting = asyncio.create_task(parent(client, children("a"), code=SLOW))
    await divided.begun.wait()
    await client.close()
    await asyncio.gather(waiting, return_exceptions=True)
    await divided.server.stop()
    assert divided.done[-1] == names("a")[-1]
