"""Locks whose broker was asked for them, or given them back, and did not say what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

HASTY = Pauses(lock_timeout=0.05, incomplete_round=0.02)
RENEWING = Pauses(lock_renewal=0.01)


def consumer(cluster: FakeCluster, name: str, *topics: str, pauses: Pauses = HASTY) -> PushConsumer:
    """Of two, "1" gets the queues of broker a, and "2" those of b."""
    return impatient(PushConsumer, pauses)(
        "G", dict.fromkeys(topics or ("T",), "*"), handler=lambda message: None,
        namesrv=cluster.namesrv, start="begin", orderly=True, instance_name=name,
    )  # fmt: skip


def brokers_of(consumer: PushConsumer) -> set[str]:
    return {queue.broker_name for queue in consumer.assignment}


def joined(cluster: FakeCluster) -> None:
    """Tell the group, as brokers do when a client is new."""
    for broker in cluster.brokers.values():
        broker.notify("G")


async def test_a_lock_that_was_not_given_back_is_given_back_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody reads the queue for a minute."""
    unlock = cluster["a"].unlock
    silent = 4

    def answer(request: Request[Any]) -> Response | None:
        nonlocal silent
        silent -= 1
        return None if silent >= 0 else unlock(request)

    monkeypatch.setattr(cluster["a"], "unlock", answer)
    async with consumer(cluster, "2") as second:
        await until(lambda: len(second.assignment) == 4)
        async with consumer(cluster, "1") as first:
            joined(cluster)
            await until(lambda: len(first.assignment) == 2)
            assert brokers_of(first) == {"a"}
            assert brokers_of(second) == {"b"}


async def test_a_lock_that_nobody_answered_for_is_given_back(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the queue is another client's share by then."""
    broker, lock = cluster["a"], cluster["a"].lock
    monkeypatch.setattr(broker, "lock", lambda request: lock(request) and None)
    async with consumer(cluster, "2") as second:
        await until(lambda: broker.locks)
        monkeypatch.setattr(broker, "lock", lambda request: None)
        async with consumer(cluster, "1") as first:
            joined(cluster)
            await until(lambda: brokers_of(second) == {"b"})
            monkeypatch.setattr(broker, "lock", lock)
            await until(lambda: len(first.assignment) == 2)
            assert brokers_of(first) == {"a"}
            assert brokers_of(second) == {"b"}


async def test_a_lock_that_is_being_given_back_is_not_renewed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the broker has it again when it has just given it back, and keeps it for a minute."""
    a, b = cluster["a"], cluster["b"]
    unlock, given_back = a.unlock, list[Request[Any]]()

    def answer_late(request: Request[Any]) -> None:
        unlock(request)
        given_back.append(request)

    monkeypatch.setattr(a, "unlock", answer_late)
    cluster.put("U")
    async with consumer(cluster, "1", "T", "U", pauses=RENEWING) as c:
        await until(lambda: len(c.assignment) == 8)
        await c.unsubscribe("T")
        await until(lambda: given_back)
        await renewals(b, 3)
        while given_back:
            given_back.pop().reply(Response())
            await renewals(b, 3)
        await renewals(a, 3)
        assert {queue.topic for queue in a.locks} == {"U"}
        monkeypatch.setattr(a, "unlock", unlock)


async def test_a_lock_is_given_back_when_its_renewal_is_answered(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two requests at once, a broker may do the later one first."""
    a, b = cluster["a"], cluster["b"]
    async with consumer(cluster, "1", pauses=RENEWING) as c:
        await until(lambda: len(c.assignment) == 4)
        lock, renewing = a.lock, list[Request[Any]]()
        monkeypatch.setattr(a, "lock", renewing.append)
        await until(lambda: renewing)
        await c.unsubscribe("T")
        await until(lambda: not b.locks)
        assert a.seen[RequestCode.UNLOCK_BATCH_MQ] == 0
        monkeypatch.setattr(a, "lock", lock)
        renewing[0].reply(lock(renewing[0]))
        await until(lambda: not a.locks)


async def renewals(broker: FakeBroker, count: int) -> None:
    """Wait for as many more."""
    seen = broker.seen[RequestCode.LOCK_BATCH_MQ]
    await until(lambda: broker.seen[RequestCode.LOCK_BATCH_MQ] >= seen + count)
