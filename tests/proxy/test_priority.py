"""Priority messages of gRPC clients, through both forms of the proxy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.proto import service_pb2 as pb
from tests.proxy.cluster import proxied_cluster
from tests.proxy.conftest import grpc_port
from tests.proxy.grpc_client import GrpcClient, message
from tests.proxy.test_consuming import GROUP, receive


async def queues_of(client: GrpcClient) -> list[Any]:
    request = pb.QueryRouteRequest()
    request.topic.name = "Priority"
    answer = await client.call("QueryRoute", request)
    assert answer.status.code == pb.OK
    return list(answer.message_queues)


async def received(client: GrpcClient, priorities: list[int]) -> list[tuple[int, int, int]]:
    """Send messages with these priorities. Return the priority, the queue and the type of each
    message in the order in which they are received, one by one."""
    for priority in priorities:
        one = message("Priority", priority=priority, message_type=pb.PRIORITY)
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[one]))
        assert answer.status.code == pb.OK, answer
    await client.as_consumer(GROUP, "Priority")
    found = []
    for _ in priorities:
        _, (got,) = await client.receive(receive("Priority", batch=1))
        system = got.system_properties
        assert not got.user_properties
        found.append((system.priority, system.queue_id, system.message_type))
    return found


#: The topic has two queues.
SENT = [0, 0, 1, 7]
RECEIVED = [(1, 1, pb.PRIORITY), (7, 1, pb.PRIORITY), (0, 0, pb.PRIORITY), (0, 0, pb.PRIORITY)]


async def test_priorities_through_the_broker_itself(server: EmbeddedServer) -> None:
    async with GrpcClient(grpc_port(server)) as client:
        assert [[*queue.accept_message_types] for queue in await queues_of(client)] == [
            [pb.PRIORITY]
        ] * 2
        assert await received(client, SENT) == RECEIVED


@pytest.mark.crash
async def test_priorities_through_a_cluster_proxy(tmp_path: Path) -> None:
    async with (
        proxied_cluster(tmp_path, 1) as cluster,
        GrpcClient(cluster.proxy.grpc_port) as client,
    ):
        assert await received(client, SENT) == RECEIVED


async def test_a_message_without_a_priority_shows_none(server: EmbeddedServer) -> None:
    async with GrpcClient(grpc_port(server)) as client:
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[message()]))
        assert answer.status.code == pb.OK
        await client.as_consumer(GROUP, "Normal")
        _, (got,) = await client.receive(receive("Normal"))
        assert not got.system_properties.HasField("priority")
        assert got.system_properties.message_type == pb.NORMAL
