"""A client begins once, and ends once and completely, whoever asks for it and at whatever moment: a
signal handler beside `async with`, a start that is given up, two calls that meet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import NoNameServer, NotRunning
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.message.limits import TRACE_TOPIC
from pocketmq.message.message import Message
from pocketmq.remoting.codes import RequestCode
from tests.client.fake_cluster import FakeCluster, FakeServer
from tests.client.waiting import client_tasks, until

Make = Callable[..., Any]

MAKERS: dict[str, Make] = {
    "Producer": lambda **options: Producer("G", trace=True, **options),
    "TransactionProducer": lambda **options: TransactionProducer(
        "G", check=lambda message: TransactionState.UNKNOWN, **options
    ),
    "PullConsumer": lambda **options: PullConsumer(
        "G", start="begin", trace=True, start_timeout=None, **options
    ),
    "PushConsumer": lambda **options: PushConsumer(
        "G", {"T": "*"}, start="begin", trace=True, start_timeout=None, **options
    ),
    "orderly PushConsumer": lambda **options: PushConsumer(
        "G", {"T": "*"}, start="begin", orderly=True, start_timeout=None, **options
    ),
}
#: Its start begins by connecting to a name server, as that of any client with `start_timeout`.
WAITS: Make = lambda **options: PushConsumer("G", {"T": "*"}, start="begin", **options)  # noqa: E731
CONSUMERS = [name for name in MAKERS if "Consumer" in name]


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


@pytest.fixture(params=CONSUMERS)
def make_consumer(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


class Gate:
    """Something that waits where a test wants it to."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.open.wait()

    def holds(self, code: RequestCode, *servers: FakeServer) -> Gate:
        """Have the servers answer these requests when the gate is open."""

        def wrapper(handler: Callable[..., Any]) -> Callable[..., Any]:
            async def held(request: Any) -> Any:
                await self.passed()
                return handler(request)

            return held

        for server in servers:
            server.dispatcher.wrap(code, wrapper)
        return self


class AddressServer:
    """Tells clients where the name server is, when its gates are open.

    It passes gate n before it answers question n, counted from 1; `failing` questions get a 503.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.asked = 0
        self.gates: dict[int, Gate] = {}
        self.failing: set[int] = set()
        self.url = ""

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/list"
        return server

    def gate(self, number: int = 1) -> Gate:
        """A gate before the answer to that question from now on."""
        gate = self.gates[self.asked + number] = Gate()
        return gate

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        number = self.asked
        if number in self.gates:
            await self.gates[number].passed()
        status = "503 As The Test Says" if number in self.failing else "200 OK"
        writer.write(f"HTTP/1.0 {status}\r\n\r\n{self.cluster.namesrv}\n".encode())
        writer.close()


@pytest.fixture
async def addresses(cluster: FakeCluster) -> AsyncIterator[AddressServer]:
    """Where clients ask for the address of the cluster's name server."""
    addresses = AddressServer(cluster)
    server = await addresses.start()
    yield addresses
    for gate in addresses.gates.values():
        gate.open.set()
    server.close()


async def gone(cluster: FakeCluster, client: Any) -> None:
    """Return when nothing of the client is left: no work, no connection, no message."""
    assert client_tasks() == []
    if isinstance(client, Producer):
        assert (client.in_flight, client.buffered_bytes) == (0, 0)
        assert not any(broker.in_flight for broker in client.brokers)
    servers = (cluster.name_server, *cluster.brokers.values())
    await until(lambda: all(server.connections == 0 for server in servers))


async def is_gone(cluster: FakeCluster, client: Any) -> None:
    """The same for a client that ends in the background."""
    await until(lambda: not client_tasks())
    await gone(cluster, client)


async def begun(client: Any, cluster: FakeCluster) -> asyncio.Task[Any]:
    """Start the client and give it something that its shutdown waits for: a send that is not
    answered, or a message whose offset is not committed. What ends when that has ended."""
    cluster.put(TRACE_TOPIC)
    await client.start()
    if isinstance(client, Producer):
        return asyncio.create_task(client.send(Message("T", b"x")))
    cluster["a"].store("T", 0, b"x")
    if isinstance(client, PullConsumer):
        await client.assign("T")
        assert [message.body for message in await client.poll(timeout=10)] == [b"x"]
    else:
        async with asyncio.timeout(10):
            (await anext(client)).ack()

    async def stored() -> None:
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 1)

    return asyncio.create_task(stored())


def last_work(client: Any, cluster: FakeCluster) -> Gate:
    code = (
        RequestCode.SEND_MESSAGE_V2
        if isinstance(client, Producer)
        else RequestCode.UPDATE_CONSUMER_OFFSET
    )
    return Gate().holds(code, *cluster.brokers.values())


async def test_who_shuts_down_second_waits_for_the_first(make: Make, cluster: FakeCluster) -> None:
    client = make(namesrv=cluster.namesrv)
    gate = last_work(client, cluster)
    work = await begun(client, cluster)
    if isinstance(client, Producer):
        await gate.reached.wait()
    shutdowns = {asyncio.create_task(client.shutdown()) for _ in range(2)}
    await gate.reached.wait()
    shutdowns.add(asyncio.create_task(client.shutdown()))
    done, _ = await asyncio.wait(shutdowns, timeout=0.05)
    assert not done
    gate.open.set()
    await asyncio.gather(*shutdowns)
    await work
    await gone(cluster, client)


async def test_a_shutdown_whose_caller_is_cancelled_goes_on(
    make: Make, cluster: FakeCluster
) -> None:
    client = make(namesrv=cluster.namesrv)
    gate = last_work(client, cluster)
    work = await begun(client, cluster)
    if isinstance(client, Producer):
        await gate.reached.wait()
    shutdown = asyncio.create_task(client.shutdown())
    await gate.reached.wait()
    await asyncio.sleep(0)
    shutdown.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shutdown
    gate.open.set()
    await work
    await is_gone(cluster, client)
    await client.shutdown()


async def test_a_start_that_meets_a_shutdown_begins_nothing(
    make: Make, cluster: FakeCluster, addresses: AddressServer
) -> None:
    client = make(namesrv=addresses.url)
    gate = addresses.gate()
    starts = [asyncio.create_task(client.start()) for _ in range(2)]
    await gate.reached.wait()
    await client.shutdown()
    gate.open.set()
    for start in starts:
        with pytest.raises(NotRunning):
            await start
    await gone(cluster, client)


async def test_a_shutdown_that_meets_the_end_of_a_start(
    make: Make, cluster: FakeCluster, addresses: AddressServer
) -> None:
    """Whichever of the two comes first, in the same turn of the loop or the next ones."""
    outcome: object
    outcomes = set()
    for turns in range(30):
        client = make(namesrv=addresses.url)
        gate = addresses.gate()
        start = asyncio.create_task(client.start())
        await gate.reached.wait()
        gate.open.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.shutdown()
        (outcome,) = await asyncio.gather(start, return_exceptions=True)
        outcomes.add(type(outcome))
        await gone(cluster, client)
    assert NotRunning in outcomes
    assert outcomes <= {NotRunning, type(None)}


@pytest.mark.parametrize("kind", ["PushConsumer", "orderly PushConsumer"])
async def test_a_shutdown_while_the_first_heartbeats_are_under_way(
    kind: str, cluster: FakeCluster
) -> None:
    gate = Gate().holds(RequestCode.HEART_BEAT, *cluster.brokers.values())
    consumer = MAKERS[kind](namesrv=cluster.namesrv)
    start = asyncio.create_task(consumer.start())
    await gate.reached.wait()
    await consumer.shutdown()
    with pytest.raises(NotRunning):
        await start
    await gone(cluster, consumer)
    gate.open.set()


@pytest.mark.parametrize("kind", ["PullConsumer", "PushConsumer"])
async def test_a_shutdown_while_the_trace_starts(
    kind: str, cluster: FakeCluster, addresses: AddressServer
) -> None:
    consumer = MAKERS[kind](namesrv=addresses.url)
    gate = addresses.gate(2)  # the first one is for the consumer itself
    start = asyncio.create_task(consumer.start())
    await gate.reached.wait()
    shutdown = asyncio.create_task(consumer.shutdown())
    gate.open.set()
    await shutdown
    with pytest.raises(NotRunning):
        await start
    await gone(cluster, consumer)


async def test_two_starts_begin_everything_once(
    make: Make, cluster: FakeCluster, addresses: AddressServer
) -> None:
    client = make(namesrv=addresses.url)
    gate = addresses.gate()
    starts = [asyncio.create_task(client.start()) for _ in range(3)]
    await gate.reached.wait()
    gate.open.set()
    await asyncio.gather(*starts)
    names = client_tasks()
    periodic = ("detector", "rebalance", "commit", "statistics", "queue locks", "consume timeout")
    counts = {name: names.count(name) for name in periodic}
    assert sum(counts.values()) > 0
    assert max(counts.values()) == 1, counts
    await client.shutdown()
    await gone(cluster, client)


async def test_a_start_that_has_not_begun_may_be_given_up_and_done_again(
    make: Make, cluster: FakeCluster, addresses: AddressServer
) -> None:
    client = make(namesrv=addresses.url)
    gate = addresses.gate()
    first = asyncio.create_task(client.start())
    await gate.reached.wait()
    second = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert client_tasks() == []
    gate.open.set()
    await second
    assert "heartbeat" in client_tasks()
    await client.shutdown()
    await gone(cluster, client)


async def test_a_start_without_a_list_of_name_servers_may_be_done_again(
    make: Make, cluster: FakeCluster, addresses: AddressServer
) -> None:
    client = make(namesrv=addresses.url)
    addresses.failing = {1}
    with pytest.raises(NoNameServer, match="As The Test Says"):
        await client.start()
    async with client:
        assert "heartbeat" in client_tasks()
    await gone(cluster, client)


async def test_a_start_that_is_given_up_later_leaves_nothing(
    make_consumer: Make, cluster: FakeCluster, addresses: AddressServer
) -> None:
    consumer = make_consumer(namesrv=addresses.url)
    if isinstance(consumer, PullConsumer):
        gate = addresses.gate(2)  # when its trace starts
    else:
        gate = Gate().holds(RequestCode.HEART_BEAT, *cluster.brokers.values())
    start = asyncio.create_task(consumer.start())
    await gate.reached.wait()
    second = asyncio.create_task(consumer.start())
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    with pytest.raises(NotRunning):
        await second
    await gone(cluster, consumer)
    gate.open.set()


@pytest.mark.parametrize("kind", ["PullConsumer", "PushConsumer"])
async def test_a_start_whose_trace_cannot_start_leaves_nothing(
    kind: str, cluster: FakeCluster, addresses: AddressServer
) -> None:
    consumer = MAKERS[kind](namesrv=addresses.url)
    addresses.failing = {2}
    with pytest.raises(NoNameServer, match="As The Test Says"):
        await consumer.start()
    await gone(cluster, consumer)


async def test_a_start_without_routes_leaves_nothing(cluster: FakeCluster) -> None:
    consumer = MAKERS["orderly PushConsumer"](namesrv=cluster.namesrv)
    await cluster.name_server.stop()
    with pytest.raises(NoNameServer):
        await consumer.start()
    await gone(cluster, consumer)


async def after(turns: int, task: asyncio.Task[Any]) -> bool:
    """Cancel a task after so many turns of the loop; whether that was before its end."""
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


@pytest.mark.parametrize("make", [*MAKERS.values(), WAITS], ids=[*MAKERS, "waiting PushConsumer"])
async def test_a_start_may_be_cancelled_at_any_await(make: Make, cluster: FakeCluster) -> None:
    cancelled = 0
    for turns in range(30):
        client = make(namesrv=cluster.namesrv)
        if await after(turns, asyncio.create_task(client.start())):
            cancelled += 1
        else:
            assert "heartbeat" in client_tasks()
            await client.shutdown()
        await gone(cluster, client)
    assert cancelled > 0


async def test_a_shutdown_may_be_cancelled_at_any_await(make: Make, cluster: FakeCluster) -> None:
    cancelled = 0
    for turns in range(1, 20):
        client = make(namesrv=cluster.namesrv)
        await client.start()
        cancelled += await after(turns, asyncio.create_task(client.shutdown()))
        await is_gone(cluster, client)
        await client.shutdown()
    assert cancelled > 0
