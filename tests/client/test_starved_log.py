"""What a client logs while its servers answer little: a few lines for each cause, however often."""

from __future__ import annotations

import logging

import pytest

from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingConnectError
from pocketmq.client.instance import ClientInstance
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until

ROUNDS = 5
PATIENCE = 120.0  # s, on a busy machine


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


async def test_locks_that_are_lost_again_and_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [f"T{number}" for number in range(10)]
    for topic in topics:
        cluster.put(topic)
    consumer = impatient(PushConsumer, Pauses(lock_renewal=0.01, incomplete_round=0.01))(
        "G", dict.fromkeys(topics, "*"), handler=lambda message: None,
        namesrv=cluster.namesrv, orderly=True,
    )  # fmt: skip
    a = cluster["a"]
    async with consumer:
        for _ in range(ROUNDS):
            await until(lambda: len(consumer.assignment) == 40, PATIENCE)
            a.locks = dict.fromkeys(a.locks, "another client")
            await until(lambda: {q.broker_name for q in consumer.assignment} == {"b"}, PATIENCE)
            a.locks = {}
    # It lost 100, and renewals may be more than ten seconds apart.
    lines = [line for line in told(caplog) if "its lock is lost" in line]
    assert 1 <= len(lines) <= 2 * ROUNDS
    assert len(told(caplog)) - len(lines) <= ROUNDS


async def test_a_job_that_fails_again_and_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def fail() -> None:
        nonlocal calls
        calls += 1
        raise RemotingConnectError(f"attempt {calls}")

    instance = ClientInstance(cluster.namesrv)
    await instance.start()
    try:
        instance.every(0.001, fail, "heartbeat")
        await until(lambda: calls >= 500, PATIENCE)
    finally:
        await instance.shutdown()
    assert 1 <= len(told(caplog)) <= calls / 10
