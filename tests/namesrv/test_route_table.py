from __future__ import annotations

import msgspec
import pytest

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.route_table import LIVENESS_WINDOW, Limits, RegisterBrokerResult, RouteTable
from pocketmq.remoting.bodies.registration import DataVersion, RegisterBrokerBody
from pocketmq.remoting.bodies.route import QueueData, TopicQueueMappingInfo
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import RegisterBrokerRequestHeader
from pocketmq.remoting.monotonic import MonotonicClock
from tests.namesrv.conftest import Clock
from tests.namesrv.registrations import body, finished, header, registered, topic

CHANNEL = object()


@pytest.fixture
def table(config: NamesrvConfig, clock: MonotonicClock) -> RouteTable:
    return RouteTable(config, clock=clock)


def perms(table: RouteTable, name: str) -> dict[str, int]:
    route = table.route(name)
    return {} if route is None else {q.broker_name: q.perm for q in route.queue_datas}


def is_empty(table: RouteTable) -> bool:
    info = table.cluster_info()
    return not (info.broker_addr_table or info.cluster_addr_table or table.topics.names())


# Coming


def test_a_registered_broker_is_in_routes_and_clusters(table: RouteTable) -> None:
    assert registered(table, header(), body("A", "B"), CHANNEL) == RegisterBrokerResult()
    route = table.route("A")
    assert route is not None
    (group,) = route.broker_datas
    assert (group.broker_name, group.cluster) == ("b0", "c0")
    assert group.broker_addrs == {0: "10.0.0.1:10911"}
    assert not group.enable_acting_master
    (queues,) = route.queue_datas
    assert queues == QueueData(
        broker_name="b0", perm=6, read_queue_nums=4, topic_sys_flag=0, write_queue_nums=4
    )
    assert route.filter_server_table == {}
    assert table.route("unknown") is None
    assert sorted(table.topics.names()) == ["A", "B"]
    info = table.cluster_info()
    assert info.cluster_addr_table == {"c0": ["b0"]}
    assert info.broker_addr_table["b0"].broker_addrs == {0: "10.0.0.1:10911"}


def test_a_topic_at_two_groups_has_both_sorted_by_name(table: RouteTable) -> None:
    registered(table, header("b1", address="10.0.0.2:10911"), body("A", "X"), CHANNEL)
    registered(table, header("b0"), body(topic("A", perm=4), "Y"), CHANNEL)
    assert list(perms(table, "A").items()) == [("b0", 4), ("b1", 6)]
    route = table.route("A")
    assert route is not None
    assert [group.broker_name for group in route.broker_datas] == ["b0", "b1"]


def test_slaves_are_in_the_route_and_learn_their_master(table: RouteTable) -> None:
    slave = header(broker_id=1, address="10.0.0.2:10911")
    assert registered(table, slave, body("A", "B"), CHANNEL) == RegisterBrokerResult()
    assert table.route("A") is None, "a slave writes no topics"
    registered(table, header(), body("A", "B"), CHANNEL)
    assert registered(table, slave, body("A", "B"), CHANNEL) == RegisterBrokerResult(
        "10.0.0.1:10911", "10.0.0.1:10912"
    )
    route = table.route("A")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_a_slave_that_becomes_master_has_one_id(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, header(broker_id=1, address="10.0.0.2:10911"), body("A", "B"), CHANNEL)
    table.unregister_broker("c0", "10.0.0.1:10911", "b0")
    registered(table, header(broker_id=0, address="10.0.0.2:10911"), body("A", "B"), CHANNEL)
    assert table.member_group("c0", "b0").broker_addrs == {0: "10.0.0.2:10911"}


def test_the_first_registration_with_one_topic_is_refused(table: RouteTable) -> None:
    assert registered(table, header(), body("A"), CHANNEL) is None
    assert is_empty(table), "not even a ghost of the broker remains"
    assert registered(table, header(), body("A", "B"), CHANNEL) is not None
    assert registered(table, header(), body("C", version=2), CHANNEL) is not None
    assert sorted(table.topics.names()) == ["A", "B", "C"]
    slave = header(broker_id=1, address="10.0.0.2:10911")
    assert registered(table, slave, body("A"), CHANNEL) is None
    assert table.member_group("c0", "b0").broker_addrs == {0: "10.0.0.1:10911"}


def test_a_first_registration_without_topics_is_taken(table: RouteTable) -> None:
    assert registered(table, header(), body(), CHANNEL) is not None
    assert table.cluster_info().cluster_addr_table == {"c0": ["b0"]}


def test_a_partial_registration_changes_only_what_it_mentions(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, header(), body(topic("A", queues=8), version=2), CHANNEL)
    route = table.route("A")
    assert route is not None
    assert route.queue_datas[0].write_queue_nums == 8
    assert table.route("B") is not None


def test_an_unchanged_data_version_changes_no_topic_but_adds_new_ones(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, header(), body(topic("A", queues=8), "N"), CHANNEL)
    route = table.route("A")
    assert route is not None
    assert route.queue_datas[0].write_queue_nums == 4
    assert table.route("N") is not None


def test_topics_are_deleted_by_registration_only_when_asked_for(
    table: RouteTable, config: NamesrvConfig
) -> None:
    registered(table, header(), body("A", "B", "C"), CHANNEL)
    registered(table, header(), body("A", "B", version=2), CHANNEL)
    assert table.route("C") is not None
    config.delete_topic_with_broker_registration = True
    registered(table, header(), body("A", "B", version=3), CHANNEL)
    assert table.route("C") is None
    assert table.route("A") is not None


def test_a_refused_master_stays_nowhere_under_its_old_id(table: RouteTable) -> None:
    """Nothing would remove it: it has no sign of life that could run out."""
    registered(table, header(broker_id=1, address="2"), body("A", "B"), CHANNEL)
    registered(table, header(broker_id=0, address="1"), body("A", "B", state=2), CHANNEL)
    registered(table, header(broker_id=0, address="2"), body("A", "B", state=1), CHANNEL)
    assert table.member_group("c0", "b0").broker_addrs == {0: "1"}


def test_an_older_state_version_does_not_take_an_id_over(table: RouteTable) -> None:
    registered(table, header(), body("A", "B", state=5), CHANNEL)
    rival = header(address="10.0.0.9:10911")
    assert registered(table, rival, body("A", "Z", state=4), CHANNEL) == RegisterBrokerResult()
    assert table.member_group("c0", "b0").broker_addrs == {0: "10.0.0.1:10911"}
    assert table.route("Z") is None
    assert table.data_version("c0", "10.0.0.9:10911") is None
    assert registered(table, rival, body("A", "Z", state=5), CHANNEL) is not None
    assert table.member_group("c0", "b0").broker_addrs == {0: "10.0.0.9:10911"}


def test_a_group_that_changes_its_cluster_moves(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, header(cluster_name="c1"), body("A", "B", version=2), CHANNEL)
    assert table.cluster_info().cluster_addr_table == {"c1": ["b0"]}
    table.unregister_broker("c1", "10.0.0.1:10911", "b0")
    assert table.cluster_info().cluster_addr_table == {}


def test_filter_servers_are_shown_until_they_are_gone(table: RouteTable) -> None:
    registered(table, header(), body("A", "B", filter_servers=["10.0.0.1:7"]), CHANNEL)
    route = table.route("A")
    assert route is not None
    assert route.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:7"]}
    registered(table, header(), body("A", "B"), CHANNEL)
    route = table.route("A")
    assert route is not None
    assert route.filter_server_table == {}


# Acting masters


def acting(broker_id: int, address: str) -> RegisterBrokerRequestHeader:
    return header(broker_id=broker_id, address=address, enable_acting_master=True)


def test_the_smallest_slave_acts_for_a_missing_master(
    table: RouteTable, config: NamesrvConfig
) -> None:
    for broker_id in (0, 1, 2):
        at = f"10.0.0.{broker_id + 1}:10911"
        registered(table, acting(broker_id, at), body("A", "B"), CHANNEL)
    table.unregister_broker("c0", "10.0.0.1:10911", "b0")
    assert perms(table, "A") == {"b0": 4}
    slaves = {1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
    route = table.route("A")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == slaves
    config.support_acting_master = True
    route = table.route("A")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: "10.0.0.2:10911", 2: "10.0.0.3:10911"}
    assert table.member_group("c0", "b0").broker_addrs == slaves
    # A topic that it registers now can be read only, whatever it says.
    registered(table, acting(1, "10.0.0.2:10911"), body("A", "N", version=2), CHANNEL)
    assert perms(table, "N") == {"b0": 4}
    # The master's return makes it writable again.
    registered(table, acting(0, "10.0.0.1:10911"), body("A", "B", version=3), CHANNEL)
    assert perms(table, "A") == {"b0": 6}


def test_without_the_switch_a_masterless_group_keeps_its_permissions(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, header(broker_id=1, address="10.0.0.2:10911"), body("A", "B"), CHANNEL)
    table.unregister_broker("c0", "10.0.0.1:10911", "b0")
    assert perms(table, "A") == {"b0": 6}
    assert table.member_group("c0", "b0").broker_addrs == {1: "10.0.0.2:10911"}


# Going


def test_unregistering_removes_everything_of_a_broker(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, header("b1", address="10.0.0.2:10911"), body("A", "C"), CHANNEL)
    table.unregister_broker("c0", "10.0.0.1:10911", "b0")
    assert perms(table, "A") == {"b1": 6}
    assert table.route("B") is None
    assert table.cluster_info().cluster_addr_table == {"c0": ["b1"]}
    table.unregister_broker("c0", "10.0.0.2:10911", "b1")
    assert is_empty(table)
    table.unregister_broker("c0", "10.0.0.2:10911", "b1")
    table.unregister_broker("nowhere", "1.2.3.4:5", "nobody")


def test_a_lost_connection_removes_the_brokers_that_registered_over_it(table: RouteTable) -> None:
    shared, other = object(), object()
    registered(table, header("b0"), body("A", "B"), shared)
    registered(table, header("b1", address="10.0.0.2:10911"), body("A", "B"), shared)
    registered(table, header("b2", address="10.0.0.3:10911"), body("A", "B"), other)
    table.channel_lost(object())
    assert set(perms(table, "A")) == {"b0", "b1", "b2"}
    table.channel_lost(shared)
    assert set(perms(table, "A")) == {"b2"}


def test_the_old_connection_of_a_broker_that_reconnected_means_nothing(table: RouteTable) -> None:
    old, new = object(), object()
    registered(table, header(), body("A", "B"), old)
    registered(table, header(), body("A", "B"), new)
    table.channel_lost(old)
    assert table.route("A") is not None
    table.channel_lost(new)
    assert is_empty(table)


def renamed(table: RouteTable) -> None:
    """A broker came back with another name and the old address; its old end was not noticed."""
    registered(table, header("old"), body("A", "B"), "1")
    registered(table, header("new"), body("A", "B"), "2")


def test_an_address_with_two_names_is_lost_with_both(table: RouteTable) -> None:
    renamed(table)
    table.channel_lost("1")
    assert perms(table, "A") == {"old": 6, "new": 6}
    table.channel_lost("2")
    assert is_empty(table)


def test_an_address_with_two_names_is_unregistered_with_both(table: RouteTable) -> None:
    renamed(table)
    table.unregister_broker("c0", "10.0.0.1:10911", "new")
    assert is_empty(table)


def test_who_unregisters_late_takes_no_other_along(table: RouteTable) -> None:
    renamed(table)
    table.unregister_broker("c0", "10.0.0.1:10911", "old")
    assert perms(table, "A") == {"new": 6}
    table.channel_lost("2")
    assert is_empty(table)


def test_an_address_lives_on_in_another_cluster(table: RouteTable) -> None:
    registered(table, header("b0", cluster_name="c1"), body("A", "B"), "1")
    registered(table, header("b0", cluster_name="c0"), body("A", "B"), "2")
    table.channel_lost("1")
    assert perms(table, "A") == {"b0": 6}
    table.channel_lost("2")
    assert is_empty(table)


def test_a_silent_broker_expires_after_its_window(table: RouteTable, clock: Clock) -> None:
    default, own = object(), object()
    registered(table, header("b0"), body("A", "B"), default)
    registered(
        table,
        header("b1", address="10.0.0.2:10911", heartbeat_timeout_millis=5000),
        body("A", "B"),
        own,
    )
    clock.advance(5000)
    assert table.expire() == []
    clock.advance(1)
    assert table.expire() == [own]
    assert set(perms(table, "A")) == {"b0"}
    clock.advance(LIVENESS_WINDOW - 5001)
    assert table.expire() == []
    clock.advance(1)
    assert table.expire() == [default]
    assert is_empty(table)
    assert table.expire() == []


def test_signs_of_life_put_expiry_off(table: RouteTable, clock: Clock) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    clock.advance(LIVENESS_WINDOW)
    table.touch("c0", "10.0.0.1:10911")
    clock.advance(LIVENESS_WINDOW)
    assert table.expire() == []
    registered(table, header(), body("A", "B"), CHANNEL)
    clock.advance(LIVENESS_WINDOW)
    assert table.expire() == []
    table.touch("c0", "10.9.9.9:10911")
    clock.advance(1)
    assert table.expire() == [CHANNEL]


def test_an_address_whose_id_was_taken_over_expires_alone(table: RouteTable, clock: Clock) -> None:
    registered(table, header(), body("A", "B"), "old")
    clock.advance(1000)
    registered(table, header(address="10.0.0.9:10911"), body("A", "B"), "new")
    clock.advance(LIVENESS_WINDOW - 999)
    assert table.expire() == ["old"]
    assert table.member_group("c0", "b0").broker_addrs == {0: "10.0.0.9:10911"}


# Topics


def test_write_permission_of_a_group_is_wiped_and_given_back(table: RouteTable) -> None:
    topics = (topic("A"), topic("R", perm=4), topic("I", perm=7))
    registered(table, header(), body(*topics), CHANNEL)
    registered(table, header("b1", address="10.0.0.2:10911"), body("A", "C"), CHANNEL)
    assert table.topics.wipe_write_perm("b0") == 3
    assert perms(table, "A") == {"b0": 4, "b1": 6}
    assert perms(table, "I") == {"b0": 5}
    registered(table, header(), body(*topics), CHANNEL)
    assert perms(table, "A") == {"b0": 4, "b1": 6}, "an unchanged registration keeps the wipe"
    registered(table, header(), body(*topics, version=2), CHANNEL)
    assert perms(table, "A") == {"b0": 6, "b1": 6}
    assert table.topics.add_write_perm("b0") == 3
    assert (perms(table, "R"), perms(table, "I")) == ({"b0": 6}, {"b0": 6})
    assert table.topics.wipe_write_perm("nobody") == 0


def test_topics_set_and_deleted_by_hand(table: RouteTable) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(
        table, header("b1", address="10.0.0.2:10911", cluster_name="c1"), body("A", "C"), CHANNEL
    )
    row = QueueData(broker_name="b0", perm=6, read_queue_nums=1, write_queue_nums=1)
    assert table.register_topic("N", [row])
    assert perms(table, "N") == {"b0": 6}
    ghost = QueueData(broker_name="nobody", perm=6)
    assert not table.register_topic("G", [row, ghost])
    assert table.route("G") is None
    table.delete_topic("A", "c1")
    assert perms(table, "A") == {"b0": 6}
    table.delete_topic("A", "nowhere")
    assert perms(table, "A") == {"b0": 6}
    table.delete_topic("A")
    assert table.route("A") is None
    table.delete_topic("A")
    table.delete_topic("C", "c1")
    assert "C" not in table.topics.names()


def test_lists_of_topics(table: RouteTable) -> None:
    registered(table, header(), body("A", topic("U", flag=1), topic("S", flag=2)), CHANNEL)
    registered(
        table,
        header("b1", address="10.0.0.2:10911", cluster_name="c1"),
        body("A", topic("US", flag=3)),
        CHANNEL,
    )
    assert sorted(table.topics_by_cluster("c0")) == ["A", "S", "U"]
    assert sorted(table.topics_by_cluster("c1")) == ["A", "US"]
    assert table.topics_by_cluster("nowhere") == []
    names, address = table.system_topics()
    assert sorted(names) == ["b0", "b1", "c0", "c1"]
    assert address in ("10.0.0.1:10911", "10.0.0.2:10911")
    assert finished(table.topics.names_by_unit(lambda unit, sub: unit)) == ["U", "US"]
    assert finished(table.topics.names_by_unit(lambda unit, sub: sub)) == ["S", "US"]
    assert finished(table.topics.names_by_unit(lambda unit, sub: sub and not unit)) == ["S"]


def test_an_empty_table_answers(table: RouteTable) -> None:
    assert table.system_topics() == ([], None)
    assert table.member_group("c", "b").broker_addrs == {}
    assert table.data_version("c", "a") is None
    assert is_empty(table)


def test_the_data_version_is_the_last_registered(table: RouteTable) -> None:
    registered(table, header(), body("A", "B", version=4), CHANNEL)
    assert table.data_version("c0", "10.0.0.1:10911") == DataVersion(
        counter=4, state_version=0, timestamp=7
    )


# Rivals


@pytest.mark.parametrize(
    ("second", "lines"),
    [
        (header(address="10.0.0.2:10911"), 1),
        (header(cluster_name="c1"), 1),
        (header(), 0),
        (header(broker_id=1, address="10.0.0.2:10911"), 0),
        (header("b1", address="10.0.0.2:10911"), 0),
    ],
    ids=["another address", "another cluster", "the same", "another id", "another name"],
)
def test_a_broker_that_takes_the_place_of_a_living_one_is_logged(
    table: RouteTable,
    second: RegisterBrokerRequestHeader,
    lines: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registered(table, header(), body("A", "B"), CHANNEL)
    registered(table, second, body("A", "B"), CHANNEL)
    assert caplog.text.count("replaces the one in") == lines


def test_a_broker_that_takes_the_place_of_a_dead_one_is_not_logged(
    table: RouteTable, caplog: pytest.LogCaptureFixture
) -> None:
    channel = object()
    registered(table, header(), body("A", "B"), channel)
    table.channel_lost(channel)
    registered(table, header(address="10.0.0.2:10911"), body("A", "B"), CHANNEL)
    assert "replaces the one in" not in caplog.text


class Looked(str):
    """A text that counts how often a table looks at it."""

    looks = 0

    def __hash__(self) -> int:
        Looked.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Looked.looks += 1
        return super().__eq__(other)


def test_a_broker_that_leaves_takes_no_look_at_the_others(table: RouteTable) -> None:
    """Two thousand brokers that left together took a name server 21 s beside 60,000 topics."""
    names = [Looked(f"b{number}") for number in range(20)]
    for name in names:
        registration = body(f"A-{name!s}", f"B-{name!s}", filter_servers=["10.0.0.9:1"])
        at = header(name, address=Looked(f"{name!s}:10911"))
        registered(table, at, registration, CHANNEL)
    left = object()
    slave = {"enable_acting_master": True}
    for number, channel in (0, left), (1, CHANNEL):
        at = header("own", number, f"own-{number}:10911", **slave)
        registered(table, at, body("X", "Y", filter_servers=["10.0.0.9:1"]), channel)
    Looked.looks = 0
    assert perms(table, "X") == {"own": 6}
    table.channel_lost(left)
    assert perms(table, "X") == {"own": 4}
    table.channel_lost(object())
    table.unregister_broker("c0", "own-1:10911", "own")
    assert table.route("X") is None
    assert Looked.looks == 0
    assert len(table.topics.names()) == 40
    table.channel_lost(CHANNEL)
    assert is_empty(table)


def test_the_tables_are_bounded() -> None:
    limits = Limits(topics=3, rows=5, brokers=2)
    table = RouteTable(NamesrvConfig(), clock=Clock(), limits=limits)

    def refusal(name: str, *topics: str) -> str:
        try:
            registered(table, header(name, address=f"{name}:10911"), body(*topics), CHANNEL)
        except RemotingError as error:
            return error.remark
        return ""

    assert not refusal("b0", "A", "B", "C")
    assert "4 topics of this group, at most 3" in refusal("b0", "A", "D")
    assert "6 topics of all brokers, at most 5" in refusal("b1", "A", "B", "C")
    assert "513 characters in a name, at most 512" in refusal("b1", "A", "x" * 513)
    assert not refusal("b1", "A", "B")
    assert "3 brokers, at most 2" in refusal("b2")
    assert not refusal("b1", "A", "B")
    with pytest.raises(RemotingError, match="at most 5 topics"):
        table.register_topic("E", [QueueData(broker_name="b0")])


def test_the_bytes_of_the_tables_are_bounded() -> None:
    table = RouteTable(NamesrvConfig(), clock=Clock(), limits=Limits(bytes=20_000))

    def refusal(name: str, told: RegisterBrokerBody) -> str:
        try:
            registered(table, header(name, address=f"{name}:10911"), told, CHANNEL)
        except RemotingError as error:
            return error.remark
        return ""

    def mapped(queues: int) -> RegisterBrokerBody:
        told = body("A", "B")
        mapping = TopicQueueMappingInfo(topic="A", curr_id_map=dict.fromkeys(range(queues), 0))
        told.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {"A": mapping}
        return told

    def served(servers: int) -> RegisterBrokerBody:
        told = body("A", "B")
        told.filter_server_list = [f"server {number}" for number in range(servers)]
        return told

    # Names of 500 characters, of which each takes four bytes.
    wide = body(*(str(number).ljust(500, "\U0001f600") for number in range(10)))
    for told in (wide, mapped(200), served(500)):
        assert "bytes of all brokers, at most 20000" in refusal("b0", told)
        assert is_empty(table)
    # What is replaced or dropped does not count twice.
    for _ in range(5):
        for told in (mapped(50), served(100), body("A", "B")):
            assert not refusal("b0", told)
            assert "bytes of all brokers" in refusal("b1", wide)
        # A text that was written as UTF-8 keeps that, and takes more than before.
        assert not refusal("b0", body("\U0001f600" * 100))
        msgspec.json.encode(table.topics.names())
        table.channel_lost(CHANNEL)
        assert is_empty(table)
        assert table.topics.weight == 0


def test_an_address_with_ever_new_names_is_refused() -> None:
    table = RouteTable(NamesrvConfig(), clock=Clock(), limits=Limits(brokers=3))
    for number in range(3):
        registered(table, header(f"b{number}", address="a:1"), body("A", "B"), CHANNEL)
    with pytest.raises(RemotingError, match="4 broker groups, at most 3"):
        registered(table, header("b3", address="a:1"), body("A", "B"), CHANNEL)
    with pytest.raises(RemotingError, match="513 characters in a name"):
        registered(table, header("b0", ha_server_addr="x" * 513), body("A", "B"), CHANNEL)
