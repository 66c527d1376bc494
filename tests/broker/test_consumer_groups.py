"""Who is online: joining, leaving, subscriptions, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.tables.consumer_groups import ClientInfo, ConsumerGroups
from pocketmq.broker.tables.producer_groups import ProducerGroups
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.monotonic import MonotonicMs
from pocketmq.remoting.serving.long_requests import at_once


class FakeConnection:
    """A connection that can be closed."""

    peer = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []

    def add_close_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def close(self) -> None:
        for callback in self.callbacks:
            callback(self)


class World:
    """The table under test, its clock, and the notifications it asked for."""

    def __init__(self) -> None:
        self.now = 1000
        self.told: list[tuple[str, list[str]]] = []
        self.groups = ConsumerGroups(
            lambda group: self.told.append((group.name, group.client_ids())), self.clock
        )

    def clock(self) -> MonotonicMs:
        return MonotonicMs(self.now)

    def client(self, client_id: str, connection: FakeConnection | None = None) -> ClientInfo:
        return ClientInfo(connection or FakeConnection(), client_id, "JAVA", 479, self.clock())

    def join(
        self, client: ClientInfo, *topics: str, group: str = "G", version: int = 1, **options: Any
    ) -> bool:
        data = ConsumerData(
            group_name=group,
            message_model=options.pop("message_model", "CLUSTERING"),
            subscription_data_set=[
                SubscriptionData(topic=topic, sub_string="*", sub_version=version)
                for topic in topics
            ],
        )
        return self.groups.register(data, client, notify_enabled=True, **options)


@pytest.fixture
def world() -> World:
    return World()


def test_everyone_is_told_of_a_newcomer_the_newcomer_too(world: World) -> None:
    world.join(world.client("c1"), "T")
    world.join(world.client("c2"), "T")

    assert world.told == [("G", ["c1"]), ("G", ["c1", "c2"])]


def test_an_unchanged_heartbeat_tells_nobody(world: World) -> None:
    client = world.client("c1")
    world.join(client, "T")
    world.told.clear()

    world.join(client, "T", version=2)

    assert world.told == []


def test_topics_added_or_dropped_are_told(world: World) -> None:
    client = world.client("c1")
    world.join(client, "T")
    world.told.clear()

    world.join(client, "T", "U")
    world.join(client, "U")

    assert len(world.told) == 2
    group = world.groups.get("G")
    assert group is not None
    assert set(group.subscriptions) == {"U"}
    assert world.groups.groups_of_topic("U") == {"G"}
    assert world.groups.groups_of_topic("T") == set()


def test_the_newer_subscription_stays(world: World) -> None:
    client = world.client("c1")
    world.join(client, "T", version=5)
    world.join(client, "T", version=3)

    group = world.groups.get("G")
    assert group is not None
    assert group.subscriptions["T"].data.sub_version == 5


def test_tag_hashes_of_a_subscription(world: World) -> None:
    codes = [tag_hash("A"), tag_hash("B")]
    data = ConsumerData(
        group_name="G",
        subscription_data_set=[
            SubscriptionData(topic="T", sub_string="A || B", code_set=codes),
            SubscriptionData(topic="U", sub_string="*"),
            SubscriptionData(topic="V", sub_string="a > 1", expression_type="SQL92"),
        ],
    )
    world.groups.register(data, world.client("c1"), notify_enabled=True)

    group = world.groups.get("G")
    assert group is not None
    assert group.subscriptions["T"].codes == frozenset(codes)
    assert group.subscriptions["U"].codes is None
    assert [group.subscriptions[topic].is_tag for topic in "TUV"] == [True, True, False]


def test_broadcasting_members_are_not_told(world: World) -> None:
    first, second = world.client("c1"), world.client("c2")
    world.join(first, "T", message_model="BROADCASTING")
    world.join(second, "T", message_model="BROADCASTING")
    world.groups.unregister("G", first.connection)

    assert world.told == []


def test_leaving_tells_the_rest_and_the_last_one_ends_the_group(world: World) -> None:
    first, second = world.client("c1"), world.client("c2")
    world.join(first, "T")
    world.join(second, "T")
    world.told.clear()

    world.groups.unregister("G", first.connection)
    assert world.told == [("G", ["c2"])]

    world.groups.unregister("G", second.connection)
    assert world.groups.get("G") is None
    assert world.groups.names() == []
    assert len(world.told) == 1


def test_a_closed_connection_leaves_all_its_groups(world: World) -> None:
    connection = FakeConnection()
    client = world.client("c1", connection)
    world.join(client, "T", group="G")
    world.join(client, "T", group="H")
    world.join(world.client("c2"), "T", group="H")
    world.told.clear()

    connection.close()

    assert world.groups.names() == ["H"]
    assert world.told == [("H", ["c2"])]


def test_silent_clients_are_dropped(world: World) -> None:
    world.join(world.client("c1"), "T")
    world.now += 100
    world.join(world.client("c2"), "T")

    assert [client.client_id for client in at_once(world.groups.expire(99))] == ["c1"]
    group = world.groups.get("G")
    assert group is not None
    assert group.client_ids() == ["c2"]


def test_fingerprints_are_compared_per_group(world: World) -> None:
    client = world.client("c1")
    assert not world.join(client, "T", fingerprint=11)
    assert not world.join(client, fingerprint=11, with_subscriptions=False)
    assert world.join(client, "T", fingerprint=12)

    group = world.groups.get("G")
    assert group is not None
    assert set(group.subscriptions) == {"T"}


def test_producers_come_and_go(world: World) -> None:
    producers = ProducerGroups(world.clock)
    connection = FakeConnection()
    producers.register("P", world.client("c1", connection))
    producers.register("Q", world.client("c1", connection))
    world.now += 100
    producers.register("P", world.client("c2"))

    assert {name: [c.client_id for c in clients] for name, clients in producers.all().items()} == {
        "P": ["c1", "c2"],
        "Q": ["c1"],
    }
    connection.close()
    assert producers.clients("Q") is None
    world.now += 100
    at_once(producers.expire(99))
    assert producers.clients("P") is None


KIB = 1 << 10


def subscribed(group: str, expression: str = "*", version: int = 1, **sets: Any) -> ConsumerData:
    data = SubscriptionData(topic="T", sub_string=expression, sub_version=version, **sets)
    return ConsumerData(group_name=group, subscription_data_set=[data])


def test_large_subscriptions_of_all_groups_have_a_limit() -> None:
    groups = ConsumerGroups(lambda group: None, lambda: MonotonicMs(1), max_weight=1 << 20)

    def join(data: ConsumerData, connection: FakeConnection | None = None) -> FakeConnection:
        connection = connection or FakeConnection()
        client = ClientInfo(connection, "c", "JAVA", 479, MonotonicMs(1))
        groups.register(data, client, notify_enabled=True)
        return connection

    large = "x" * (80 * KIB)
    with pytest.raises(RemotingError, match="a group may have 104857"):
        join(subscribed("too large", "x" * (120 * KIB)))
    with pytest.raises(RemotingError, match="a group may have 104857"):
        join(subscribed("many codes", code_set=list(range(600))))
    assert groups.names() == []

    connections = [join(subscribed(f"G{number}", large)) for number in range(12)]
    with pytest.raises(RemotingError, match="left for all groups"):
        join(subscribed("G12", large))
    assert groups.get("G12") is None
    join(subscribed("small"))
    # One that has its share keeps it, and may change it; an older version changes nothing.
    join(subscribed("G0", large, version=2), connections[0])
    join(subscribed("G0", version=1), connections[0])
    with pytest.raises(RemotingError, match="left for all groups"):
        join(subscribed("G12", large))

    join(subscribed("G0", version=3), connections[0])
    last = join(subscribed("G12", large))
    with pytest.raises(RemotingError, match="left for all groups"):
        join(subscribed("G13", large))
    last.close()
    join(subscribed("G13", large))


def test_the_groups_of_a_connection_and_of_an_address_have_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups = ConsumerGroups(
        lambda group: None, lambda: MonotonicMs(1), max_groups=3, max_groups_of_user=5
    )
    connections = [FakeConnection(), FakeConnection()]

    def join(number: int, *names: str) -> None:
        client = ClientInfo(connections[number], "c", "JAVA", 479, MonotonicMs(1))
        for name in names:
            groups.register(subscribed(name), client, notify_enabled=True)

    join(0, *"ABCDA")
    join(1, *"ABC")
    assert groups.names() == ["A", "B", "C"]
    assert [len(groups.get(name).clients) for name in "ABC"] == [2, 2, 1]  # type: ignore[union-attr]
    assert "consumer group D is ignored" in caplog.text
    groups.unregister("A", connections[0])
    join(1, "C")
    join(0, "D")
    assert groups.names() == ["A", "B", "C"]
    connections[1].close()
    join(0, "D")
    assert groups.names() == ["B", "C", "D"]
