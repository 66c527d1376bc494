"""Who may change routes: a grant for one cluster gives no say in another."""

from __future__ import annotations

import json

import pytest

from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import Command
from tests.security.conftest import ADMIN, NOBODY, Connect

NO_PERMISSION = 16


OF_A_BROKER = {"Cluster:mine": ["All"]}
OF_A_CLIENT = {"Topic:*": ["Pub", "Sub", "Get"], "Group:*": ["Sub", "Get"]}


async def granted(
    server: EmbeddedServer, connect: Connect, grants: dict[str, list[str]]
) -> Connection:
    """Return a connection of a user with these actions by resource."""
    root = await connect(server.namesrv, ADMIN)
    entries = [
        {"resource": resource, "actions": actions, "decision": "Allow"}
        for resource, actions in grants.items()
    ]
    body = json.dumps({"policies": [{"policyType": "Custom", "entries": entries}]}).encode()
    fields = {"subject": "User:nobody"}
    assert (
        await root.request(RequestCode.AUTH_CREATE_ACL, None, body, ext_fields=fields)
    ).code == 0
    return await connect(server.namesrv, NOBODY)


@pytest.fixture
async def nobody(server: EmbeddedServer, connect: Connect) -> Connection:
    """A connection of a user with all rights in a cluster of theirs."""
    return await granted(server, connect, OF_A_BROKER)


async def routes(server: EmbeddedServer, connect: Connect) -> bytes:
    root = await connect(server.namesrv, ADMIN)
    return bytes((await root.request(RequestCode.GET_BROKER_CLUSTER_INFO)).body)


async def test_a_broker_of_another_cluster_stays_where_it_is(
    server: EmbeddedServer, connect: Connect, nobody: Connection
) -> None:
    before = await routes(server, connect)
    config = server.broker.config

    async def ask(code: int, **more: str) -> Command:
        fields = {
            "brokerName": config.broker_name,
            "brokerAddr": "10.6.6.6:10911",
            "clusterName": "mine",
            "brokerId": "0",
            **more,
        }
        return await nobody.request(code, ext_fields=fields)

    for code in (
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_BROKER_MEMBER_GROUP,
    ):
        answer = await ask(code, brokerAddr=server.broker.address)
        assert answer.code == NO_PERMISSION, code
        assert f"Cluster:{config.broker_cluster_name}" in (answer.remark or "")
    assert await routes(server, connect) == before

    assert (await ask(RequestCode.REGISTER_BROKER, brokerName="own")).code == 0
    assert (await ask(RequestCode.UNREGISTER_BROKER, brokerName="own")).code == 0
    assert await routes(server, connect) == before


TOPIC = "TBW102"
"""Every broker has it."""


async def everything(server: EmbeddedServer, connect: Connect) -> list[bytes]:
    """What the name server tells an administrator of brokers, a topic, and its settings."""
    root = await connect(server.namesrv, ADMIN)
    asked: list[tuple[int, dict[str, str]]] = [
        (RequestCode.GET_BROKER_CLUSTER_INFO, {}),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}),
        (RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"}),
        (RequestCode.GET_NAMESRV_CONFIG, {}),
    ]
    answers = [await root.request(code, ext_fields=fields) for code, fields in asked]
    return [bytes(answer.body) for answer in answers]


@pytest.mark.parametrize(
    "grants", [None, OF_A_CLIENT, OF_A_BROKER], ids=["none", "client", "broker"]
)
async def test_routes_and_settings_of_others_stay_as_they_are(
    server: EmbeddedServer, connect: Connect, grants: dict[str, list[str]] | None
) -> None:
    root = await connect(server.namesrv, ADMIN)
    kept = {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC}
    put = await root.request(RequestCode.PUT_KV_CONFIG, ext_fields=kept | {"value": "a:1"})
    assert put.code == 0
    before = await everything(server, connect)
    intruder = (
        await connect(server.namesrv, None)
        if grants is None
        else await granted(server, connect, grants)
    )
    broker = {
        "brokerName": server.broker.config.broker_name,
        "brokerAddr": server.broker.address,
        "clusterName": server.broker.config.broker_cluster_name,
        "brokerId": "0",
    }
    queues = {"queueDatas": [{**broker, "readQueueNums": 9, "writeQueueNums": 9, "perm": 6}]}
    attempts: list[tuple[int, dict[str, str], bytes]] = [
        (RequestCode.REGISTER_BROKER, broker, b""),
        (RequestCode.REGISTER_BROKER, broker | {"brokerAddr": "10.6.6.6:10911"}, b""),
        (RequestCode.REGISTER_BROKER, broker | {"brokerName": "new"}, b""),
        (RequestCode.REGISTER_BROKER, broker | {"clusterName": "mine"}, b""),
        (RequestCode.UNREGISTER_BROKER, broker, b""),
        (RequestCode.UNREGISTER_BROKER, broker | {"clusterName": "mine"}, b""),
        (RequestCode.BROKER_HEARTBEAT, broker, b""),
        (RequestCode.QUERY_DATA_VERSION, broker, b"{}"),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker, b""),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, broker, b""),
        (RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": TOPIC}, json.dumps(queues).encode()),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": TOPIC}, b""),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": TOPIC, "clusterName": "mine"}, b""),
        (RequestCode.PUT_KV_CONFIG, kept | {"value": "b:9"}, b""),
        (RequestCode.DELETE_KV_CONFIG, kept, b""),
        (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=false"),
    ]
    for code, fields, body in attempts:
        answer = await intruder.request(code, None, body, ext_fields=fields)
        assert answer.code == NO_PERMISSION, (code, fields, answer)
    assert await everything(server, connect) == before


async def test_a_broker_that_names_the_address_of_another_takes_nothing_from_it(
    server: EmbeddedServer, connect: Connect, nobody: Connection
) -> None:
    before = await everything(server, connect)
    own = {"brokerName": "own", "clusterName": "mine", "brokerId": "0"}
    own["brokerAddr"] = server.broker.address
    body = json.dumps({"filterServerList": ["10.6.6.6:1"]}).encode()

    async def register() -> None:
        answer = await nobody.request(RequestCode.REGISTER_BROKER, None, body, ext_fields=own)
        assert answer.code == 0

    async def route() -> bytes:
        return (await everything(server, connect))[1]

    await register()
    assert await route() == before[1]
    assert (await nobody.request(RequestCode.UNREGISTER_BROKER, ext_fields=own)).code == 0
    assert await everything(server, connect) == before
    await register()
    await nobody.close()
    while b'"own"' in await routes(server, connect):
        pass
    assert await everything(server, connect) == before
