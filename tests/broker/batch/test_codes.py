"""Every request code that a broker serves, as a child: answered, and nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, get_type_hints

import msgspec
import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.batch import BatchProcessor
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import Header
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.server import RemotingServer
from tests.broker.batch.batches import Child, batch, held, parent, send
from tests.broker.conftest import Client

DEADLINE = 0.2  # seconds, of what never answers


@pytest.fixture
async def server(broker: Broker) -> AsyncIterator[RemotingServer]:
    """All that the broker serves, where nobody waits 30 s for a child that never answers."""
    dispatcher = Dispatcher()
    for route in broker.dispatcher.codes.values():
        if route.code != RequestCode.COMMON_BATCH_REQUEST:
            dispatcher.register(route.code, route.handler, route.header, many=route.many)
    processor = BatchProcessor(
        broker.config,
        dispatcher,
        broker.components.pulls.holds,
        LongRequests(),
        base_deadline=DEADLINE,
    )
    processor.register(dispatcher)
    server = RemotingServer(dispatcher)
    await server.start()
    yield server
    await server.stop()


def minimal(kind: type[Header] | None) -> Header | None:
    """A header with what is mandatory, as small as may be."""
    if kind is None:
        return None
    hints = get_type_hints(kind)
    values: dict[str, Any] = {
        field.name: "" if hints[field.name] is str else 0
        for field in msgspec.structs.fields(kind)
        if field.required
    }
    return kind(**values)


async def test_every_code_as_a_child(broker: Broker, server: RemotingServer) -> None:
    codes = sorted(set(server.dispatcher.codes) - {int(RequestCode.COMMON_BATCH_REQUEST)})
    assert len(codes) > 50
    client = Client()
    await client.open(f"127.0.0.1:{server.port}")
    await batch(client, [send("A")])
    before = asyncio.all_tasks()
    for code in codes:
        header = minimal(server.dispatcher.codes[code].header)
        children = [Child(code), Child(code, header), Child(code, header, b"{}")]
        await batch(client, children, code=code, timeout=10)
        await parent(client, children, code=code, omit=True, timeout=10)
        assert held(broker) == 0, code
    async with asyncio.timeout(60):
        while server.tasks or asyncio.all_tasks() - before:  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.001)
    # It goes on as if nothing had happened.
    (answer,) = await batch(client, [send("A")])
    assert answer.code == 0
    await client.close()
