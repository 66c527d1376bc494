"""Settings, heartbeats, routes, and what operators ask of clients through brokers."""

from __future__ import annotations

import asyncio

import grpc

from pocketmq.client.admin.admin import Admin
from pocketmq.embedded import EmbeddedServer
from pocketmq.message.identity import encode_offset_msg_id, pack_host
from pocketmq.message.record import iter_records
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.bodies.running_info import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
)
from pocketmq.remoting.bodies.subscription_group import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from tests.proxy.conftest import grpc_port
from tests.proxy.grpc_client import GrpcClient, TelemetryCall, message


async def test_a_producer_gets_its_settings(client: GrpcClient) -> None:
    answer = (await client.as_producer("Normal")).settings
    assert answer.status.code == pb.OK
    settings = answer.settings
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.publishing.validate_message_type
    assert [topic.name for topic in settings.publishing.topics] == ["Normal"]
    assert settings.backoff_policy.max_attempts == 3
    assert settings.backoff_policy.exponential_backoff.initial.nanos == 10_000_000
    assert not settings.metric.on


async def test_a_consumer_gets_those_of_its_group(
    client: GrpcClient, server: EmbeddedServer
) -> None:
    async with Admin(namesrv=server.namesrv) as admin:
        policy = GroupRetryPolicy(
            type="EXPONENTIAL",
            exponential_retry_policy=ExponentialRetryPolicy(initial=1500, max=60_000, multiplier=3),
        )
        config = SubscriptionGroupConfig(
            group_name="odd", retry_max_times=5, group_retry_policy=policy
        )
        await admin.create_group("odd", config=config)
    usual = (await client.as_consumer("usual", "Normal")).settings.settings
    assert usual.backoff_policy.max_attempts == 17
    delays = [delay.seconds for delay in usual.backoff_policy.customized_backoff.next]
    assert (delays[0], delays[1], delays[-1], len(delays)) == (1, 5, 7200, 18)
    assert usual.subscription.receive_batch_size == 32
    assert usual.subscription.long_polling_timeout.seconds == 20
    async with GrpcClient(grpc_port(server), client_id="other") as other:
        odd = (await other.as_consumer("odd", "Normal")).settings.settings
    assert odd.backoff_policy.max_attempts == 6
    assert odd.backoff_policy.exponential_backoff.initial.nanos == 500_000_000
    assert odd.backoff_policy.exponential_backoff.multiplier == 3


async def test_settings_of_neither_end_the_stream(client: GrpcClient) -> None:
    stream = TelemetryCall(client)
    await stream.send(pb.TelemetryCommand(settings=pb.Settings()))
    assert await stream.status() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_filter_that_is_none_ends_the_stream(client: GrpcClient) -> None:
    settings = pb.Settings()
    settings.subscription.group.name = "readers"
    entry = settings.subscription.subscriptions.add()
    entry.topic.name = "Normal"
    entry.expression.expression = "||"
    stream = TelemetryCall(client)
    await stream.send(pb.TelemetryCommand(settings=settings))
    assert await stream.status() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_heartbeat_needs_settings(client: GrpcClient) -> None:
    request = pb.HeartbeatRequest(client_type=pb.PRODUCER)
    answer = await client.call("Heartbeat", request)
    assert answer.status.code == pb.UNRECOGNIZED_CLIENT_TYPE
    await client.as_producer("Normal")
    answer = await client.call("Heartbeat", request)
    assert answer.status.code == pb.OK


async def test_a_route_names_the_address_by_which_the_client_came(client: GrpcClient) -> None:
    request = pb.QueryRouteRequest()
    request.topic.name = "Fifo"
    request.endpoints.scheme = pb.DOMAIN_NAME
    request.endpoints.addresses.add(host="mq.example.com", port=30_081)
    answer = await client.call("QueryRoute", request)
    assert [queue.id for queue in answer.message_queues] == [0, 1]
    for queue in answer.message_queues:
        assert queue.permission == pb.READ_WRITE
        assert queue.accept_message_types == [pb.FIFO]
        assert queue.broker.name == "broker-a"
        address = queue.broker.endpoints.addresses[0]
        assert (address.host, address.port) == ("mq.example.com", 30_081)


async def test_a_new_topic_is_known_at_once(client: GrpcClient, server: EmbeddedServer) -> None:
    request = pb.QueryRouteRequest()
    request.topic.name = "New"
    answer = await client.call("QueryRoute", request)
    assert answer.status.code == pb.TOPIC_NOT_FOUND
    async with Admin(namesrv=server.namesrv) as admin:
        await admin.create_topic("New", queues=1)
    answer = await client.call("QueryRoute", request)
    assert answer.status.code == pb.OK


async def test_queues_with_more_to_read_or_write(
    client: GrpcClient, server: EmbeddedServer
) -> None:
    async with Admin(namesrv=server.namesrv) as admin:
        await admin.create_topic("Uneven", queues=1, read_queues=3)
    request = pb.QueryRouteRequest()
    request.topic.name = "Uneven"
    answer = await client.call("QueryRoute", request)
    permissions = [(queue.id, queue.permission) for queue in answer.message_queues]
    assert permissions == [(0, pb.READ_WRITE), (1, pb.READ), (2, pb.READ)]


async def test_assignments(client: GrpcClient, server: EmbeddedServer) -> None:
    async with Admin(namesrv=server.namesrv) as admin:
        config = SubscriptionGroupConfig(group_name="ordered", consume_message_orderly=True)
        await admin.create_group("ordered", config=config)
    ids = {}
    for group in ("any", "ordered"):
        request = pb.QueryAssignmentRequest()
        request.topic.name = "Fifo"
        request.group.name = group
        answer = await client.call("QueryAssignment", request)
        ids[group] = [assignment.message_queue.id for assignment in answer.assignments]
    assert ids == {"any": [-1], "ordered": [0, 1]}


async def test_an_operator_asks_for_the_stacks_of_a_consumer(
    client: GrpcClient, server: EmbeddedServer
) -> None:
    stream = await client.as_consumer("readers", "Normal")
    connection = await Connection.open(server.broker.address)
    asked = asyncio.ensure_future(
        connection.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            GetConsumerRunningInfoRequestHeader(
                consumer_group="readers", client_id="host@1@2@raw", jstack_enable=True
            ),
        )
    )
    nonce = (await stream.next()).print_thread_stack_trace_command.nonce
    command = pb.TelemetryCommand()
    command.thread_stack_trace.nonce = nonce
    command.thread_stack_trace.thread_stack_trace = "main: sleeping"
    await stream.send(command)
    answer = await asked
    await connection.close()
    assert ConsumerRunningInfo.decode(answer.body).jstack == "main: sleeping"


async def test_an_operator_has_a_consumer_consume_a_message(
    client: GrpcClient, server: EmbeddedServer
) -> None:
    stream = await client.as_consumer("readers", "Normal")
    connection = await Connection.open(server.broker.address)
    sent = await client.call("SendMessage", pb.SendMessageRequest(messages=[message()]))
    assert sent.status.code == pb.OK
    queue_id = next(
        queue_id
        for queue_id in server.broker.store.queues["Normal"]
        if server.broker.store.max_offset("Normal", queue_id)
    )
    [buffer] = server.broker.store.get("Normal", queue_id, 0, 1).buffers
    [record] = iter_records(buffer)
    host, _, port = server.broker.address.rpartition(":")
    place = encode_offset_msg_id(pack_host(host, int(port)), record.physical_offset)
    for code, result in ((pb.OK, "CR_SUCCESS"), (pb.FAILED_TO_CONSUME_MESSAGE, "CR_LATER")):
        asked = asyncio.ensure_future(
            connection.request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY,
                ConsumeMessageDirectlyResultRequestHeader(
                    consumer_group="readers", client_id="host@1@2@raw", msg_id=place, topic="Normal"
                ),
            )
        )
        command = (await stream.next()).verify_message_command
        assert command.message.body == message().body
        answer = pb.TelemetryCommand()
        answer.status.code = code
        answer.verify_message_result.nonce = command.nonce
        await stream.send(answer)
        told = ConsumeMessageDirectlyResult.decode((await asked).body)
        assert told.consume_result == result
    await connection.close()
