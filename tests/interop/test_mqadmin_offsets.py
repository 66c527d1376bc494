"""mqadmin on the offsets of groups, online and offline; both makes compared."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.harness import tables, wire
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.mqadmin import Both, failure, normal
from tests.interop.harness.official import JavaPeer

QUERY_CONSUMER_OFFSET, UPDATE_CONSUMER_OFFSET = 14, 15
RETRY = "%RETRY%"


@pytest.fixture
def clusters(official_cluster: Cluster, our_cluster: Cluster) -> tuple[Cluster, Cluster]:
    return official_cluster, our_cluster


@pytest.fixture
def filled(both: Both, clusters: tuple[Cluster, Cluster], java: JavaPeer, topic: str) -> str:
    """A topic of two queues with five messages each."""
    both("updateTopic", "-b", "BROKER", "-t", topic, "-r", "2", "-w", "2")
    for cluster in clusters:
        java("send", namesrv=cluster.address, group="PG", topic=topic, mode="sync",
             messages=[{"body": f"m{i}"} for i in range(10)])  # fmt: skip
    return topic


@pytest.fixture
def group(both: Both, clusters: tuple[Cluster, Cluster], filled: str) -> str:
    """A group that is offline and has taken two messages of each queue."""
    name = f"G_{filled}"
    both("updateSubGroup", "-b", "BROKER", "-g", name)
    both("updateTopic", "-b", "BROKER", "-t", RETRY + name, "-r", "1", "-w", "1")
    for cluster in clusters:
        for queue in range(2):
            commit(cluster, name, filled, queue, 2)
    return name


def commit(cluster: Cluster, group: str, topic: str, queue: int, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
    answer = wire.call(
        cluster.broker.address, UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": str(offset)}
    )
    assert answer.code == 0, answer.remark


def offsets(clusters: tuple[Cluster, Cluster], group: str, topic: str) -> list[int]:
    """The group's offsets in both queues, the same at both makes."""

    def at(cluster: Cluster, queue: int) -> int:
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue)}
        answer = wire.call(cluster.broker.address, QUERY_CONSUMER_OFFSET, fields)
        return int(answer.ext_fields["offset"])

    official, ours = ([at(cluster, queue) for queue in range(2)] for cluster in clusters)
    assert ours == official
    return ours


def rows(text: str) -> list[dict[str, str]]:
    return sorted(tables.columns(text), key=lambda row: row["queueId"])


def test_reset_by_time(
    both: Both, clusters: tuple[Cluster, Cluster], filled: str, group: str
) -> None:
    for when, expected in (("-1", 5), ("0", 0), ("now", 5)):
        official, ours = both("resetOffsetByTime", "-g", group, "-t", filled, "-s", when)
        assert rows(ours) == rows(official)
        assert [row["offset"] for row in rows(ours)] == [str(expected)] * 2
        assert offsets(clusters, group, filled) == [expected] * 2


def test_reset_of_one_queue(
    both: Both, clusters: tuple[Cluster, Cluster], filled: str, group: str
) -> None:
    for index, cluster in enumerate(clusters):
        text = both(
            "resetOffsetByTime", "-g", group, "-t", filled, "-s", "-1", "-b",
            "BROKER", "-q", "1", "-o", "4",
        )[index]  # fmt: skip
        assert failure(text) is None, text
        assert cluster.make in ("official", "ours")

    assert offsets(clusters, group, filled) == [2, 4]


def test_skip_what_has_accumulated(
    both: Both, clusters: tuple[Cluster, Cluster], filled: str, group: str
) -> None:
    official, ours = both("skipAccumulatedMessage", "-g", group, "-t", filled)

    assert rows(ours) == rows(official)
    assert offsets(clusters, group, filled) == [5, 5]


def test_clone_the_offsets_of_a_group(
    both: Both, clusters: tuple[Cluster, Cluster], filled: str, group: str
) -> None:
    clone = f"{group}_clone"
    command = ("cloneGroupOffset", "-s", group, "-d", clone, "-t", filled)
    official, ours = both(*command)
    assert failure(ours) == failure(official)
    assert "CODE: 26" in (failure(ours) or "")
    both("updateSubGroup", "-b", "BROKER", "-g", clone)

    official, ours = both(*command)

    assert normal(ours) == normal(official)
    assert offsets(clusters, clone, filled) == [2, 2]


def test_what_can_not_be_reset(both: Both, filled: str, group: str) -> None:
    for arguments in (("-g", group, "-t", "NoSuchTopic"), ("-g", "NoSuchGroup", "-t", filled)):
        official, ours = both("resetOffsetByTime", *arguments, "-s", "-1")
        assert failure(ours) == failure(official)


def test_an_online_group(
    java: JavaPeer, both: Both, clusters: tuple[Cluster, Cluster], filled: str
) -> None:
    """What its client tells of itself, and that it goes back when it is told to."""
    names = [f"Online_{cluster.make}" for cluster in clusters]
    taken: list[Any] = []
    shown: list[Any] = []
    try:
        for index, cluster in enumerate(clusters):
            name = names[index]
            java("push-start", namesrv=cluster.address, group=name, topic=filled, expression="*",
                 queues=2)  # fmt: skip
            taken.append(java("push-collect", group=name, count=10, timeoutMillis=60_000))
            assert len(taken[-1]) == 10
            status = both("consumerStatus", "-g", name)[index]
            assert failure(status) is None, status
            assert len(re.findall(r"(?m)^\d+ +\S+@push", status)) == 1, status
            detail = both("consumerStatus", "-g", name, "-i", client_id(status))[index]
            assert "PROP_CONSUME_TYPE" in detail, detail
            assert filled in detail
            shown.append(sorted(re.findall(r"(?m)^(#\w[\w ]*)", detail)))
            text = both("resetOffsetByTime", "-g", name, "-t", filled, "-s", "0")[index]
            assert failure(text) is None, text
        # The client waits 10 s before it goes on where it was told to.
        for name, before in zip(names, taken, strict=True):
            again = java("push-collect", group=name, count=10, timeoutMillis=60_000)
            assert sorted(m["msgId"] for m in again) == sorted(m["msgId"] for m in before)
    finally:
        for name in names[: len(taken)]:
            java("push-stop", group=name)
    assert shown[0] == shown[1]


def client_id(status: str) -> str:
    found = re.search(r"\S+@push\S+", status)
    assert found is not None, status
    return found[0]
