"""The cluster proxy over three brokers, one of which stops for a while (RIP-63)."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.client.selector.latency import FaultItem, LatencyFaultTolerance
from pocketmq.client.selector.pipeline import QueueSelector
from pocketmq.client.selector.switches import CLIENT_CONFIG_NAMESPACE
from pocketmq.proxy.proto import service_pb2 as pb
from tests.proxy.cluster import ProxiedCluster, proxied_cluster
from tests.proxy.grpc_client import GrpcClient, message, until
from tests.proxy.test_consuming import ack, receive

pytestmark = pytest.mark.crash


async def ends(cluster: ProxiedCluster, topic: str) -> dict[str, int]:
    """How many messages each broker has of a topic."""
    async with Admin(namesrv=cluster.namesrv) as admin:
        table = await admin.topic_stats(topic)
    found: Counter[str] = Counter()
    for queue, offset in table.offset_table.items():
        found[queue.broker_name] += offset.max_offset
    return dict(found)


class Senders:
    """Send without pause through the proxy; each answer is noted with its time."""

    def __init__(self, client: GrpcClient, **system: Any) -> None:
        self._client = client
        self._system = system
        self.answers: list[tuple[float, int]] = []
        self.sent: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Senders:
        self._tasks = [asyncio.ensure_future(self._run()) for _ in range(8)]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            request = pb.SendMessageRequest(messages=[message(**self._system)])
            answer = await self._client.call("SendMessage", request, timeout=3)
            self.answers.append((monotonic(), answer.status.code))

    def count(self) -> int:
        return len(self.answers)


class CountingTolerance(LatencyFaultTolerance):
    """Counts the attempts at each broker."""

    def __init__(self) -> None:
        super().__init__(monotonic)
        self.attempts: Counter[str] = Counter()

    def began(self, broker_name: str, now: float, messages: int = 1) -> FaultItem:
        self.attempts[broker_name] += 1
        return super().began(broker_name, now, messages)


async def test_a_broker_that_stops_gets_no_more_messages_until_it_is_back(tmp_path: Path) -> None:
    tolerance = CountingTolerance()
    selector = QueueSelector(monotonic, tolerance=tolerance)
    attempts = tolerance.attempts
    async with proxied_cluster(tmp_path, 3, selector=selector) as cluster:
        async with GrpcClient(cluster.proxy.grpc_port) as client, Senders(client) as senders:
            await until(lambda: senders.count() > 300)
            assert len(attempts) == 3
            cluster.freeze("broker-1")
            try:
                # The first timeouts.
                await until(lambda: not tolerance.is_reachable("broker-1"))
                await asyncio.sleep(1)
                attempts.clear()
                await until(lambda: attempts.total() > 1000, 60)
                assert attempts["broker-1"] <= attempts.total() * 0.01, attempts
            finally:
                cluster.thaw("broker-1")
            await until(lambda: tolerance.is_reachable("broker-1"))
            await asyncio.sleep(1)
            attempts.clear()
            await until(lambda: attempts.total() > 600, 60)
            assert attempts["broker-1"] > attempts.total() / 6, attempts
        # A message that got no answer went to another broker: no client heard of it.
        assert {code for _, code in senders.answers} == {pb.OK}


async def test_a_message_group_never_moves(tmp_path: Path) -> None:
    async with proxied_cluster(tmp_path, 3) as cluster:
        port = cluster.proxy.grpc_port
        async with GrpcClient(port) as client:

            async def send(number: int) -> int:
                made = message("Fifo", b"%d" % number, message_type=pb.FIFO, message_group="orders")
                request = pb.SendMessageRequest(messages=[made])
                answer = await client.call("SendMessage", request, timeout=3)
                return int(answer.status.code)

            assert [await send(number) for number in range(20)] == [pb.OK] * 20
            before = await ends(cluster, "Fifo")
            (broker,) = (name for name, count in before.items() if count)
            cluster.freeze(broker)
            try:
                assert await send(20) == pb.PROXY_TIMEOUT
                assert await send(21) == pb.PROXY_TIMEOUT
            finally:
                cluster.thaw(broker)
            assert await send(22) == pb.OK
            after = await ends(cluster, "Fifo")
            assert {name for name, count in after.items() if count} == {broker}
            assert after[broker] >= 21


async def test_the_switches_change_while_it_runs(tmp_path: Path) -> None:
    selector = QueueSelector(monotonic)
    async with proxied_cluster(tmp_path, 1, selector=selector, route_interval=0.1) as cluster:
        assert selector.switches.send_latency_enable
        table = cluster.name_server.kv_config
        await table.put(CLIENT_CONFIG_NAMESPACE, "sendLatencyEnable", "false")
        await until(lambda: not selector.switches.send_latency_enable)
        await table.delete(CLIENT_CONFIG_NAMESPACE, "sendLatencyEnable")
        await until(lambda: selector.switches.send_latency_enable)


async def test_a_client_sends_receives_and_ends_transactions(tmp_path: Path) -> None:
    async with (
        proxied_cluster(tmp_path, 2) as cluster,
        GrpcClient(cluster.proxy.grpc_port) as client,
    ):
        await client.as_consumer("readers", "Normal")
        for broker in cluster.brokers:
            first = receive()
            first.message_queue.broker.name = broker
            await client.receive(first)
        sent = [message(body=b"%d" % number) for number in range(10)]
        request = pb.SendMessageRequest(messages=sent)
        assert (await client.call("SendMessage", request)).status.code == pb.OK
        got: list[bytes] = []
        async with asyncio.timeout(60):
            while len(got) < 10:
                _, messages = await client.receive(receive())
                got += [each.body for each in messages]
                if messages:
                    answer = await client.call("AckMessage", ack(*messages))
                    assert answer.status.code == pb.OK
        assert sorted(got) == [b"%d" % number for number in range(10)]
        half = message("Transaction", message_type=pb.TRANSACTION)
        answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[half]))
        end = pb.EndTransactionRequest(
            transaction_id=answer.entries[0].transaction_id, resolution=pb.COMMIT
        )
        end.topic.name = "Transaction"
        assert (await client.call("EndTransaction", end)).status.code == pb.OK
        assert sum((await ends(cluster, "Transaction")).values()) == 1
