"""Every request of the name server over a connection, with its codes and texts."""

from __future__ import annotations

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pocketmq.message.checksum import body_crc
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.namesrv.server import NameServer
from pocketmq.remoting.bodies.registration import DataVersion, RegisterBrokerBody
from pocketmq.remoting.bodies.route import QueueData, TopicRouteData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import Command, decode_command, encode_command
from pocketmq.remoting.serving.request import RequestDecoder, Response
from tests.namesrv.conftest import Clock
from tests.namesrv.files import HeldFile, exists, make_unwritable, read, write
from tests.namesrv.registrations import body, header, topic

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


async def ask(
    connection: Connection, code: int, data: bytes = b"", /, **ext_fields: Any
) -> Command:
    return await connection.request(
        code, body=data, ext_fields={k: str(v) for k, v in ext_fields.items()}
    )


async def ok(connection: Connection, code: int, data: bytes = b"", /, **ext_fields: Any) -> Command:
    answer = await ask(connection, code, data, **ext_fields)
    assert (answer.code, answer.remark) == (0, None)
    return answer


async def register(
    connection: Connection, data: RegisterBrokerBody | None = None, **fields: Any
) -> Command:
    return await connection.request(
        RequestCode.REGISTER_BROKER,
        header(**fields),
        (data or body("A", "B")).encode(),
    )


def as_release(
    server: NameServer, version: int, code: int, data: bytes = b"", /, **ext: Any
) -> Any:
    """The answer to a request of a peer of another release, without a socket."""
    frame = encode_command(
        code, 1, ext_fields={k: str(v) for k, v in ext.items()}, body=data, version=version
    )
    request = RequestDecoder(server.dispatcher.header_types).decode(frame[4:])
    request.connection = Mock(closed=False, peer=("10.0.0.9", 1))
    return server.dispatcher.dispatch(request)


# Registration


async def test_a_master_registers(connection: Connection) -> None:
    answer = await register(connection)
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields == {}
    assert not answer.body


async def test_a_slave_learns_its_master(connection: Connection) -> None:
    await register(connection)
    answer = await register(connection, broker_id=1, address="10.0.0.2:10911")
    assert answer.ext_fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}


async def test_the_first_registration_with_one_topic_is_refused(connection: Connection) -> None:
    answer = await register(connection, body("A"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "register broker failed")
    clusters = await ok(connection, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert bytes(clusters.body) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


@pytest.mark.parametrize("said", [True, False])
async def test_a_compressed_registration(connection: Connection, said: bool) -> None:
    data = body("A", topic("B", perm=4, queues=9)).encode_compressed()
    answer = await connection.request(
        RequestCode.REGISTER_BROKER,
        header(compressed=said, body_crc32=body_crc(data)),
        data,
    )
    assert answer.code == 0
    route = await ok(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="B")
    (queues,) = TopicRouteData.decode(route.body).queue_datas
    assert (queues.perm, queues.read_queue_nums) == (4, 9)


async def test_a_wrong_checksum_is_refused(connection: Connection) -> None:
    data = body("A", "B").encode()
    answer = await connection.request(
        RequestCode.REGISTER_BROKER, header(body_crc32=body_crc(data) ^ 1), data
    )
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


@pytest.mark.parametrize(
    ("compressed", "data"),
    [
        (False, b"not JSON"),
        (False, b'{"topicConfigSerializeWrapper":7}'),
        (True, b"not zlib"),
        (True, zlib.compress(b"\x00\x00\x00\x7f{}")),
        (True, body("A", "B").encode_compressed()[:-9]),
    ],
)
async def test_a_broken_body_is_answered(
    connection: Connection, compressed: bool, data: bytes
) -> None:
    answer = await connection.request(
        RequestCode.REGISTER_BROKER, header(compressed=compressed), data
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark
    assert not connection.closed


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_route_is_answered_while_a_large_registration_is_read(
    server: NameServer, connection: Connection, compressed: bool
) -> None:
    await register(connection)
    large = body(*(f"topic{number}" for number in range(20_000)))
    data = large.encode_compressed() if compressed else large.encode()
    other = await Connection.open(server.address)
    registering = asyncio.ensure_future(
        connection.request(
            RequestCode.REGISTER_BROKER,
            header(broker_name="b1", address="10.0.0.2:10911", compressed=compressed),
            data,
            timeout=60.0,
        )
    )
    route = asyncio.ensure_future(ask(other, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="topic0"))
    seen_before = 0
    while not registering.done():
        seen_before += (await route).code == ResponseCode.TOPIC_NOT_EXIST
        route = asyncio.ensure_future(
            ask(other, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="topic19999")
        )
    await route
    assert registering.result().code == 0
    assert seen_before > 5
    assert len(server.routes.topics.names()) == 20_002
    await other.close()


async def test_one_topic_may_not_be_repeated_a_million_times(connection: Connection) -> None:
    topics = body("A").encode_compressed()
    plain = zlib.decompress(topics)
    at = plain.index(b"}") + 1
    entry = plain[at + 4 : plain.index(b"{}", at) + 2]
    many = 200_000
    data = zlib.compress(
        plain[:at] + many.to_bytes(4, "big") + entry * many + b"\x00\x00\x00\x02[]" + bytes(4)
    )
    answer = await connection.request(
        RequestCode.REGISTER_BROKER, header(compressed=True), data, timeout=60.0
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "the registration has more than 100000 topics"


@pytest.mark.parametrize(
    "code", [RequestCode.REGISTER_TOPIC_IN_NAMESRV, RequestCode.QUERY_DATA_VERSION]
)
async def test_long_bodies_are_refused_before_they_are_read(
    connection: Connection, code: RequestCode
) -> None:
    fields = {"topic": "A", "brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": 1}
    answer = await ask(connection, code, b"{0:" + b"0" * (2 << 20), **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"the body of request {int(code)} has 2097155 bytes" in str(answer.remark)


async def test_a_registration_without_a_body_has_no_topics(connection: Connection) -> None:
    assert (await connection.request(RequestCode.REGISTER_BROKER, header())).code == 0
    topics = await ok(connection, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert json.loads(bytes(topics.body)) == {"topicList": []}


async def test_brokers_before_3_0_11_send_the_topic_table_alone(server: NameServer) -> None:
    wrapper = body("A", "B").topic_config_serialize_wrapper
    fields = header().to_ext()
    answer = await as_release(server, 36, RequestCode.REGISTER_BROKER, wrapper.encode(), **fields)
    assert answer.code == 0
    assert sorted(server.routes.topics.names()) == ["A", "B"]


async def test_compressed_bodies_before_5_0_have_no_mapping_section(server: NameServer) -> None:
    data = zlib.decompress(body("A", "B").encode_compressed())
    old = zlib.compress(data[:-4])
    fields = header(compressed=True).to_ext()
    answer = await as_release(server, 412, RequestCode.REGISTER_BROKER, old, **fields)
    assert answer.code == 0
    answer = await as_release(server, 413, RequestCode.REGISTER_BROKER, old, **fields)
    assert answer.code == 1


async def test_ordered_topics_are_the_answer_to_a_registration(
    connection: Connection, config: NamesrvConfig
) -> None:
    await ok(
        connection,
        RequestCode.PUT_KV_CONFIG,
        namespace="ORDER_TOPIC_CONFIG",
        key="A",
        value="b0:4",
    )
    answer = await register(connection)
    assert json.loads(bytes(answer.body)) == {"table": {"A": "b0:4"}}
    config.return_order_topic_config_to_broker = False
    assert not (await register(connection)).body


async def test_unregistering(connection: Connection) -> None:
    await register(connection)
    fields = {"brokerName": "b0", "brokerAddr": "10.0.0.1:10911", "clusterName": "c0"}
    await ok(connection, RequestCode.UNREGISTER_BROKER, **fields, brokerId=0)
    route = await ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    assert route.code == ResponseCode.TOPIC_NOT_EXIST
    await ok(connection, RequestCode.UNREGISTER_BROKER, **fields, brokerId=0)


async def test_data_versions_are_compared(connection: Connection, clock: Clock) -> None:
    fields = {"brokerName": "b0", "brokerAddr": "10.0.0.1:10911", "clusterName": "c0"}
    known = DataVersion(counter=3, state_version=0, timestamp=7)

    async def query(version: DataVersion) -> tuple[str, bytes]:
        answer = await ok(
            connection, RequestCode.QUERY_DATA_VERSION, version.encode(), **fields, brokerId=0
        )
        return answer.ext_fields["changed"], bytes(answer.body)

    assert await query(known) == ("true", b"")
    await register(connection, body("A", "B", version=3))
    assert await query(known) == ("false", b'{"counter":3,"stateVersion":0,"timestamp":7}')
    other = DataVersion(counter=4, state_version=0, timestamp=7)
    assert (await query(other))[0] == "true"
    # A broker that tells no version has to register.
    answer = await ok(connection, RequestCode.QUERY_DATA_VERSION, **fields)
    assert answer.ext_fields["changed"] == "true"


@pytest.mark.parametrize("code", [RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION])
async def test_signs_of_life(
    connection: Connection, server: NameServer, clock: Clock, code: int
) -> None:
    await register(connection)
    for _ in range(3):
        clock.advance(100_000)
        data = DataVersion().encode() if code == RequestCode.QUERY_DATA_VERSION else b""
        await ok(
            connection,
            code,
            data,
            clusterName="c0",
            brokerAddr="10.0.0.1:10911",
            brokerName="b0",
            brokerId=0,
        )
        assert server.routes.expire() == []


async def test_a_missing_mandatory_field_is_answered(connection: Connection) -> None:
    answer = await ask(connection, RequestCode.QUERY_DATA_VERSION, clusterName="c0")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "brokerAddr" in (answer.remark or "")


async def test_the_members_of_a_group(connection: Connection) -> None:
    await register(connection)
    await register(connection, broker_id=1, address="10.0.0.2:10911")
    answer = await ok(
        connection, RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="c0", brokerName="b0"
    )
    assert bytes(answer.body) == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"b0","cluster":"c0"}}'
    )


# Routes

OLD_STYLE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b0",'
    b'"cluster":"c0","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"b0","perm":6,"readQueueNums":4,"topicSysFlag":0,'
    b'"writeQueueNums":4}]}'
)
STANDARD = OLD_STYLE.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')


@pytest.mark.parametrize(
    ("version", "accept", "expected"),
    [
        (317, None, OLD_STYLE),
        (400, "false", OLD_STYLE),
        (317, "true", STANDARD),
        (401, None, STANDARD),
        (479, None, STANDARD),
        (99_999, None, STANDARD),
    ],
)
async def test_routes_come_in_the_style_of_the_client(
    server: NameServer, connection: Connection, version: int, accept: str | None, expected: bytes
) -> None:
    await register(connection)
    await register(connection, broker_id=1, address="10.0.0.2:10911")
    fields = {"topic": "A"} | ({} if accept is None else {"acceptStandardJsonOnly": accept})
    answer = as_release(server, version, RequestCode.GET_ROUTEINFO_BY_TOPIC, **fields)
    assert isinstance(answer, Response)
    assert answer.body == expected


async def test_an_unknown_topic(connection: Connection) -> None:
    answer = await ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="N")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == f"No topic route info in name server for the topic: N{FAQ}"


async def test_ordered_topics_are_in_the_route_when_that_is_on(
    connection: Connection, config: NamesrvConfig
) -> None:
    await register(connection)
    await ok(
        connection,
        RequestCode.PUT_KV_CONFIG,
        namespace="ORDER_TOPIC_CONFIG",
        key="A",
        value="b0:4",
    )

    async def order(name: str) -> str | None:
        answer = await ok(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=name)
        return TopicRouteData.decode(answer.body).order_topic_conf

    assert await order("A") is None
    config.order_message_enable = True
    assert await order("A") == "b0:4"
    assert await order("B") is None


async def test_routes_may_have_to_wait_after_a_start(config: NamesrvConfig, clock: Clock) -> None:
    config.need_wait_for_service = True
    config.wait_seconds_for_service = 45
    async with NameServer(config, clock=clock) as server:
        connection = await Connection.open(server.address)
        await register(connection)
        clock.advance(44_999)
        answer = await ask(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
        assert (answer.code, answer.remark) == (1, "name server not ready")
        clock.advance(1)
        await ok(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
        await connection.close()


async def test_a_client_in_a_zone_sees_its_zone_and_masterless_groups(
    connection: Connection,
) -> None:
    await register(connection, zone_name="east")
    await register(connection, broker_name="b1", address="10.0.0.2:10911", zone_name="west")
    await register(connection, broker_name="b2", address="10.0.0.3:10911", zone_name="west")
    await register(
        connection, broker_name="b2", broker_id=1, address="10.0.0.4:10911", zone_name="west"
    )
    fields = {"brokerName": "b2", "brokerAddr": "10.0.0.3:10911", "clusterName": "c0"}
    await ok(connection, RequestCode.UNREGISTER_BROKER, **fields, brokerId=0)

    async def groups(**zone: str) -> list[str]:
        answer = await ok(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A", **zone)
        route = TopicRouteData.decode(answer.body)
        names = [group.broker_name for group in route.broker_datas]
        assert [queues.broker_name for queues in route.queue_datas] == names
        return names

    assert await groups() == ["b0", "b1", "b2"]
    assert await groups(__ZONE_MODE="true", __ZONE_NAME="East") == ["b0", "b2"]
    assert await groups(__ZONE_MODE="false", __ZONE_NAME="east") == ["b0", "b1", "b2"]
    assert await groups(__ZONE_MODE="true") == ["b0", "b1", "b2"]
    assert await groups(__ZONE_NAME="__ZONE_MODE") == ["b0", "b1", "b2"]


# Clusters and topics


async def test_the_cluster_info_has_bare_integer_keys_for_everyone(connection: Connection) -> None:
    await register(connection)
    answer = await ok(connection, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert bytes(answer.body) == (
        b'{"brokerAddrTable":{"b0":{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"b0",'
        b'"cluster":"c0","enableActingMaster":false}},"clusterAddrTable":{"c0":["b0"]}}'
    )


async def test_write_permission(connection: Connection) -> None:
    await register(connection)
    answer = await ok(connection, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="b0")
    assert answer.ext_fields == {"wipeTopicCount": "2"}
    route = await ok(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    assert TopicRouteData.decode(route.body).queue_datas[0].perm == 4
    answer = await ok(connection, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="b0")
    assert answer.ext_fields == {"addTopicCount": "2"}
    route = await ok(connection, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="A")
    assert TopicRouteData.decode(route.body).queue_datas[0].perm == 6


async def topic_list(connection: Connection, code: int, **ext_fields: str) -> list[str]:
    answer = await ok(connection, code, **ext_fields)
    return sorted(json.loads(bytes(answer.body))["topicList"])


async def test_topic_lists(connection: Connection) -> None:
    await register(connection, body("A", topic("U", flag=1), topic("S", flag=2)))
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert await topic_list(connection, everything) == ["A", "S", "U"]
    by_cluster = RequestCode.GET_TOPICS_BY_CLUSTER
    assert await topic_list(connection, by_cluster, cluster="c0") == ["A", "S", "U"]
    assert await topic_list(connection, by_cluster, cluster="c9") == []
    assert await topic_list(connection, RequestCode.GET_UNIT_TOPIC_LIST) == ["U"]
    assert await topic_list(connection, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == ["S"]
    assert await topic_list(connection, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ["S"]
    system = await ok(connection, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert json.loads(bytes(system.body)) == {
        "brokerAddr": "10.0.0.1:10911",
        "topicList": ["c0", "b0"],
    }


@pytest.mark.parametrize(
    ("switch", "codes"),
    [
        ("enable_all_topic_list", [RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER]),
        (
            "enable_topic_list",
            [
                RequestCode.GET_TOPICS_BY_CLUSTER,
                RequestCode.GET_UNIT_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
            ],
        ),
    ],
)
async def test_topic_lists_can_be_disabled(
    connection: Connection, config: NamesrvConfig, switch: str, codes: list[int]
) -> None:
    setattr(config, switch, False)
    for code in codes:
        answer = await ask(connection, code, cluster="c0")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


async def test_topics_set_by_hand(connection: Connection) -> None:
    await register(connection)
    rows = [QueueData(broker_name="b0", perm=6, read_queue_nums=2, write_queue_nums=2)]
    route = TopicRouteData(queue_datas=rows).encode()
    await ok(connection, RequestCode.REGISTER_TOPIC_IN_NAMESRV, route, topic="N")
    await ok(connection, RequestCode.REGISTER_TOPIC_IN_NAMESRV, b"{}", topic="M")
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert await topic_list(connection, everything) == ["A", "B", "N"]
    await ok(connection, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="N")
    await ok(connection, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="A", clusterName="c9")
    await ok(connection, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="B", clusterName="c0")
    await ok(connection, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="unknown")
    assert await topic_list(connection, everything) == ["A"]


# Key-value configuration


async def test_the_key_value_configuration(connection: Connection, config: NamesrvConfig) -> None:
    item = {"namespace": "NS", "key": "K"}
    missing = await ask(connection, RequestCode.GET_KV_CONFIG, **item)
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.remark == "No config item, Namespace: NS Key: K"
    missing = await ask(connection, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS")
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    await ok(connection, RequestCode.PUT_KV_CONFIG, **item, value="V")
    assert (await ok(connection, RequestCode.GET_KV_CONFIG, **item)).ext_fields == {"value": "V"}
    values = await ok(connection, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="NS")
    assert json.loads(bytes(values.body)) == {"table": {"K": "V"}}
    assert read(config.kv_config_path) == '{"configTable":{"NS":{"K":"V"}}}'
    await ok(connection, RequestCode.DELETE_KV_CONFIG, **item)
    await ok(connection, RequestCode.DELETE_KV_CONFIG, **item)
    assert (await ask(connection, RequestCode.GET_KV_CONFIG, **item)).code == 22


async def test_a_value_that_can_not_be_written_is_an_error(
    connection: Connection, config: NamesrvConfig
) -> None:
    await ok(connection, RequestCode.PUT_KV_CONFIG, namespace="NS", key="K", value="V")
    make_unwritable(config.kv_config_path + ".tmp")
    for code in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        answer = await ask(connection, code, namespace="NS", key="K", value="W")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "kvConfig.json" in (answer.remark or "")


async def test_a_value_without_namespace_or_key_is_an_error(connection: Connection) -> None:
    answer = await ask(connection, RequestCode.PUT_KV_CONFIG, key="K", value="V")
    assert answer.code == ResponseCode.SYSTEM_ERROR


# Settings


async def test_settings_are_shown_sorted(connection: Connection) -> None:
    answer = await ok(connection, RequestCode.GET_NAMESRV_CONFIG)
    lines = bytes(answer.body).decode().splitlines()
    assert lines == sorted(lines)
    assert "orderMessageEnable=false" in lines
    assert "scanNotActiveBrokerInterval=10" in lines


async def test_changed_settings_count_at_once_and_are_written(
    connection: Connection, config: NamesrvConfig
) -> None:
    text = "# für mich\nsomebodysKey=kept\norderMessageEnable=false\n"
    write(config.config_store_path, text, "latin-1")  # as Java reads such files
    change = b"orderMessageEnable=true\nunknownToAll=1\nlistenPort=9999\n"
    await ok(connection, RequestCode.UPDATE_NAMESRV_CONFIG, change)
    assert config.order_message_enable
    assert read(config.config_store_path) == (
        "# für mich\nsomebodysKey=kept\norderMessageEnable=true\nlistenPort=9999\n"
    )
    await ok(connection, RequestCode.UPDATE_NAMESRV_CONFIG)


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "mine"]
)
async def test_settings_in_the_black_list_do_not_change(
    connection: Connection, config: NamesrvConfig, key: str
) -> None:
    config.config_black_list = "mine;theirs"
    change = f"orderMessageEnable=true\n{key}=x".encode()
    answer = await ask(connection, RequestCode.UPDATE_NAMESRV_CONFIG, change)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "Can not update config in black list."
    assert not config.order_message_enable


@pytest.mark.parametrize(
    "change", [b"orderMessageEnable=true\nlistenPort=many", b"orderMessageEnable=true\n\xff\xfe"]
)
async def test_settings_that_make_no_sense_change_nothing(
    connection: Connection, config: NamesrvConfig, change: bytes
) -> None:
    answer = await ask(connection, RequestCode.UPDATE_NAMESRV_CONFIG, change)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not config.order_message_enable
    assert not exists(config.config_store_path)


async def test_settings_that_can_not_be_written_are_an_error(
    connection: Connection, config: NamesrvConfig
) -> None:
    make_unwritable(config.config_store_path)
    answer = await ask(connection, RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "not written" in (answer.remark or "")


async def test_settings_are_written_while_others_are_served(
    connection: Connection, config: NamesrvConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeldFile(Path(config.config_store_path))
    monkeypatch.setattr("pocketmq.namesrv.processors.config.TextFile", lambda path: file)

    def update(text: bytes) -> asyncio.Task[Command]:
        return asyncio.create_task(ask(connection, RequestCode.UPDATE_NAMESRV_CONFIG, text))

    updates = [update(b"orderMessageEnable=true")]
    await file.begun()
    updates += [update(b"waitSecondsForService=%d" % each) for each in range(9)]
    await asyncio.sleep(0)
    shown = await ok(connection, RequestCode.GET_NAMESRV_CONFIG)
    assert b"waitSecondsForService=8\n" in bytes(shown.body)
    assert not any(each.done() for each in updates)
    file.go_on()
    await file.begun()
    file.go_on()
    assert {(await each).code for each in updates} == {0}
    assert file.writes == 2
    assert read(config.config_store_path) == "orderMessageEnable=true\nwaitSecondsForService=8\n"


async def test_settings_are_bounded(connection: Connection, config: NamesrvConfig) -> None:
    change = b"orderMessageEnable=true\nbindAddress=" + b"x" * 65536
    answer = await ask(connection, RequestCode.UPDATE_NAMESRV_CONFIG, change)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "at most 65536" in (answer.remark or "")
    assert not config.order_message_enable
    assert not exists(config.config_store_path)


async def test_binary_headers_are_served_as_well(server: NameServer) -> None:
    frame = encode_command(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, 5, ext_fields={"topic": "N"}, serialize_type=1
    )
    assert decode_command(frame[4:]).serialize_type == 1
    request = RequestDecoder(server.dispatcher.header_types).decode(frame[4:])
    answer = server.dispatcher.dispatch(request)
    assert isinstance(answer, Response)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


# Requests with fields left out, and bodies in another spelling


async def test_bodies_in_another_spelling(connection: Connection) -> None:
    fields = {"brokerName": "b0", "brokerAddr": "10.0.0.1:10911", "clusterName": "c0"}
    registration = (
        b'{"TopicConfigSerializeWrapper":{"data-version":{"Counter":"+3","timestamp":7},'
        b'"topic_config_table":{"A":{"TopicName":"A"},"B":{"TOPICNAME":"B","topicFilterType":0}}}}'
    )
    await ok(connection, RequestCode.REGISTER_BROKER, registration, **fields, brokerId="00")
    rows = b'{"QueueDatas":[{"BrokerName":"b0","read_queue_nums":2,"WriteQueueNums":2,"Perm":6}]}'
    await ok(connection, RequestCode.REGISTER_TOPIC_IN_NAMESRV, rows, topic="N")
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert await topic_list(connection, everything) == ["A", "B", "N"]
    version = b"{'Counter':3,'Timestamp':7,}"
    answer = await ok(connection, RequestCode.QUERY_DATA_VERSION, version, **fields)
    assert answer.ext_fields["changed"] == "false"


async def test_a_route_of_which_nothing_is_understood_is_refused(connection: Connection) -> None:
    await register(connection)
    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    for data, text in (
        (b'{"queues":[]}', "'queues'; known are brokerDatas"),
        (b'{"queueDatas":[{"broker":"b0","perm":6}]}', "brokerName"),
    ):
        answer = await ask(connection, code, data, topic="N")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert text in (answer.remark or "")


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (RequestCode.GET_KV_CONFIG, {"key": "K"}, ResponseCode.QUERY_NOT_FOUND),
        (RequestCode.GET_KV_CONFIG, {"namespace": ""}, ResponseCode.QUERY_NOT_FOUND),
        (RequestCode.GET_KVLIST_BY_NAMESPACE, {}, ResponseCode.QUERY_NOT_FOUND),
        (RequestCode.DELETE_KV_CONFIG, {"key": "K"}, ResponseCode.SUCCESS),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {}, ResponseCode.TOPIC_NOT_EXIST),
        (RequestCode.UNREGISTER_BROKER, {}, ResponseCode.SUCCESS),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {}, ResponseCode.SUCCESS),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, {}, ResponseCode.SUCCESS),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {}, ResponseCode.SUCCESS),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {}, ResponseCode.SUCCESS),
        (RequestCode.GET_BROKER_MEMBER_GROUP, {}, ResponseCode.SUCCESS),
        (
            RequestCode.BROKER_HEARTBEAT,
            {"clusterName": "c0", "brokerAddr": "10.0.0.1:10911", "epoch": "abc"},
            ResponseCode.SUCCESS,
        ),
    ],
)
async def test_fields_left_out(
    connection: Connection, code: int, fields: dict[str, str], expected: int
) -> None:
    await register(connection)
    await ok(connection, RequestCode.PUT_KV_CONFIG, namespace="", key="K", value="V")
    assert (await ask(connection, code, **fields)).code == expected
    # Nothing is gone.
    found = await ok(connection, RequestCode.GET_KV_CONFIG, namespace="", key="K")
    assert found.ext_fields["value"] == "V"
    everything = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    assert await topic_list(connection, everything) == ["A", "B"]
