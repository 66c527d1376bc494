"""Parents that take long are divided: other requests are handled between their children."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.batch import BatchProcessor
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import TURN, LongRequests
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.remoting.serving.server import RemotingServer
from tests.broker.batch.batches import Child, batch, parent
from tests.broker.conftest import Client

SLOW = 1
COUNT = 20
OTHER = "another callback of the event loop"


class Divided:
    """A server whose requests of code SLOW take half a turn each, by a clock of their own."""

    def __init__(self, broker: Broker) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.begun = asyncio.Event()
        dispatcher = Dispatcher()
        dispatcher.register(SLOW, self.work)
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
