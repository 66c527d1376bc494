"""Delayed, timed and retried messages of the official Java client, on servers of both makes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness import official, ours, wire
from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import CLIENT_4, JavaError, JavaPeer, Server

Message = dict[str, Any]


def send(java: JavaPeer, namesrv: str, topic: str, messages: list[Message]) -> list[Message]:
    results: list[Message] = java(
        "send", namesrv=namesrv, group="late", topic=topic, mode="sync", messages=messages
    )
    return results


def push(java: JavaPeer, namesrv: str, topic: str, count: int) -> list[Message]:
    """The first messages of a topic in the order of their arrival."""
    group = f"late_{topic}"
    java("push-start", namesrv=namesrv, group=group, topic=topic, expression="*", queues=4)
    try:
        messages: list[Message] = java(
            "push-collect", group=group, count=count, timeoutMillis=40_000
        )
    finally:
        java("push-stop", group=group)
    return messages


@every_java_client
def test_delay_levels_and_delivery_times(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    send(java, cluster.address, topic, [{"body": "at once"}])
    asked = int(time.time() * 1000)
    waits = {"level 1": 1_000, "level 2": 5_000}
    messages: list[Message] = [
        {"body": "level 2", "delayLevel": 2, "tags": "A"},
        {"body": "level 1", "delayLevel": 1, "keys": "k"},
    ]
    timed = java.version != CLIENT_4  # Release 4 has the levels only.
    if timed:
        waits |= {"sec": 3_000, "ms": 2_500, "time": 4_000}
        messages += [
            {"body": "time", "deliverMs": asked + waits["time"]},
            {"body": "sec", "delaySec": 3, "properties": {"a": "b"}},
            {"body": "ms", "delayMs": 2500},
        ]
    results = send(java, cluster.address, topic, messages)
    assert [result["status"] for result in results] == ["SEND_OK"] * len(waits)

    got = push(java, cluster.address, topic, 1 + len(waits))

    by_body = {message["body"]: message for message in got}
    assert by_body.keys() == {"at once", *waits}
    for body, wait in waits.items():
        message = by_body[body]
        assert message["storeTimestamp"] >= asked + wait
        assert message["properties"]["REAL_TOPIC"] == topic
    assert by_body["level 2"]["tags"] == "A"
    # Both makes leave the same behind.
    assert set(by_body["level 1"]["properties"]) - {"MIN_OFFSET", "MAX_OFFSET", "WAIT"} >= {
        "DELAY", "REAL_TOPIC", "REAL_QID", "KEYS", "UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON",
    }  # fmt: skip
    if not timed:
        return
    assert by_body["sec"]["properties"]["a"] == "b"
    assert {name for name in by_body["ms"]["properties"] if name.startswith("TIMER")} == {
        "TIMER_DELAY_MS", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS",
    }  # fmt: skip


@pytest.mark.long("official")
@every_java_client
def test_consume_later_then_retries_then_dead_letters(
    java: JavaPeer, cluster: Cluster, topic: str
) -> None:
    group = f"retry_{topic}"
    bodies = {"first": 1, "second": 2, "never": 99}
    messages = [
        {"body": body, "tags": "T", "keys": "k", "properties": {"succeeds": str(attempt)}}
        for body, attempt in bodies.items()
    ]
    sent = {r["msgId"]: r for r in send(java, cluster.address, topic, messages)}
    java(
        "retry-start",
        namesrv=cluster.address,
        group=group,
        topic=topic,
        delayLevel=1,
        maxReconsumeTimes=2,
    )
    try:
        attempts = java("retry-collect", group=group, count=6, timeoutMillis=60_000)
        seen = [(attempt["body"], attempt["reconsumeTimes"]) for attempt in attempts]
        assert sorted(seen) == [
            ("first", 0), ("never", 0), ("never", 1), ("never", 2), ("second", 0), ("second", 1),
        ]  # fmt: skip
        for attempt in attempts:
            # A consumer sees retries under the topic and the id they were sent with.
            assert attempt["topic"] == topic
            assert (attempt["tags"], attempt["keys"]) == ("T", "k")
            if attempt["reconsumeTimes"]:
                origin = sent[attempt["properties"]["UNIQ_KEY"]]
                assert attempt["properties"]["ORIGIN_MESSAGE_ID"] == origin["offsetMsgId"]

        [dead] = push_dead_letters(java, cluster, f"%DLQ%{group}")
        assert (dead["body"], dead["reconsumeTimes"]) == ("never", 3)
        properties = dead["properties"]
        assert (properties["RETRY_TOPIC"], properties["DELAY"]) == (topic, "0")
    finally:
        java("retry-stop", group=group)


def push_dead_letters(java: JavaPeer, cluster: Cluster, topic: str) -> list[Message]:
    group = f"dead_{topic.rpartition('%')[2]}"
    java("push-start", namesrv=cluster.address, group=group, topic=topic, expression="*", queues=1)
    try:
        messages: list[Message] = java("push-collect", group=group, count=1, timeoutMillis=30_000)
    finally:
        java("push-stop", group=group)
    return messages


@pytest.mark.long("official")
def test_recall(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    send(java, cluster.address, topic, [{"body": "at once"}])

    def recall(message: Message) -> str:
        answer: str = java(
            "recall",
            namesrv=cluster.address,
            group="late",
            topic=topic,
            handle=message["recallHandle"],
        )
        return answer

    def set_allowed(allowed: bytes) -> None:
        answer = wire.call(
            cluster.broker.address,
            wire.UPDATE_BROKER_CONFIG,
            body=b"recallMessageEnable=" + allowed,
        )
        assert answer.code == 0, answer.remark

    messages = [{"body": "recalled", "delaySec": 5}, {"body": "kept", "delaySec": 6}]
    [recalled, _] = send(java, cluster.address, topic, messages)
    with pytest.raises(JavaError, match="operation is forbidden"):
        recall(recalled)
    set_allowed(b"true")
    try:
        assert recall(recalled) == recalled["msgId"]
    finally:
        set_allowed(b"false")
    got = push(java, cluster.address, topic, 2)
    assert {message["body"] for message in got} == {"at once", "kept"}


START = {"official": official.start_broker, "ours": ours.start_broker}
SETTINGS = {
    "mappedFileSizeCommitLog": 131072,
    "mappedFileSizeConsumeQueue": 4000,
    "messageDelayLevel": "1s 16s 20s",
}


@pytest.mark.parametrize(
    ("first", "second", "stop"),
    [
        ("ours", "official", "cleanly"),
        # In CI stores go both ways in handover/test_handover.py, with messages that wait.
        pytest.param("official", "ours", "by SIGKILL", marks=pytest.mark.long),
    ],
)
def test_waiting_messages_change_hands(
    java: JavaPeer,
    own_namesrv: Server,
    tmp_path: Path,
    topic: str,
    first: str,
    second: str,
    stop: str,
) -> None:
    """What one broker took the other one delivers; and what it delivered does not come again."""
    store = tmp_path / "store"
    namesrv = own_namesrv.address
    name = f"late-{first}-{stop.rpartition(' ')[2]}"

    def start(make: str) -> Server:
        return START[make](tmp_path, namesrv, name=name, store=store, settings=SETTINGS)

    def stored() -> list[str]:
        queues = [{"topic": topic, "brokerName": name, "queueId": n} for n in range(4)]
        try:
            answer = java("pull", namesrv=namesrv, group="reader", queues=queues)
        except JavaError as error:
            if "not exist" in str(error):  # no route to the topic yet
                return []
            raise
        return sorted(message["body"] for message in answer["messages"])

    broker = start(first)
    send(java, namesrv, topic, [{"body": "at once"}])
    done = [{"body": "done level", "delayLevel": 1}, {"body": "done time", "delaySec": 1}]
    # The second broker of this pair needs some seconds to start: some are due by then.
    waiting: list[dict[str, Any]] = [
        {"body": "level 2", "delayLevel": 2},
        {"body": "level 3", "delayLevel": 3},
        {"body": "time 16", "delaySec": 16},
        {"body": "time 20", "delaySec": 20},
    ]
    send(java, namesrv, topic, done + waiting)
    before = ["at once", "done level", "done time"]
    wire.until(lambda: set(stored()) >= set(before), "three delivered", 60, 0.3)
    stored_before = stored()
    assert len(stored_before) < len(before + waiting)
    if stop == "cleanly":
        broker.process.terminate(60)
    else:
        broker.process.kill()

    successor = start(second)
    try:
        wanted = sorted(before + [message["body"] for message in waiting])
        wire.until(lambda: set(stored()) >= set(wanted), "all delivered", 60, 0.5)
        if stop == "cleanly":
            assert stored() == wanted
        else:
            # What was delivered since progress was written comes again.
            again = Counter(stored()) - Counter(wanted)
            assert again.keys() <= set(stored_before)
    finally:
        successor.process.kill()
