"""mqadmin on consumer groups and their progress; both makes compared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness import tables, wire
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, both_of, failure, normal
from tests.interop.harness.official import VERSION_NAME, JavaPeer

GET_SUBSCRIPTION_GROUP, QUERY_CONSUME_TIME_SPAN, QUERY_TOPICS, GET_ALL_OFFSETS = 352, 303, 343, 43
GROUP = "Watched"
CLIENT_GROUP = "CLIENT_INNER_PRODUCER"
QUEUES = 2


@pytest.fixture
def clusters(official_cluster: Cluster, our_cluster: Cluster) -> tuple[Cluster, Cluster]:
    return official_cluster, our_cluster


@pytest.fixture
def group(both: Both, topic: str) -> str:
    """A group configured on both makes."""
    name = f"G_{topic}"
    official, ours = both("updateSubGroup", "-c", "DefaultCluster", "-g", name)
    assert normal(ours) == normal(official)
    return name


def settings(text: str) -> dict[str, str]:
    """`name = value` lines."""
    return dict(re.findall(r"(?m)^(\w+)\s+=\s+(.*?)\s*$", text))


def test_a_group_created_changed_deleted(
    both: Both, clusters: tuple[Cluster, Cluster], group: str
) -> None:
    for arguments in (
        ("-r", "3", "-q", "2", "-d", "false"),
        ("-s", "false", "-m", "true", "-w", "1", "-a", "false"),
        ("-p", '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":7000}}', "-o", "true"),
    ):
        official, ours = both("updateSubGroup", "-b", "BROKER", "-g", group, *arguments)
        assert normal(ours) == normal(official)
        official, ours = both("getConsumerConfig", "-g", group)
        assert settings(ours) == settings(official)
        assert settings(ours)["groupName"] == group
        official, ours = (
            json.loads(wire.call(c.broker.address, GET_SUBSCRIPTION_GROUP, {"group": group}).body)
            for c in clusters
        )
        assert ours == official

    official, ours = both("deleteSubGroup", "-c", "DefaultCluster", "-g", group, "-r", "true")
    assert normal(ours) == normal(official)
    official, ours = both("getConsumerConfig", "-g", group)
    assert ours == official
    assert group not in ours


def test_several_groups_of_a_file(both: Both, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "groups.json"
    names = [f"G_{topic}_{n}" for n in "ab"]
    file.write_text(json.dumps([{"groupName": name, "retryMaxTimes": 5} for name in names]))

    official, ours = both("updateSubGroupList", "-b", "BROKER", "-f", str(file))

    assert normal(ours) == normal(official)
    for name in names:
        for text in both("getConsumerConfig", "-g", name):
            assert settings(text)["retryMaxTimes"] == "5"


def test_a_group_with_unknown_attributes(both: Both, group: str) -> None:
    official, ours = both("updateSubGroup", "-b", "BROKER", "-g", group, "--attributes", "+a=1")

    for text in (official, ours):
        assert "CODE: 1" in (failure(text) or "")
        assert "unsupported key: a" in (failure(text) or "")


def test_groups_that_nobody_knows(both: Both, new_topic: str) -> None:
    for arguments in (
        ("consumerProgress", "-g", "Nobody"),
        ("consumerConnection", "-g", "Nobody"),
        ("consumerStatus", "-g", "Nobody"),
        ("producerConnection", "-g", "Nobody", "-t", new_topic),
    ):
        official, ours = both(*arguments)
        assert failure(ours) == failure(official) is not None


@pytest.fixture(scope="module")
def watched(
    admin: JavaPeer, official_cluster: Cluster, our_cluster: Cluster
) -> Iterator[tuple[Both, str]]:
    """A topic with messages that a push consumer has taken and committed; it is still online."""
    both = both_of(admin, official_cluster, our_cluster)
    topic = "Watched_topic"
    names = []
    both("updateTopic", "-b", "BROKER", "-t", topic, "-r", str(QUEUES), "-w", str(QUEUES))
    for cluster in (official_cluster, our_cluster):
        messages = [{"body": f"m{i}", "tags": "TagA", "keys": f"k{i}"} for i in range(8)]
        admin("send", namesrv=cluster.address, group="PG", topic=topic, mode="sync",
             messages=messages)  # fmt: skip
        name = f"{GROUP}_{cluster.make}"
        admin("push-start", namesrv=cluster.address, group=name, topic=topic,
             expression="TagA || TagB", queues=QUEUES)  # fmt: skip
        taken = admin("push-collect", group=name, count=8, timeoutMillis=60_000)
        assert len(taken) == 8
        names.append(name)

    def run(*args: str) -> tuple[str, str]:
        """`GROUP` in the arguments is the group of the cluster, and in the outputs again."""
        texts = []
        for cluster, name in zip((official_cluster, our_cluster), names, strict=True):
            given = [cluster.broker.address if arg == "BROKER" else arg for arg in args]
            given = [name if arg == GROUP else arg for arg in given]
            text = admin.mqadmin(*given, "-n", cluster.address)
            texts.append(re.sub(rf"{name}\b", GROUP, text))
        return texts[0], texts[1]

    all_taken = {(topic, BROKER_NAME, str(queue), "4", "4") for queue in range(QUEUES)}

    def committed() -> bool:
        # A consumer notes a message as done only after its listener returned.
        for name in names:
            admin("push-commit", group=name)
        return all(all_taken <= set(table) for table in progress(run))

    wire.until(committed, "the offsets of all messages", step=0.2)
    yield run, topic
    for name in names:
        admin("push-stop", group=name)


def progress(run: Both) -> tuple[Any, Any]:
    """The rows of the topic, sorted.

    Whether the group's retry topic is listed too depends on when its client learned that the
    broker had created it: at its start, or 30 s later.
    """

    def table(text: str) -> list[Any]:
        wanted = ("Topic", "Broker Name", "QID", "Broker Offset", "Consumer Offset")
        rows = (tuple(row[name] for name in wanted) for row in tables.columns(text))
        return sorted(row for row in rows if not row[0].startswith("%RETRY%"))

    official, ours = (table(text) for text in run("consumerProgress", "-g", GROUP))
    return official, ours


def test_consumer_progress(watched: tuple[Both, str]) -> None:
    run, _ = watched
    official, ours = progress(run)
    assert [row[2:] for row in ours] == [row[2:] for row in official]
    official_text, our_text = run("consumerProgress", "-g", GROUP)
    assert "Consume Diff Total: 0" in official_text
    assert "Consume Diff Total: 0" in our_text
    for text in run("consumerProgress"):
        # Groups of other tests, some without members, may be listed too.
        lines = [line for line in text.splitlines() if line.startswith(("#", f"{GROUP} "))]
        [row] = tables.columns("\n".join(lines))
        assert (row["Count"], row["Type"], row["Model"]) == ("1", "PUSH", "CLUSTERING")
        assert (row["Version"], row["Diff Total"]) == (VERSION_NAME, "0")


def test_consumer_connection(watched: tuple[Both, str]) -> None:
    run, topic = watched

    official, ours = (
        # The client's id ends in its process id and time.
        re.sub(r"\S+@push\S+", "CLIENT", normal(text)).replace("%RETRY%" + GROUP, "RETRY")
        for text in run("consumerConnection", "-g", GROUP)
    )

    assert sorted(ours.split()) == sorted(official.split())
    assert topic in ours
    assert "TagA || TagB" in ours


def test_producer_connection(watched: tuple[Both, str]) -> None:
    run, topic = watched

    for text in run("producerConnection", "-g", CLIENT_GROUP, "-t", topic):
        # mqadmin itself may be another.
        assert re.search(rf"\S+@push\S+ +127.0.0.1:\d+ +JAVA +{VERSION_NAME}", text)
    for text in run("producer", "-b", "BROKER"):
        assert CLIENT_GROUP in text


def test_stats_of_a_broker(watched: tuple[Both, str]) -> None:
    run, topic = watched

    for text in run("brokerConsumeStats", "-b", "BROKER"):
        rows = [row for row in tables.columns(text) if row["Topic"] == topic]
        assert [(row["Group"], row["QID"]) for row in rows] == [
            (GROUP, str(queue)) for queue in range(QUEUES)
        ]
        for row in rows:
            assert row["Broker Offset"] == "4"
    for text in run("brokerConsumeStats", "-b", "BROKER", "-o", "true"):
        assert topic not in text


def test_times_and_topics_of_a_group(
    clusters: tuple[Cluster, Cluster], watched: tuple[Both, str]
) -> None:
    _, topic = watched
    spans, topics = [], []
    for cluster in clusters:
        name = f"{GROUP}_{cluster.make}"
        address = cluster.broker.address
        answer = wire.call(address, QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": name})
        assert answer.code == 0
        spans.append(json.loads(answer.body)["consumeTimeSpanSet"])
        answer = wire.call(address, QUERY_TOPICS, {"group": name})
        topics.append(set(json.loads(answer.body)["topicList"]))
        table = tables.fastjson(wire.call(address, GET_ALL_OFFSETS).body.decode())
        assert table["offsetTable"][f"{topic}@{name}"] == {"0": 4, "1": 4}
        for span in spans[-1]:
            times = [span[f"{which}TimeStamp"] for which in ("min", "consume", "max")]
            assert times == sorted(times)
            assert span["delayTime"] == 0
    assert [span["messageQueue"] for span in spans[0]] == [s["messageQueue"] for s in spans[1]]
    for cluster, listed in zip(clusters, topics, strict=True):
        assert topic in listed
        # See `progress`.
        assert listed <= {topic, f"%RETRY%{GROUP}_{cluster.make}"}


def test_statistics_of_a_topic_and_a_group(watched: tuple[Both, str]) -> None:
    """The official broker counts in steps of ten seconds, so only its own shape is compared."""
    run, topic = watched
    official, ours = run("statsAll", "-t", topic)

    heading = official.splitlines()[0]
    assert ours.splitlines()[0] == heading
    [row] = [line.split() for line in ours.splitlines()[1:] if line.startswith(topic)]
    name, group, accumulation, in_tps, out_tps, taken_in, given_out = row
    assert (name, group, accumulation) == (topic, GROUP, "0")
    assert (taken_in, given_out) == ("8", "8")
    assert float(in_tps) >= 0
    assert float(out_tps) >= 0
