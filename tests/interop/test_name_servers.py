"""Two of our name servers, of which one after the other dies and the first comes back: the broker
is at every one that lives, and clients that know both go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from tests.interop.harness import ours, wire
from tests.interop.harness.official import JavaError, JavaPeer, Server

GET_KV_CONFIG = 101
NAME, GROUP = "several", "several_group"
COUNT = 8


@pytest.fixture
def name_servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Two of them; a test may replace one that it killed."""
    servers = [ours.start_name_server(tmp_path / str(n)) for n in range(2)]
    yield servers
    for server in servers:
        server.process.kill()


@pytest.fixture
def addresses(name_servers: list[Server]) -> str:
    return ";".join(server.address for server in name_servers)


@pytest.fixture
def broker(tmp_path: Path, addresses: str) -> Iterator[Server]:
    server = ours.start_broker(tmp_path, addresses, name=NAME)
    yield server
    server.process.kill()


def knows(name_server: Server, broker: Server) -> bool:
    return wire.registered_brokers(name_server.address).get(NAME) == broker.address


def routes(name_server: Server, topic: str) -> bool:
    request = {"topic": topic}
    return wire.call(name_server.address, wire.GET_ROUTEINFO_BY_TOPIC, request).code == 0


def send_by_a_new_client(
    java: JavaPeer, addresses: str, topic: str, messages: list[dict[str, str]]
) -> None:
    """The official client begins with a name server of its choice, and its first request fails
    should that be dead. Since 5.4 the error says which one that is; before, "connect to null"."""
    for _ in range(10):
        try:
            results: list[dict[str, Any]] = java(
                "send", namesrv=addresses, group="PG", topic=topic, mode="sync", messages=messages
            )
        except JavaError as error:
            dead = "|".join(map(re.escape, ("null", *addresses.split(";"))))
            if not re.search(f"RemotingConnectException: connect to ({dead}) failed", str(error)):
                raise
        else:
            assert {result["status"] for result in results} == {"SEND_OK"}
            return
    raise AssertionError("no new client finds the name server that lives")


async def test_clients_go_on_while_name_servers_die_and_come_back(
    java: JavaPeer, name_servers: list[Server], addresses: str, broker: Server, tmp_path: Path,
    topic: str,
) -> None:  # fmt: skip
    assert all(knows(server, broker) for server in name_servers)
    expected: set[str] = set()

    async with Producer("ours", namesrv=addresses) as producer:

        async def send_and_receive(phase: str) -> None:
            """By a client that lives throughout, and by one that starts in this phase."""
            bodies = [f"{phase}{i}" for i in range(COUNT)]
            for body in bodies:
                await producer.send(Message(topic, body.encode()))
            messages = [{"body": f"java {body}"} for body in bodies]
            await asyncio.to_thread(send_by_a_new_client, java, addresses, topic, messages)
            expected.update(bodies, (f"java {body}" for body in bodies))
            got = await asyncio.to_thread(
                java, "push-collect", group=GROUP, count=2 * COUNT, timeoutMillis=30_000
            )
            received.update(message["body"] for message in got)
            assert received == expected

        received: set[str] = set()
        await producer.send(Message(topic, b"creates the topic"))
        expected.add("creates the topic")
        wire.until(lambda: all(routes(server, topic) for server in name_servers), "its routes")
        await asyncio.to_thread(
            java, "push-start", namesrv=addresses, group=GROUP, topic=topic, expression="*",
            queues=4,
        )  # fmt: skip
        try:
            [first] = await asyncio.to_thread(
                java, "push-collect", group=GROUP, count=1, timeoutMillis=30_000
            )
            received.add(first["body"])
            await send_and_receive("both")

            name_servers[0].process.kill()
            await send_and_receive("second alone")
            meanwhile = f"{topic}_meanwhile"
            await producer.send(Message(meanwhile, b"x"))
            assert routes(name_servers[1], meanwhile)

            port = int(name_servers[0].address.rpartition(":")[2])
            name_servers[0] = ours.start_name_server(tmp_path / "0", port=port)
            # The broker tells the newcomer everything again, what it missed too.
            wire.until(lambda: routes(name_servers[0], meanwhile), "the broker at the newcomer")
            assert knows(name_servers[0], broker)

            name_servers[1].process.kill()
            await send_and_receive("first alone")
        finally:
            await asyncio.to_thread(java, "push-stop", group=GROUP)


def test_a_broker_starts_while_one_name_server_is_away(
    name_servers: list[Server], addresses: str, tmp_path: Path
) -> None:
    name_servers[0].process.kill()
    broker = ours.start_broker(tmp_path, addresses, name=NAME)
    try:
        assert knows(name_servers[1], broker)
        port = int(name_servers[0].address.rpartition(":")[2])
        name_servers[0] = ours.start_name_server(tmp_path / "0", port=port)
        wire.until(lambda: knows(name_servers[0], broker), "the broker at the one that came later")
        assert broker.process.terminate() == 0
        for server in name_servers:
            assert NAME not in wire.registered_brokers(server.address)
    finally:
        broker.process.kill()


def test_key_values_go_to_every_name_server(
    java: JavaPeer, name_servers: list[Server], addresses: str
) -> None:
    java.mqadmin("updateKvConfig", "-s", "one", "-k", "switch", "-v", "on", "-n", addresses)
    java.mqadmin("updateKvConfig", "-s", "two", "-k", "switch", "-v", "off", "-n", addresses)

    for server in name_servers:
        values = [
            wire.call(server.address, GET_KV_CONFIG, {"namespace": name, "key": "switch"})
            for name in ("one", "two")
        ]
        assert [value.ext_fields["value"] for value in values] == ["on", "off"]
