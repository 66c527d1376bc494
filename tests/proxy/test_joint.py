"""Brokers with a gRPC port each: every one of the proxies serves the whole cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.client.admin.admin import Admin
from pocketmq.local_proxy import LocalProxy
from pocketmq.message.receipt_handle import decode_receipt_handle
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers.client import GetConsumerListByGroupRequestHeader
from pocketmq.remoting.pool import ConnectionPool
from pocketmq.remoting.serving.dispatch import Dispatcher
from tests.proxy.conftest import TOPICS
from tests.proxy.grpc_client import GrpcClient, message
from tests.proxy.test_consuming import ack, change, receive

BROKERS = ("broker-a", "broker-b", "broker-c")
GROUP, ORDERLY = "readers", "orderly"
QUEUES = 8


class Cluster:
    """A name server, and brokers with a proxy each, in this process."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.brokers: dict[str, Broker] = {}
        self.proxies: dict[str, LocalProxy] = {}

    async def stored(self, topic: str) -> Counter[str]:
        """How many messages of a topic each broker has."""
        async with Admin(namesrv=self.namesrv) as admin:
            table = await admin.topic_stats(topic)
        found: Counter[str] = Counter()
        for queue, offset in table.offset_table.items():
            found[queue.broker_name] += offset.max_offset
        return found


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with contextlib.AsyncExitStack() as stack:
        config = NamesrvConfig(
            listen_port=0,
            kv_config_path=str(tmp_path / "kv.json"),
            config_store_path=str(tmp_path / "namesrv.properties"),
        )
        name_server = await stack.enter_async_context(NameServer(config))
        cluster = Cluster(f"127.0.0.1:{name_server.port}")
        for name in BROKERS:
            settings = BrokerConfig(
                broker_name=name,
                namesrv_addr=cluster.namesrv,
                listen_port=0,
                store_path_root_dir=str(tmp_path / name),
                mapped_file_size_commit_log=1 << 24,
                recall_message_enable=True,
            )
            broker = cluster.brokers[name] = Broker(settings)
            await stack.enter_async_context(broker)
            proxy = cluster.proxies[name] = LocalProxy(broker, port=0)
            await stack.enter_async_context(proxy)
        async with Admin(namesrv=cluster.namesrv) as admin:
            for topic, kind in TOPICS.items():
                await admin.create_topic(topic, queues=QUEUES, attributes={"message.type": kind})
            orderly = SubscriptionGroupConfig(group_name=ORDERLY, consume_message_orderly=True)
            await admin.create_group(ORDERLY, config=orderly)
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[GrpcClient]:
    async with GrpcClient(cluster.proxies["broker-b"].port) as client:
        yield client


async def test_a_route_names_the_queues_of_all_brokers(
    cluster: Cluster, client: GrpcClient
) -> None:
    request = pb.QueryRouteRequest()
    request.topic.name = "Normal"
    answer = await client.call("QueryRoute", request)
    queues = Counter(queue.broker.name for queue in answer.message_queues)
    assert queues == dict.fromkeys(BROKERS, QUEUES)
    # All of them are reached by the address at which the client came.
    addresses = {
        address.port for queue in answer.message_queues
        for address in queue.broker.endpoints.addresses
    }  # fmt: skip
    assert addresses == {cluster.proxies["broker-b"].port}


async def test_a_consumer_receives_from_all_brokers(client: GrpcClient) -> None:
    for group, count in ((GROUP, len(BROKERS)), (ORDERLY, len(BROKERS) * QUEUES)):
        request = pb.QueryAssignmentRequest()
        request.topic.name, request.group.name = "Normal", group
        answer = await client.call("QueryAssignment", request)
        assert len(answer.assignments) == count
        assert {one.message_queue.broker.name for one in answer.assignments} == set(BROKERS)


async def test_messages_go_to_all_brokers_and_come_back(
    cluster: Cluster, client: GrpcClient
) -> None:
    await client.as_producer("Normal")
    await client.as_consumer(GROUP, "Normal")
    # An empty topic is read from its first message on.
    waiting = [asyncio.ensure_future(client.receive(receive_at(name))) for name in BROKERS]
    for _ in range(3 * QUEUES):
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[message()]))
        assert answer.status.code == pb.OK
    stored = await cluster.stored("Normal")
    assert set(stored) == set(BROKERS)
    assert stored.total() == 3 * QUEUES
    got = [one for call in waiting for one in (await call)[1]]
    for name in BROKERS:
        while len(found := of(got, name)) < stored[name]:
            code, more = await client.receive(receive_at(name))
            assert code == pb.OK, f"{name}: {len(found)}"
            got += more
    # By the handle, each goes to its own broker: some after a longer time, the others for good.
    for one in got[::2]:
        answer = await client.call("ChangeInvisibleDuration", change(one, 60))
        assert answer.status.code == pb.OK
        one.system_properties.receipt_handle = answer.receipt_handle
    answer = await client.call("AckMessage", ack(*got))
    assert answer.status.code == pb.OK, answer


def receive_at(broker: str) -> pb.ReceiveMessageRequest:
    request = receive()
    request.message_queue.broker.name = broker
    return request


def of(messages: list[pb.Message], broker: str) -> list[pb.Message]:
    handles = [decode_receipt_handle(one.system_properties.receipt_handle) for one in messages]
    return [
        one for one, handle in zip(messages, handles, strict=True) if handle.broker_name == broker
    ]


async def test_a_message_group_has_the_same_queue_by_every_proxy(cluster: Cluster) -> None:
    for proxy in cluster.proxies.values():
        async with GrpcClient(proxy.port) as client:
            for number in range(40):
                one = message("Fifo", message_type=pb.FIFO, message_group=f"group {number}")
                answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[one]))
                assert answer.status.code == pb.OK
    async with Admin(namesrv=cluster.namesrv) as admin:
        table = await admin.topic_stats("Fifo")
    counts = {queue: offset.max_offset for queue, offset in table.offset_table.items()}
    assert all(count % len(BROKERS) == 0 for count in counts.values()), counts
    assert {queue.broker_name for queue, count in counts.items() if count} == set(BROKERS)


async def test_transactions_and_recalls_go_to_the_broker_that_their_id_names(
    cluster: Cluster, client: GrpcClient
) -> None:
    await client.as_producer("Transaction", "Delay")
    for _ in range(6):
        half = message("Transaction", message_type=pb.TRANSACTION)
        sent = await client.call("SendMessage", pb.SendMessageRequest(messages=[half]))
        request = pb.EndTransactionRequest(
            message_id=half.system_properties.message_id,
            transaction_id=sent.entries[0].transaction_id,
            resolution=pb.COMMIT,
        )
        request.topic.name = "Transaction"
        assert (await client.call("EndTransaction", request)).status.code == pb.OK
        later = message("Delay", message_type=pb.DELAY)
        later.system_properties.delivery_timestamp.GetCurrentTime()
        later.system_properties.delivery_timestamp.seconds += 3_600
        sent = await client.call("SendMessage", pb.SendMessageRequest(messages=[later]))
        recall = pb.RecallMessageRequest(recall_handle=sent.entries[0].recall_handle)
        recall.topic.name = "Delay"
        assert (await client.call("RecallMessage", recall)).status.code == pb.OK
    assert (await cluster.stored("Transaction")).total() == 6


async def test_a_topic_that_only_another_broker_has(cluster: Cluster, client: GrpcClient) -> None:
    async with Admin(namesrv=cluster.namesrv) as admin:
        await admin.create_topic("Elsewhere", broker="broker-c", queues=2)
    answer = await client.call(
        "SendMessage", pb.SendMessageRequest(messages=[message("Elsewhere")])
    )
    assert answer.status.code == pb.OK
    assert await cluster.stored("Elsewhere") == {"broker-c": 1}


async def test_each_broker_knows_a_consumer_once(cluster: Cluster, client: GrpcClient) -> None:
    await client.call("QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name="Normal")))
    await client.as_consumer(GROUP, "Normal")
    pool = ConnectionPool(Dispatcher())
    header = GetConsumerListByGroupRequestHeader(consumer_group=GROUP)

    async def members(broker: Broker) -> int:
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        answer = await pool.request(broker.address, code, header)
        return len(json.loads(answer.body or b"{}").get("consumerIdList", ()))

    async with asyncio.timeout(30):
        while (seen := [await members(broker) for broker in cluster.brokers.values()]) != [1, 1, 1]:
            assert max(seen) <= 1
    await pool.close()


async def test_clients_with_many_groups_hide_no_others(
    cluster: Cluster, client: GrpcClient
) -> None:
    """To other brokers a proxy is one client, with the groups of all of its clients."""
    port = cluster.proxies["broker-b"].port
    route = pb.QueryRouteRequest()
    route.topic.name = "Normal"
    assert (await client.call("QueryRoute", route)).status.code == pb.OK
    async with contextlib.AsyncExitStack() as stack:
        for group in ("long", "longer"):
            settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
            settings.subscription.group.name = group
            for n in range(14):
                entry = settings.subscription.subscriptions.add()
                entry.topic.name = f"Topic{n}"
                entry.expression.expression = "||".join(f"{tag}{'x' * 1000}" for tag in range(60))
            long = await stack.enter_async_context(GrpcClient(port, client_id=group))
            await long.telemetry(settings)
        many = await stack.enter_async_context(GrpcClient(port, client_id="many"))
        await many.as_producer(*(f"{n:0120}" for n in range(1_000)))
        await client.as_producer("Transaction")
        for name in ("broker-a", "broker-c"):
            producers = cluster.brokers[name].tables.producers
            for group in ("Transaction", f"{999:0120}"):
                while not producers.clients(group):  # noqa: ASYNC110 (a heartbeat has no event)
                    await asyncio.sleep(0.01)


async def test_nobody_borrows_the_signature_of_a_broker(cluster: Cluster, tmp_path: Path) -> None:
    """Without authentication, whoever comes would be a super user of the other brokers."""
    settings = BrokerConfig(
        broker_name="lender",
        namesrv_addr=cluster.namesrv,
        listen_port=0,
        store_path_root_dir=str(tmp_path / "lender"),
        mapped_file_size_commit_log=1 << 24,
        inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"secret"}',
    )
    async with Broker(settings) as broker, LocalProxy(broker, port=0) as proxy:
        broker.tables.topics.create_if_absent("Own", 1)
        async with GrpcClient(proxy.port) as client:
            codes = {}
            for topic in ("Own", "Normal"):
                request = pb.QueryRouteRequest()
                request.topic.name = topic
                codes[topic] = (await client.call("QueryRoute", request)).status.code
    assert codes == {"Own": pb.OK, "Normal": pb.TOPIC_NOT_FOUND}
