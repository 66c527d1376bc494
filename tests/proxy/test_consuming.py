"""What consumers hear: ReceiveMessage, and what becomes of the messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.compression import CompressionType, compress
from pocketmq.message.receipt_handle import decode_receipt_handle
from pocketmq.message.retry_topic import TopicKind
from pocketmq.message.sysflag import COMPRESSED, COMPRESSION_TYPE_SHIFT
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.dispatch import Answer, Handler
from pocketmq.remoting.serving.request import Request
from pocketmq.remoting.settings.properties_file import ConfigErrors
from tests.broker.conftest import Client as RawClient
from tests.proxy.conftest import create_topics, grpc_port
from tests.proxy.grpc_client import GrpcClient, message
from tests.proxy.watched import watched_proxy

GROUP = "readers"


def receive(
    topic: str = "Normal",
    group: str = GROUP,
    *,
    batch: int = 32,
    invisible: int | None = 15,
    tags: str = "*",
    **fields: Any,
) -> pb.ReceiveMessageRequest:
    request = pb.ReceiveMessageRequest(batch_size=batch, **fields)
    request.group.name = group
    request.message_queue.topic.name = topic
    request.filter_expression.type = fields.get("filter_type", pb.TAG)
    request.filter_expression.expression = tags
    if invisible is not None:
        request.invisible_duration.seconds = invisible
    if not request.HasField("long_polling_timeout"):
        request.long_polling_timeout.seconds = 5
    return request


def ack(*messages: Any, topic: str = "Normal", group: str = GROUP) -> pb.AckMessageRequest:
    request = pb.AckMessageRequest()
    request.group.name = group
    request.topic.name = topic
    for one in messages:
        system = one.system_properties
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return request


def change(one: Any, seconds: float, *, topic: str = "Normal") -> pb.ChangeInvisibleDurationRequest:
    request = pb.ChangeInvisibleDurationRequest(receipt_handle=one.system_properties.receipt_handle)
    request.group.name = GROUP
    request.topic.name = topic
    request.invisible_duration.seconds = int(seconds)
    request.invisible_duration.nanos = int(seconds % 1 * 1e9)
    return request


async def send(client: GrpcClient, *messages: pb.Message) -> None:
    answer = await client.call("SendMessage", pb.SendMessageRequest(messages=messages))
    assert answer.status.code == pb.OK


@pytest.fixture
async def consumer(client: GrpcClient) -> GrpcClient:
    """A client of a group that has begun: from now on it gets what is sent."""
    await client.as_consumer(GROUP, "Normal", "Fifo")
    await begin(client, GROUP, "Normal", "Fifo")
    return client


async def begin(client: GrpcClient, group: str, *topics: str) -> None:
    for topic in topics:
        # An empty topic is read from its first message on.
        call = asyncio.ensure_future(client.receive(receive(topic, group)))
        await asyncio.sleep(0)
        await send(client, _for(topic))
        _, messages = await call
        await client.call("AckMessage", ack(*messages, topic=topic, group=group))


def _for(topic: str) -> pb.Message:
    if topic == "Fifo":
        return message("Fifo", b"begin", message_type=pb.FIFO, message_group="g")
    return message(topic, b"begin")


async def test_a_message_is_received_and_acknowledged(consumer: GrpcClient) -> None:
    sent = message(tag="red", keys=["k"], trace_context="t")
    sent.user_properties["colour"] = "blue"
    await send(consumer, sent)
    code, (got,) = await consumer.receive(receive())
    assert code == pb.OK
    assert got.topic.name == "Normal"
    assert got.body == b"body"
    assert got.user_properties["colour"] == "blue"
    system = got.system_properties
    assert system.message_id == sent.system_properties.message_id
    assert (system.tag, list(system.keys), system.trace_context) == ("red", ["k"], "t")
    assert system.body_digest.checksum == "841A2D689AD86BD1611447453C22C6FC"
    assert system.delivery_attempt == 1
    assert system.message_type == pb.NORMAL
    assert decode_receipt_handle(system.receipt_handle).physical_offset >= 0
    answer = await consumer.call("AckMessage", ack(got))
    assert answer.status.code == answer.entries[0].status.code == pb.OK


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
async def test_a_body_of_an_unknown_codec_comes_as_it_is_beside_the_others(
    consumer: GrpcClient, server: EmbeddedServer, codec: int
) -> None:
    broker = RawClient()
    await broker.open(server.broker.address)
    flags = COMPRESSED | codec << COMPRESSION_TYPE_SHIFT
    assert (await broker.send("Normal", b"?", sys_flag=flags)).code == 0
    await broker.close()
    await send(consumer, message(body=b"good"))
    bodies: list[bytes] = []
    while len(bodies) < 2:
        code, messages = await consumer.receive(receive())
        assert code == pb.OK
        bodies += [got.body for got in messages]
    assert sorted(bodies) == [b"?", b"good"]


async def test_bodies_that_inflate_come_over_several_answers(
    consumer: GrpcClient, server: EmbeddedServer
) -> None:
    """A few KB would otherwise take all memory, and seconds of one turn."""
    full = bytes(4 << 20)
    broker = RawClient()
    await broker.open(server.broker.address)
    zstd = COMPRESSED | CompressionType.ZSTD.flag
    begin = server.broker.store.max_offset("Normal", 0)
    for body in (bytes((4 << 20) + 1), *[full] * 10):
        stored = compress(body, CompressionType.ZSTD)
        assert (await broker.send("Normal", stored, sys_flag=zstd)).code == 0
    await broker.close()
    longer, *first = (await consumer.receive(receive()))[1]
    assert len(longer.body) < 4096  # as stored
    assert [got.body for got in first] == [full] * 8
    rest: list[pb.Message] = []
    while len(rest) < 2:
        code, messages = await consumer.receive(receive())
        assert code == pb.OK
        rest += messages
    assert [got.body for got in rest] == [full] * 2
    assert [got.system_properties.delivery_attempt for got in rest] == [1, 1]

    pull = pb.PullMessageRequest(batch_size=32, offset=begin)
    pull.group.name = GROUP
    pull.message_queue.topic.name = "Normal"
    handle = decode_receipt_handle(longer.system_properties.receipt_handle)
    pull.message_queue.broker.name = handle.broker_name
    *_, last = [answer async for answer in consumer.call("PullMessage", pull)]
    assert last.next_offset == begin + 9


async def test_a_held_receive_ends_with_the_message(consumer: GrpcClient) -> None:
    call = asyncio.ensure_future(consumer.receive(receive()))
    await asyncio.sleep(0.1)
    await send(consumer, message(body=b"new"))
    _, (got,) = await call
    assert got.body == b"new"


async def test_nothing_to_receive(consumer: GrpcClient) -> None:
    assert await consumer.receive(receive()) == (pb.MESSAGE_NOT_FOUND, [])


async def test_filters(consumer: GrpcClient) -> None:
    await consumer.as_consumer("sql", "Normal")
    await begin(consumer, "sql", "Normal")
    for tag in ("a", "b", "c"):
        sent = message(body=tag.encode(), tag=tag)
        sent.user_properties["letter"] = tag
        await send(consumer, sent)
    _, by_tag = await consumer.receive(receive(tags="a || b"))
    assert sorted(got.body for got in by_tag) == [b"a", b"b"]
    request = receive(group="sql", tags="letter = 'c'")
    request.filter_expression.type = pb.SQL
    _, by_sql = await consumer.receive(request)
    assert [got.body for got in by_sql] == [b"c"]


@pytest.mark.parametrize(("suspend", "attempt"), [(False, 2), (True, 1)])
async def test_a_nack_brings_the_message_back_in_its_time(
    consumer: GrpcClient, suspend: bool, attempt: int
) -> None:
    await send(consumer, message())
    _, (got,) = await consumer.receive(receive())
    request = change(got, 1)
    request.suspend = suspend
    answer = await consumer.call("ChangeInvisibleDuration", request)
    assert answer.status.code == pb.OK
    async with asyncio.timeout(10):  # it is invisible for 15 s
        _, (again,) = await consumer.receive(receive())
    assert again.system_properties.delivery_attempt == attempt
    assert again.system_properties.message_id == got.system_properties.message_id


async def test_an_acknowledgement_counts_after_a_change(consumer: GrpcClient) -> None:
    # apache/rocketmq#9583
    await send(consumer, message(body=b"1"), message(body=b"2"), message(body=b"3"))
    _, messages = await consumer.receive(receive())
    assert len(messages) == 3
    for got in messages:
        answer = await consumer.call("ChangeInvisibleDuration", change(got, 2))
        got.system_properties.receipt_handle = answer.receipt_handle
        answer = await consumer.call("AckMessage", ack(got))
        assert answer.status.code == pb.OK
    assert await consumer.receive(receive()) == (pb.MESSAGE_NOT_FOUND, [])


async def test_each_acknowledgement_has_a_result(consumer: GrpcClient) -> None:
    await send(consumer, message())
    _, (got,) = await consumer.receive(receive())
    broken, expired = pb.Message(), pb.Message()
    broken.system_properties.receipt_handle = "nonsense"
    expired.system_properties.receipt_handle = "0 1 1000 0 0 broker-a 0 0 0"
    answer = await consumer.call("AckMessage", ack(got, broken, expired))
    assert answer.status.code == pb.MULTIPLE_RESULTS
    codes = [entry.status.code for entry in answer.entries]
    assert codes == [pb.OK, pb.INVALID_RECEIPT_HANDLE, pb.INVALID_RECEIPT_HANDLE]
    assert answer.status.message == "MULTIPLE_RESULTS"
    answer = await consumer.call("AckMessage", ack(expired))
    assert answer.status.message == "INVALID_RECEIPT_HANDLE"
    assert answer.entries[0].status.message == "receipt handle is expired"


def forward(got: Any, handle: str) -> pb.ForwardMessageToDeadLetterQueueRequest:
    request = pb.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=handle, message_id=got.system_properties.message_id
    )
    request.group.name = GROUP
    request.topic.name = "Normal"
    return request


async def test_a_message_goes_to_the_dead_letters(
    consumer: GrpcClient, server: EmbeddedServer
) -> None:
    await send(consumer, message(body=b"dead"))
    _, (got,) = await consumer.receive(receive())
    request = forward(got, got.system_properties.receipt_handle)
    answer = await consumer.call("ForwardMessageToDeadLetterQueue", request)
    assert answer.status.code == pb.OK
    store = server.broker.store
    assert store.max_offset(f"%DLQ%{GROUP}", 0) == 1


async def test_nothing_of_other_topics_goes_to_the_dead_letters(
    consumer: GrpcClient, server: EmbeddedServer
) -> None:
    """A broker goes by the place in the handle alone, which a client can make up."""
    store = server.broker.store
    place = store.commit_log.end
    await send(consumer, message("Fifo", b"secret", message_type=pb.FIFO, message_group="g"))
    await send(consumer, message())
    _, (got,) = await consumer.receive(receive())
    true = decode_receipt_handle(got.system_properties.receipt_handle)
    for physical in (place, place + 1, 1 << 40, -1):
        made_up = true._replace(physical_offset=physical).encode()
        answer = await consumer.call("ForwardMessageToDeadLetterQueue", forward(got, made_up))
        assert answer.status.code == pb.INVALID_RECEIPT_HANDLE
    assert store.max_offset(f"%DLQ%{GROUP}", 0) == 0


async def test_no_retry_of_another_group_goes_to_the_dead_letters(
    consumer: GrpcClient, server: EmbeddedServer
) -> None:
    """Its topic has the name that the retry topic of the group and the topic would have."""
    await send(consumer, message())
    _, (got,) = await consumer.receive(receive())
    broker = RawClient()
    await broker.open(server.broker.address)
    place = server.broker.store.commit_log.end
    assert (await broker.send(f"%RETRY%{GROUP}_{got.topic.name}", b"secret")).code == 0
    await broker.close()
    true = decode_receipt_handle(got.system_properties.receipt_handle)
    made_up = true._replace(kind=TopicKind.RETRY_V1, queue_offset=0, physical_offset=place).encode()
    answer = await consumer.call("ForwardMessageToDeadLetterQueue", forward(got, made_up))
    assert answer.status.code != pb.OK
    assert server.broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 0


async def test_what_brokers_of_later_releases_add_is_not_shown(
    consumer: GrpcClient, server: EmbeddedServer
) -> None:
    broker = RawClient()
    await broker.open(server.broker.address)
    added = dict.fromkeys(("ORIGIN_GROUP", "_SYS_MSG_PRIORITY_", "__LITE_TOPIC"), "1")
    assert (await broker.send("Normal", b"x", properties={**added, "own": "2"})).code == 0
    await broker.close()
    _, (got,) = await consumer.receive(receive())
    assert dict(got.user_properties) == {"own": "2"}


async def test_a_receive_that_is_given_up_takes_no_message(consumer: GrpcClient) -> None:
    given_up = consumer.call("ReceiveMessage", receive())
    read = asyncio.ensure_future(given_up.read())
    await asyncio.sleep(0.2)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await read
    # The cancellation reaches the server before this call, which is on the same connection.
    await send(consumer, message(body=b"for the next one"))
    async with asyncio.timeout(10):  # it is invisible for 15 s
        _, (got,) = await consumer.receive(receive())
    assert got.system_properties.delivery_attempt == 1


async def test_a_group_continues_where_it_was_reset_to(
    server: EmbeddedServer, consumer: GrpcClient
) -> None:
    bodies = [b"%d" % number for number in range(4)]
    await send(consumer, *(message(body=body) for body in bodies))
    async with Admin(namesrv=server.namesrv) as admin:
        await admin.reset_offsets(GROUP, "Normal", "end")
        await send(consumer, message(body=b"new"))
        _, (new,) = await consumer.receive(receive())
        assert new.body == b"new"
        await admin.reset_offsets(GROUP, "Normal", "begin")
        # What is acknowledged only now does not undo the reset.
        await consumer.call("AckMessage", ack(new))
        again: list[bytes] = []
        while len(again) < 6:
            _, messages = await consumer.receive(receive())
            again += [got.body for got in messages]
            await consumer.call("AckMessage", ack(*messages))
    assert sorted(again) == [*bodies, b"begin", b"new"]


async def test_in_order(server: EmbeddedServer, client: GrpcClient) -> None:
    async with Admin(namesrv=server.namesrv) as admin:
        config = SubscriptionGroupConfig(group_name="ordered", consume_message_orderly=True)
        await admin.create_group("ordered", config=config)
    stream = await client.as_consumer("ordered", "Fifo")
    assert stream.settings.settings.subscription.fifo
    await begin(client, "ordered", "Fifo")
    sent = [
        message("Fifo", b"%d" % number, message_type=pb.FIFO, message_group="g")
        for number in range(6)
    ]
    await send(client, *sent)
    request = receive("Fifo", "ordered", batch=2, attempt_id="first")
    _, first = await client.receive(request)
    _, repeated = await client.receive(request)
    # An answer that was lost is given again; another receive has to wait.
    assert bodies(first) == bodies(repeated) == [b"0", b"1"]
    other = receive("Fifo", "ordered", batch=2, attempt_id="second")
    assert await client.receive(other) == (pb.MESSAGE_NOT_FOUND, [])
    await client.call("AckMessage", ack(*repeated, topic="Fifo", group="ordered"))
    _, second = await client.receive(other)
    assert bodies(second) == [b"2", b"3"]


def bodies(messages: Sequence[Any]) -> list[bytes]:
    return [got.body for got in messages]


REFUSED: list[tuple[str, pb.ReceiveMessageRequest, int]] = [
    ("short invisible time", receive(invisible=1), pb.ILLEGAL_INVISIBLE_TIME),
    ("long invisible time", receive(invisible=13 * 3600), pb.ILLEGAL_INVISIBLE_TIME),
    ("no tag in the filter", receive(tags=" || "), pb.ILLEGAL_FILTER_EXPRESSION),
    ("missing topic", receive("Missing"), pb.TOPIC_NOT_FOUND),
    ("illegal topic", receive("no/topic"), pb.ILLEGAL_TOPIC),
    ("blank group", receive(group=""), pb.ILLEGAL_CONSUMER_GROUP),
]


async def test_what_is_refused(client: GrpcClient) -> None:
    await client.as_consumer(GROUP, "Normal")
    answered = {name: (await client.receive(request))[0] for name, request, _ in REFUSED}
    assert answered == {name: code for name, _, code in REFUSED}


async def test_broken_sql_is_refused(client: GrpcClient) -> None:
    await client.as_consumer(GROUP, "Normal")
    request = receive(tags="letter >")
    request.filter_expression.type = pb.SQL
    assert (await client.receive(request))[0] == pb.ILLEGAL_FILTER_EXPRESSION


async def test_a_deadline_that_is_too_near_is_refused(client: GrpcClient) -> None:
    await client.as_consumer(GROUP, "Normal")
    code, _ = await client.receive(receive(), timeout=4)
    assert code == pb.ILLEGAL_POLLING_TIME


@pytest.mark.parametrize(
    ("version", "code"),
    [("5.0.2", pb.BAD_REQUEST), ("5.0.3", pb.ILLEGAL_POLLING_TIME)],
)
async def test_clients_that_do_not_know_illegal_polling_time(
    server: EmbeddedServer, version: str, code: int
) -> None:
    metadata = {"x-mq-client-version": version}
    async with GrpcClient(grpc_port(server), metadata=metadata) as client:
        await client.as_consumer(GROUP, "Normal")
        assert (await client.receive(receive(), timeout=4))[0] == code


async def test_the_settings_of_a_broker_reach_its_proxy() -> None:
    properties = {
        "grpcClientConsumerMinLongPollingTimeoutMillis": "100",
        "minInvisibleTimeMillsForRecv": "1000",
        "maxInvisibleTimeMills": "2000",
        "enableTopicMessageTypeCheck": "false",
    }
    async with EmbeddedServer(grpc_port=0, properties=properties) as server:
        await create_topics(server.namesrv)
        async with GrpcClient(grpc_port(server)) as client:
            await client.as_consumer(GROUP, "Delay")
            # Five seconds are not left, and not needed.
            request = receive("Delay", invisible=1)
            request.long_polling_timeout.seconds = 0
            assert (await client.receive(request, timeout=4))[0] == pb.MESSAGE_NOT_FOUND
            too_long = receive("Delay", invisible=3)
            too_long.long_polling_timeout.seconds = 0
            call = client.call("ReceiveMessage", too_long, timeout=4)
            status = (await call.read()).status
            assert status.code == pb.ILLEGAL_INVISIBLE_TIME
            assert status.message == "the invisibleTime is too large. max is 2000"
            await send(client, message("Delay"))
    with pytest.raises(ConfigErrors, match="maxInvisibleTimeMills"):
        EmbeddedServer(properties={"maxInvisibleTimeMills": "long"})


async def test_a_receive_needs_no_settings(client: GrpcClient) -> None:
    """The clients for Go and Python send them again five minutes after a proxy was restarted."""
    await send(client, message(body=b"waits"))
    _, (got,) = await client.receive(receive())
    assert got.body == b"waits"
    answer = await client.call("AckMessage", ack(got))
    assert answer.status.code == pb.OK


async def test_a_change_to_an_illegal_time_is_refused(consumer: GrpcClient) -> None:
    await send(consumer, message())
    _, (got,) = await consumer.receive(receive())
    answer = await consumer.call("ChangeInvisibleDuration", change(got, 13 * 3600))
    assert answer.status.code == pb.ILLEGAL_INVISIBLE_TIME
    assert answer.status.message == "the invisibleTime is too large. max is 43200000"


async def test_an_invisible_time_that_is_too_short_is_refused(client: GrpcClient) -> None:
    status = (await client.call("ReceiveMessage", receive(invisible=1)).read()).status
    assert status.code == pb.ILLEGAL_INVISIBLE_TIME
    assert status.message == "the invisibleTime is too small. min is 10000"


async def test_by_offsets(client: GrpcClient) -> None:
    await send(client, *(message(body=b"%d" % number) for number in range(4)))
    queue = pb.MessageQueue(id=1)
    queue.topic.name = "Normal"
    queue.broker.name = "broker-a"
    request = pb.PullMessageRequest(message_queue=queue, offset=0, batch_size=10)
    request.group.name = GROUP
    request.filter_expression.expression = "*"
    answers = [answer async for answer in client.call("PullMessage", request)]
    assert answers[0].status.code == pb.OK
    got = [answer.message.system_properties.queue_offset for answer in answers[1:-1]]
    assert got == list(range(answers[-1].next_offset)) == [0, 1]
    update = pb.UpdateOffsetRequest(message_queue=queue, offset=1)
    update.group.name = GROUP
    assert (await client.call("UpdateOffset", update)).status.code == pb.OK
    asked = pb.GetOffsetRequest(message_queue=queue)
    asked.group.name = GROUP
    assert (await client.call("GetOffset", asked)).offset == 1
    for policy, offset in ((pb.BEGINNING, 0), (pb.END, 2)):
        query = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=policy)
        assert (await client.call("QueryOffset", query)).offset == offset
    query = pb.QueryOffsetRequest(message_queue=queue, query_offset_policy=pb.TIMESTAMP)
    assert (await client.call("QueryOffset", query)).status.code == pb.BAD_REQUEST
    query.timestamp.seconds = 1
    assert (await client.call("QueryOffset", query)).offset == 0


async def test_the_connection_of_a_client_that_leaves(
    consumer: GrpcClient, server: EmbeddedServer
) -> None:
    assert GROUP in server.broker.tables.consumers.names()
    request = pb.NotifyClientTerminationRequest()
    request.group.name = GROUP
    answer = await consumer.call("NotifyClientTermination", request)
    assert answer.status.code == pb.OK
    assert GROUP not in server.broker.tables.consumers.names()


async def test_lite_topics_are_not_served(server: EmbeddedServer) -> None:
    async with GrpcClient(grpc_port(server)) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call(
                "SyncLiteSubscription", pb.HeartbeatRequest(), response=pb.HeartbeatResponse
            )
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(("request_timeout", "polling"), [(None, 20_000), (120, 5_000)])
async def test_a_receive_leaves_half_of_the_request_timeout_of_its_client(
    server: EmbeddedServer, request_timeout: int | None, polling: int
) -> None:
    """Of a minute, that leaves more than a receive may wait, or nothing: then it is the least."""
    asked: list[int] = []

    def watched(handler: Handler) -> Handler:
        def watch(request: Request[Any]) -> Answer:
            asked.append(request.header.poll_time)
            return handler(request)

        return watch

    wrappers = {RequestCode.POP_MESSAGE: watched}
    async with watched_proxy(server.broker, wrappers) as port, GrpcClient(port) as client:
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = GROUP
        if request_timeout is not None:
            settings.request_timeout.seconds = request_timeout
        await client.telemetry(settings)
        await send(client, message())
        request = receive()
        request.ClearField("long_polling_timeout")
        code, _ = await client.receive(request, timeout=60)
        assert code == pb.OK
        assert asked == [polling]
