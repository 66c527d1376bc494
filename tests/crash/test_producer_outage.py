"""One broker, two thousand concurrent sends, SIGKILL and a restart: every send succeeds."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from tests.interop.harness import ours
from tests.interop.harness.official import Server
from tests.interop.harness.ports import free_port

pytestmark = pytest.mark.crash

TOPIC = "Outage"
SENDERS = 2000
MESSAGES = 12_000
#: How long the broker is away, seconds.
AWAY = 1.0


class Cluster:
    """A name server and one broker, as processes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker_port = free_port()
        self.namesrv = ours.start_name_server(directory, port=free_port())
        self.broker = self.start_broker()

    def start_broker(self) -> Server:
        self.broker = ours.start_broker(self.directory, self.namesrv.address, port=self.broker_port)
        return self.broker

    async def restart_broker(self) -> None:
        self.broker.process.kill()
        await asyncio.sleep(AWAY)
        await asyncio.to_thread(self.start_broker)

    def stop(self) -> None:
        for server in (self.broker, self.namesrv):
            server.process.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("kind", ["plain", "keyed", "lingered"])
async def test_every_send_survives_a_killed_broker(cluster: Cluster, kind: str) -> None:
    """All options but `timeout` are the defaults: a busy machine takes long to start a broker."""
    numbers = itertools.count()
    places: dict[tuple[int, int], int] = {}
    begun = asyncio.Event()

    async def work(producer: Producer) -> None:
        while (number := next(numbers)) < MESSAGES:
            message = Message(TOPIC, b"%d" % number)
            result = await producer.send(message, key=number if kind == "keyed" else None)
            place = (result.queue.queue_id, result.queue_offset)
            assert place not in places
            places[place] = number
            if len(places) == MESSAGES // 4:
                begun.set()

    linger = 5 if kind == "lingered" else 0
    namesrv = cluster.namesrv.address
    async with (
        Producer("PG", namesrv=namesrv, linger_ms=linger, timeout=60) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        for _ in range(SENDERS):
            tasks.create_task(work(producer))
        await begun.wait()
        await cluster.restart_broker()
    assert len(places) == MESSAGES
