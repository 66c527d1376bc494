"""Transactions and requests of the official Go client, whose requests wait for their replies."""

from __future__ import annotations

from pathlib import Path

from tests.interop.harness import ours
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.go_client import GoClient
from tests.interop.harness.official import Server


def test_committed_messages_are_pushed(go: GoClient, cluster: Cluster, topic: str) -> None:
    where = ("-namesrv", cluster.address, "-topic", topic)
    go("send", *where, "-n", 1, "-tag", "creates")
    results = go("transaction", *where, "-group", f"tx_{topic}", "-n", 6)
    assert [result["status"] for result in results] == [0] * 6

    # Behind the others in their queues: whoever has these has all that can be read.
    go("send", *where, "-n", 8, "-tag", "last")
    got = go("push", *where, "-group", f"go_{topic}", "-n", 11, "-expression", "TagA || last")

    transacted = [message["body"] for message in got if message["tags"] == "TagA"]
    assert sorted(transacted) == [f"go-transaction-{i}" for i in (0, 2, 4)]


def test_unknown_ones_are_decided_when_the_broker_asks(
    go: GoClient, own_namesrv: Server, tmp_path: Path, topic: str
) -> None:
    """Seen to pass with the official broker, too."""
    settings = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
    broker = ours.start_broker(tmp_path, own_namesrv.address, settings=settings)
    where = ("-namesrv", own_namesrv.address, "-topic", topic)
    go("send", *where, "-n", 1, "-tag", "creates")

    go("transaction", *where, "-group", f"tx_{topic}", "-n", 6, "-unknown")

    got = go("push", *where, "-group", f"go_{topic}", "-n", 3, "-expression", "TagA")
    assert sorted(message["body"] for message in got) == [
        f"go-transaction-{i}" for i in (0, 2, 4)
    ]  # fmt: skip
    broker.process.kill()


def test_requests_are_answered(go: GoClient, cluster: Cluster, topic: str) -> None:
    where = ("-namesrv", cluster.address, "-topic", topic)
    go("send", *where, "-n", 1, "-tag", "creates")
    replies = go("request", *where, "-group", f"rr_{topic}", "-n", 3)

    assert [reply["body"] for reply in replies] == [f"reply to request {i}" for i in range(3)]
    assert {reply["topic"] for reply in replies} == {"DefaultCluster_REPLY_TOPIC"}
