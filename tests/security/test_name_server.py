"""Who may change routes: a grant for one cluster gives no say in another."""

from __future__ import annotations

import json

import pytest

from pocketmq.embedded import EmbeddedServer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frame import Command
from tests.security.conftest import ADMIN, NOBODY, Connect

NO_PERMISSION = 16


@pytest.fixture
async def nobody(server: EmbeddedServer, connect: Connect) -> Connection:
    """A connection of a user with all rights in a cluster of theirs."""
    root = await connect(server.namesrv, ADMIN)
    entry = {"resource": "Cluster:mine", "actions": ["All"], "decision": "Allow"}
    body = json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
    fields = {"subject": "User:nobody"}
    assert (
        await root.request(RequestCode.AUTH_CREATE_ACL, None, body, ext_fields=fields)
    ).code == 0
    return await connect(server.namesrv, NOBODY)


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
