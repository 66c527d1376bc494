from datetime import UTC, datetime

import pytest

from client.admin import Admin
from client.consumer.pull import PullConsumer
from client.errors import (
    BrokerNotFound,
    InvalidName,
    NotRunning,
    SubscriptionGroupNotExist,
    TopicNotExist,
)
from client.producer.producer import Producer
from message.message import Message, MessageQueue
from tests.client.fake_cluster import FakeCluster
from tests.client.real_cluster import CLUSTER, RealCluster


async def test_topics_are_made_changed_and_deleted(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        assert await admin.create_topic("orders", queues=3) == ["b0", "b1"]
        route = await admin.topic_route("orders")
        assert sorted(data.broker_name for data in route.queue_datas) == ["b0", "b1"]
        assert {data.write_queue_nums for data in route.queue_datas} == {3}
        assert "orders" in await admin.topics()
        assert len(await admin.queues("orders")) == 6

        assert await admin.create_topic("orders", queues=2, perm=4, broker="b1") == ["b1"]
        by_broker = {d.broker_name: d for d in (await admin.topic_route("orders")).queue_datas}
        assert (by_broker["b1"].perm, by_broker["b1"].write_queue_nums) == (4, 2)
        assert (by_broker["b0"].perm, by_broker["b0"].write_queue_nums) == (6, 3)

        await admin.delete_topic("orders")
        with pytest.raises(TopicNotExist):
            await admin.topic_route("orders")
        assert "orders" not in await admin.topics()


async def test_clusters(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        info = await admin.cluster_info()
        assert sorted(info.cluster_addr_table[CLUSTER]) == ["b0", "b1"]
        assert info.broker_addr_table["b0"].broker_addrs == {0: real.brokers["b0"].address}
        assert await admin.create_topic("t", cluster=CLUSTER) == ["b0", "b1"]
        with pytest.raises(BrokerNotFound, match="any of cluster nope"):
            await admin.create_topic("t", cluster="nope")
        with pytest.raises(BrokerNotFound, match="b7"):
            await admin.create_topic("t", broker="b7")
        with pytest.raises(InvalidName):
            await admin.create_topic("not a topic")


async def test_offsets(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=1, broker="b0")
        queue = MessageQueue("t", "b0", 0)
        assert await admin.max_offset(queue) == 0
        assert await admin.earliest_store_time(queue) is None
        before = datetime.now(UTC)
        async with Producer("PG", namesrv=real.namesrv) as producer:
            await producer.send_batch([Message("t", b"x") for _ in range(5)])
        assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 5)
        stored = await admin.earliest_store_time(queue)
        assert stored is not None
        assert stored >= int(before.timestamp() * 1000)
        assert await admin.offset_at(queue, before) == 0
        assert await admin.offset_at(queue, datetime(2100, 1, 1, tzinfo=UTC)) == 5

        with pytest.raises(SubscriptionGroupNotExist):
            await admin.set_group_offset("G", queue, 3)
        async with PullConsumer("G", namesrv=real.namesrv) as consumer:
            await consumer.assign([queue])
        await admin.set_group_offset("G", queue, 3)
        assert await admin.group_offset("G", queue) == 3


async def test_kv_config(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        assert await admin.config("space") == {}
        assert await admin.get_config("space", "k") is None
        await admin.put_config("space", "k", "v")
        await admin.put_config("space", "l", "w")
        assert await admin.config("space") == {"k": "v", "l": "w"}
        assert await admin.get_config("space", "k") == "v"
        await admin.delete_config("space", "k")
        await admin.delete_config("space", "k")
        assert await admin.config("space") == {"l": "w"}


async def test_an_admin_is_no_client_of_any_group(cluster: FakeCluster) -> None:
    async with Admin(namesrv=cluster.namesrv) as admin:
        assert len(await admin.queues("T")) == 4
        assert await admin.max_offset(MessageQueue("T", "a", 0)) == 0
        await admin._instance.heartbeat.send_all()
    assert cluster["a"].heartbeats == []


async def test_nothing_works_outside_of_the_context(real: RealCluster) -> None:
    admin = Admin(namesrv=real.namesrv)
    queue = MessageQueue("t", "b0", 0)
    await admin.start()
    await admin.shutdown()
    await admin.shutdown()
    for call in (
        admin.topics(),
        admin.create_topic("t"),
        admin.delete_topic("t"),
        admin.queues("t"),
        admin.max_offset(queue),
        admin.group_offset("G", queue),
        admin.put_config("n", "k", "v"),
        admin.config("n"),
    ):
        with pytest.raises(NotRunning):
            await call
