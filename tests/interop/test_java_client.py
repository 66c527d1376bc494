"""The official Java client against the servers: every way to send, every way to receive."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import JavaPeer

MESSAGES = [
    {
        "body": f"message {i} – 消息",
        "tags": ("TagA", "TagB", "标签")[i % 3],
        "keys": f"k{i} all",
        "properties": {"step": str(i), "名": "值"},
    }
    for i in range(20)
]


def pulled(java: JavaPeer, cluster: Cluster, topic: str, **options: Any) -> list[dict[str, Any]]:
    """Every message of the topic, read by DefaultMQPullConsumer from min to max offset."""
    answer = java("pull", namesrv=cluster.address, group=f"pull_{topic}", topics=[topic], **options)
    messages: list[dict[str, Any]] = answer["messages"]
    return messages


def send(
    java: JavaPeer, cluster: Cluster, topic: str, mode: str, messages: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = java(
        "send",
        namesrv=cluster.address,
        group="java_producer",
        topic=topic,
        mode=mode,
        messages=messages,
    )
    return results


def assert_same_messages(got: list[dict[str, Any]], sent: list[dict[str, Any]]) -> None:
    """Bodies, tags, keys and user properties, in whatever order the queues gave them."""
    by_body = {message["body"]: message for message in got}
    assert len(got) == len(by_body) == len(sent)
    for message in sent:
        other = by_body[message["body"]]
        assert other["tags"] == message["tags"]
        assert other["keys"] == message["keys"]
        assert other["properties"].items() >= message["properties"].items()


def collected(java: JavaPeer, group: str, wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What push consumers get, until all of it is there. A queue that changes hands brings messages
    again."""
    left = {message["body"] for message in wanted}
    found = []
    while left:
        [message] = java("push-collect", group=group, count=1, timeoutMillis=60_000)
        if message["body"] in left:
            left.remove(message["body"])
            found.append(message)
    return found


@every_java_client
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_messages_are_where_the_answer_said(
    java: JavaPeer, cluster: Cluster, topic: str, mode: str
) -> None:
    results = send(java, cluster, topic, mode, MESSAGES)

    got = pulled(java, cluster, topic)

    assert_same_messages(got, MESSAGES)
    by_id = {message["msgId"]: message for message in got}
    for message, result in zip(MESSAGES, results, strict=True):
        assert result["status"] == "SEND_OK"
        stored = by_id[result["msgId"]]
        assert stored["body"] == message["body"]
        assert (stored["queueId"], stored["queueOffset"], stored["offsetMsgId"]) == (
            result["queueId"],
            result["queueOffset"],
            result["offsetMsgId"],
        )


@every_java_client
def test_batch_takes_consecutive_queue_offsets(
    java: JavaPeer, cluster: Cluster, topic: str
) -> None:
    [result] = send(java, cluster, topic, "batch", MESSAGES)

    got = pulled(java, cluster, topic)

    assert_same_messages(got, MESSAGES)
    assert {message["queueId"] for message in got} == {result["queueId"]}
    first = result["queueOffset"]
    assert [message["queueOffset"] for message in got] == list(range(first, first + 20))
    assert [message["body"] for message in got] == [message["body"] for message in MESSAGES]
    assert result["offsetMsgId"].split(",") == [message["offsetMsgId"] for message in got]


@every_java_client
def test_oneway_messages_arrive(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    # A oneway send has no answer to wait for; a subscriber that is already there shows them.
    [first] = send(java, cluster, topic, "sync", [{"body": "creates the topic", "tags": "other"}])
    assert first["status"] == "SEND_OK"

    send(java, cluster, topic, "oneway", MESSAGES)

    got = java(
        "lite-pull",
        namesrv=cluster.address,
        group=f"lite_{topic}",
        topic=topic,
        expression="TagA || TagB || 标签",
        count=20,
        timeoutMillis=20_000,
    )
    assert_same_messages(got, MESSAGES)


@every_java_client
def test_compressed_body_comes_back_whole(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    [result] = send(java, cluster, topic, "sync", [{"body": "abcdefghij", "size": 100_000}])

    [message] = pulled(java, cluster, topic)

    assert message["bodyLength"] == 100_000
    assert message["bodySha256"] == hashlib.sha256(b"abcdefghij" * 10_000).hexdigest()
    assert message["storeSize"] < 5_000, "the client compresses from 4096 bytes on"
    assert message["queueOffset"] == result["queueOffset"] == 0


def test_pull_by_tag(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    send(java, cluster, topic, "sync", MESSAGES)

    got = pulled(java, cluster, topic, expression="标签 || TagB")

    assert_same_messages(got, [m for m in MESSAGES if m["tags"] in ("标签", "TagB")])


def test_colliding_tag_hashes_are_kept_apart(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    tags = ["AaAa", "BBBB", "AaBB"]
    messages = [{"body": tag, "tags": tag, "keys": "k", "properties": {}} for tag in tags]
    send(java, cluster, topic, "sync", messages)

    got = pulled(java, cluster, topic, expression="BBBB")

    assert [message["body"] for message in got] == ["BBBB"]


@every_java_client
def test_lite_pull_resumes_behind_its_commit(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    def lite_pull(count: int) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = java(
            "lite-pull",
            namesrv=cluster.address,
            group=f"lite_{topic}",
            topic=topic,
            expression="*",
            count=count,
            timeoutMillis=20_000,
        )
        return messages

    send(java, cluster, topic, "sync", MESSAGES)
    assert_same_messages(lite_pull(20), MESSAGES)

    later = [{**message, "body": f"later {message['body']}"} for message in MESSAGES]
    send(java, cluster, topic, "sync", later)
    assert_same_messages(lite_pull(20), later)


def test_push_consumers_share_a_topic_by_tag(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    group = f"push_{topic}"
    send(java, cluster, topic, "sync", MESSAGES)
    assigned = java(
        "push-start",
        namesrv=cluster.address,
        group=group,
        topic=topic,
        expression="TagA || 标签",
        members=2,
        queues=4,
    )
    try:
        assert sorted(map(len, assigned)) == [2, 2]
        wanted = [message for message in MESSAGES if message["tags"] != "TagB"]
        assert_same_messages(collected(java, group, wanted), wanted)

        later = [{**message, "body": f"later {message['body']}"} for message in MESSAGES]
        send(java, cluster, topic, "sync", later)
        wanted = [message for message in later if message["tags"] != "TagB"]
        pushed = collected(java, group, wanted)
        assert_same_messages(pushed, wanted)
        for message in pushed:
            assert message["queueId"] in assigned[message["member"]]
    finally:
        java("push-stop", group=group)

    # The group's stored offsets are at the end: a new member finds nothing more.
    java(
        "push-start",
        namesrv=cluster.address,
        group=group,
        topic=topic,
        expression="TagA || 标签",
        queues=4,
    )
    try:
        last = {"body": "the last", "tags": "TagA", "keys": "k", "properties": {}}
        send(java, cluster, topic, "sync", [last])
        [message] = java("push-collect", group=group, count=1, timeoutMillis=60_000)
        assert message["body"] == "the last"
    finally:
        java("push-stop", group=group)
