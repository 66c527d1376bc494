"""SQL92: our filter against the official module, the official clients against either broker, and
the filter table in the hands of both brokers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.sql_filter import SqlSyntaxError, compile_sql
from tests.interop.harness import official, ours
from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import JavaError, JavaPeer, Server
from tests.interop.harness.sql_corpus import MESSAGES, corpus

SQL = "(age BETWEEN 18 AND 65 AND name <> 'Bob') OR city IN ('Rome', 'Köln') OR note CONTAINS 'x'"
PEOPLE = [
    {"age": "17", "name": "Ann"},
    {"age": "18", "name": "Ann"},
    {"age": "40", "name": "Bob"},
    {"age": "40", "name": "Eve"},
    {"city": "Köln"},
    {"city": "Paris", "note": "fax"},
    {"age": "unknown", "city": "Rome"},
    {"name": "Zoe"},
]
# "unknown" is no number: the comparison fails, and with it the whole expression.
WANTED = (1, 3, 4, 5)


def send(java: JavaPeer, cluster: Cluster, topic: str, word: str) -> None:
    messages = [
        {"body": f"{word}-{n}", "tags": "TagA", "properties": person}
        for n, person in enumerate(PEOPLE)
    ]
    java("send", namesrv=cluster.address, group="sql", topic=topic, mode="sync", messages=messages)


def test_the_official_module_judges_the_same(java: JavaPeer) -> None:
    expressions = corpus(random.randrange(2**32), 5_000)

    results = java("sql-filter", expressions=expressions, properties=MESSAGES)

    for text, theirs in zip(expressions, results, strict=True):
        assert judged(text) == theirs.replace("E", "N"), text


def judged(text: str) -> str:
    try:
        sql = compile_sql(text)
    except SqlSyntaxError:
        return "!"
    return "".join({True: "T", False: "F", None: "N"}[sql.evaluate(one)] for one in MESSAGES)


@every_java_client
def test_java_push_consumer(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    send(java, cluster, topic, "before")
    java(
        "member-start", namesrv=cluster.address, group=f"sql_{topic}", topic=topic,
        member=f"m_{topic}", sql=SQL,
    )  # fmt: skip
    try:
        for word in ("before", "after"):
            if word == "after":
                send(java, cluster, topic, word)
            got = java("member-collect", member=f"m_{topic}", count=4, timeoutMillis=30_000)
            assert sorted(message["body"] for message in got) == [f"{word}-{n}" for n in WANTED]
        assert java("member-collect", member=f"m_{topic}", count=1, timeoutMillis=200) == []
    finally:
        java("member-stop", member=f"m_{topic}")


@every_java_client
def test_a_bad_expression_is_refused_at_the_start(
    java: JavaPeer, cluster: Cluster, topic: str
) -> None:
    send(java, cluster, topic, "any")
    with pytest.raises(JavaError, match="CODE: 23") as caught:
        java(
            "member-start", namesrv=cluster.address, group=f"sql_{topic}", topic=topic,
            member=f"m_{topic}", sql="age > 4 AND > 5",
        )  # fmt: skip
    assert "line 1, column 13" in str(caught.value)


def test_go_push_consumer(
    java: JavaPeer, go: Callable[..., list[Any]], cluster: Cluster, topic: str
) -> None:
    send(java, cluster, topic, "go")

    got = go(
        "push", "-namesrv", cluster.address, "-topic", topic, "-group", f"go_{topic}",
        "-n", 4, "-sql", SQL,
    )  # fmt: skip

    assert sorted(message["body"] for message in got) == [f"go-{n}" for n in WANTED]


# --- consumerFilter.json ----------------------------------------------------------------------


def subscribe(java: JavaPeer, namesrv: Server, topic: str, group: str) -> None:
    """Have a consumer of `group` subscribe to `topic` by SQL, and leave."""
    address = namesrv.address
    messages = [{"body": f"m{age}", "properties": {"age": age}} for age in ("3", "30")]
    java("send", namesrv=address, group="sql", topic=topic, mode="sync", messages=messages)
    java("member-start", namesrv=address, group=group, topic=topic, member=group, sql="age > 18")
    [message] = java("member-collect", member=group, count=1, timeoutMillis=30_000)
    assert message["body"] == "m30"
    java("member-stop", member=group)


def table(store: Path) -> dict[str, dict[str, dict[str, Any]]]:
    document = json.loads((store / "config" / "consumerFilter.json").read_text())
    return {
        topic: entry["groupFilterData"] for topic, entry in document["filterDataByTopic"].items()
    }


def test_the_official_broker_goes_on_with_our_filter_table(java: JavaPeer, tmp_path: Path) -> None:
    """The other direction is tests/broker/test_consumer_filter.py, with a file that it wrote."""
    # A name server of their own: no other broker may get what is meant for these.
    namesrv = ours.start_name_server(tmp_path)
    store = tmp_path / "store"
    broker = ours.start_broker(tmp_path, namesrv.address, name="filters", store=store)
    subscribe(java, namesrv, "Ours", "group_a")
    assert broker.process.terminate() == 0
    written = table(store)["Ours"]["group_a"]

    broker = official.start_broker(tmp_path, namesrv.address, name="filters", store=store)
    subscribe(java, namesrv, "Theirs", "group_b")
    assert broker.process.terminate(30) in (0, 143), broker.process.tail()

    both = table(store)
    # It drops the whole file when the Bloom filter in it is not as it would calculate it.
    assert both["Ours"]["group_a"] == written
    assert both["Theirs"]["group_b"].keys() == written.keys()
    assert namesrv.process.terminate() == 0
