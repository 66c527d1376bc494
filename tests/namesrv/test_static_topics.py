"""The queue mappings of static topics: brokers register them, clients need them in the route."""

from __future__ import annotations

import pytest

from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.route_table import RouteTable
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.bodies.registration import RegisterBrokerBody
from pocketmq.remoting.bodies.route import TopicQueueMappingInfo, TopicRouteData
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.monotonic import MonotonicClock
from tests.namesrv.registrations import body, header, registered

CHANNEL = object()
REGISTRATION = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
    b'"stateVersion":0,"timestamp":7},"topicConfigTable":{"A":{"topicName":"A"},'
    b'"S":{"topicName":"S"}},"topicQueueMappingInfoMap":{"S":{"bname":"b0",'
    b'"currIdMap":{0:0,2:1},"dirty":false,"epoch":5,"scope":"__global__","topic":"S",'
    b'"totalQueues":4}}}}'
)
INFO = (
    b'{"b0":{"bname":"b0","currIdMap":{0:0,2:1},"dirty":false,"epoch":5,"scope":"__global__",'
    b'"topic":"S","totalQueues":4}}'
)


@pytest.fixture
def table(config: NamesrvConfig, clock: MonotonicClock) -> RouteTable:
    return RouteTable(config, clock=clock)


def static(broker_name: str, *topics: str, epoch: int = 5, version: int = 1) -> RegisterBrokerBody:
    """A registration of the topics A and B, and of those named, which are static."""
    data = body("A", "B", *topics, version=version)
    data.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {
        name: TopicQueueMappingInfo(
            bname=broker_name, curr_id_map={0: 0}, epoch=epoch, topic=name, total_queues=2
        )
        for name in topics
    }
    return data


def epochs(table: RouteTable, topic: str) -> dict[str, int] | None:
    route = table.route(topic)
    assert route is not None
    by_broker = route.topic_queue_mapping_by_broker
    return None if by_broker is None else {n: info.epoch for n, info in by_broker.items()}


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_mapping_is_in_the_route_as_it_was_registered(
    server: NameServer, connection: Connection, compressed: bool
) -> None:
    data = REGISTRATION
    if compressed:
        data = RegisterBrokerBody.decode(data).encode_compressed()
    await connection.request(RequestCode.REGISTER_BROKER, header(compressed=compressed), data)

    async def route(topic: str) -> bytes:
        answer = await connection.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}
        )
        return bytes(answer.body)

    standard = INFO.replace(b"{0:", b'{"0":').replace(b",2:", b',"2":')
    assert b'"topicQueueMappingByBroker":' + standard in await route("S")
    assert b"topicQueueMappingByBroker" not in await route("A")
    found = server.routes.route("S")
    assert found is not None
    assert b'"topicQueueMappingByBroker":' + INFO in found.encode()
    assert TopicRouteData.decode(found.encode()) == found


def test_each_broker_has_its_part_of_a_static_topic(table: RouteTable) -> None:
    registered(table, header("b0"), static("b0", "S"), CHANNEL)
    registered(table, header("b1", address="2"), static("b1", "S", epoch=6), CHANNEL)
    assert epochs(table, "S") == {"b0": 5, "b1": 6}
    registered(table, header("b0"), static("b0", "S", epoch=7, version=2), CHANNEL)
    assert epochs(table, "S") == {"b0": 7, "b1": 6}
    assert epochs(table, "A") is None


def test_a_registration_without_mappings_leaves_them(table: RouteTable) -> None:
    registered(table, header(), static("b0", "S"), CHANNEL)
    registered(table, header(), body("A", version=2), CHANNEL)
    assert epochs(table, "S") == {"b0": 5}


def test_slaves_register_no_mappings(table: RouteTable) -> None:
    registered(table, header(), body("A", "S"), CHANNEL)
    registered(table, header(broker_id=1, address="2"), static("b0", "S"), CHANNEL)
    assert epochs(table, "S") is None


def test_a_mapping_goes_with_its_topic(table: RouteTable) -> None:
    registered(table, header("b0"), static("b0", "S", "R"), CHANNEL)
    registered(table, header("b1", address="2"), static("b1", "S"), CHANNEL)
    table.unregister_broker("c0", "2", "b1")
    assert epochs(table, "S") == {"b0": 5}
    table.delete_topic("S")
    table.delete_topic("R", "c0")
    registered(table, header("b0"), body("A", "S", "R", version=2), CHANNEL)
    assert epochs(table, "S") is None
    assert epochs(table, "R") is None


def test_a_mapping_comes_back_with_its_topic(table: RouteTable) -> None:
    """Deleted by hand at the name server alone, the topic is in the next, unchanged,
    registration of its broker."""
    registered(table, header(), static("b0", "S"), CHANNEL)
    table.delete_topic("S")
    registered(table, header(), static("b0", "S"), CHANNEL)
    assert epochs(table, "S") == {"b0": 5}
