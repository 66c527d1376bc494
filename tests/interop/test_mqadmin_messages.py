"""mqadmin on stored messages: printing, consuming, looking up; both makes compared."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.harness import tables
from tests.interop.harness.cluster import BROKER_NAME, Cluster
from tests.interop.harness.mqadmin import Both, failure
from tests.interop.harness.official import JavaPeer

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
    """``queue body`` of each printed message, sorted: where a sender begins is chance."""
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
