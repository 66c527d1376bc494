"""What mqadmin asks of a live Java consumer through the broker: consume this now, go back there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.harness import resets, tables, wire
from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import CLIENT_4, VERSION, JavaPeer

GET_CONSUMER_CONNECTION_LIST = 203


@pytest.fixture
def group(java: JavaPeer, cluster: Cluster, topic: str) -> Iterator[str]:
    """A group of one member that has consumed the eight messages of the topic."""
    name = f"Live_{topic}"
    java("send", namesrv=cluster.address, group="PG", topic=topic, mode="sync",
         messages=[{"body": f"m{i}"} for i in range(8)])  # fmt: skip
    java("push-start", namesrv=cluster.address, group=name, topic=topic, expression="*", queues=4)
    yield name
    java("push-stop", group=name)


def collect(java: JavaPeer, group: str, count: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = java(
        "push-collect", group=group, count=count, timeoutMillis=30_000
    )
    assert len(messages) == count
    return messages


def client_id(cluster: Cluster, group: str) -> str:
    answer = wire.call(
        cluster.broker.address, GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}
    )
    [connection] = tables.fastjson(answer.body.decode())["connectionSet"]
    return str(connection["clientId"])


@every_java_client
def test_a_message_is_consumed_directly(
    java: JavaPeer, admin: JavaPeer, cluster: Cluster, topic: str, group: str
) -> None:
    first = collect(java, group, 8)[0]

    text = admin.mqadmin(
        "queryMsgById", "-i", first["offsetMsgId"], "-t", topic, "-g", group,
        "-d", client_id(cluster, group), "-n", cluster.address,
    )  # fmt: skip

    assert "CR_SUCCESS" in text, text
    [again] = collect(java, group, 1)
    assert again["body"] == first["body"]
    assert again["properties"]["UNIQ_KEY"] == first["msgId"]


@pytest.mark.parametrize(
    ("java", "cluster", "at_the_broker"),
    [
        (VERSION, "ours", True),
        pytest.param(VERSION, "ours", False, marks=pytest.mark.long),
        pytest.param(CLIENT_4, "ours", True, marks=pytest.mark.long),
        (CLIENT_4, "ours", False),
    ],
    indirect=["java", "cluster"],
)
def test_consumers_go_back(
    java: JavaPeer, admin: JavaPeer, cluster: Cluster, topic: str, group: str, at_the_broker: bool
) -> None:
    """Either way; the client needs 10 s for it. Seen to pass with the official broker, too."""
    taken = collect(java, group, 8)
    java("push-commit", group=group)
    wire.until(lambda: resets.stored(cluster, topic, group) == 8, "the offsets are stored")
    with resets.way(cluster, at_the_broker=at_the_broker):
        text = admin.mqadmin(
            "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-n", cluster.address
        )
        assert "CODE" not in text, text
        again = collect(java, group, 8)
    assert sorted(m["msgId"] for m in again) == sorted(m["msgId"] for m in taken)
