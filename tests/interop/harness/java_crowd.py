"""Applications of the official Java client, one of each kind, to run beside each other.

Each has topics and a group of its own, sends, and checks that it got exactly what it should. The
topics exist, with four queues on each of two brokers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from . import wire
from .official import CLIENT_4, JavaPeer

QUEUES = 8
# Milliseconds until what is waited for counts as lost. A lock lives 60 s, and a member that gives a
# queue up may have renewed it just then, in its periodic renewal of all.
PATIENCE = 90_000

Message = dict[str, Any]


def bodies(messages: Iterable[Message]) -> list[str]:
    return sorted(message["body"] for message in messages)


def queue_offsets(messages: Iterable[Message]) -> dict[tuple[str, int], list[int]]:
    """The offsets of each queue in the order of arrival."""
    order: dict[tuple[str, int], list[int]] = defaultdict(list)
    for message in messages:
        order[message["storeHost"], message["queueId"]].append(message["queueOffset"])
    return order


class JavaCrowd:
    """`applications` names them with what each needs: its topics, and itself."""

    def __init__(self, java: JavaPeer, namesrv: str) -> None:
        self._java = java
        self._namesrv = namesrv
        self._starting = threading.Lock()  # A Java machine that starts all at once takes long.
        self._name = f"Java{java.version[0]}"
        self.applications: dict[Callable[[], None], list[str]] = {
            kind: [self._topic(kind, n) for n in range(count)]
            for kind, count in {
                self.shared_by_tag: 1,
                self.orderly: 1,
                self.broadcast: 1,
                self.delayed: 1,
                self.retried: 1,
                self.transactions: 1,
                self.sql: 1,
                self.requests: 1,
                self.pulled: 3,
                self.lite_pulled: 1,
            }.items()
        }

    def _topic(self, kind: Callable[[], None], number: int = 0) -> str:
        return f"{self._name}_{kind.__name__}_{number}"

    def group(self, kind: Callable[[], None]) -> str:
        return f"G_{self._name}_{kind.__name__}"

    def _send(self, topic: str, messages: list[Message], mode: str = "sync") -> None:
        results = self._java(
            "send", namesrv=self._namesrv, group=f"P_{topic}", topic=topic, mode=mode,
            messages=messages,
        )  # fmt: skip
        assert {result["status"] for result in results} <= {"SEND_OK"}

    def _push(self, topic: str, group: str, **options: Any) -> None:
        """Consumers that share the queues and are settled."""
        options = {"expression": "*", "queues": QUEUES} | options
        with self._starting:
            self._java("push-start", namesrv=self._namesrv, group=group, topic=topic, **options)

    def _pushed(self, group: str, count: int) -> list[Message]:
        """So many messages, the members gone, and no more than those."""
        got: list[Message] = self._java(
            "push-collect", group=group, count=count, timeoutMillis=PATIENCE
        )
        got += self._java("push-collect", group=group, count=1, timeoutMillis=500)
        self._java("push-stop", group=group)
        return got

    def shared_by_tag(self) -> None:
        topic, group = self._topic(self.shared_by_tag), self.group(self.shared_by_tag)
        self._push(topic, group, expression="TagA || TagC", members=2)
        self._send(topic, [{"body": f"{n:02}", "tags": f"Tag{'ABC'[n % 3]}"} for n in range(60)])
        assert bodies(self._pushed(group, 40)) == [f"{n:02}" for n in range(60) if n % 3 != 1]

    def _join(self, kind: Callable[[], None], name: str, queues: int, **options: Any) -> str:
        """A member of the group of this kind, once it has so many queues."""
        member = f"{self._topic(kind)}_{name}"
        with self._starting:
            self._java(
                "member-start", namesrv=self._namesrv, group=self.group(kind),
                topic=self._topic(kind), member=member, **{"expression": "*"} | options,
            )  # fmt: skip
        self._java("member-queues", member=member, count=queues, timeoutMillis=PATIENCE)
        return member

    def _collect(self, member: str, count: int, millis: int = PATIENCE) -> list[Message]:
        got: list[Message] = self._java(
            "member-collect", member=member, count=count, timeoutMillis=millis
        )
        return got

    def orderly(self) -> None:
        topic = self._topic(self.orderly)
        members = [self._join(self.orderly, "one", QUEUES, orderly=True)]
        members.append(self._join(self.orderly, "two", QUEUES // 2, orderly=True))
        self._send(topic, [{"body": f"{n:03}"} for n in range(100)])
        got: list[list[Message]] = [[], []]

        def complete() -> bool:
            for member, its in zip(members, got, strict=True):
                its += self._collect(member, 100, 200)
            return sum(map(len, got)) >= 100

        wire.until(complete, "all messages in order", PATIENCE / 1000)
        queues = [queue_offsets(its) for its in got]
        for offsets in [*queues[0].values(), *queues[1].values()]:
            assert offsets == list(range(len(offsets)))
        assert not queues[0].keys() & queues[1].keys()
        assert bodies(got[0] + got[1]) == [f"{n:03}" for n in range(100)]
        for member in members:
            self._java("member-stop", member=member)

    def broadcast(self) -> None:
        members = [
            self._join(self.broadcast, name, QUEUES, broadcast=True) for name in ("one", "two")
        ]
        self._send(self._topic(self.broadcast), [{"body": f"{n:02}"} for n in range(20)])
        for member in members:
            got = self._collect(member, 20) + self._collect(member, 1, 500)
            assert bodies(got) == [f"{n:02}" for n in range(20)]
            self._java("member-stop", member=member)

    def delayed(self) -> None:
        topic, group = self._topic(self.delayed), self.group(self.delayed)
        self._push(topic, group)
        messages: list[Message] = [
            {"body": f"{level} {n}", "delayLevel": level} for level in (1, 2) for n in range(10)
        ]
        waits = {"1": 1000, "2": 5000, "timed": 2500}
        if self._java.version != CLIENT_4:
            messages += [{"body": f"timed {n}", "delayMs": waits["timed"]} for n in range(10)]
        self._send(topic, messages)
        got = self._pushed(group, len(messages))
        assert bodies(got) == bodies(messages)
        for message in got:
            late = message["storeTimestamp"] - message["bornTimestamp"]
            # The producer's clock was read before, and a timer's wheel ticks every second.
            assert late >= waits[message["body"].split()[0]] - 1000

    def retried(self) -> None:
        topic, group = self._topic(self.retried), self.group(self.retried)
        with self._starting:
            self._java(
                "retry-start", namesrv=self._namesrv, group=group, topic=topic, delayLevel=1,
                maxReconsumeTimes=1,
            )  # fmt: skip
        attempts = {"first": 1, "second": 2, "never": 99}
        self._send(topic, [
            {"body": body, "properties": {"succeeds": str(n)}} for body, n in attempts.items()
        ])  # fmt: skip
        got = self._java("retry-collect", group=group, count=5, timeoutMillis=PATIENCE)
        assert sorted((m["body"], m["reconsumeTimes"]) for m in got) == [
            ("first", 0), ("never", 0), ("never", 1), ("second", 0), ("second", 1),
        ]  # fmt: skip
        dead = f"%DLQ%{group}"

        def given_up() -> bool:
            where = {"topic": dead}
            return wire.call(self._namesrv, wire.GET_ROUTEINFO_BY_TOPIC, where).code == 0

        wire.until(given_up, "the dead letters' topic", PATIENCE / 1000)
        wire.until(lambda: self._pull([dead]) == ["never"], "the dead letter", PATIENCE / 1000, 0.5)
        assert self._java("retry-collect", group=group, count=1, timeoutMillis=0) == []
        self._java("retry-stop", group=group)

    def transactions(self) -> None:
        topic, group = self._topic(self.transactions), self.group(self.transactions)
        self._push(topic, group)
        producers = f"P_{topic}"
        self._java("transaction-start", namesrv=self._namesrv, group=producers)
        ends = {
            "committed": {"local": "COMMIT_MESSAGE"},
            "rolled back": {"local": "ROLLBACK_MESSAGE"},
            "committed late": {"local": "UNKNOW", "check": "COMMIT_MESSAGE"},
            "rolled back late": {"local": "UNKNOW", "check": "ROLLBACK_MESSAGE"},
        }
        messages = [{"body": f"{n} {end}", **how} for end, how in ends.items() for n in range(5)]
        self._java("transaction-send", group=producers, topic=topic, messages=messages)
        checks = self._java("transaction-checks", group=producers, count=10, timeoutMillis=PATIENCE)
        assert len({check["body"] for check in checks if "late" in check["body"]}) == 10
        got = bodies(self._pushed(group, 10))
        assert got == sorted(f"{n} {end}" for n in range(5) for end in ends if end[0] == "c")
        self._java("transaction-stop", group=producers)

    def sql(self) -> None:
        member = self._join(self.sql, "one", QUEUES, sql="age BETWEEN 10 AND 19 AND name <> 'x'")
        self._send(self._topic(self.sql), [
            {"body": f"{n:02}", "properties": {"age": str(n), "name": "xy"[n % 2]}}
            for n in range(40)
        ])  # fmt: skip
        got = self._collect(member, 5) + self._collect(member, 1, 500)
        assert bodies(got) == ["11", "13", "15", "17", "19"]
        self._java("member-stop", member=member)

    def requests(self) -> None:
        replies = self._java(
            "request", namesrv=self._namesrv, group=self.group(self.requests),
            topic=self._topic(self.requests), bodies=[f"request {n}" for n in range(8)],
            answers=8, timeoutMillis=PATIENCE,
        )  # fmt: skip
        assert [reply.get("body", reply.get("failure")) for reply in replies] == [
            f"reply to request {n}" for n in range(8)
        ]

    def _pull(self, topics: list[str]) -> list[str]:
        answer = self._java(
            "pull", namesrv=self._namesrv, group=self.group(self.pulled), topics=topics
        )
        return bodies(answer["messages"])

    def pulled(self) -> None:
        topics = self.applications[self.pulled]
        for mode, topic in zip(("sync", "async", "batch"), topics, strict=True):
            self._send(topic, [{"body": f"{mode} {n:02}"} for n in range(50)], mode)
        wanted = sorted(f"{mode} {n:02}" for mode in ("sync", "async", "batch") for n in range(50))
        assert self._pull(topics) == wanted

    def lite_pulled(self) -> None:
        topic = self._topic(self.lite_pulled)
        self._send(topic, [{"body": f"{n:02}", "tags": "TagA"} for n in range(20)], "oneway")
        got = self._java(
            "lite-pull", namesrv=self._namesrv, group=self.group(self.lite_pulled), topic=topic,
            expression="TagA", count=20, timeoutMillis=PATIENCE,
        )  # fmt: skip
        assert bodies(got) == [f"{n:02}" for n in range(20)]
