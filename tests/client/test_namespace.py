from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import InvalidMessage, InvalidName
from pocketmq.client.namespace import Namespace
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from tests.client.fake_cluster import FakeCluster
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until

NS = Namespace("ns")


@pytest.mark.parametrize(
    ("own", "wire"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%shop", "%RETRY%ns%shop"),
        ("%DLQ%shop", "%DLQ%ns%shop"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_names(own: str, wire: str) -> None:
    assert NS.wrap(own) == wire
    assert NS.wrap(wire) == wire
    assert NS.unwrap(wire) == own
    assert NS.unwrap(own) == own
    assert Namespace().wrap(own) == own
    assert Namespace().unwrap(wire) == wire


@given(st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True))
def test_unwrapping_undoes_wrapping(name: str) -> None:
    assert NS.unwrap(NS.wrap(name)) == name
    assert NS.unwrap("other%" + name) == "other%" + name


@pytest.mark.parametrize("name", ["a b", "a%b", " "])
def test_what_is_no_namespace(name: str) -> None:
    with pytest.raises(InvalidName, match="namespace"):
        Namespace(name)


async def test_a_producer_within_a_namespace(cluster: FakeCluster) -> None:
    cluster.put("ns%T", "a")
    message = Message("T", b"x")
    queue = MessageQueue("T", "a", 1)
    async with Producer("PG", namesrv=cluster.namesrv, namespace="ns") as p:
        assert await p.queues("T") == (MessageQueue("T", "a", 0), queue)
        results = [
            await p.send(message),
            await p.send(message, queue=queue),
            await p.send(message, key="k"),
            *await p.send_batch([message, message]),
            *await p.send_batch([message, message], queue=queue),
            await (await p.post(message)),
            await (await p.post(message, queue=queue)),
        ]
        await p.send_oneway(message)
        with pytest.raises(InvalidMessage, match="must be a MessageQueue of topic"):
            await p.send(message, queue=MessageQueue("U", "a", 1))
    assert {result.queue.topic for result in results} == {"T"}
    assert message.topic == "T"
    for header in cluster["a"].sent:
        assert (header.topic, header.producer_group) == ("ns%T", "ns%PG")
        assert "INSTANCE_ID\x01ns\x02" in header.properties
    [data, *_] = cluster["a"].heartbeats
    assert [group.group_name for group in data.producer_data_set] == ["ns%PG"]


@pytest.fixture
def tenant(cluster: FakeCluster) -> FakeCluster:
    """Topic "T" of namespace "ns" has three messages in each queue; the bare topic others."""
    cluster.put("ns%T")
    for name in "ab":
        for queue_id in range(2):
            cluster[name].store("T", queue_id, b"not ours")
            for number in range(3):
                cluster[name].store("ns%T", queue_id, b"%d" % number)
    return cluster


def pull_consumer(cluster: FakeCluster | RealCluster, **options: Any) -> PullConsumer:
    return PullConsumer("CG", namesrv=cluster.namesrv, namespace="ns", start="begin", **options)


async def test_a_pull_consumer_within_a_namespace(tenant: FakeCluster) -> None:
    queues = [MessageQueue("T", name, queue_id) for name in "ab" for queue_id in range(2)]
    first = queues[0]
    async with pull_consumer(tenant) as c:
        assert list(await c.queues("T")) == queues
        assert (await c.begin_offset(first), await c.end_offset(first)) == (0, 3)
        assert await c.committed(first) is None
        found = await c.pull(first, 1)
        assert [(m.queue, m.body) for m in found.messages] == [(first, b"1"), (first, b"2")]

        await c.assign("T")
        assert c.assignment == queues
        messages = [await anext(c)]
        while len(messages) < 12:
            messages += await c.poll()
        assert {message.queue for message in messages} == set(queues)
        assert b"not ours" not in {message.body for message in messages}
        assert c.position(first) == 3
        c.pause(queues[1:])
        await c.seek(2, queue=messages[0].queue)
        await c.seek(1, queue=first)
        assert {message.queue for message in await c.poll()} == {first}
        await c.commit({queues[3]: 2})
        assert await c.committed(queues[3]) == 2
        c.resume(queues[1:])
        await c.commit()
        await c.unassign("T")
        assert c.assignment == []
        with pytest.raises(ValueError, match="is not read"):
            c.position(first)
    keys = set(tenant["a"].offsets) | set(tenant["b"].offsets)
    assert {key[:2] for key in keys} == {("ns%CG", "ns%T")}
    [data] = tenant["a"].heartbeats[-1].consumer_data_set
    assert data.group_name == "ns%CG"


async def test_queues_of_a_namespace_are_assigned_and_shared(tenant: FakeCluster) -> None:
    failed: list[MessageQueue] = []
    a1 = MessageQueue("T", "a", 1)
    async with pull_consumer(tenant, on_error=lambda queue, error: failed.append(queue)) as c:
        await c.assign([a1])
        assert [message.queue for message in await c.poll()] == [a1] * 3
        await tenant["a"].stop()
        await until(lambda: failed)
    assert failed[0] == a1
    await tenant["a"].start()
    tenant["a"].clients.clear()
    async with pull_consumer(tenant) as c:
        await c.subscribe("T")
        await until(lambda: len(c.assignment) == 4)
        assert {queue.topic for queue in c.assignment} == {"T"}
        assert {data.topic for data in tenant["a"].heartbeats[-1].consumer_data_set[0]
                .subscription_data_set} == {"ns%T"}  # fmt: skip


async def test_queues_are_polled_together_within_a_namespace(real: RealCluster) -> None:
    async with Producer("PG", namesrv=real.namesrv, namespace="ns") as producer:
        sent = {b"%d" % number for number in range(40)}
        for body in sent:
            await producer.send(Message("T", body))
        async with pull_consumer(real) as c:
            await c.assign("T")
            got = [await anext(c) for _ in range(40)]
            assert {(message.topic, message.body) for message in got} == {("T", b) for b in sent}
            # Held together now, in one request (Batch-Protocol).
            waiting = asyncio.create_task(anext(c))
            await producer.send(Message("T", b"held"))
            async with asyncio.timeout(10):
                assert (await waiting).topic == "T"
