"""The official Go consumers: broadcast, order, delay, retries, resets, pull, message trace."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.harness import message_trace, resets, wire
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.go_client import GoClient, GoRun
from tests.interop.harness.official import JavaPeer

Message = dict[str, Any]
Start = Callable[..., GoRun]

BODIES = [f"go-sync-{n}" for n in range(12)]


@pytest.fixture
def where(cluster: Cluster, topic: str) -> tuple[str, ...]:
    """Options of every command."""
    return ("-namesrv", cluster.address, "-topic", topic, "-group", f"go_{topic}")


@pytest.fixture
def start(go: GoClient, where: tuple[str, ...]) -> Iterator[Start]:
    """`start("push", ...)`: a member of the group, which ends with the test."""
    runs: list[GoRun] = []

    def run(command: str, *options: object) -> GoRun:
        runs.append(go.start(command, *where, *options))
        return runs[-1]

    yield run
    for one in runs:
        one.kill()


def bodies(messages: list[Message]) -> list[str]:
    return sorted(message["body"] for message in messages)


def test_every_member_of_a_broadcast_gets_everything(
    go: GoClient, where: tuple[str, ...], start: Start
) -> None:
    go("send", *where, "-n", 12)
    members = [start("push", "-broadcast", "-n", 24) for _ in range(2)]
    for member in members:
        assert bodies(member.collect(12)) == sorted(BODIES)
    go("send", *where, "-n", 12)
    for member in members:
        assert bodies(member.collect(12)) == sorted(BODIES)


@pytest.mark.long("official")
def test_order_is_kept_from_member_to_member(
    go: GoClient, where: tuple[str, ...], start: Start
) -> None:
    """Each message is refused once and comes again before the next one of its queue."""

    for last in (9, 19):
        go("send", *where, "-n", 40)
        member = start("push", "-orderly", "-n", 1000, "-fail", 1)
        offsets: dict[int, list[int]] = defaultdict(list)
        while [offsets[queue][-2:] for queue in range(4)] != 4 * [[last, last]]:
            [message] = member.collect(1)
            offsets[message["queueId"]].append(message["queueOffset"])
        for taken in offsets.values():
            # This client does not always store its last offset.
            assert taken[0] <= last - 9
            assert taken == sorted([*range(taken[0], last + 1)] * 2)
        member.stop()


def test_delay_levels(go: GoClient, where: tuple[str, ...]) -> None:
    go("send", *where, "-n", 1, "-tag", "creates")
    asked = time.time() * 1000
    results = go("send", *where, "-n", 4, "-delay", 1)
    assert [result["status"] for result in results] == [0] * 4

    got = go("push", *where, "-n", 4, "-expression", "TagA")

    assert bodies(got) == [f"go-sync-{n}" for n in range(4)]
    for message in got:
        assert message["storeTimestamp"] >= asked + 1000
        properties = message["properties"]
        assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("1", message["topic"])


@pytest.mark.long("official")
def test_retries_then_dead_letters(
    go: GoClient, cluster: Cluster, where: tuple[str, ...], topic: str
) -> None:
    sent = {result["msgId"] for result in go("send", *where, "-n", 2)}

    got = go("push", *where, "-n", 6, "-fail", -1, "-max-reconsume", 2)

    seen = [(message["body"], message["reconsumeTimes"]) for message in got]
    assert sorted(seen) == [(f"go-sync-{n}", times) for n in range(2) for times in range(3)]
    # A consumer sees retries under the topic and the id they were sent with.
    assert {(message["topic"], message["msgId"]) for message in got} == {(topic, i) for i in sent}

    dead_topic = f"%DLQ%go_{topic}"

    def routed() -> bool:
        request = {"topic": dead_topic}
        return wire.call(cluster.address, wire.GET_ROUTEINFO_BY_TOPIC, request).code == 0

    wire.until(routed, "the topic of dead letters")
    dead = go(
        "push", "-namesrv", cluster.address, "-topic", dead_topic, "-group", f"dead_{topic}",
        "-n", 2,
    )  # fmt: skip
    assert bodies(dead) == ["go-sync-0", "go-sync-1"]
    assert {message["reconsumeTimes"] for message in dead} == {3}
    assert {message["properties"]["RETRY_TOPIC"] for message in dead} == {topic}


@pytest.mark.long("False")
@pytest.mark.parametrize("at_the_broker", [True, False])
def test_offsets_are_reset_while_it_consumes(
    go: GoClient,
    admin: JavaPeer,
    our_cluster: Cluster,
    topic: str,
    at_the_broker: bool,
) -> None:
    """Either way; the client needs 10 s for it."""
    group = f"go_{topic}"
    where = ("-namesrv", our_cluster.address, "-topic", topic, "-group", group)
    go("send", *where, "-n", 12)
    member = go.start("push", *where, "-n", 1000)
    try:
        assert bodies(member.collect(12)) == sorted(BODIES)
        wire.until(lambda: resets.stored(our_cluster, topic, group) == 12, "the offsets are stored")
        with resets.way(our_cluster, at_the_broker=at_the_broker):
            admin.mqadmin(
                "resetOffsetByTime", "-g", group, "-t", topic, "-s", "0", "-n", our_cluster.address
            )
            assert bodies(member.collect(12)) == sorted(BODIES)
        member.stop()
    finally:
        member.kill()


def test_pull(go: GoClient, where: tuple[str, ...]) -> None:
    go("send", *where, "-n", 4, "-tag", "TagB")
    go("send", *where, "-n", 12)

    got = go("pull", *where, "-n", 12, "-expression", "TagA")
    assert bodies(got) == sorted(BODIES)

    # Another one of the group goes on behind what the first has acknowledged.
    go("send", *where, "-n", 12, "-mode", "async")
    got = go("pull", *where, "-n", 12, "-expression", "TagA")
    assert bodies(got) == sorted(f"go-async-{n}" for n in range(12))


def test_trace(
    go: GoClient, admin: JavaPeer, cluster: Cluster, where: tuple[str, ...], start: Start
) -> None:
    # This client does not have the topic of the trace made.
    go("send", "-namesrv", cluster.address, "-topic", message_trace.TOPIC, "-n", 1)
    ids = [result["msgId"] for result in go("send", *where, "-n", 3, "-trace")]
    member = start("push", "-n", 1000, "-trace")
    assert len(member.collect(3)) == 3
    message_trace.await_kinds(admin, cluster.address, ids, {"Pub", "SubBefore", "SubAfter"})
    member.stop()
