"""A broker whose time passes when a test says so, and a client that pops from it."""

from __future__ import annotations

import pytest

from pocketmq.broker.broker import Broker
from tests.broker.conftest import Client, Connect, StartBroker
from tests.broker.pop.consuming import PopClient
from tests.fake_time import FakeTime


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(start_broker: StartBroker, time: FakeTime) -> Broker:
    return await start_broker(options={"clock": time.clock, "call_later": time.call_later})


@pytest.fixture
def pops(client: Client, topic: str) -> PopClient:
    return PopClient(client, topic)


@pytest.fixture
async def others(broker: Broker, connect: Connect, topic: str) -> PopClient:
    """The same group on another connection."""
    return PopClient(await connect(broker), topic)
