"""RocketMQ 5's own clients, from their registries, do the same with our proxy and the official one.

Each scenario says what it saw, a fact a line: what was received in which order, attempts, what was
recalled, asked, filtered. Ours is asked over TLS and plaintext, in a broker and in front of an
official one. CI runs a sample. With $POCKETMQ_OFFICIAL_PROXY set, all of them run, also on the
official proxy in local mode. That takes minutes: messages come back there after 20 s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from pocketmq.client.admin.admin import Admin
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from tests.cli.running import Running
from tests.interop.harness import official, proxy
from tests.interop.harness.official import Unavailable
from tests.proxy import test_consuming, test_producing
from tests.proxy.conftest import create_topics
from tests.proxy.grpc_client import GrpcClient

#: What is too long for each run of CI: building the client for Go, and all of the official proxy.
on_demand = pytest.mark.skipif(
    not os.environ.get("POCKETMQ_OFFICIAL_PROXY"), reason="POCKETMQ_OFFICIAL_PROXY is not set"
)


def sample(scenarios: Mapping[str, object], *always: str) -> list[ParameterSet]:
    """Return the names of scenarios; all but a few are run on demand."""
    return [pytest.param(name, marks=() if name in always else on_demand) for name in scenarios]


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

PYTHON = {
    "normal": ["tags m0 m1 m3 m4", "again True 2", "left 0"],
    "delay": ["delayed later"],
    "transaction": ["transaction commit orphan", "asked True"],
    "push": ["push {'p0': 1, 'p1': 2, 'p2': 3, 'p3': 1, 'p4': 1}"],
}


async def prepare(namesrv: str) -> None:
    """Create the topics, the ordered groups, and those that give a message up after two retries."""
    async with Admin(namesrv=namesrv) as admin:
        for client in ("java", "go", "python"):
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
    directory = tmp_path_factory.mktemp("official-proxy")
    server = official.start_name_server(directory)
    started = proxy.start_local_proxy(directory, server.address, settings=dict(SETTINGS))
    asyncio.run(prepare(server.address))
    asyncio.run(create_topics(server.address))
    yield f"127.0.0.1:{started.broker_name}"
    started.process.kill()
    server.process.kill()


def available(run: Callable[[], list[str]]) -> list[str]:
    try:
        return run()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", sample(JAVA, "fifo", "transaction"))
def test_java_with_serve(serve: str, name: str, tmp_path: Path) -> None:
    # Over TLS, which this client uses unless it is told otherwise.
    assert available(lambda: proxy.java_scenario(tmp_path, serve, name, ssl=True)) == JAVA[name]


@pytest.mark.parametrize("name", sample(GO))
def test_go_with_serve(serve: str, name: str) -> None:
    assert available(lambda: proxy.go_scenario(serve, name, ssl=False)) == GO[name]


@pytest.mark.parametrize("name", sample(PYTHON, "normal", "push"))
def test_python_with_serve(serve: str, name: str) -> None:
    assert proxy.python_scenario(serve, name) == PYTHON[name]


@on_demand
@pytest.mark.parametrize("name", ["fifo", "transaction"])
def test_go_in_front_of_an_official_broker(before_official_brokers: str, name: str) -> None:
    endpoint = before_official_brokers
    assert available(lambda: proxy.go_scenario(endpoint, name, ssl=True)) == GO[name]


@on_demand
@pytest.mark.parametrize("name", JAVA)
def test_java_with_the_official_proxy(official_proxy: str, name: str, tmp_path: Path) -> None:
    assert proxy.java_scenario(tmp_path, official_proxy, name, ssl=True) == JAVA[name]


#: Where ours answers what is wrong, and the official proxy something else.
MORE_EXACT = {
    "blank message group": pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    "missing topic": pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    "receive: no tag in the filter": pb.MESSAGE_NOT_FOUND,
    "receive: missing topic": pb.INTERNAL_SERVER_ERROR,
}


@on_demand
async def test_statuses_of_the_official_proxy(official_proxy: str) -> None:
    """It refuses the same requests, with the same statuses but for `MORE_EXACT`."""
    expected = {name: code for name, _, code in test_producing.REFUSED}
    expected |= {f"receive: {name}": code for name, _, code in test_consuming.REFUSED}
    answered = {}
    async with GrpcClient(int(official_proxy.rpartition(":")[2])) as client:
        await client.as_consumer("readers", "Normal")
        for name, made, _ in test_producing.REFUSED:
            answer = await test_producing.send(client, *made())
            answered[name] = answer.status.code
        for name, request, _ in test_consuming.REFUSED:
            answered[f"receive: {name}"] = (await client.receive(request))[0]
    assert answered == expected | MORE_EXACT


@on_demand
@pytest.mark.parametrize("name", GO)
def test_go_with_the_official_proxy(official_proxy: str, name: str) -> None:
    assert proxy.go_scenario(official_proxy, name, ssl=True) == GO[name]
