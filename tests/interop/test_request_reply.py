"""Request and reply through a broker, both ends the official Java client."""

from __future__ import annotations

from typing import Any

from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import JavaPeer


@every_java_client
def test_requests_are_answered(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    java("send", namesrv=cluster.address, group="PG", topic=topic, mode="sync",
         messages=[{"body": "makes the topic", "tags": "none"}])  # fmt: skip
    requests = [f"request {n}" for n in range(4)] + ["nobody answers this"]

    replies: list[dict[str, Any]] = java(
        "request",
        namesrv=cluster.address,
        group=f"Rr_{topic}",
        topic=topic,
        bodies=requests,
        answers=4,
        timeoutMillis=6_000,
    )

    assert [reply.get("failure") for reply in replies[:4]] == [None] * 4
    assert [reply["body"] for reply in replies[:4]] == [f"reply to {body}" for body in requests[:4]]
    for reply in replies[:4]:
        assert reply["topic"] == "DefaultCluster_REPLY_TOPIC"
        assert reply["properties"]["MSG_TYPE"] == "reply"
        assert {"CORRELATION_ID", "PUSH_REPLY_TIME", "REPLY_TO_CLIENT"} <= set(reply["properties"])
    assert "timeout" in replies[4]["failure"].lower()

    # The replies are stored as well.
    answer = java("pull", namesrv=cluster.address, group="reader", queues=[
        {"topic": "DefaultCluster_REPLY_TOPIC", "brokerName": cluster.broker.broker_name,
         "queueId": 0}])  # fmt: skip
    stored = {m["properties"]["CORRELATION_ID"] for m in answer["messages"]}
    assert {reply["properties"]["CORRELATION_ID"] for reply in replies[:4]} <= stored
