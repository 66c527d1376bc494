from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import (
    BrokerNotFound,
    IllegalOperation,
    InvalidMessage,
    NoPermission,
    NoRouteInfo,
    NotRunning,
    RemoteSystemError,
    RequesterGone,
    RequestTimeout,
    SendError,
)
from pocketmq.client.instance import ClientInstance
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.recall import decoded
from pocketmq.client.producer.request_reply import RequestReply
from pocketmq.message import properties as names
from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.message import Message, MessageExt
from pocketmq.message.record import decode
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import ReplyMessageRequestHeader
from pocketmq.remoting.headers.send import (
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.testing import RocketMQ
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.waiting import until


def replying(broker: FakeBroker) -> Callable[..., None]:
    """Teach a broker to hand replies to whichever client sent a heartbeat last."""
    connections: list[Any] = []
    heartbeat = broker.heartbeat

    def beat(request: Request[Any]) -> Response:
        connections.append(request.connection)
        return heartbeat(request)

    broker.dispatcher.wrap(RequestCode.HEART_BEAT, lambda _: beat)

    def push(properties: str, body: bytes, sys_flag: int = 0) -> None:
        connections[-1].send_oneway(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ReplyMessageRequestHeader(
                producer_group="PG",
                topic="c_REPLY_TOPIC",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=0,
                sys_flag=sys_flag,
                born_timestamp=1,
                flag=0,
                born_host="/10.0.0.1:5",
                store_host="host/10.0.0.2:6",
                store_timestamp=2,
                properties=properties,
            ),
            body,
        )

    def reply(request: Request[SendMessageRequestHeaderV2]) -> Response:
        push(request.header.properties, bytes(request.body), request.header.sys_flag)
        return Response(
            header=SendMessageResponseHeader(
                msg_id="", queue_id=0, queue_offset=0, transaction_id=""
            )
        )

    broker.on(RequestCode.SEND_REPLY_MESSAGE_V2, reply, SendMessageRequestHeaderV2)
    return push


def received(broker: FakeBroker, topic: str = "T") -> list[MessageExt]:
    """What the broker stored, as a consumer gets it: with the name of its cluster."""
    messages = []
    for (name, _), records in broker.records.items():
        for record in records if name == topic else ():
            message = MessageExt.from_record(decode(record), broker.name)
            message.properties[names.CLUSTER] = "c"
            messages.append(message)
    return messages


@pytest.fixture
def push(cluster: FakeCluster) -> Callable[..., None]:
    cluster.put("T", "a", queues=1)
    cluster.put("c_REPLY_TOPIC", "a", queues=1)
    return replying(cluster["a"])


@pytest.mark.parametrize("size", [1, 10_000])
async def test_a_request_is_answered(
    cluster: FakeCluster, push: Callable[..., None], size: int
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:

        async def serve() -> None:
            await until(lambda: received(cluster["a"]))
            [request] = received(cluster["a"])
            assert request.properties[names.TTL] == "2500"
            await p.reply(request, request.body * size)

        task = asyncio.create_task(serve())
        reply = await p.request(Message("T", b"ping"), timeout=2.5)
        await task
    assert reply.body == b"ping" * size
    assert reply.sys_flag & COMPRESSED == 0
    assert (reply.topic, reply.born_host, reply.store_host) == (
        "c_REPLY_TOPIC",
        "10.0.0.1:5",
        "10.0.0.2:6",
    )
    assert reply.properties[names.MSG_TYPE] == "reply"
    assert names.ARRIVE_TIME in reply.properties


async def test_a_reply_says_in_its_body_what_went_wrong() -> None:
    """RocketMQ has no other way; docs/producer.md recommends this one."""

    class Quote(msgspec.Struct):
        price: float | None = None
        error: str | None = None

    prices = {b"EUR/CHF": 0.93}
    async with RocketMQ() as rocketmq:
        await rocketmq.create_topic("quotes", queues=1)
        async with Producer("PG", namesrv=rocketmq.namesrv) as p:

            async def answer(request: ConsumedMessage) -> None:
                try:
                    quote = Quote(price=prices[request.body])
                except LookupError:
                    quote = Quote(error="unknown pair")
                await p.reply(request, msgspec.json.encode(quote))

            topics = {"quotes": "*"}
            async with PushConsumer("CG", topics, handler=answer, namesrv=rocketmq.namesrv):
                for pair, quote in (b"EUR/CHF", Quote(0.93)), (b"?", Quote(error="unknown pair")):
                    reply = await p.request(Message("quotes", pair))
                    assert reply.payload(Quote) == quote


async def test_many_requests_at_once_get_their_own_replies(
    cluster: FakeCluster, push: Callable[..., None]
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        requests = [
            asyncio.create_task(p.request(Message("T", b"%d" % i), timeout=10.0)) for i in range(50)
        ]
        await until(lambda: len(received(cluster["a"])) == 50)
        for request in reversed(received(cluster["a"])):
            await p.reply(request, b"re " + request.body)
        replies = await asyncio.gather(*requests)
        assert [reply.body for reply in replies] == [b"re %d" % i for i in range(50)]


async def test_no_reply_in_time(cluster: FakeCluster, push: Callable[..., None]) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        with pytest.raises(RequestTimeout, match="topic T was stored"):
            await p.request(Message("T", b"x"), timeout=1.0)
        [request] = received(cluster["a"])
        # Too late, and then one that nobody can read: neither does harm.
        await p.reply(request, b"late")
        push("", b"no lz4", COMPRESSED | CompressionType.LZ4.flag)
        push("", compress(b"x", CompressionType.LZ4), COMPRESSED | CompressionType.LZ4.flag)


async def test_a_reply_to_a_requester_that_is_gone_is_tried_once_and_says_so() -> None:
    async with RocketMQ() as rocketmq, PullConsumer("G", namesrv=rocketmq.namesrv) as consumer:
        await rocketmq.create_topic("quotes", queues=1)
        await consumer.assign("quotes")
        async with Producer("asks", namesrv=rocketmq.namesrv) as requester:
            with pytest.raises(RequestTimeout):
                await requester.request(Message("quotes", b"x"), timeout=0.5)
        [request] = await consumer.poll(timeout=10)
        async with Producer("replies", namesrv=rocketmq.namesrv) as p:
            with pytest.raises(RequesterGone, match=r"after 1 attempt .* not found") as caught:
                await p.reply(request, b"too late")
    assert not caught.value.retriable
    assert isinstance(caught.value.__cause__, RemoteSystemError)


async def test_a_reply_tries_the_brokers_that_the_requester_may_be_connected_to(
    cluster: FakeCluster, push: Callable[..., None]
) -> None:
    def refuse(request: Request[Any]) -> Response:
        refused.append(request.header.bname)
        return Response(
            ResponseCode.SYSTEM_ERROR, "push reply message fail, channel of <c> not found."
        )

    refused: list[str] = []
    cluster["b"].on(RequestCode.SEND_REPLY_MESSAGE_V2, refuse, SendMessageRequestHeaderV2)
    cluster.put("c_REPLY_TOPIC", "a", "b", queues=1)
    async with Producer("PG", namesrv=cluster.namesrv) as p:

        async def ask(number: int) -> bytes:
            asked = asyncio.create_task(p.request(Message("T", b"x"), timeout=20.0))
            await until(lambda: len(received(cluster["a"])) > number)
            await p.reply(received(cluster["a"])[number], b"re")
            return (await asked).body

        assert [await ask(number) for number in range(4)] == [b"re"] * 4
        assert refused
        refused.clear()
        cluster["a"].dispatcher.wrap(RequestCode.SEND_REPLY_MESSAGE_V2, lambda _: refuse)
        with pytest.raises(RequesterGone, match="after 2 attempts"):
            await p.reply(received(cluster["a"])[0], b"re")
        assert sorted(refused) == ["a", "b"]


async def test_shutdown_ends_the_wait(cluster: FakeCluster, push: Callable[..., None]) -> None:
    p = Producer("PG", namesrv=cluster.namesrv)
    await p.start()
    waiting = asyncio.create_task(p.request(Message("T", b"x"), timeout=30.0))
    await until(lambda: received(cluster["a"]))
    await until(lambda: not p.in_flight)
    await p.shutdown()
    with pytest.raises(NotRunning):
        await waiting


async def test_a_request_that_can_not_be_sent(cluster: FakeCluster) -> None:
    cluster["a"].mode = cluster["b"].mode = ResponseCode.MESSAGE_ILLEGAL
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        with pytest.raises(SendError):
            await p.request(Message("T", b"x"))
    with pytest.raises(NotRunning):
        await p.request(Message("T", b"x"))


async def request_in_vain(p: Producer, broker: FakeBroker) -> None:
    """A request that `broker` stores and nobody replies to."""
    before = len(broker.sent)
    asked = asyncio.create_task(p.request(Message("T", b"x"), timeout=30.0))
    await until(lambda: len(broker.sent) > before)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked


async def test_every_broker_knows_the_requester_first(
    cluster: FakeCluster, push: Callable[..., None]
) -> None:
    cluster.put("T", "b")
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.queues("c_REPLY_TOPIC")  # so that broker "a" is in a route, and not yet connected
        assert cluster["a"].connections == 0
        await request_in_vain(p, cluster["b"])
        assert cluster["a"].heartbeats


def hanging_heartbeats(broker: FakeBroker) -> asyncio.Event:
    """From now on the broker answers no heartbeat; set when it gets one."""
    arrived = asyncio.Event()
    broker.dispatcher.wrap(RequestCode.HEART_BEAT, lambda _: lambda request: arrived.set())
    return arrived


async def test_another_broker_that_hangs_delays_only_the_first_request(
    cluster: FakeCluster, push: Callable[..., None]
) -> None:
    cluster.put("other", "b")
    arrived = hanging_heartbeats(cluster["b"])
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.queues("other")

        async def ask(number: int) -> bytes:
            asked = asyncio.create_task(p.request(Message("T", b"%d" % number), timeout=10.0))
            await until(lambda: len(received(cluster["a"])) > number)
            await p.reply(received(cluster["a"])[number], b"re %d" % number)
            return (await asked).body

        assert await ask(0) == b"re 0"
        await arrived.wait()
        async with asyncio.timeout(30):  # 0.5 s for each would be 50 s
            for n in range(1, 101):
                assert await ask(n) == b"re %d" % n


async def test_requests_of_one_moment_wait_for_the_same_heartbeat(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    held: list[Request[Any]] = []
    cluster["a"].dispatcher.wrap(RequestCode.HEART_BEAT, lambda _: held.append)
    sent: list[bytes] = []

    async def send(kind: Any, message: Message, **options: Any) -> Any:
        sent.append(message.body)

    instance = ClientInstance(cluster.namesrv)
    instance.heartbeat.add_producer("PG")
    await instance.start()
    replies = RequestReply(instance, send, introduction=15.0)
    asked = [
        asyncio.create_task(
            replies.request(Message("T", b"%d" % n), queue=None, key=None, timeout=30.0)
        )
        for n in range(3)
    ]
    # One for the requests, one for the new connection.
    await until(lambda: len(held) == 2)
    assert (len(replies), sent) == (3, [])
    asked[0].cancel()
    for request in held:
        request.reply(cluster["a"].heartbeat(request))
    await until(lambda: len(sent) == 2)
    assert sent == [b"1", b"2"]
    assert len(held) == 2
    replies.abandon()
    ends = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(end) for end in ends] == [asyncio.CancelledError, NotRunning, NotRunning]
    assert len(replies) == 0
    await instance.shutdown()


async def test_a_broker_that_could_not_be_told_is_told_by_a_later_request(
    cluster: FakeCluster, push: Callable[..., None]
) -> None:
    cluster.put("other", "b")
    await cluster["b"].stop()
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.queues("other")
        await request_in_vain(p, cluster["a"])
        await cluster["b"].start()
        await request_in_vain(p, cluster["a"])
        await cluster["b"].beat.wait()


async def test_the_timeout_of_a_request_is_the_total(cluster: FakeCluster) -> None:
    cluster.name_server.hangs = True
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        with pytest.raises(NoRouteInfo, match=r"T \(no name server answered within 0\.2 s\)"):
            await p.request(Message("T", b"x"), timeout=0.2)


async def test_only_requests_can_be_replied_to(
    cluster: FakeCluster, push: Callable[..., None]
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.send(Message("T", b"x"))
        [message] = received(cluster["a"])
        with pytest.raises(InvalidMessage, match="is not a request"):
            await p.reply(message, b"x")


HANDLE = "djEgVCBhIDE3MDAwMDAwMDAwMDAgSUQ="


def test_a_recall_handle() -> None:
    assert decoded(HANDLE).broker_name == "a"
    for text in ("", "x", "djE=", "djIgVCBhIDEgSUQ=", "消息", HANDLE[:-4]):
        with pytest.raises(InvalidMessage, match="recall handle"):
            decoded(text)


async def test_a_late_recall_says_that_the_message_was_delivered() -> None:
    async with (
        RocketMQ(properties={"recallMessageEnable": "true"}) as rocketmq,
        Producer("PG", namesrv=rocketmq.namesrv) as p,
    ):
        await rocketmq.create_topic("T", queues=1)
        result = await p.send(Message("T", b"x", delay=2))
        await rocketmq.advance(5)
        with pytest.raises(IllegalOperation, match=r"too late .* it was delivered already"):
            await p.recall("T", result.recall_handle)
        at_once = await p.send(Message("T", b"x"))
        with pytest.raises(InvalidMessage, match="only give one for a message with deliver_at"):
            await p.recall("T", at_once.recall_handle)


async def test_a_broker_that_recalls_nothing_need_not_be_asked_again() -> None:
    async with RocketMQ() as rocketmq, Producer("PG", namesrv=rocketmq.namesrv) as p:
        result = await p.send(Message("T", b"x", delay=60))
        with pytest.raises(NoPermission, match="recallMessageEnable=false") as caught:
            await p.recall("T", result.recall_handle)
        assert not caught.value.retriable


async def test_recalling(cluster: FakeCluster) -> None:
    answers = [
        Response(header=RecallMessageResponseHeader(msg_id="ID")),
        Response(ResponseCode.SYSTEM_ERROR, "too late"),
    ]
    cluster["a"].on(
        RequestCode.RECALL_MESSAGE, lambda request: answers.pop(0), RecallMessageRequestHeader
    )
    cluster.put("T", "a")
    cluster.put("U", "b")
    cluster.put("traces", "a")
    async with Producer("PG", namesrv=cluster.namesrv, trace="traces") as p:
        with pytest.raises(BrokerNotFound):
            await p.recall("U", HANDLE)
        assert await p.recall("T", HANDLE) == "ID"
        with pytest.raises(RemoteSystemError, match="too late"):
            await p.recall("T", HANDLE)
    [message] = received(cluster["a"], "traces")
    assert re.fullmatch(
        rb"Recall\x01\d+\x01DefaultRegion\x01PG\x01T\x01ID\x01true\x02", message.body
    )
