"""Which requests go to the port two below a broker's own; as in 5.3.3's MQClientAPIImpl."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message
from pocketmq.remoting.bodies.cluster import ClusterInfo
from pocketmq.remoting.bodies.route import BrokerData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.listening import CannotListen
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.waiting import until

C = RequestCode
#: Whatever the client, these take the broker's own port.
DIRECT = {C.PULL_MESSAGE, C.HEART_BEAT, C.UNREGISTER_CLIENT}


@pytest.fixture
async def vip(cluster: FakeCluster) -> AsyncIterator[FakeBroker]:
    """The VIP channel of broker "a", which alone has topic "T"."""
    own = cluster["a"]
    channel = FakeBroker("a")
    channel.records, channel.offsets, channel.clients = own.records, own.offsets, own.clients
    for broker in (own, channel):
        broker.on(C.GET_BROKER_CONFIG, lambda request: Response(body=b"x=1"), None)
        broker.on(C.GET_BROKER_RUNTIME_INFO, lambda request: Response(body=b'{"table":{}}'), None)
    for _ in range(20):
        channel.port = own.port - 2
        try:
            await channel.start()
            break
        except CannotListen:  # by another program: take other ports
            await own.stop()
            own.port = 0
            await own.start()
    cluster.put("T", "a")
    info = ClusterInfo(
        broker_addr_table={"a": BrokerData(broker_addrs={0: own.address}, broker_name="a")}
    )
    cluster.name_server.on(
        C.GET_BROKER_CLUSTER_INFO, lambda request: Response(body=info.encode()), None
    )
    yield channel
    await channel.stop()


def check(cluster: FakeCluster, vip: FakeBroker, channel: set[C], own: set[C] = DIRECT) -> None:
    """The channel was asked for these, the broker's own port for those, and nothing else."""
    assert {C(code) for code in vip.seen} == channel
    assert {C(code) for code in cluster["a"].seen} == own


@pytest.mark.parametrize("orderly", [False, True])
async def test_push_consumers(cluster: FakeCluster, vip: FakeBroker, orderly: bool) -> None:
    vip.store("T", 0, b"bad")
    c = PushConsumer(
        "G", namesrv=cluster.namesrv, start="begin", orderly=orderly, max_reconsume_times=0,
        vip_channel=True,
    )  # fmt: skip

    @c.on("T", sql="a > 1")
    def handle(message: ConsumedMessage) -> None:
        raise ReconsumeLater

    async with c:
        await until(lambda: vip.sent)
    asked = {
        C.QUERY_CONSUMER_OFFSET, C.UPDATE_CONSUMER_OFFSET, C.GET_MIN_OFFSET,
        C.GET_CONSUMER_LIST_BY_GROUP, C.SEND_MESSAGE_V2, C.CHECK_CLIENT_CONFIG,
    }  # fmt: skip
    check(cluster, vip, asked | ({C.LOCK_BATCH_MQ, C.UNLOCK_BATCH_MQ} if orderly else set()))


async def test_pull_consumers(cluster: FakeCluster, vip: FakeBroker) -> None:
    vip.store("T", 0, b"x")
    async with PullConsumer("G", namesrv=cluster.namesrv, vip_channel=True, start="begin") as c:
        await c.assign("T")
        assert [message.body for message in await c.poll(timeout=10)] == [b"x"]
        await c.seek("end")
        await c.commit()
    check(
        cluster, vip,
        {C.QUERY_CONSUMER_OFFSET, C.UPDATE_CONSUMER_OFFSET, C.GET_MIN_OFFSET, C.GET_MAX_OFFSET},
    )  # fmt: skip


async def test_producers(cluster: FakeCluster, vip: FakeBroker) -> None:
    async with Producer(
        "G",
        namesrv=cluster.namesrv,
        vip_channel=True,
        retries=0,
        timeout=0.2,
        detect_interval_ms=50,
    ) as p:
        await p.send(Message("T", b"x"), timeout=10)
        await p.send_batch([Message("T", b"x")] * 2, timeout=10)
        vip.mode = "hang"
        with pytest.raises(SendError):
            await p.send(Message("T", b"x"))
        await until(lambda: vip.seen[C.GET_MAX_OFFSET])  # by the detector
        # Its own port gets to know the producer at once, not with the next heartbeat of all.
        await until(lambda: cluster["a"].heartbeats)
    check(
        cluster, vip, {C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE, C.GET_MAX_OFFSET},
        DIRECT - {C.PULL_MESSAGE},
    )  # fmt: skip


async def test_admins(cluster: FakeCluster, vip: FakeBroker) -> None:
    async with Admin(namesrv=cluster.namesrv, vip_channel=True) as admin:
        assert await admin.broker_config("a") == {"x": "1"}
        assert await admin.broker_runtime("a") == {}
    check(cluster, vip, {C.GET_BROKER_RUNTIME_INFO}, {C.GET_BROKER_CONFIG})


async def test_without_the_option_nothing_goes_there(cluster: FakeCluster, vip: FakeBroker) -> None:
    cluster["a"].store("T", 0, b"x")
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin") as c:
        await c.assign("T")
        assert await c.poll(timeout=10)
    assert not vip.seen
