"""Transactions of the official Java client, begun at a broker of one make, gone on at the other's.

Both work on the same store directory: each must read the halves, ops and offsets of the other. The
client of release 4 sees each end that a transaction can have at our broker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness import official, ours, wire
from tests.interop.harness.official import CLIENT_4, JavaPeer, Server

GET_MAX_OFFSET = 30

START = {"official": official.start_broker, "ours": ours.start_broker}
FILES = {"mappedFileSizeCommitLog": 131072, "mappedFileSizeConsumeQueue": 4000}
NEVER = {"transactionCheckInterval": 3_600_000, "transactionOpBatchInterval": 100}
# A check that finds nobody to ask, since the producer's heartbeat is still to come, counts too.
SOON = {
    "transactionCheckInterval": 2000,
    "transactionTimeOut": 2000,
    "transactionCheckMax": 5,
    "transactionOpBatchInterval": 100,
}

MESSAGES = [
    {"body": "committed", "local": "COMMIT_MESSAGE"},
    {"body": "rolled back", "local": "ROLLBACK_MESSAGE"},
    {"body": "to be committed", "local": "UNKNOW", "check": "COMMIT_MESSAGE"},
    {"body": "to be rolled back", "local": "UNKNOW", "check": "ROLLBACK_MESSAGE"},
    {"body": "never known", "local": "UNKNOW", "check": "UNKNOW"},
]


@pytest.fixture
def queue(java: JavaPeer, own_namesrv: Server) -> Callable[..., list[dict[str, Any]]]:
    """`queue(broker, topic)`: the messages of its queue 0, or of `queues` queues."""

    def read(broker: Server, topic: str, queues: int = 1) -> list[dict[str, Any]]:
        named = [{"topic": topic, "brokerName": broker.broker_name, "queueId": n}
                 for n in range(queues)]  # fmt: skip
        answer = java("pull", namesrv=own_namesrv.address, group="reader", queues=named)
        messages: list[dict[str, Any]] = answer["messages"]
        return messages

    return read


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ours", "official"),
        # In CI stores go both ways in handover/test_handover.py, with open transactions.
        pytest.param("official", "ours", marks=pytest.mark.long),
    ],
)
def test_pending_transactions_change_hands(
    java: JavaPeer,
    own_namesrv: Server,
    queue: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
    topic: str,
    first: str,
    second: str,
) -> None:
    store = tmp_path / "store"
    group = f"PG_{topic}"
    namesrv = own_namesrv.address

    def start(make: str, settings: dict[str, int]) -> Server:
        server = START[make](
            tmp_path, namesrv, name=f"t-{first}", store=store, settings={**FILES, **settings}
        )
        java("transaction-start", namesrv=namesrv, group=group)
        return server

    def send(*messages: dict[str, str]) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = java(
            "transaction-send",
            group=group,
            topic=topic,
            messages=[{"tags": "a", "keys": "k", **message} for message in messages],
        )
        return results

    def stored(broker: Server) -> list[str]:
        return sorted(message["body"] for message in queue(broker, topic, 4))

    broker = start(first, NEVER)
    results = send(*MESSAGES)
    assert {result["status"] for result in results} == {"SEND_OK"}
    assert [result["queueOffset"] for result in results] == list(range(5))
    # An end is not answered: its op tells that it has come.
    wire.until(lambda: ended(queue, broker) == {0, 1}, "the ops of the two that are ended")
    assert stored(broker) == ["committed"]
    [message] = queue(broker, topic, 4)
    assert message["sysFlag"] == 8
    assert message["properties"].items() >= {"TRAN_MSG": "true", "PGROUP": group}.items()
    if first == "ours" or official.VERSION < "5.5":  # 5.5 leaves it out
        assert "REAL_TOPIC" in message["properties"]
    java("transaction-stop", group=group)
    broker.process.terminate(30)

    broker = start(second, SOON)
    try:
        # Its producer must have found the broker to be known there.
        send({"body": "found it", "local": "COMMIT_MESSAGE"})
        checks = checks_until_given_up(java, group, broker)
        assert_checked(checks)
        assert {check["topic"] for check in checks} == {topic}
        assert stored(broker) == ["committed", "found it", "to be committed"]
    finally:
        java("transaction-stop", group=group)
        broker.process.kill()


@pytest.mark.parametrize("java", [CLIENT_4], indirect=True)
def test_commit_rollback_unknown_and_check(
    java: JavaPeer, own_namesrv: Server, tmp_path: Path, topic: str
) -> None:
    namesrv, group = own_namesrv.address, f"PG_{topic}"
    broker = ours.start_broker(tmp_path, namesrv, settings=SOON)
    java("transaction-start", namesrv=namesrv, group=group)
    try:
        results = java(
            "transaction-send", group=group, topic=topic,
            messages=[{"tags": "a", "keys": "k", **message} for message in MESSAGES],
        )  # fmt: skip
        assert [result["state"] for result in results] == [m["local"] for m in MESSAGES]
        assert_checked(checks_until_given_up(java, group, broker))
        answer = java("pull", namesrv=namesrv, group="reader", topics=[topic])
        bodies = sorted(message["body"] for message in answer["messages"])
        assert bodies == ["committed", "to be committed"]
    finally:
        java("transaction-stop", group=group)
        broker.process.kill()


def ended(queue: Callable[..., list[dict[str, Any]]], broker: Server) -> set[int]:
    ops = queue(broker, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    return {int(part) for op in ops for part in op["body"].split(",") if part}


def checks_until_given_up(java: JavaPeer, group: str, broker: Server) -> list[dict[str, Any]]:
    """Every check that the producer was asked for until the broker gave up what stays unknown."""
    wire.until(lambda: given_up(broker) == 1, "what stays unknown is given up", 60)
    checks: list[dict[str, Any]] = java(
        "transaction-checks", group=group, count=100, timeoutMillis=0
    )
    return checks


def assert_checked(checks: list[dict[str, Any]]) -> None:
    """Again and again what stays unknown, the others once, and nothing that was ended before."""
    bodies = [check["body"] for check in checks]
    assert bodies.count("never known") > 1
    others = sorted(body for body in bodies if body != "never known")
    assert others == ["to be committed", "to be rolled back"]


def given_up(broker: Server) -> int:
    where = {"topic": "TRANS_CHECK_MAX_TIME_TOPIC", "queueId": "0"}
    return int(wire.call(broker.address, GET_MAX_OFFSET, where).ext_fields["offset"])
