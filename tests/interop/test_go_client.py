"""The official Go client against the servers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.harness.cluster import Cluster
from tests.interop.harness.go_client import GoClient


def push(go: GoClient, cluster: Cluster, topic: str, count: int, *options: object) -> list[Any]:
    return go(
        "push", "-namesrv", cluster.address, "-topic", topic, "-group", f"go_{topic}",
        "-n", count, *options,
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_sent_messages_are_pushed(go: GoClient, cluster: Cluster, topic: str, mode: str) -> None:
    # The Go consumer refuses to start without a route, and a oneway send does not wait for one.
    go("send", "-namesrv", cluster.address, "-topic", topic, "-n", 1, "-tag", "creates")
    results = go("send", "-namesrv", cluster.address, "-topic", topic, "-mode", mode, "-n", 12)

    got = push(go, cluster, topic, 12, "-expression", "TagA")

    by_body = {message["body"]: message for message in got}
    assert sorted(by_body) == sorted(f"go-{mode}-{i}" for i in range(12))
    for i in range(12):
        message = by_body[f"go-{mode}-{i}"]
        assert message["tags"] == "TagA"
        assert message["keys"] == f"k{i}"
        assert message["properties"]["step"] == str(i)
    assert len(results) == {"oneway": 0, "batch": 1}.get(mode, 12)
    if mode == "batch":
        [result] = results
        offsets = [by_body[f"go-batch-{i}"]["queueOffset"] for i in range(12)]
        first = result["queueOffset"]
        assert offsets == list(range(first, first + 12))
    else:
        places = {(message["queueId"], message["queueOffset"]) for message in got}
        assert {(result["queueId"], result["queueOffset"]) for result in results} <= places


def test_push_by_tag(go: GoClient, cluster: Cluster, topic: str) -> None:
    for tag in ("TagA", "TagB", "TagC"):
        go("send", "-namesrv", cluster.address, "-topic", topic, "-n", 4, "-tag", tag)

    got = push(go, cluster, topic, 8, "-expression", "TagA || TagC")

    assert sorted(message["tags"] for message in got) == ["TagA"] * 4 + ["TagC"] * 4
