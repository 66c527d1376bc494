from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.admin.system_names import users_topics
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import (
    BrokerNotFound,
    ConsumerNotOnline,
    InvalidName,
    InvalidParameter,
    NoPermission,
    NotRunning,
    RemoteSystemError,
    SubscriptionGroupNotExist,
    TopicNotExist,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.bodies.cluster import ClusterInfo
from pocketmq.remoting.bodies.route import BrokerData
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.real_cluster import CLUSTER, RealCluster
from tests.client.waiting import online, until


async def test_topics_are_made_changed_and_deleted(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        assert await admin.create_topic("orders", queues=3) == ["b0", "b1"]
        route = await admin.topic_route("orders")
        assert sorted(data.broker_name for data in route.queue_datas) == ["b0", "b1"]
        assert {data.write_queue_nums for data in route.queue_datas} == {3}
        assert "orders" in await admin.topics()
        assert len(await admin.queues("orders")) == 6

        shrunk = await admin.create_topic(
            "orders", queues=2, perm=4, broker="b1", allow_shrink=True
        )
        assert shrunk == ["b1"]
        by_broker = {d.broker_name: d for d in (await admin.topic_route("orders")).queue_datas}
        assert (by_broker["b1"].perm, by_broker["b1"].write_queue_nums) == (4, 2)
        assert (by_broker["b0"].perm, by_broker["b0"].write_queue_nums) == (6, 3)

        await admin.delete_topic("orders")
        with pytest.raises(TopicNotExist):
            await admin.topic_route("orders")
        assert "orders" not in await admin.topics()


@pytest.mark.parametrize("timeout", [5.0, 0.5])
async def test_topics_of_a_list_are_deleted(real: RealCluster, timeout: float) -> None:
    """In one request to each broker, or, so that each ends in time, in several."""
    for broker in real.brokers.values():
        broker.config.batch_delete_topic_max_rate = 0.0
    names = [f"list-{n}" for n in range(5)]
    async with Admin(namesrv=real.namesrv, timeout=timeout) as admin:
        for name in names:
            await admin.create_topic(name, queues=1)
        await admin.delete_topics([*names[:4], "never-made"])
        assert [name for name in await admin.topics() if name in names] == names[4:]
        for name in names[:4]:
            with pytest.raises(TopicNotExist):
                await admin.topic_configs(name)
        await admin.delete_topics([])
        with pytest.raises(InvalidName):
            await admin.delete_topics([names[4], "no topic"])
        with pytest.raises(TypeError, match="topics must be a list of str"):
            await admin.delete_topics(names[4])
        assert names[4] in await admin.topics()


async def test_groups_of_a_list_are_deleted(real: RealCluster) -> None:
    for broker in real.brokers.values():
        broker.config.batch_delete_subscription_group_max_rate = 0.0
    names = [f"list-{n}" for n in range(3)]
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1, broker="b0")
        [queue] = await admin.queues("orders")
        for name in names:
            await admin.create_group(name)
            await admin.set_group_offset(name, queue, 0)
        await admin.delete_groups(names[:2], clean_offsets=True)
        await admin.delete_groups([names[2], "never-made"])
        assert not set(names) & set(await admin.groups())
        assert await admin.groups_of_topic("orders") == names[2:]


async def test_brokers_without_lists_get_names_one_by_one(cluster: FakeCluster) -> None:
    """Official ones before 5.5.1."""
    older, newer, name_server = cluster["a"], cluster["b"], cluster.name_server
    info = ClusterInfo(
        broker_addr_table={
            name: BrokerData(broker_name=name, broker_addrs={0: broker.address})
            for name, broker in cluster.brokers.items()
        }
    )
    body = info.encode()
    name_server.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda request: Response(body=body), None)
    name_server.on(RequestCode.DELETE_TOPIC_IN_NAMESRV, lambda request: Response(), None)
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP):
        for broker in (older, newer):
            broker.on(code, lambda request: Response(), None)
    lists = RequestCode.DELETE_TOPIC_IN_BROKER_LIST, RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST
    async with Admin(namesrv=cluster.namesrv) as admin:
        await admin.delete_topics(["A", "B"])  # none of them knows lists
        await admin.delete_groups(["G", "H", "I"])
        assert name_server.seen[RequestCode.DELETE_TOPIC_IN_NAMESRV] == 2
        for code in lists:
            newer.on(code, lambda request: Response(), None)
        await admin.delete_topics(["A", "B"])
        await admin.delete_groups(["G", "H", "I"])
    topic, group = RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_SUBSCRIPTIONGROUP
    assert older.seen == {topic: 4, group: 6}
    assert newer.seen == {topic: 2, group: 3} | dict.fromkeys(lists, 1)


async def test_only_the_reply_topic_of_a_cluster_is_hidden(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        own = f"{CLUSTER}_REPLY_TOPIC"
        for topic in ("DefaultCluster_REPLY_TOPIC", "orders_REPLY_TOPIC"):
            await admin.create_topic(topic)
        assert own in await admin.topics()
        shown = set(await users_topics(admin))
        assert {"DefaultCluster_REPLY_TOPIC", "orders_REPLY_TOPIC"} <= shown
        assert own not in shown


async def test_clusters(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        info = await admin.cluster_info()
        assert sorted(info.cluster_addr_table[CLUSTER]) == ["b0", "b1"]
        assert info.broker_addr_table["b0"].broker_addrs == {0: real.brokers["b0"].address}
        assert await admin.create_topic("t", cluster=CLUSTER) == ["b0", "b1"]
        with pytest.raises(
            BrokerNotFound, match="no broker with a master belongs to cluster 'nope'"
        ):
            await admin.create_topic("t", cluster="nope")
        with pytest.raises(BrokerNotFound, match="b7"):
            await admin.create_topic("t", broker="b7")
        with pytest.raises(InvalidName):
            await admin.create_topic("not a topic")


async def test_a_topic_keeps_at_least_one_queue(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=2)
        with pytest.raises(ValueError, match="queues must be a whole number from 1"):
            await admin.create_topic("t", queues=0)
        with pytest.raises(ValueError, match="read_queues must be a whole number from 1"):
            await admin.create_topic("t", read_queues=0)
        assert len(await admin.queues("t")) == 4


async def test_a_topic_does_not_lose_queues_unasked(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=4, broker="b1")
        await send(real, "t", 8)
        message = "t has 4 queues to read: with 2, the messages in the others could not be read"
        with pytest.raises(InvalidParameter, match=message) as no:
            await admin.create_topic("t", queues=2)
        assert no.value.broker == "b1"
        assert (await admin.topic_configs("t")).keys() == {"b1"}  # nothing was changed
        assert await admin.unreadable_queues("t") == {}

        # Consumers empty the others.
        await admin.create_topic("t", queues=2, read_queues=4)
        assert await admin.unreadable_queues("t") == {}
        await admin.create_topic("t", queues=1, allow_shrink=True)
        left = await admin.unreadable_queues("t")
        assert {(queue.broker_name, queue.queue_id) for queue in left} == {
            ("b1", 1),
            ("b1", 2),
            ("b1", 3),
        }
        assert sum(left.values()) == 6
        await admin.create_topic("t", queues=4)
        assert await admin.unreadable_queues("t") == {}


async def test_a_topic_that_exists_can_be_left_as_it_is(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=4, broker="b1", perm=4)
        assert await admin.create_topic("t", queues=2, if_not_exists=True) == ["b0"]
        assert await admin.create_topic("t", queues=2, if_not_exists=True) == []
        configs = await admin.topic_configs("t")
        assert {name: (c.write_queue_nums, c.perm) for name, c in configs.items()} == {
            "b0": (2, 6),
            "b1": (4, 4),
        }


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


async def send(real: RealCluster, topic: str, count: int) -> None:
    async with Producer("PG", namesrv=real.namesrv) as producer:
        for _ in range(count):
            await producer.send(Message(topic, b"x"))


async def test_configs_and_stats_of_topics(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=3, broker="b1", attributes={"message.type": "FIFO"})
        configs = await admin.topic_configs("t")
        assert {name: config.write_queue_nums for name, config in configs.items()} == {"b1": 3}
        assert configs["b1"].attributes["message.type"] == "FIFO"
        with pytest.raises(TopicNotExist):
            await admin.topic_configs("nope")

        await admin.create_topic("u", queues=1)
        await send(real, "u", 4)
        stats = (await admin.topic_stats("u")).offset_table
        assert sorted(stats) == [MessageQueue("u", "b0", 0), MessageQueue("u", "b1", 0)]
        assert sum(bounds.max_offset - bounds.min_offset for bounds in stats.values()) == 4
        with pytest.raises(TopicNotExist):
            await admin.topic_stats("nope")
        assert "u" in await admin.topics(cluster=CLUSTER)
        assert await admin.topics(cluster="nope") == []


class Noting(ThreadPoolExecutor):
    """Notes what was called in its threads."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Future[Any]] = []

    def submit(self, *args: Any, **options: Any) -> Future[Any]:
        self.called.append(super().submit(*args, **options))
        return self.called[-1]


async def test_long_answers_are_read_in_a_thread(real: RealCluster) -> None:
    """The event loop may be that of a server, whose dashboard asks for them every few seconds."""
    asyncio.get_running_loop().set_default_executor(threads := Noting())
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("wide", queues=500)
        await admin.create_group("first")
        await admin.reset_offsets("first", "wide", "end")
        await asyncio.gather(*(admin.create_group(f"g{number}") for number in range(300)))
        for read in (admin.topic_stats("wide"), admin.consume_stats("first"), admin.groups()):
            threads.called.clear()
            found = await read
            assert any(called.result() is found for called in threads.called)


async def test_groups_are_made_changed_and_deleted(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        assert await admin.create_group("shop") == ["b0", "b1"]
        config = SubscriptionGroupConfig(retry_max_times=3)
        assert await admin.create_group("shop", broker="b0", config=config) == ["b0"]
        assert config.group_name == ""
        groups = await admin.groups()
        assert (groups["shop"].group_name, groups["shop"].retry_max_times) == ("shop", 3)
        await admin.delete_group("shop")
        assert "shop" not in await admin.groups(cluster=CLUSTER)
        with pytest.raises(InvalidName):
            await admin.create_group("not a group")


async def test_who_is_connected_and_how_far_a_group_is(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=1)
        await send(real, "t", 6)
        with pytest.raises(ConsumerNotOnline):
            await admin.consumers("shop")
        assert await admin.producers("PG2") == []
        async with (
            PullConsumer(
                "shop", namesrv=real.namesrv, start="begin", heartbeat_interval=0.05
            ) as consumer,
            Producer("PG2", namesrv=real.namesrv) as producer,
        ):
            await producer.send(Message("t", b"y"))
            await consumer.subscribe("t", "A || B")
            members = await online(admin, "shop", "t", "PG2")
            assert [each.client_id for each in members.connection_set] == [consumer.client_id]
            assert members.subscription_table["t"].sub_string == "A || B"
            assert [each.client_id for each in await admin.producers("PG2")] == [producer.client_id]

        queues = await admin.queues("t")
        for queue in queues:
            await admin.set_group_offset("shop", queue, await admin.min_offset(queue) + 1)
        stats = (await admin.consume_stats("shop")).offset_table
        assert {
            queue: progress.consumer_offset for queue, progress in stats.items()
        } == dict.fromkeys(queues, 1)
        assert await admin.lag("shop") == await admin.lag("shop", "t") == 5
        for topic in (None, "t"):
            with pytest.raises(
                SubscriptionGroupNotExist, match="no broker has a consumer group 'nobody'"
            ):
                await admin.lag("nobody", topic)
        assert await admin.topics_of_group("shop") == ["t"]
        assert await admin.groups_of_topic("t") == ["shop"]


async def test_offsets_of_groups_are_reset_and_cloned(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=1)
        await send(real, "t", 6)
        queues = sorted(await admin.queues("t"))
        with pytest.raises(SubscriptionGroupNotExist):
            await admin.reset_offsets("shop", "t", "end")
        await admin.create_group("shop")
        ends = {queue: await admin.max_offset(queue) for queue in queues}
        assert sum(ends.values()) == 6
        assert await admin.reset_offsets("shop", "t", "end") == ends
        assert await admin.lag("shop", "t") == 0
        assert await admin.reset_offsets("shop", "t", "begin") == dict.fromkeys(queues, 0)
        later = datetime(2100, 1, 1, tzinfo=UTC)
        assert await admin.reset_offsets("shop", "t", later) == ends
        half = {queue: min(3, end) for queue, end in ends.items()}
        assert await admin.reset_offsets("shop", "t", 3) == half
        assert await admin.lag("shop", "t") == 6 - sum(half.values())
        with pytest.raises(ValueError, match=r"up to \d, where .* ends, not 1795446077315; pass a"):
            await admin.reset_offsets("shop", "t", 1795446077315)
        assert await admin.lag("shop", "t") == 6 - sum(half.values())
        assert await admin.reset_offsets("shop", "t", max(ends.values())) == ends
        wrong: Any
        for wrong in ("middle", -1, 1.5, True, None):
            with pytest.raises((TypeError, ValueError), match="to must be"):
                await admin.reset_offsets("shop", "t", wrong)
        with pytest.raises(TopicNotExist):
            await admin.reset_offsets("shop", "nope", "end")

        await admin.create_group("other")
        await admin.clone_offsets("shop", "other")
        for queue in queues:
            assert await admin.group_offset("other", queue) == ends[queue]


async def test_a_topic_that_does_not_exist_has_no_queues_and_may_be_deleted(
    real: RealCluster,
) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        with pytest.raises(TopicNotExist, match="topic nope does not exist"):
            await admin.queues("nope")
        await admin.delete_topic("nope")
        await admin.delete_group("nope")


async def test_a_broker_that_can_only_tell_consumers_has_offsets_stored(
    real: RealCluster,
) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t", queues=1)
        await send(real, "t", 6)
        await admin.update_broker_config({"useServerSideResetOffset": "false"})
        await admin.create_group("shop")
        queues = sorted(await admin.queues("t"))
        for queue in queues:
            await admin.set_group_offset("shop", queue, 0)
        ends = {queue: await admin.max_offset(queue) for queue in queues}
        assert await admin.reset_offsets("shop", "t", "end") == ends
        assert await admin.lag("shop", "t") == 0


async def test_a_broker_is_drained_and_takes_sends_again(real: RealCluster) -> None:
    async def permissions() -> dict[str, int]:
        route = await admin.topic_route("t")
        return {queues.broker_name: queues.perm for queues in route.queue_datas}

    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("t")
        await admin.create_topic("closed", perm=4)
        assert await admin.drain_broker("b1") == [real.brokers["b1"].address]
        assert (await admin.broker_config("b1"))["brokerPermission"] == "4"
        assert await permissions() == {"b0": 6, "b1": 4}
        await admin.undrain_broker("b1")
        assert await permissions() == {"b0": 6, "b1": 6}
        await admin.wipe_write_perm("b0")
        assert await permissions() == {"b0": 4, "b1": 6}
        await admin.undrain_broker("b0")
        assert await permissions() == {"b0": 6, "b1": 6}
        closed = await admin.topic_route("closed")
        assert {queues.perm for queues in closed.queue_datas} == {4}
        for change in (admin.drain_broker, admin.undrain_broker, admin.wipe_write_perm):
            with pytest.raises(BrokerNotFound, match="'b7' is not registered"):
                await change("b7")


async def test_settings_and_figures_of_servers(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        assert (await admin.broker_config("b1"))["brokerName"] == "b1"
        changed = {"autoCreateTopicEnable": "false"}
        assert await admin.update_broker_config(changed, broker="b1") == ["b1"]
        assert (await admin.broker_config("b1"))["autoCreateTopicEnable"] == "false"
        assert (await admin.broker_config("b0"))["autoCreateTopicEnable"] == "true"
        with pytest.raises(NoPermission):
            await admin.update_broker_config({"brokerConfigPath": "elsewhere"})
        with pytest.raises(BrokerNotFound, match="b7"):
            await admin.broker_config("b7")

        config = await admin.namesrv_config()
        await admin.update_namesrv_config({"returnOrderTopicConfigToBroker": "false"})
        assert config["returnOrderTopicConfigToBroker"] == "true"
        assert (await admin.namesrv_config())["returnOrderTopicConfigToBroker"] == "false"

        await admin.create_topic("t", queues=1, broker="b0")
        await send(real, "t", 3)
        assert (await admin.broker_runtime("b0"))["msgPutTotalTodayNow"] == "3"
        stats = await admin.broker_stats("TOPIC_PUT_NUMS", "t")
        assert list(stats) == ["b0"]
        with pytest.raises(RemoteSystemError):
            await admin.broker_stats("TOPIC_PUT_NUMS", "nope")


async def test_a_namespace_has_its_own_topics_and_groups(real: RealCluster) -> None:
    async with (
        Admin(namesrv=real.namesrv, namespace="tenant") as admin,
        Admin(namesrv=real.namesrv) as outside,
    ):
        await admin.create_topic("t", queues=1, broker="b0")
        await admin.create_group("shop")
        assert "tenant%t" in await outside.topics()
        assert "tenant%shop" in await outside.groups()
        queue = MessageQueue("t", "b0", 0)
        assert await admin.queues("t") == (queue,)
        await admin.set_group_offset("shop", queue, 0)
        assert await admin.group_offset("shop", queue) == 0
        assert list((await admin.topic_stats("t")).offset_table) == [queue]
        assert await admin.reset_offsets("shop", "t", "end") == {queue: 0}
        assert await admin.topics_of_group("shop") == ["t"]
        assert await admin.groups_of_topic("t") == ["shop"]
        await admin.delete_topic("t")
        assert "tenant%t" not in await outside.topics()


async def test_an_admin_is_no_client_of_any_group(cluster: FakeCluster) -> None:
    async with (
        Admin(namesrv=cluster.namesrv, heartbeat_interval=0.01) as admin,
        Producer("PG", namesrv=cluster.namesrv, heartbeat_interval=0.01) as producer,
    ):
        assert len(await admin.queues("T")) == 4
        assert await admin.max_offset(MessageQueue("T", "a", 0)) == 0
        await producer.queues("T")
        await until(lambda: len(cluster["a"].heartbeats) >= 5)  # meanwhile the admin's were due
    assert {beat.client_id for beat in cluster["a"].heartbeats} == {producer.client_id}


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
        admin.groups(),
        admin.lag("G"),
        admin.reset_offsets("G", "t", "end"),
        admin.broker_config("b0"),
        admin.update_namesrv_config({}),
    ):
        with pytest.raises(NotRunning):
            await call


async def test_producers_of_all_groups(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        assert await admin.producer_groups() == {}
        await admin.create_topic("orders", queues=1)
        async with (
            Producer("shop", namesrv=real.namesrv) as shop,
            Producer("billing", namesrv=real.namesrv) as billing,
        ):
            for producer in (shop, billing):
                for _ in range(2):  # one of each broker
                    await producer.send(Message("orders", b"x"))
            found = await admin.producer_groups()
        # Brokers know a producer by its heartbeat, which comes before its first message there.
        assert {group: [each.client_id for each in found[group]] for group in found} == {
            "billing": [billing.client_id],
            "shop": [shop.client_id],
        }


async def test_ping_needs_no_grant_and_leaves_no_trace(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.ping()
        assert await admin.producer_groups() == {}
