"""Offsets that a broker loses: it writes them down every few seconds only, and may be killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

STORED = ("G", "T", 0)


def fill(cluster: FakeCluster) -> None:
    for i in range(3):
        cluster["a"].store("T", 0, b"%d" % i)


async def lose_offsets(cluster: FakeCluster) -> None:
    """What a broker that is killed does, when it is back."""
    await cluster["a"].stop()
    cluster["a"].offsets[STORED] = 1
    await cluster["a"].start()


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_stores_them_again(cluster: FakeCluster, orderly: bool) -> None:
    """Nothing new comes to the queue that would have its offset stored."""
    fill(cluster)
    options: dict[str, Any] = {"orderly": orderly, "commit_interval": 0.01, "start": "begin"}
    async with PushConsumer(
        "G", {"T": "*"}, handler=lambda message: None, namesrv=cluster.namesrv, **options
    ):
        await until(lambda: cluster["a"].offsets.get(STORED) == 3)
        await lose_offsets(cluster)
        await until(lambda: cluster["a"].offsets.get(STORED) == 3)


async def test_a_pull_consumer_stores_them_again(cluster: FakeCluster) -> None:
    fill(cluster)
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin") as consumer:
        await consumer.assign("T")
        assert len(await consumer.poll()) == 3
        await consumer.commit()
        await lose_offsets(cluster)
        await until(lambda: cluster["a"].connections)
        await consumer.commit()
        assert cluster["a"].offsets[STORED] == 3


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_push_consumer_stores_them_again_after_a_former_owner(
    cluster: FakeCluster, orderly: bool
) -> None:
    """A client that loses a queue may store an older offset after the new owner did."""
    fill(cluster)
    options: dict[str, Any] = {"orderly": orderly, "commit_interval": 0.01, "start": "begin"}
    async with PushConsumer(
        "G", {"T": "*"}, handler=lambda message: None, namesrv=cluster.namesrv, **options
    ):
        await until(lambda: cluster["a"].offsets.get(STORED) == 3)
        cluster["a"].notify("G")
        cluster["a"].offsets[STORED] = 1
        await until(lambda: cluster["a"].offsets.get(STORED) == 3)


@pytest.mark.parametrize("auto_commit", [False, True])
async def test_a_pull_consumer_stores_them_again_after_a_former_owner(
    cluster: FakeCluster, auto_commit: bool
) -> None:
    fill(cluster)
    async with PullConsumer(
        "G", namesrv=cluster.namesrv, start="begin", auto_commit=auto_commit,
        auto_commit_interval=0.01,
    ) as consumer:  # fmt: skip
        await consumer.subscribe("T")
        assert len(await consumer.poll(timeout=5)) == 3
        await consumer.commit()
        cluster["a"].notify("G")
        cluster["a"].offsets[STORED] = 1
        async with asyncio.timeout(10):
            while cluster["a"].offsets[STORED] != 3:
                if not auto_commit:
                    await consumer.commit()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("orderly", [False, True])
async def test_the_end_where_a_group_begins_is_stored_at_once(
    cluster: FakeCluster, orderly: bool
) -> None:
    """Whoever has the queue next begins there too, and not at an end that is further on by then."""
    fill(cluster)
    async with PushConsumer(
        "G", {"T": "*"}, namesrv=cluster.namesrv, orderly=orderly, commit_interval=60.0
    ):
        await until(lambda: cluster["a"].pulls)
        assert cluster["a"].offsets[STORED] == 3


async def test_a_pull_consumer_that_commits_itself_says_where_it_begins(
    cluster: FakeCluster,
) -> None:
    fill(cluster)
    for auto_commit in (False, True):
        async with PullConsumer(
            "G", namesrv=cluster.namesrv, auto_commit=auto_commit, auto_commit_interval=60.0
        ) as consumer:
            await consumer.assign("T")
            assert (STORED in cluster["a"].offsets) is auto_commit
