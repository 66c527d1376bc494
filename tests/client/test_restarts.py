"""A restart is not an outage: what is sent while a server is away is sent when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import (
    NoNameServer,
    NoRouteInfo,
    NotRunning,
    RemotingClosed,
    RemotingConnectError,
    RequestTimeout,
    SendError,
    SendTimeout,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.transaction import EndTransactionRequestHeader
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until

#: How long a server is away, seconds: some attempts of each send fall into it.
AWAY = 0.4
COUNT = 40

Call = Callable[[TransactionProducer, Message], Awaitable[Any]]


async def transact(producer: TransactionProducer, message: Message) -> None:
    async with producer.transaction(message):
        pass


async def post(producer: TransactionProducer, message: Message) -> None:
    await (await producer.post(message))


async def ask(producer: TransactionProducer, message: Message) -> None:
    with pytest.raises(RequestTimeout):  # the message is stored; nobody replies
        await producer.request(message, timeout=3.0)


CALLS: dict[str, Call] = {
    "plain": lambda producer, message: producer.send(message),
    "keyed": lambda producer, message: producer.send(message, key="k"),
    "queue": lambda producer, message: producer.send(message, queue=MessageQueue("T", "a", 1)),
    "oneway": lambda producer, message: producer.send_oneway(message),
    "batch": lambda producer, message: producer.send_batch([message, message]),
    "posted": post,
    "batch with a key": lambda producer, message: producer.send_batch([message], key="k"),
    "half": transact,
    "request": ask,
}


@pytest.fixture
async def producer(cluster: FakeCluster) -> AsyncIterator[TransactionProducer]:
    """A producer of topic T, which is on broker a alone; it has sent before."""
    cluster.put("T", "a")
    cluster["a"].on(
        RequestCode.END_TRANSACTION, lambda request: Response(), EndTransactionRequestHeader
    )
    async with TransactionProducer(
        "PG", namesrv=cluster.namesrv, check=lambda message: TransactionState.UNKNOWN
    ) as p:
        await p.send(Message("T", b"first"))
        yield p


@asynccontextmanager
async def restarting(broker: FakeBroker) -> AsyncIterator[None]:
    """The broker is away when the block begins, and comes back a while later."""
    await broker.stop()
    back = asyncio.ensure_future(asyncio.sleep(AWAY))
    back.add_done_callback(lambda _: starting.append(asyncio.ensure_future(broker.start())))
    starting: list[asyncio.Future[None]] = []
    # What is one-way would go into a connection whose end was not read yet.
    await asyncio.sleep(AWAY / 4)
    yield
    await back
    await asyncio.gather(*starting)


@pytest.mark.parametrize("kind", CALLS)
async def test_everything_sent_while_the_broker_restarts_is_stored(
    cluster: FakeCluster, producer: TransactionProducer, kind: str
) -> None:
    broker = cluster["a"]
    async with restarting(broker):
        await asyncio.gather(
            *(CALLS[kind](producer, Message("T", b"body-%d;" % n)) for n in range(COUNT))
        )
    stored = sum(len(records) for records in broker.records.values())
    await until(lambda: sum(map(len, broker.records.values())) >= COUNT + 1)
    assert stored <= 2 * COUNT + 1
    if kind == "half":
        await until(lambda: broker.seen[RequestCode.END_TRANSACTION] == COUNT)


async def test_the_end_of_a_transaction_waits_for_the_broker(
    cluster: FakeCluster, producer: TransactionProducer
) -> None:
    broker = cluster["a"]
    transaction = producer.transaction(Message("T", b"x"))
    await transaction.__aenter__()
    async with restarting(broker):
        await transaction.__aexit__(None, None, None)
    await until(lambda: broker.seen[RequestCode.END_TRANSACTION] == 1)


async def test_a_keyed_message_stays_in_its_queue(
    cluster: FakeCluster, producer: TransactionProducer
) -> None:
    queue = (await producer.send(Message("T", b"x"), key="k")).queue
    async with restarting(cluster["a"]):
        assert (await producer.send(Message("T", b"x"), key="k")).queue == queue


async def test_messages_posted_by_key_stay_in_order(
    cluster: FakeCluster, producer: TransactionProducer
) -> None:
    broker = cluster["a"]
    queue = (await producer.send(Message("T", b"x"), key="k")).queue
    before = len(broker.records["T", queue.queue_id])
    async with restarting(broker):
        posted = [await producer.post(Message("T", b"%04d" % n), key="k") for n in range(100)]
        results = [await each for each in posted]
    offsets = [result.queue_offset for result in results]
    assert offsets == list(range(before, before + 100))


@pytest.mark.parametrize("retries", [1, 100_000])
async def test_no_send_is_a_hot_loop(cluster: FakeCluster, retries: int) -> None:
    """However many attempts are allowed, each send makes a few, and connects are shared."""
    cluster.put("T", "a")
    async with Producer("PG", namesrv=cluster.namesrv, retries=retries, timeout=1.5) as p:
        await p.send(Message("T", b"x"))
        await cluster["a"].stop()
        calls = [p.send(Message("T", b"y" * 5000)) for _ in range(200)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
    for error in errors:
        assert isinstance(error, SendTimeout)
        assert isinstance(error.__cause__, RemotingConnectError | RemotingClosed)
        assert len(error.tries) <= 12


async def test_two_hundred_sends_connect_a_few_times(cluster: FakeCluster) -> None:
    """A broker that closes every connection sees a handful of them a second, not one per send."""
    cluster.put("T", "a")
    connects = 0

    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connects
        connects += 1
        writer.close()

    async with Producer("PG", namesrv=cluster.namesrv, timeout=1.5, accumulate=False) as p:
        await p.send(Message("T", b"x"))
        broker = cluster["a"]
        await broker.stop()
        server = await asyncio.start_server(slam, "127.0.0.1", broker.port)
        calls = [p.send(Message("T", b"x")) for _ in range(200)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        server.close()
        await server.wait_closed()
    assert all(isinstance(error, SendTimeout) and len(error.tries) <= 12 for error in errors)
    assert connects <= 200 * 12


async def test_a_lost_connection_ends_a_send_that_may_not_be_repeated(
    cluster: FakeCluster,
) -> None:
    cluster.put("T", "a")
    broker = cluster["a"]
    async with Producer("PG", namesrv=cluster.namesrv, retries=0) as p:
        await p.send(Message("T", b"x"))
        broker.mode = "hang"
        broker.arrived.clear()
        sending = asyncio.create_task(p.send(Message("T", b"y")))
        await broker.arrived.wait()
        broker.drop_connections()
        with pytest.raises(SendError) as caught:
            await sending
        assert isinstance(caught.value.__cause__, RemotingClosed)
        assert len(caught.value.tries) == 1


async def test_sends_wait_for_a_name_server(cluster: FakeCluster) -> None:
    await cluster.name_server.stop()
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        sends = [asyncio.create_task(p.send(Message("T", b"%d" % n))) for n in range(COUNT)]
        await asyncio.sleep(AWAY)
        await cluster.name_server.start()
        assert len(await asyncio.gather(*sends)) == COUNT


async def test_sends_wait_for_a_route_and_share_the_question(cluster: FakeCluster) -> None:
    """As straight after the start of a broker, which registers its topics a moment later."""
    asked = cluster.name_server.seen
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        sends = [asyncio.create_task(p.send(Message("late", b"x"))) for _ in range(500)]
        await until(lambda: asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] >= 8)
        cluster.put("late", "b")
        assert {r.queue.broker_name for r in await asyncio.gather(*sends)} == {"b"}
    assert asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] < 40


async def test_a_topic_that_never_gets_a_route_ends_the_send_in_time(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, timeout=0.3) as p:
        for call in (p.send, p.send_oneway, p.request):
            with pytest.raises(NoRouteInfo, match="topic: nowhere"):
                await call(Message("nowhere", b"x"))
    told = [r for r in caplog.records if "waiting up to" in r.getMessage()]
    assert len(told) == 1


async def test_a_shutdown_ends_sends_that_wait_for_a_route(cluster: FakeCluster) -> None:
    p = Producer("PG", namesrv=cluster.namesrv, timeout=0.1)
    await p.start()
    sending = asyncio.create_task(p.send(Message("nowhere", b"x"), timeout=60.0))
    asked = cluster.name_server.seen
    await until(lambda: asked[RequestCode.GET_ROUTEINFO_BY_TOPIC] >= 4)
    await p.shutdown()
    with pytest.raises((NotRunning, NoNameServer)):
        await sending


async def test_a_shutdown_ends_sends_that_wait_for_a_broker(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    p = Producer("PG", namesrv=cluster.namesrv, timeout=0.1)
    await p.start()
    await p.send(Message("T", b"x"), timeout=10.0)
    await cluster["a"].stop()
    sending = asyncio.create_task(p.send(Message("T", b"x"), timeout=60.0))
    await asyncio.sleep(0)
    await p.shutdown()
    with pytest.raises(SendError):
        await sending


async def test_a_start_may_wait_for_a_name_server(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.name_server.stop()
    p = Producer("PG", namesrv=cluster.namesrv, start_timeout=30.0)
    starting = asyncio.create_task(p.start())
    await until(lambda: "waits up to 30 s for a name server" in caplog.text)
    assert not starting.done()
    await cluster.name_server.start()
    await starting
    await p.send(Message("T", b"x"))
    await p.shutdown()


async def test_a_start_that_finds_no_name_server_says_so(unused_port: str) -> None:
    for client in (
        Producer("PG", namesrv=unused_port, start_timeout=0.1),
        PushConsumer("G", {"T": "*"}, namesrv=unused_port, start_timeout=0.1),
    ):
        with pytest.raises(NoNameServer, match=unused_port):
            await client.start()
        await client.shutdown()


async def test_a_start_waits_for_a_name_server_that_hangs(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.name_server.hangs = True
    consumer = PushConsumer("G", {"T": "*"}, namesrv=cluster.namesrv, start_timeout=30.0)
    starting = asyncio.create_task(consumer.start())
    await until(lambda: "waits up to 30 s for a name server" in caplog.text)
    assert not starting.done()
    cluster.name_server.release()
    await starting
    await consumer.shutdown()


@pytest.mark.parametrize("call", ["start", "subscribe", "assign", "share"])
async def test_a_name_server_that_hangs_is_told_when_the_time_is_over(
    cluster: FakeCluster, call: str
) -> None:
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "start_timeout": 0.1}
    async with (
        PushConsumer("G", **options) as push,
        PullConsumer("H", **options) as pull,
    ):
        started = PushConsumer("I", {"T": "*"}, **options)
        cluster.name_server.hangs = True
        calls: dict[str, Callable[[], Awaitable[None]]] = {
            "start": started.start,
            "subscribe": lambda: push.subscribe("T"),
            "assign": lambda: pull.assign("T"),
            "share": lambda: pull.subscribe("T"),
        }
        with pytest.raises(NoNameServer, match=r"no name server answered within 0\.5 s"):
            await calls[call]()
        cluster.name_server.release()
        await calls[call]()
        await started.shutdown()


async def test_a_shutdown_ends_a_start_that_waits(
    unused_port: str, caplog: pytest.LogCaptureFixture
) -> None:
    p = Producer("PG", namesrv=unused_port, start_timeout=60.0)
    starting = asyncio.create_task(p.start())
    await until(lambda: "waits up to 60 s for a name server" in caplog.text)
    await p.shutdown()
    with pytest.raises(NotRunning):
        await starting


@pytest.mark.parametrize("kind", ["plain", "keyed", "posted"])
async def test_a_real_broker_that_stops_and_starts_loses_nothing(
    real: RealCluster, kind: str
) -> None:
    """A clean restart: requests under way are answered, later ones wait."""
    await real.stop_broker("b1")
    stored: set[int] = set()
    half = asyncio.Event()

    async def work(producer: Producer, numbers: Sequence[int]) -> None:
        for number in numbers:
            message = Message("T", b"%d" % number)
            if kind == "posted":
                await (await producer.post(message))
            else:
                await producer.send(message, key=number if kind == "keyed" else None)
            stored.add(number)
            if len(stored) > 300:
                half.set()

    async with Producer("PG", namesrv=real.namesrv, timeout=30.0) as producer:
        workers = [asyncio.create_task(work(producer, range(n, 1000, 100))) for n in range(100)]
        await half.wait()
        await real.stop_broker("b0")
        await asyncio.sleep(AWAY)
        await real.start_broker("b0")
        await asyncio.gather(*workers)
    assert len(stored) == 1000


async def test_sends_go_on_when_a_real_topic_has_fewer_queues(real: RealCluster) -> None:
    async with (
        Admin(namesrv=real.namesrv) as admin,
        Producer("PG", namesrv=real.namesrv, retries=1) as producer,
    ):
        await admin.create_topic("T", queues=8, broker="b0")
        assert len(await producer.queues("T")) == 8
        await admin.create_topic("T", queues=1, broker="b0", allow_shrink=True)
        for _ in range(8):
            assert (await producer.send(Message("T", b"x"))).queue.queue_id == 0
        async with asyncio.timeout(10):
            while len(await producer.queues("T")) > 1:  # noqa: ASYNC110 (the route has no event)
                await asyncio.sleep(0.001)


async def test_admin_calls_wait_for_servers(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv, timeout=30.0) as admin:
        await real.name_server.stop()
        asking = asyncio.create_task(admin.cluster_info())
        await asyncio.sleep(AWAY / 4)
        await real.start_name_server()
        await asking


async def test_a_restart_of_all_servers_is_one_warning_and_one_line_for_each_in_a_consumer(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client")
    cluster.put("T", "a")
    seen: list[bytes] = []
    async with PushConsumer(
        "G",
        {"T": "*"},
        handler=lambda message: seen.append(message.body),
        namesrv=cluster.namesrv,
        start="begin",
    ) as consumer:
        await until(lambda: len(consumer.assignment) == 2)
        caplog.clear()
        await cluster["a"].stop()
        await cluster.name_server.stop()
        await until(lambda: "name server does not answer" in caplog.text)
        await cluster.name_server.start()
        await cluster["a"].start()
        cluster["a"].store("T", 0, b"after")
        await until(lambda: seen)
        await until(lambda: "works again" in caplog.text and "answers again" in caplog.text)
    address = cluster.namesrv
    expected = [
        f"WARNING group G: the connection to broker a at {cluster['a'].address} is lost;",
        f"WARNING name server does not answer: {address}: ",
        "INFO group G: broker a works again after ",
        f"INFO name server {address} answers again after ",
    ]
    told = [
        f"{record.levelname} {record.message}"
        for record in caplog.records
        if "does not support batches" not in record.message
    ]
    for line, begin in zip(sorted(told), sorted(expected), strict=True):
        assert line.startswith(begin)
