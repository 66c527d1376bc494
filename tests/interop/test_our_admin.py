"""Our Admin against both makes of servers: every answer is read as its typed result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import (
    ConsumerNotOnline,
    NoPermission,
    RemoteSystemError,
    SubscriptionGroupNotExist,
    TopicNotExist,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from tests.client.waiting import online
from tests.interop.harness.cluster import BROKER_NAME, Cluster

CLUSTER = "DefaultCluster"


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with Admin(namesrv=cluster.address) as admin:
        yield admin


async def fill(cluster: Cluster, topic: str, count: int) -> None:
    async with Producer("admin_producer", namesrv=cluster.address) as producer:
        for i in range(count):
            await producer.send(Message(topic, b"%d" % i))


async def test_topics(admin: Admin, cluster: Cluster, topic: str) -> None:
    assert await admin.create_topic(topic, queues=2, attributes={"message.type": "NORMAL"}) == [
        BROKER_NAME
    ]
    info = await admin.cluster_info()
    assert info.cluster_addr_table[CLUSTER] == [BROKER_NAME]
    assert topic in await admin.topics()
    assert topic in await admin.topics(cluster=CLUSTER)
    queues = [MessageQueue(topic, BROKER_NAME, i) for i in range(2)]
    assert sorted(await admin.queues(topic)) == queues
    config = (await admin.topic_configs(topic))[BROKER_NAME]
    assert (config.write_queue_nums, config.perm) == (2, 6)
    assert config.attributes["message.type"] == "NORMAL"

    await fill(cluster, topic, 10)
    stats = await admin.topic_stats(topic)
    assert sorted(stats.offset_table) == queues
    assert sum(bounds.max_offset for bounds in stats.offset_table.values()) == 10
    assert await admin.groups_of_topic(topic) == []

    await admin.delete_topic(topic)
    with pytest.raises(TopicNotExist):
        await admin.topic_configs(topic)
    with pytest.raises(TopicNotExist):
        await admin.topic_route(topic)


async def test_groups(admin: Admin, cluster: Cluster, topic: str) -> None:
    group = f"admin_{topic}"
    assert await admin.create_group(
        group, cluster=CLUSTER, config=SubscriptionGroupConfig(retry_max_times=5)
    ) == [BROKER_NAME]
    assert (await admin.groups())[group].retry_max_times == 5
    with pytest.raises(ConsumerNotOnline):
        await admin.consumers(group)
    assert await admin.producers("nobody_at_all") == []

    await admin.create_topic(topic, queues=1)
    await fill(cluster, topic, 5)
    queue = MessageQueue(topic, BROKER_NAME, 0)
    async with (
        Producer("admin_online", namesrv=cluster.address, heartbeat_interval=0.1) as producer,
        PullConsumer(
            group, namesrv=cluster.address, start="begin", heartbeat_interval=0.1
        ) as consumer,
    ):
        await producer.send(Message(topic, b"connects"))
        await consumer.subscribe(topic, "A || B")
        # Both are known with their next heartbeat, and nothing tells when that came.
        members = await online(admin, group, topic, "admin_online")
        assert [each.client_id for each in members.connection_set] == [consumer.client_id]
        assert members.subscription_table[topic].sub_string == "A || B"
        assert [c.client_id for c in await admin.producers("admin_online")] == [producer.client_id]
    await admin.set_group_offset(group, queue, 2)
    assert await admin.group_offset(group, queue) == 2
    progress = (await admin.consume_stats(group, topic)).offset_table[queue]
    assert (progress.broker_offset, progress.consumer_offset) == (6, 2)
    assert await admin.lag(group, topic) == 4
    assert await admin.groups_of_topic(topic) == [group]
    assert topic in await admin.topics_of_group(group)

    await admin.delete_group(group, clean_offsets=True)
    assert group not in await admin.groups()


async def test_offsets(admin: Admin, cluster: Cluster, topic: str) -> None:
    group, other = f"admin_{topic}", f"other_{topic}"
    await admin.create_topic(topic, queues=1)
    await fill(cluster, topic, 7)
    queue = MessageQueue(topic, BROKER_NAME, 0)
    assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 7)
    assert await admin.earliest_store_time(queue) is not None
    assert await admin.offset_at(queue, datetime(2020, 1, 1, tzinfo=UTC)) == 0

    with pytest.raises(SubscriptionGroupNotExist):
        await admin.reset_offsets(group, topic, "end")
    await admin.create_group(group)
    await admin.create_group(other)
    assert await admin.reset_offsets(group, topic, "end") == {queue: 7}
    assert await admin.group_offset(group, queue) == 7
    assert await admin.reset_offsets(group, topic, "begin") == {queue: 0}
    past = datetime(2020, 1, 1, tzinfo=UTC)
    assert await admin.reset_offsets(group, topic, past) == {queue: 0}
    with pytest.raises(TopicNotExist):
        await admin.reset_offsets(group, f"{topic}_nope", "end")

    await admin.set_group_offset(other, queue, 3)
    clone = f"clone_{topic}"
    await admin.create_group(clone)
    await admin.clone_offsets(other, clone, topic)
    assert await admin.group_offset(clone, queue) == 3


async def test_configs(admin: Admin, cluster: Cluster, topic: str) -> None:
    assert await admin.config(topic) == {}
    await admin.put_config(topic, "k", "v")
    assert await admin.get_config(topic, "k") == "v"
    await admin.delete_config(topic, "k")
    assert await admin.get_config(topic, "k") is None

    config = await admin.broker_config(BROKER_NAME)
    assert config["brokerName"] == BROKER_NAME
    value = str(int(config["maxMessageSize"]) + 1)
    assert await admin.update_broker_config({"maxMessageSize": value}) == [BROKER_NAME]
    assert (await admin.broker_config(BROKER_NAME))["maxMessageSize"] == value
    await admin.update_broker_config({"maxMessageSize": config["maxMessageSize"]})
    with pytest.raises(NoPermission):
        await admin.update_broker_config({"brokerConfigPath": "elsewhere"})

    settings = await admin.namesrv_config()
    await admin.update_namesrv_config(
        {"returnOrderTopicConfigToBroker": settings["returnOrderTopicConfigToBroker"]}
    )
    assert (await admin.namesrv_config()).keys() == settings.keys()
    with pytest.raises(NoPermission):
        await admin.update_namesrv_config({"kvConfigPath": "elsewhere"})


async def test_figures(admin: Admin, cluster: Cluster, topic: str) -> None:
    await admin.create_topic(topic, queues=1)
    await fill(cluster, topic, 3)
    runtime = await admin.broker_runtime(BROKER_NAME)
    assert int(runtime["msgPutTotalTodayNow"]) >= 3
    assert BROKER_NAME in await admin.broker_stats("TOPIC_PUT_NUMS", topic)
    with pytest.raises(RemoteSystemError):
        await admin.broker_stats("TOPIC_PUT_NUMS", f"{topic}_nope")
