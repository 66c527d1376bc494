"""Official push consumers that join, leave and die: who gets which queue, and in what order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.harness import ours
from tests.interop.harness.cluster import Cluster, every_java_client
from tests.interop.harness.official import JavaPeer

# A client looks for changes by itself every 20 s: within these it must have been told of them.
SETTLE_MILLIS = 18_000

Message = dict[str, Any]


class Group:
    """The members of one group, in one Java process or in several."""

    def __init__(self, address: str, topic: str) -> None:
        self.address = address
        self.topic = topic
        self.members: dict[str, JavaPeer] = {}
        self.ends: dict[int, int] = {}  # by queue: the offset of its last message

    def join(self, java: JavaPeer, name: str, **options: Any) -> str:
        member = f"{name}_{self.topic}"
        java(
            "member-start", namesrv=self.address, group=f"group_{self.topic}", topic=self.topic,
            member=member, **{"expression": "*", **options},
        )  # fmt: skip
        self.members[member] = java
        return member

    def leave(self, member: str) -> None:
        self.members.pop(member)("member-stop", member=member)

    def queues(self, member: str, count: int, millis: int = SETTLE_MILLIS) -> list[int]:
        """The queues of a member, once it has so many."""
        java = self.members[member]
        found: list[int] = java("member-queues", member=member, count=count, timeoutMillis=millis)
        return found

    def collect(self, member: str, count: int, millis: int = 30_000) -> list[Message]:
        java = self.members[member]
        got: list[Message] = java(
            "member-collect", member=member, count=count, timeoutMillis=millis
        )
        return got

    def collect_to_the_end(self, member: str) -> list[Message]:
        """All that arrives until the last message of every queue did."""
        got: list[Message] = []
        missing = dict(self.ends)
        while missing:
            # A client that leaves while it renews its locks may renew one after it gave them back.
            # Such a lock lives for 60 s, and a 4.x client tries a locked queue again every 20 s.
            more = self.collect(member, 1, 100_000)
            assert more, f"nothing more, missing the last of {missing}, got {dict(offsets(got))}"
            [message] = more
            got.append(message)
            if message["queueOffset"] == missing.get(message["queueId"]):
                del missing[message["queueId"]]
        return got

    def send(self, java: JavaPeer, word: str, count: int) -> None:
        """Send so many messages. The first ones create the topic; when the producer learns of it,
        it starts at another queue, so queues need not get equally many.
        """
        messages = [{"body": f"{word}-{n}", "tags": "TagA"} for n in range(count)]
        sent = java(
            "send", namesrv=self.address, group="sender", topic=self.topic, mode="sync",
            messages=messages,
        )  # fmt: skip
        for one in sent:
            self.ends[one["queueId"]] = one["queueOffset"]


@pytest.fixture
def group(cluster: Cluster, topic: str) -> Iterator[Group]:
    value = Group(cluster.address, topic)
    yield value
    for member in list(value.members):
        value.leave(member)


@pytest.mark.long("official")
def test_members_join_and_leave(java: JavaPeer, group: Group) -> None:
    group.send(java, "first", 8)
    first = group.join(java, "first")
    assert group.queues(first, 4) == [0, 1, 2, 3]
    assert len(group.collect(first, 8)) == 8

    second = group.join(java, "second", heartbeatV2=True)
    assert sorted(group.queues(first, 2) + group.queues(second, 2)) == [0, 1, 2, 3]
    group.send(java, "shared", 8)
    # A producer does not always go round the queues evenly, so either may get more than half.
    got: list[Message] = []
    for _ in range(60):
        got += group.collect(first, 8, 250) + group.collect(second, 8, 250)
        if len(got) >= 8:
            break
    assert sorted(message["body"] for message in got) == [f"shared-{n}" for n in range(8)]

    group.leave(first)
    assert group.queues(second, 4) == [0, 1, 2, 3]
    group.send(java, "last", 8)
    assert sorted(message["body"] for message in group.collect(second, 8)) == [
        f"last-{n}" for n in range(8)
    ]


@every_java_client
def test_every_member_of_a_broadcast_gets_everything(java: JavaPeer, group: Group) -> None:
    group.send(java, "early", 8)
    members = [group.join(java, name, broadcast=True) for name in ("first", "second")]

    for word in ("early", "late"):
        if word == "late":
            group.send(java, word, 8)
        for member in members:
            got = group.collect(member, 8)
            assert sorted(message["body"] for message in got) == [f"{word}-{n}" for n in range(8)]
            assert group.queues(member, 4) == [0, 1, 2, 3]


@every_java_client
def test_orderly_members_join_and_leave(java: JavaPeer, group: Group) -> None:
    group.send(java, "first", 40)
    first = group.join(java, "first", orderly=True, pauseMillis=20)
    second = group.join(java, "second", orderly=True, pauseMillis=20)
    group.queues(second, 2, 60_000)
    group.send(java, "second", 40)
    before = group.collect(second, 5)
    group.leave(first)
    group.send(java, "third", 20)

    # Nothing is lost, and each queue is consumed in its order, whoever has it.
    seen = offsets(before + group.collect_to_the_end(second))
    assert group.queues(second, 4) == [0, 1, 2, 3]
    for queue, order in seen.items():
        assert order == sorted(order), queue


def offsets(messages: list[Message]) -> dict[int, list[int]]:
    """Queue offsets by queue, in the order of consumption."""
    order: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        order[message["queueId"]].append(message["queueOffset"])
    return order


def test_order_survives_the_death_of_a_consumer(java: JavaPeer, tmp_path: Path, topic: str) -> None:
    """The dead one's locks keep its queues for their time; then the other goes on where it was."""
    namesrv = ours.start_name_server(tmp_path)
    broker = ours.start_broker(
        tmp_path, namesrv.address, settings={"rebalanceLockMaxLiveTime": 3_000}
    )
    # Locks are renewed every 20 s by default, which would be too late for ones that live 3 s.
    renew = "-Drocketmq.client.rebalance.lockInterval=500"
    survivor_java, victim_java = (
        JavaPeer(tmp_path / name, renew) for name in ("survivor", "victim")
    )
    group = Group(namesrv.address, topic)
    try:
        group.send(java, "first", 4)
        early = dict(group.ends)
        survivor = group.join(survivor_java, "survivor", orderly=True, pauseMillis=20)
        victim = group.join(
            victim_java, "victim", orderly=True, pauseMillis=20, journal=str(tmp_path / "journal")
        )
        group.queues(survivor, 2)
        mine = group.queues(victim, 2)
        group.send(java, "m", 400)
        group.collect(victim, 20)
        victim_java.kill()

        assert group.queues(survivor, 4) == [0, 1, 2, 3]
        group.send(java, "n", 40)
        rest = offsets(group.collect_to_the_end(survivor))
    finally:
        survivor_java.close()
        victim_java.kill()
    consumed: dict[int, list[int]] = defaultdict(list)
    for line in (tmp_path / "journal").read_text().splitlines():
        queue, offset = map(int, line.split())
        consumed[queue].append(offset)
    assert set(consumed) == set(mine)
    for queue in mine:
        # The first messages were there when the survivor still was alone.
        before, after = (
            [offset for offset in of[queue] if offset > early.get(queue, -1)]
            for of in (consumed, rest)
        )
        assert before == list(range(before[0], before[-1] + 1)), queue
        # It goes on where the dead one stored its offset, and leaves nothing out.
        assert after == list(range(after[0], group.ends[queue] + 1)), queue
        assert after[0] <= before[-1] + 1, queue
    for order in rest.values():
        assert order == sorted(order)
    assert broker.process.terminate() == 0
    assert namesrv.process.terminate() == 0
