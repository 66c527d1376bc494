"""Transactions and requests of the official Go client, whose requests wait for their replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.interop.harness.cluster import Cluster

Go = Callable[..., list[dict[str, Any]]]


def test_committed_messages_are_pushed(go: Go, cluster: Cluster, topic: str) -> None:
    where = ("-namesrv", cluster.address, "-topic", topic)
    go("send", *where, "-n", 1, "-tag", "creates")
    results = go("transaction", *where, "-group", f"tx_{topic}", "-n", 6)
    assert [result["status"] for result in results] == [0] * 6

    # Behind the others in their queues: whoever has these has all that can be read.
    go("send", *where, "-n", 8, "-tag", "last")
    got = go("push", *where, "-group", f"go_{topic}", "-n", 11, "-expression", "TagA || last")

    transacted = [message["body"] for message in got if message["tags"] == "TagA"]
    assert sorted(transacted) == [f"go-transaction-{i}" for i in (0, 2, 4)]


def test_requests_are_answered(go: Go, cluster: Cluster, topic: str) -> None:
    where = ("-namesrv", cluster.address, "-topic", topic)
    go("send", *where, "-n", 1, "-tag", "creates")
    replies = go("request", *where, "-group", f"rr_{topic}", "-n", 3)

    assert [reply["body"] for reply in replies] == [f"reply to request {i}" for i in range(3)]
    assert {reply["topic"] for reply in replies} == {"DefaultCluster_REPLY_TOPIC"}
