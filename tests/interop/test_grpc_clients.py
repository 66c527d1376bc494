"""RocketMQ 5's own clients, from their registries, do the same with our proxy and the official one.

Each scenario says what it saw, a fact a line: what was received in which order, attempts, what was
recalled, asked, filtered. Ours is asked over TLS and plaintext, in a broker and in front of an
official one. With $POCKETMQ_OFFICIAL_PROXY the same scenarios also run on the official proxy in
local mode, which takes minutes, as messages come back there after 20 s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pocketmq.client.admin.admin import Admin
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from tests.cli.running import Running
from tests.interop.harness import official, proxy
from tests.interop.harness.official import Unavailable

TOPICS = {
    "Normal": "NORMAL",
    "Fifo": "FIFO",
    "Delay": "DELAY",
    "Transaction": "TRANSACTION",
    "Push": "NORMAL",
}

SETTINGS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "5000",
}

JAVA = {
    "normal": [
        *["sent 34"] * 6,
        "tags m0 a [k0] {n=0} 1",
        "tags m1 b [k1] {n=1} 1",
        "tags m3 a [k3] {n=3} 1",
        "tags m4 b [k4] {n=4} 1",
        "again 1 true 2",
        "sql m4",
        "sql m5",
    ],
    "fifo": ["fifo {group0=[f0, f2, f4, f6, f8], group1=[f1, f3, f5, f7, f9]}"],
    "delay": ["recalled true", "delayed later true"],
    "transaction": ["transaction commit", "transaction orphan", "asked true"],
    "push": ["push true {p0=1, p1=2, p2=3, p3=1, p4=1, p5=1, p6=1}"],
}

GO = {
    "normal": [*["sent 34"] * 6, "tags m0 m1 m3 m4", "again 1 true 2", "sql m4 m5"],
    "fifo": ["fifo map[group0:[f0 f2 f4 f6 f8] group1:[f1 f3 f5 f7 f9]]"],
    "delay": ["delayed later"],
    "transaction": ["transaction commit orphan", "asked true"],
    "push": ["push map[p0:1 p1:2 p2:3 p3:1 p4:1 p5:1 p6:1]"],
}


async def prepare(namesrv: str) -> None:
    """Create the topics, the ordered groups, and those that give a message up after two retries."""
    async with Admin(namesrv=namesrv) as admin:
        for client in ("java", "go"):
            for topic, kind in TOPICS.items():
                name = f"{client.title()}{topic}"
                await admin.create_topic(name, queues=2, attributes={"message.type": kind})
            for name, orderly, retries in (("fifo", True, 16), ("push", False, 2)):
                group = f"{client}-{name}"
                config = SubscriptionGroupConfig(
                    group_name=group, consume_message_orderly=orderly, retry_max_times=retries
                )
                await admin.create_group(group, config=config)


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of `pocketmq serve`."""
    arguments: list[str | Path] = ["serve", "--store", tmp_path_factory.mktemp("serve")]
    for option in ("--grpc-port", "--namesrv-port", "--listen-port"):
        arguments += [option, "0"]
    for name, value in SETTINGS.items():
        arguments += ["--set", f"{name}={value}"]
    with Running(*arguments) as running:
        found = running.wait_for(r"name server listening on (\S+), .* gRPC on port (\d+)")
        asyncio.run(prepare(found[1]))
        yield f"127.0.0.1:{found[2]}"


@pytest.fixture(scope="module")
def before_official_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of `pocketmq proxy` in front of an official broker."""
    directory = tmp_path_factory.mktemp("official")
    try:
        server = official.start_name_server(directory)
        broker = official.start_broker(directory, server.address, settings=dict(SETTINGS))
    except Unavailable as error:
        pytest.skip(str(error))
    asyncio.run(prepare(server.address))
    with Running("proxy", "-n", server.address, "--grpc-port", "0") as running:
        found = running.wait_for(r"proxy listening on (\S+),")
        yield found[1]
    broker.process.kill()
    server.process.kill()


@pytest.fixture(scope="module")
def official_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of the official proxy."""
    if not os.environ.get("POCKETMQ_OFFICIAL_PROXY"):
        pytest.skip("POCKETMQ_OFFICIAL_PROXY is not set")
    directory = tmp_path_factory.mktemp("official-proxy")
    server = official.start_name_server(directory)
    started = proxy.start_local_proxy(directory, server.address, settings=dict(SETTINGS))
    asyncio.run(prepare(server.address))
    yield f"127.0.0.1:{started.broker_name}"
    started.process.kill()
    server.process.kill()


def available(run: Callable[[], list[str]]) -> list[str]:
    try:
        return run()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", JAVA)
def test_java_with_serve(serve: str, name: str, tmp_path: Path) -> None:
    # Over TLS, which this client uses unless it is told otherwise.
    assert available(lambda: proxy.java_scenario(tmp_path, serve, name, ssl=True)) == JAVA[name]


@pytest.mark.parametrize("name", GO)
def test_go_with_serve(serve: str, name: str) -> None:
    assert available(lambda: proxy.go_scenario(serve, name, ssl=False)) == GO[name]


@pytest.mark.parametrize("name", ["fifo", "transaction"])
def test_go_in_front_of_an_official_broker(before_official_brokers: str, name: str) -> None:
    endpoint = before_official_brokers
    assert available(lambda: proxy.go_scenario(endpoint, name, ssl=True)) == GO[name]


@pytest.mark.parametrize("name", JAVA)
def test_java_with_the_official_proxy(official_proxy: str, name: str, tmp_path: Path) -> None:
    assert proxy.java_scenario(tmp_path, official_proxy, name, ssl=True) == JAVA[name]


@pytest.mark.parametrize("name", GO)
def test_go_with_the_official_proxy(official_proxy: str, name: str) -> None:
    assert proxy.go_scenario(official_proxy, name, ssl=True) == GO[name]
