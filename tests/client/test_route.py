from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from pocketmq.client.errors import (
    BodyError,
    BrokerNotFound,
    NoNameServer,
    NoRouteInfo,
    NotRunning,
    SendError,
)
from pocketmq.client.instance import ClientInstance, client_id
from pocketmq.client.producer.producer import Producer
from pocketmq.client.routes.route import TopicRoute, publish_queues, subscribe_queues
from pocketmq.message import identity
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from pocketmq.remoting.codes import RequestCode
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


def route(
    *brokers: tuple[str, dict[int, str], int, int, int], order: str | None = None
) -> TopicRouteData:
    """Brokers as (name, addresses, perm, read queues, write queues)."""
    return TopicRouteData(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs=addresses, cluster="c")
            for name, addresses, *_ in brokers
        ],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)
            for name, _, perm, read, write in brokers
        ],
        order_topic_conf=order,
    )


def names(queues: list[MessageQueue]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_queues_come_by_broker_name_and_id() -> None:
    data = route(("b", {0: "b:1"}, 6, 1, 2), ("a", {0: "a:1"}, 6, 3, 1))
    assert names(publish_queues("T", data)) == [("a", 0), ("b", 0), ("b", 1)]
    assert names(subscribe_queues("T", data)) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]


def test_permissions() -> None:
    data = route(
        ("r", {0: "r:1"}, 4, 1, 1), ("w", {0: "w:1"}, 2, 1, 1), ("rwx", {0: "x:1"}, 7, 1, 1)
    )
    assert names(publish_queues("T", data)) == [("rwx", 0), ("w", 0)]
    assert names(subscribe_queues("T", data)) == [("r", 0), ("rwx", 0)]


def test_a_broker_without_master_is_only_read() -> None:
    data = route(("a", {1: "a:2"}, 6, 1, 1))
    assert publish_queues("T", data) == []
    assert names(subscribe_queues("T", data)) == [("a", 0)]


def test_the_fixed_queues_of_an_ordered_topic() -> None:
    data = route(("a", {0: "a:1"}, 6, 4, 4), order="b:2;a:1;;broken;c:x")
    assert names(publish_queues("T", data)) == [("b", 0), ("b", 1), ("a", 0)]


async def test_an_ordered_topic_keeps_its_queues_without_their_broker(cluster: FakeCluster) -> None:
    fixed = "a:2;b:2"
    cluster.name_server.routes["T"].order_topic_conf = fixed
    async with Producer("PG", namesrv=cluster.namesrv, route_interval=0.01) as p:
        keys = [str(n) for n in range(8)]
        before = {key: (await p.send(Message("T", b"x"), key=key)).queue for key in keys}
        cluster.put("T", "a")
        cluster.name_server.routes["T"].order_topic_conf = fixed
        polls = cluster.name_server.seen[ROUTE]
        await until(lambda: cluster.name_server.seen[ROUTE] >= polls + 2)
        for key, queue in before.items():
            if queue.broker_name == "a":
                assert (await p.send(Message("T", b"x"), key=key)).queue == queue
            else:
                with pytest.raises(SendError):
                    await p.send(Message("T", b"x"), key=key, timeout=0.1)
    assert {queue.broker_name for queue in before.values()} == {"a", "b"}


@pytest.fixture
async def instance(cluster: FakeCluster) -> AsyncIterator[ClientInstance]:
    client = ClientInstance(cluster.namesrv)
    await client.start()
    yield client
    await client.shutdown()


async def test_all_who_want_the_same_route_share_a_request(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    routes = await asyncio.gather(*(instance.routes.for_publish("T") for _ in range(50)))
    assert len({id(r) for r in routes}) == 1
    assert cluster.name_server.seen[ROUTE] == 1


async def test_who_gives_up_leaves_the_question_to_the_others(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    cluster.name_server.hangs = True
    patient = asyncio.create_task(instance.routes.for_publish("T"))
    hasty = asyncio.create_task(instance.routes.for_publish("T"))
    with pytest.raises(NoNameServer, match=r"no name server answered within 0\.02 s"):
        await instance.routes.for_publish("T", timeout=0.02)
    hasty.cancel()
    cluster.name_server.release()
    assert len((await patient).publish.queues) == 4
    assert cluster.name_server.seen[ROUTE] == 1
    with pytest.raises(asyncio.CancelledError):
        await hasty


async def test_a_shutdown_is_an_error_to_who_waits_for_a_route(cluster: FakeCluster) -> None:
    cluster.name_server.hangs = True
    instance = ClientInstance(cluster.namesrv)
    await instance.start()
    outside = asyncio.create_task(instance.routes.for_publish("T"))
    own = instance.spawn(instance.routes.for_publish("T"), "its own")
    await until(lambda: cluster.name_server.waiting)
    await instance.shutdown()
    with pytest.raises(NotRunning, match="was shut down"):
        await outside
    with pytest.raises(asyncio.CancelledError):
        await own  # was cancelled itself


async def test_addresses(cluster: FakeCluster, instance: ClientInstance) -> None:
    routes = instance.routes
    with pytest.raises(BrokerNotFound):
        routes.master("a")
    data = route(("a", {0: "a:1", 2: "a:2"}, 6, 1, 1), ("s", {3: "s:3", 1: "s:1"}, 6, 1, 1))
    cluster.name_server.routes["U"] = data
    await routes.for_subscribe("U")
    assert routes.master("a") == "a:1"
    assert routes.address("a", 2) == "a:2"
    assert routes.address("a", 9) == "a:1"
    assert routes.address("s") == "s:1"
    with pytest.raises(BrokerNotFound, match="'s'"):
        routes.master("s")
    assert routes.masters() == {"a": "a:1", "s": None}


async def test_a_poll_tells_of_changes_and_forgets_brokers(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    changes: list[TopicRoute] = []
    routes = instance.routes
    routes.on_change(changes.append)
    await routes.for_publish("T")
    await routes.poll()
    assert [change.topic for change in changes] == ["T"]
    place = routes.known("T")
    cluster.put("T", "b", queues=3)
    await routes.poll()
    assert [change.topic for change in changes] == ["T", "T"]
    assert routes.known("T") is not place
    assert set(routes.brokers) == {"b"}
    await routes.poll()
    assert len(changes) == 2


async def test_a_topic_the_name_server_lost_keeps_its_route(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    cluster.put("TBW102", "a")
    before = await instance.routes.for_publish("T")
    del cluster.name_server.routes["T"]
    await instance.routes.poll()
    assert instance.routes.known("T") is before
    assert set(instance.routes.brokers) == {"a", "b"}


async def test_a_consumer_does_not_read_through_the_template(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    cluster.put("TBW102", "a")
    assert (await instance.routes.for_publish("new")).provisional
    assert await instance.routes.for_subscribe("new") is None
    cluster.put("new", "a")
    found = await instance.routes.for_subscribe("new")
    assert found is not None
    assert len(found.subscribe) == 2


async def test_a_broker_of_a_topic_not_asked_for_yet(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    assert await instance.broker_address(MessageQueue("T", "a", 0)) == cluster["a"].address
    with pytest.raises(NoRouteInfo):
        await instance.broker_address(MessageQueue("nowhere", "z", 0))
    with pytest.raises(BrokerNotFound):
        await instance.broker_address(MessageQueue("T", "z", 0))


async def test_doubts_are_looked_into_once_a_second(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    await instance.routes.for_publish("T")
    asked = cluster.name_server.seen[ROUTE]
    for now in (100.0, 100.2, 100.9):
        instance.routes.doubt("T", now)
        await instance.routes.refresh("T")
    # The first doubt and the refreshes shared or followed each other; the other two did nothing.
    assert cluster.name_server.seen[ROUTE] == asked + 3
    instance.routes.doubt("T", 101.1)
    instance.routes.doubt("T", 101.2)
    await instance.routes.refresh("T")
    assert cluster.name_server.seen[ROUTE] == asked + 4


async def test_a_route_that_is_none_is_an_error(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    cluster.name_server.nonsense = b"{not a route"
    with pytest.raises(BodyError):
        await instance.routes.for_publish("T")
    cluster.name_server.nonsense = None
    await instance.routes.for_publish("T")


async def test_a_poll_goes_on_when_name_servers_come_back(
    cluster: FakeCluster, instance: ClientInstance
) -> None:
    await instance.routes.for_publish("T")
    await cluster.name_server.stop()
    await instance.routes.poll()
    assert instance.routes.known("T") is not None
    cluster.put("T", "b")
    await cluster.name_server.start()
    await instance.routes.poll()
    assert set(instance.routes.brokers) == {"b"}


def test_client_ids() -> None:
    assert client_id("name", "", "1.2.3.4") == "1.2.3.4@name"
    assert client_id("name", "unit", "1.2.3.4") == "1.2.3.4@name@unit"
    first, second = (client_id("DEFAULT", "", "1.2.3.4") for _ in range(2))
    assert "#" in first
    assert first != second


@pytest.mark.parametrize(
    "namesrv", ["127.0.0.1:9876", "localhost:9876", "namesrv.example:9876", "http://list.example/"]
)
@pytest.mark.parametrize(("own", "ip"), [("10.1.2.3", "10.1.2.3"), (None, "127.0.0.1")])
def test_a_client_id_has_the_hosts_own_address(
    monkeypatch: pytest.MonkeyPatch, namesrv: str, own: str | None, ip: str
) -> None:
    monkeypatch.setattr("pocketmq.client.instance.local_address", lambda: own)
    assert ClientInstance(namesrv, instance_name="name").client_id == f"{ip}@name"


class FakeSocket:
    """Has the routes of `own`, by address family; looks like the module and like a socket of it."""

    AF_INET, AF_INET6, SOCK_DGRAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_DGRAM

    def __init__(self, own: dict[int, str], names: dict[int, str]) -> None:
        self.own = own
        self.names = names
        self.family = 0

    def socket(self, family: int, _type: int) -> FakeSocket:
        self.family = family
        return self

    def __enter__(self) -> FakeSocket:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def connect(self, _target: tuple[str, int]) -> None:
        if self.family not in self.own:
            raise OSError("network is unreachable")

    def getsockname(self) -> tuple[str, int]:
        return self.own[self.family], 1

    def gethostname(self) -> str:
        return "host"

    def getaddrinfo(self, _name: str, _port: None, family: int) -> list[tuple[object, ...]]:
        if family not in self.names:
            raise socket.gaierror("unknown")
        return [(family, 1, 6, "", (self.names[family], 0))]


IP4, IP6 = int(socket.AF_INET), int(socket.AF_INET6)


@pytest.mark.parametrize(
    ("own", "names", "address"),
    [
        ({IP4: "10.0.0.7", IP6: "2001:db8::7"}, {}, "10.0.0.7"),
        ({IP6: "2001:db8::7"}, {IP4: "10.0.0.8"}, "2001:db8::7"),
        ({IP6: "fe80::7%eth0"}, {}, "fe80::7"),
        ({}, {IP4: "10.0.0.8"}, "10.0.0.8"),
        ({IP4: "127.0.0.1", IP6: "::1"}, {IP4: "127.0.1.1", IP6: "2001:db8::8"}, "2001:db8::8"),
        ({IP4: "0.0.0.0"}, {IP4: "127.0.1.1"}, None),
        ({}, {}, None),
    ],
)
def test_the_local_address(
    monkeypatch: pytest.MonkeyPatch,
    own: dict[int, str],
    names: dict[int, str],
    address: str | None,
) -> None:
    monkeypatch.setattr(identity, "socket", FakeSocket(own, names))
    assert identity.local_address() == address
