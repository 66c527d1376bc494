"""Name server, broker and client processes are killed and restarted, in every order.

A producer and a consumer in the test's own process live through all of it: they are the clients
that must recover by themselves. A second pair runs in a process that is killed like the servers.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from tests.interop.harness import ours
from tests.interop.harness.official import PROJECT, Server
from tests.interop.harness.ports import free_port
from tests.interop.harness.process import Process

pytestmark = pytest.mark.crash

TOPIC = "Restarts"
PARTS = ("namesrv", "broker", "client")
ENDS = (PARTS, PARTS[::-1])
#: All six with --long. Any two parts fall in both orders in the first and the last one.
ORDERS = [
    pytest.param(order, id="-".join(order), marks=() if order in ENDS else pytest.mark.long)
    for order in itertools.permutations(PARTS)
]

# A broker tells a name server that came back within its retry pause of a second; a client asks
# every 30 s for routes, but does not need new ones. What takes longer than this is not recovery.
RECOVERY = 20.0


class Installation:
    """The three processes, and the clients of this one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namesrv_port = free_port()
        self.broker_port = free_port()
        self.namesrv: Server = self.start_namesrv()
        self.broker: Server = self.start_broker()
        self.clients: list[Process] = []
        self.start_client()
        # (queue id, queue offset) -> body, as acknowledged to this process.
        self.acknowledged: dict[tuple[int, int], str] = {}
        self.received: dict[tuple[int, int], str] = {}
        self._arrival = asyncio.Condition()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def client(self) -> Process:
        return self.clients[-1]

    def start_namesrv(self) -> Server:
        self.namesrv = ours.start_name_server(self.directory, port=self.namesrv_port)
        return self.namesrv

    def start_broker(self) -> Server:
        self.broker = ours.start_broker(
            self.directory,
            self.address,
            port=self.broker_port,
            settings={"mappedFileSizeCommitLog": 1 << 20},
        )
        return self.broker

    def start_client(self) -> Process:
        number = len(self.clients)
        process = Process(
            f"client {number}",
            [sys.executable, "-m", "tests.crash.client_process", self.address, TOPIC, "killed"],
            log=self.directory / f"client{number}.log",
            cwd=PROJECT,
        )
        process.wait_for("ready")
        self.clients.append(process)
        return process

    def kill(self, part: str) -> None:
        process = self.client if part == "client" else getattr(self, part).process
        assert process.running, process.tail()
        process.kill()

    def start(self, part: str) -> None:
        start: Callable[[], object] = getattr(self, f"start_{part}")
        start()

    def stop(self) -> None:
        for process in (*self.clients, self.broker.process, self.namesrv.process):
            process.kill()

    def logs(self) -> str:
        return "\n".join(
            process.tail(25) for process in (self.namesrv.process, self.broker.process, self.client)
        )

    async def read(self, consumer: PullConsumer) -> None:
        async for message in consumer:
            place = (message.queue_id, message.queue_offset)
            body = message.body.decode()
            assert self.received.setdefault(place, body) == body
            async with self._arrival:
                self._arrival.notify_all()

    async def got(self, body: str) -> None:
        """Returns when the consumer of this process has received the message."""
        async with asyncio.timeout(RECOVERY), self._arrival:
            await self._arrival.wait_for(lambda: body in self.received.values())

    async def recovered(self, producer: Producer, marker: str) -> None:
        """A message goes from our producer to both consumers, and the client process sends."""
        body = f"marker {marker}"
        result = await self._send(producer, body)
        self.acknowledged[result] = body
        await self.got(body)
        await asyncio.to_thread(self.client.wait_for, f"^got {body}$", RECOVERY)
        await asyncio.to_thread(self.client.wait_for, "^sent ", RECOVERY)

    async def _send(self, producer: Producer, body: str) -> tuple[int, int]:
        async with asyncio.timeout(RECOVERY):
            while True:
                try:
                    result = await producer.send(Message(TOPIC, body.encode()))
                except RemotingError:
                    await asyncio.sleep(0.05)
                else:
                    return result.queue.queue_id, result.queue_offset

    def told(self) -> dict[tuple[int, int], str]:
        """What the client processes were acknowledged, dead or alive, and this process."""
        places = dict(self.acknowledged)
        for process in self.clients:
            for line in process.lines:
                if line.startswith("sent "):
                    _, body, queue, offset = line.split()
                    places[int(queue), int(offset)] = body
        return places


@pytest.fixture
async def running(
    tmp_path: Path,
) -> AsyncIterator[tuple[Installation, Producer]]:
    installation = Installation(tmp_path)
    try:
        async with (
            Producer("lasting_producer", namesrv=installation.address) as producer,
            PullConsumer("lasting", namesrv=installation.address, start="begin") as consumer,
        ):
            await consumer.assign(TOPIC)
            reading = asyncio.create_task(installation.read(consumer))
            await installation.recovered(producer, "first")
            yield installation, producer
            reading.cancel()
    except BaseException:
        print(installation.logs())
        raise
    finally:
        installation.stop()


async def everything_arrived(installation: Installation, producer: Producer) -> None:
    """Both consumers have what was acknowledged, each message in the place that was told."""
    await installation.recovered(producer, "last")
    installation.client.kill()
    told = installation.told()
    assert len(told) > 10
    missing = {body for place, body in told.items() if place not in installation.received}
    for body in missing:
        await installation.got(body)
    assert installation.received.items() >= told.items()


@pytest.mark.parametrize("order", ORDERS)
async def test_one_after_the_other(
    running: tuple[Installation, Producer], order: Sequence[str]
) -> None:
    """Each process is killed and restarted before the next one dies."""
    installation, producer = running
    for part in order:
        installation.kill(part)
        installation.start(part)
        await installation.recovered(producer, part)
    await everything_arrived(installation, producer)


@pytest.mark.parametrize("order", ORDERS)
async def test_all_down_at_once(
    running: tuple[Installation, Producer], order: Sequence[str]
) -> None:
    """All three are killed; the first that fell is the first to come back, then the last one."""
    installation, producer = running
    for again in (order, order[::-1]):
        for part in order:
            installation.kill(part)
        for part in again:
            installation.start(part)
        await installation.recovered(producer, "-".join(again))
    await everything_arrived(installation, producer)
