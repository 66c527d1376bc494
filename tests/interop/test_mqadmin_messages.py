"""mqadmin on stored messages: printing, consuming, looking up; both makes compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.interop.harness import tables, wire
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, failure
from tests.interop.harness.official import JavaPeer

PULL_MESSAGE, UPDATE_CONSUMER_OFFSET = 11, 15

Stored = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def stored(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, new_topic: str
) -> Stored:
    """The send results of six messages on each make: bodies m0 … m5 on two queues."""
    messages = [
        {"body": f"m{i}", "tags": "TagA" if i % 2 else "TagB", "keys": f"k{i} all"}
        for i in range(6)
    ]
    official, ours = (
        java("send", namesrv=cluster.address, group="admin_producer", topic=new_topic, mode="sync",
             messages=messages)
        for cluster in (official_cluster, our_cluster)
    )  # fmt: skip
    return official, ours


def bodies(text: str) -> list[str]:
    """`queue body` of each printed message, sorted: where a sender begins is chance."""
    pattern = r"queueId=(\d+), storeSize=.*? queueOffset=(\d+),.*BODY: (.*)"
    return sorted(body for _, _, body in re.findall(pattern, text))


def test_print_messages(both: Both, stored: Stored, new_topic: str) -> None:
    official, ours = both("printMsg", "-t", new_topic)
    assert bodies(ours) == bodies(official) == [f"m{i}" for i in range(6)]
    for text in (official, ours):
        ends = re.findall(r"minOffset=(\d+), maxOffset=(\d+), consumeOffset|minOffset=", text)
        assert len(ends) == 3
    official, ours = both("printMsg", "-t", new_topic, "-s", "TagA", "-d", "true")
    assert bodies(ours) == bodies(official) == ["m1", "m3", "m5"]


def test_print_a_queue(both: Both, stored: Stored, new_topic: str) -> None:
    for text in both(
        "printMsgByQueue", "-t", new_topic, "-a", BROKER_NAME, "-i", "0", "-p", "true", "-d", "true"
    ):
        assert len(bodies(text)) == 3
    for text in both(
        "printMsgByQueue", "-t", new_topic, "-a", BROKER_NAME, "-i", "1", "-f", "true"
    ):
        assert "Tag: Tag" in text
        assert "Count: 3" in text


def test_consume_messages(both: Both, stored: Stored, new_topic: str) -> None:
    official, ours = both("consumeMessage", "-t", new_topic, "-g", "Taster")
    assert bodies(ours) == bodies(official) == [f"m{i}" for i in range(6)]
    for text in both(
        "consumeMessage", "-t", new_topic, "-g", "Taster", "-b", BROKER_NAME, "-i", "1", "-o", "1",
        "-c", "1",
    ):  # fmt: skip
        assert len(bodies(text)) == 1
        assert "queueId=1" in text
        assert "queueOffset=1" in text


def entry_texts(text: str) -> list[str]:
    """What queryCq prints, entry by entry, without where its record lies."""
    return re.findall(
        r"idx: (.*)\n", re.sub(r"\nConsumeQueueData\{.*?(tagsCode=[^}]*)\}", r" \1", text)
    )


def has_a_filter(query: Callable[[], str]) -> bool:
    return '"bloomFilterData"' in query()


def test_a_consume_queue_with_an_sql_consumer(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, stored: Stored, new_topic: str
) -> None:
    """The subscription, the filter that is kept for it, and the entries."""
    group = f"sql_{new_topic}"
    subscriptions, filters, entries = [], [], []
    for cluster, sent in zip((official_cluster, our_cluster), stored, strict=True):
        queue = str(sent[1]["queueId"])  # where those of TagA are
        query = partial(
            java.mqadmin, "queryCq", "-t", new_topic, "-q", queue, "-i", "1", "-c", "2",
            "-g", group, "-b", cluster.broker.address, "-n", cluster.address,
        )  # fmt: skip
        java("member-start", namesrv=cluster.address, group=group, topic=new_topic,
             member=cluster.make, sql="TAGS = 'TagA'")  # fmt: skip
        try:
            # A consumer may have started before its first heartbeat arrives: the thread that
            # connects sends one as well, and then the start sends none.
            wire.until(partial(has_a_filter, query), "the filter is known", step=0.5)
            text = query()
            parts = text.split("=" * 38)
            subscriptions.append(json.loads(parts[0].partition("Subscription data:")[2]))
            filters.append(json.loads(parts[1].partition("Filter data:")[2]))
            assert "max: 3, min: 0" in parts[2]
            entries.append(entry_texts(text))
        finally:
            java("member-stop", member=cluster.make)
    for table in (*subscriptions, *filters):
        for time in ("subVersion", "bornTime", "clientVersion"):
            table.pop(time, None)
    assert subscriptions[1] == subscriptions[0]
    assert filters[1] == filters[0]
    assert filters[1]["expression"] == "TAGS = 'TagA'"
    assert entries[1] == entries[0]
    assert len(entries[1]) == 2


def test_statistics_of_topics(
    both: Both, official_cluster: Cluster, our_cluster: Cluster, stored: Stored, new_topic: str
) -> None:
    """The official broker counts in steps of ten seconds; then both say the same."""
    clusters = (official_cluster, our_cluster)

    def rows(*arguments: str) -> tuple[list[list[str]], list[list[str]]]:
        official, ours = (
            [line.split() for line in text.splitlines() if line.startswith(("#", new_topic))]
            for text in both("statsAll", "-t", new_topic, *arguments)
        )
        return official, ours

    _, [_, [topic, behind, in_tps, taken_in, consumer]] = rows()
    assert (topic, behind, taken_in, consumer) == (new_topic, "0", "6", "NO_CONSUMER")
    assert float(in_tps) > 0
    for cluster in clusters:
        for queue in ("0", "1"):
            pull = {
                "consumerGroup": "Taster", "topic": new_topic, "queueId": queue, "queueOffset": "0",
                "maxMsgNums": "2", "sysFlag": "4", "commitOffset": "0", "subscription": "*",
                "suspendTimeoutMillis": "0", "subVersion": "0",
            }  # fmt: skip
            assert wire.call(cluster.broker.address, PULL_MESSAGE, pull).code == 0
            commit = {"consumerGroup": "Taster", "topic": new_topic, "queueId": queue}
            wire.call(
                cluster.broker.address, UPDATE_CONSUMER_OFFSET, {**commit, "commitOffset": "2"}
            )

    def counted() -> bool:
        official, _ = rows()
        return official[-1][-2:] == ["6", "4"]

    wire.until(counted, "the official statistics", step=0.5)
    for arguments in ((), ("-a",)):
        official, ours = rows(*arguments)
        assert ours[0] == official[0]
        for [_, row] in (official, ours):
            topic, group, behind, in_tps, out_tps, taken_in, given_out = row
            assert (topic, group, behind) == (new_topic, "Taster", "2")
            assert (taken_in, given_out) == ("6", "4")
            assert min(float(in_tps), float(out_tps)) > 0


def test_query_by_offset(both: Both, stored: Stored, new_topic: str) -> None:
    where = ("queryMsgByOffset", "-t", new_topic, "-b", BROKER_NAME, "-i", "1")
    official, ours = (tables.fields(text) for text in both(*where, "-o", "2"))

    assert ours.keys() == official.keys()
    for name in ("Topic", "Queue ID", "Queue Offset", "Reconsume Times", "System Flag"):
        assert ours[name] == official[name]
    assert (ours["Queue ID"], ours["Queue Offset"]) == ("1", "2")
    official_text, our_text = both(*where, "-o", "3")
    assert failure(our_text) == failure(official_text)


def test_query_by_key(both: Both, stored: Stored, new_topic: str) -> None:
    for key, expected in (("k4", {4}), ("all", set(range(6)))):
        for text, results in zip(
            both("queryMsgByKey", "-t", new_topic, "-k", key), stored, strict=True
        ):
            found = {row["Message ID"]: row for row in tables.columns(text)}
            assert found.keys() == {results[i]["msgId"] for i in expected}
            for i in expected:
                row = found[results[i]["msgId"]]
                assert int(row["QID"]) == results[i]["queueId"]
                assert int(row["Offset"]) == results[i]["queueOffset"]
    official, ours = both("queryMsgByKey", "-t", new_topic, "-k", "none")
    assert failure(ours) == failure(official)
    assert "CODE: 208" in (failure(ours) or "")


def test_query_by_unique_key(
    java: JavaPeer, official_cluster: Cluster, our_cluster: Cluster, stored: Stored, new_topic: str
) -> None:
    shown = []
    for cluster, results in zip((official_cluster, our_cluster), stored, strict=True):
        text = java.mqadmin(
            "queryMsgByUniqueKey", "-t", new_topic, "-i", results[3]["msgId"],
            "-n", cluster.address,
        )  # fmt: skip
        shown.append(tables.fields(text))

    official, ours = shown
    assert ours.keys() == official.keys()
    assert (
        (ours["Tags"], ours["Keys"])
        == (official["Tags"], official["Keys"])
        == ("[TagA]", "[k3 all]")
    )
