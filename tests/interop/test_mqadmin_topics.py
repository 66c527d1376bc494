"""mqadmin on topics: permissions, order, queue counts, routes, allocation; both makes compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.incarnation import CREATED_OFFSET, CREATED_TIME
from pocketmq.remoting.bodies.registration import RegisterBrokerBody
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import RegisterBrokerRequestHeader
from tests.interop.harness import tables, wire
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, failure, normal

GET_TOPIC_CONFIG = 351


def routes(both: Both, topic: str) -> Any:
    """The route of a topic, the same at both makes."""
    official, ours = (tables.fastjson(normal(t)) for t in both("topicRoute", "-t", topic))
    assert ours == official
    return ours


def configs(clusters: tuple[Cluster, Cluster], topic: str) -> Any:
    """The topic as the brokers have it, the same at both makes."""
    official, ours = (
        json.loads(wire.call(c.broker.address, GET_TOPIC_CONFIG, {"topic": topic}).body)
        for c in clusters
    )
    # When and where in the log our broker created it.
    for name in (CREATED_OFFSET, CREATED_TIME):
        assert ours["attributes"].pop(name)
    assert ours == official
    return ours


@pytest.fixture
def clusters(official_cluster: Cluster, our_cluster: Cluster) -> tuple[Cluster, Cluster]:
    return official_cluster, our_cluster


def test_topic_cluster_list(both: Both, new_topic: str) -> None:
    official, ours = both("topicClusterList", "-t", new_topic)

    assert ours == official
    assert ours.split() == ["DefaultCluster"]


def test_topics_with_their_cluster(both: Both, new_topic: str) -> None:
    official, ours = (
        {tuple(line.split()) for line in text.splitlines()[1:]} for text in both("topicList", "-c")
    )

    assert ("DefaultCluster", new_topic) in ours & official
    assert ("DefaultCluster", BROKER_NAME) in ours & official


def test_several_topics_of_a_file(both: Both, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    names = [f"{topic}_{n}" for n in "ab"]
    file.write_text(
        json.dumps([{"topicName": n, "readQueueNums": 3, "writeQueueNums": 1} for n in names])
    )

    official, ours = both("updateTopicList", "-b", "BROKER", "-f", str(file))

    assert normal(ours) == normal(official)
    for name in names:
        assert routes(both, name)["queueDatas"][0]["readQueueNums"] == 3


@pytest.mark.parametrize("where", [("-b", "BROKER"), ("-c", "DefaultCluster")])
def test_update_topic_perm(both: Both, new_topic: str, where: tuple[str, str]) -> None:
    official, ours = both("updateTopicPerm", *where, "-t", new_topic, "-p", "4")

    assert normal(ours) == normal(official)
    assert "update topic perm from 6 to 4" in ours
    assert routes(both, new_topic)["queueDatas"][0]["perm"] == 4
    # The broker leaves it to the clients, which find no queue to write to.
    official, ours = both("sendMessage", "-t", new_topic, "-p", "x")
    assert failure(ours) == failure(official)
    assert "No route info of this topic" in (failure(ours) or "")


def test_queues_grow_and_shrink(
    both: Both, clusters: tuple[Cluster, Cluster], new_topic: str
) -> None:
    """Read and write queues change separately, and what is stored stays readable."""
    for queue in "01":
        for output in both(
            "sendMessage", "-t", new_topic, "-p", f"m{queue}", "-b", BROKER_NAME, "-i", queue
        ):
            assert "SEND_OK" in output
    for read, write in ((3, 4), (6, 4), (6, 1), (2, 1)):
        official, ours = both(
            "updateTopic", "-b", "BROKER", "-t", new_topic, "-r", str(read), "-w", str(write)
        )
        assert normal(ours) == normal(official)
        queues = routes(both, new_topic)["queueDatas"][0]
        assert (queues["readQueueNums"], queues["writeQueueNums"]) == (read, write)
        assert configs(clusters, new_topic)["writeQueueNums"] == write
    official, ours = both("printMsg", "-t", new_topic)
    assert ours.count("BODY: m") == official.count("BODY: m") == 2
    for output in both("sendMessage", "-t", new_topic, "-p", "x", "-b", BROKER_NAME, "-i", "5"):
        assert "SEND_OK" not in output
    official, ours = both("topicStatus", "-t", new_topic)
    assert len(ours.splitlines()) == len(official.splitlines())


def test_order_conf(both: Both, new_topic: str) -> None:
    for arguments in (
        ("put", "-v", f"{BROKER_NAME}:2"), ("get",), ("delete",), ("get",), ("odd",),
    ):  # fmt: skip
        official, ours = both("updateOrderConf", "-t", new_topic, "-m", *arguments)
        assert normal(ours) == normal(official)


def test_an_ordered_topic(both: Both, clusters: tuple[Cluster, Cluster], topic: str) -> None:
    """Its queues are fixed at the name server, and its route says which."""
    official, ours = both("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert normal(ours) == normal(official)
    try:
        for arguments in (("-c", "DefaultCluster"), ("-b", "BROKER")):
            official, ours = both("updateTopic", *arguments, "-t", topic, "-o", "true")
            assert normal(ours) == normal(official)
        assert routes(both, topic)["orderTopicConf"] == f"{BROKER_NAME}:8"
        assert configs(clusters, topic)["order"] is True
        official, ours = both("updateOrderConf", "-t", topic, "-m", "get")
        assert normal(ours) == normal(official)
    finally:
        both("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    assert "orderTopicConf" not in routes(both, topic)


def test_allocate_mq(both: Both, new_topic: str) -> None:
    official, ours = both("allocateMQ", "-t", new_topic, "-i", "10.0.0.1,10.0.0.2")

    assert json.loads(ours) == json.loads(official)
    assert len(json.loads(ours)["result"]["10.0.0.1"]) == 2


def test_write_permission_of_a_broker(both: Both, new_topic: str) -> None:
    def permission() -> int:
        return int(routes(both, new_topic)["queueDatas"][0]["perm"])

    for command, expected in (("wipeWritePerm", 4), ("addWritePerm", 6)):
        official, ours = (
            normal(text).rpartition(", ") for text in both(command, "-b", BROKER_NAME)
        )
        # The last number counts the topics, of which other tests make some.
        assert ours[0] == official[0]
        assert int(ours[2]) > 10
        assert permission() == expected
    refused, refused_by_ours = both("wipeWritePerm", "-b", "nobody")
    assert normal(refused_by_ours) == normal(refused)


async def test_a_slave_in_the_route(
    both: Both, clusters: tuple[Cluster, Cluster], new_topic: str
) -> None:
    """A broker that registers as a slave appears with its id, and learns its master."""
    slave = RegisterBrokerRequestHeader(
        broker_name=BROKER_NAME,
        broker_addr="10.0.0.7:1",
        cluster_name="DefaultCluster",
        ha_server_addr="10.0.0.7:2",
        broker_id=3,
        compressed=False,
    )
    connections = [await Connection.open(cluster.address) for cluster in clusters]
    try:
        for cluster, connection in zip(clusters, connections, strict=True):
            answer = await connection.request(
                RequestCode.REGISTER_BROKER, slave, RegisterBrokerBody().encode()
            )
            assert answer.code == 0
            assert answer.ext_fields["masterAddr"] == cluster.broker.address
        addresses = routes(both, new_topic)["brokerDatas"][0]["brokerAddrs"]
        assert addresses == {"0": "ADDRESS", "3": "10.0.0.7:1"}
    finally:
        for connection in connections:
            await connection.close()
    # Who is silent is forgotten, at once when its connection is lost.
    for cluster in clusters:

        def gone(at: str = cluster.address) -> bool:
            return not _knows_slave(at, new_topic)

        wire.until(gone, "the slave gone")


def _knows_slave(namesrv: str, topic: str) -> bool:
    answer = wire.call(namesrv, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return b"10.0.0.7" in answer.body
