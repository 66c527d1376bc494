"""A client begins once, and ends once and completely, whoever asks for it and at whatever moment: a
signal handler beside `async with`, a start that is given up, two calls that meet."""

import asyncio
from collections.abc import Callable
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
from tests.client.waiting import until

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


def instance_of(client: Any) -> Any:
    """The connections of a client, or of a consumer's present session."""
    return client._instance if isinstance(client, Producer) else client._session.instance


class Gate:
    """Something that waits where a test wants it to."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def passed(self) -> None:
        self.reached.set()
        await self.open.wait()

    def holds(self, code: RequestCode, *servers: FakeServer) -> "Gate":
        """Have the servers answer these requests when the gate is open."""

        def wrapper(handler: Callable[..., Any]) -> Callable[..., Any]:
            async def held(request: Any) -> Any:
                await self.passed()
                return handler(request)

            return held

        for server in servers:
            server.dispatcher.wrap(code, wrapper)
        return self

    def holds_start_of(self, client: Any) -> "Gate":
        """Have the client wait for its list of name servers."""

        async def fetch() -> bool:
            await self.passed()
            return False

        instance_of(client)._list.fetch = fetch
        return self


async def gone(cluster: FakeCluster, client: Any) -> None:
    """Return when nothing of the client is left: no work, no connection, no message."""
    instances = [instance_of(client)]
    if isinstance(client, PullConsumer | PushConsumer):
        assert client._session.trace._running is None
        if (tracing := client._session.trace._producer) is not None:
            instances.append(tracing._instance)
    for instance in instances:
        assert not instance.running
        assert not instance._tasks
        assert instance.pool.addresses == []
        assert not instance.pool._connecting
    if isinstance(client, Producer):
        assert client._in_flight.count == 0
        assert client._accumulator.buffered == 0
        assert not client._accumulator._unanswered
    servers = (cluster.name_server, *cluster.brokers.values())
    await until(lambda: all(server.connections == 0 for server in servers))


async def is_gone(cluster: FakeCluster, client: Any) -> None:
    """The same for a client that ends in the background."""
    pool = instance_of(client).pool
    await until(lambda: pool._closed and not instance_of(client)._tasks and not pool.addresses)
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
    make: Make, cluster: FakeCluster
) -> None:
    client = make(namesrv=cluster.namesrv)
    gate = Gate().holds_start_of(client)
    starts = [asyncio.create_task(client.start()) for _ in range(2)]
    await gate.reached.wait()
    await client.shutdown()
    gate.open.set()
    for start in starts:
        with pytest.raises(NotRunning):
            await start
    await gone(cluster, client)


async def test_a_shutdown_that_meets_the_end_of_a_start(make: Make, cluster: FakeCluster) -> None:
    """Whichever of the two comes first, in the same turn of the loop or the next ones."""
    outcome: object
    outcomes = set()
    for turns in range(30):
        client = make(namesrv=cluster.namesrv)
        gate = Gate().holds_start_of(client)
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
async def test_a_shutdown_while_the_trace_starts(kind: str, cluster: FakeCluster) -> None:
    consumer = MAKERS[kind](namesrv=cluster.namesrv)
    gate = Gate().holds_start_of(consumer._session.trace._producer)
    start = asyncio.create_task(consumer.start())
    await gate.reached.wait()
    shutdown = asyncio.create_task(consumer.shutdown())
    gate.open.set()
    await shutdown
    with pytest.raises(NotRunning):
        await start
    await gone(cluster, consumer)


async def test_two_starts_begin_everything_once(make: Make, cluster: FakeCluster) -> None:
    client = make(namesrv=cluster.namesrv)
    gate = Gate().holds_start_of(client)
    starts = [asyncio.create_task(client.start()) for _ in range(3)]
    await gate.reached.wait()
    gate.open.set()
    await asyncio.gather(*starts)
    names = [task.get_name() for task in instance_of(client)._tasks]
    periodic = ("detector", "rebalance", "commit", "statistics", "trace", "queue locks", "timeout")
    counts = {name: sum(each.endswith(f" {name}") for each in names) for name in periodic}
    assert sum(counts.values()) > 0
    assert max(counts.values()) == 1, counts
    await client.shutdown()
    await gone(cluster, client)


async def test_a_start_that_has_not_begun_may_be_given_up_and_done_again(
    make: Make, cluster: FakeCluster
) -> None:
    client = make(namesrv=cluster.namesrv)
    gate = Gate().holds_start_of(client)
    first = asyncio.create_task(client.start())
    await gate.reached.wait()
    second = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not instance_of(client)._tasks
    gate.open.set()
    await second
    assert instance_of(client).running
    await client.shutdown()
    await gone(cluster, client)


async def test_a_start_without_a_list_of_name_servers_may_be_done_again(
    make: Make, cluster: FakeCluster
) -> None:
    client = make(namesrv=cluster.namesrv)
    listed = instance_of(client)._list.fetch

    async def fetch() -> bool:
        instance_of(client)._list.fetch = listed
        raise NoNameServer("not there yet")

    instance_of(client)._list.fetch = fetch
    with pytest.raises(NoNameServer, match="not there yet"):
        await client.start()
    async with client:
        assert instance_of(client).running
    await gone(cluster, client)


async def test_a_start_that_is_given_up_later_leaves_nothing(
    make_consumer: Make, cluster: FakeCluster
) -> None:
    gate = Gate()
    consumer = make_consumer(namesrv=cluster.namesrv)
    if isinstance(consumer, PullConsumer):
        gate.holds_start_of(consumer._session.trace._producer)
    else:
        gate.holds(RequestCode.HEART_BEAT, *cluster.brokers.values())
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


async def test_a_start_that_fails_leaves_nothing(make_consumer: Make, cluster: FakeCluster) -> None:
    consumer = make_consumer(namesrv=cluster.namesrv)

    async def fail() -> None:
        raise NoNameServer("as the test says")

    if isinstance(consumer, PullConsumer):
        consumer._session.trace._producer._instance._list.fetch = fail  # type: ignore
    else:
        consumer._session.wanted.begin_all = fail
    with pytest.raises(NoNameServer, match="as the test says"):
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
            assert instance_of(client).running
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
