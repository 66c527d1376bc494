"""Push consumers under failures of everything around them: what is committed is done, nothing is
lost, the order of queues holds, and nothing is left behind."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.test_cancellation import cancel_after
from tests.client.waiting import client_tasks, until

TOTAL = 240


class Ledger:
    """What was done of each queue; every commit is held against it."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.done: dict[MessageQueue, set[int]] = defaultdict(set)
        self.commits = 0
        self.wrong: list[str] = []
        self._cluster = cluster
        for name, broker in cluster.brokers.items():
            broker.update_offset = self._checked(name, broker.update_offset)  # type: ignore[method-assign]

    def _checked(self, name: str, store: Callable[[Request[Any]], Response | None]) -> Any:
        def update(request: Request[Any]) -> Response | None:
            header = request.header
            queue = MessageQueue(header.topic, name, header.queue_id)
            missing = set(range(header.commit_offset)) - self.done[queue]
            if missing:
                self.wrong.append(f"{queue} at {header.commit_offset} without {missing}")
            self.commits += 1
            return store(request)

        return update

    def all_done(self) -> bool:
        return sum(map(len, self.done.values())) >= TOTAL


def fill(cluster: FakeCluster) -> None:
    for i in range(TOTAL):
        cluster["ab"[i % 2]].store("T", i // 2 % 2, b"%d" % i)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("orderly", [False, True])
async def test_chaos(cluster: FakeCluster, orderly: bool, seed: int) -> None:
    chance = random.Random(seed)
    fill(cluster)
    ledger = Ledger(cluster)
    order: dict[MessageQueue, list[int]] = defaultdict(list)

    async def handle(message: ConsumedMessage) -> None:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if chance.random() < 0.1:
            raise ReconsumeLater
        ledger.done[message.queue].add(message.queue_offset)
        order[message.queue].append(message.queue_offset)

    def consumer() -> PushConsumer:
        return impatient(PushConsumer, Pauses(local_retry=0.002))(
            "G", {"T": "*"}, handler=handle, namesrv=cluster.namesrv, start="begin",
            orderly=orderly, suspend_current_queue=0.001, pull_batch_size=4, concurrency=8,
            pull_threshold_for_queue=16, commit_interval=0.005, shutdown_timeout=0.05,
        )  # fmt: skip

    for broker in cluster.brokers.values():
        broker.back_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")

    running = [consumer(), consumer()]
    for c in running:
        await c.start()
    async with asyncio.timeout(60):
        while not ledger.all_done():
            await asyncio.sleep(0.003)
            if chance.random() < 0.2:
                cluster["ab"[chance.randrange(2)]].drop_connections()
            if chance.random() < 0.05:
                index = chance.randrange(2)
                await running[index].shutdown()
                for broker in cluster.brokers.values():
                    broker.forget(running[index].client_id)
                running[index] = consumer()
                await running[index].start()
    for c in running:
        await c.shutdown()
    assert ledger.commits > 0
    assert not ledger.wrong
    if orderly:
        for offsets in order.values():
            # Repeated after a loss, but never ahead of what was not done.
            for at, offset in enumerate(offsets):
                assert offset <= max(offsets[:at], default=-1) + 1


@pytest.mark.parametrize("what", ["start", "next", "subscribe", "unsubscribe", "shutdown"])
@pytest.mark.parametrize("orderly", [False, True])
async def test_cancellation_at_any_await(cluster: FakeCluster, what: str, orderly: bool) -> None:
    cluster.put("U")
    fill(cluster)
    calls: dict[str, Callable[[PushConsumer], Awaitable[Any]]] = {
        "start": lambda c: c.start(),
        "next": lambda c: c.__anext__(),
        "subscribe": lambda c: c.subscribe("U"),
        "unsubscribe": lambda c: c.unsubscribe("T"),
        "shutdown": lambda c: c.shutdown(),
    }
    for turns in range(0, 24, 2):
        c = impatient(PushConsumer, Pauses(local_retry=0.002))(
            f"G-{what}-{turns}", {"T": "*"}, namesrv=cluster.namesrv, start="begin", orderly=orderly
        )
        if what != "start":
            await c.start()
        if what == "unsubscribe":
            await until(lambda c=c: len(c.assignment) == 4)  # type: ignore[misc]
        await cancel_after(turns, calls[what](c))
        if what == "subscribe":
            # What was interrupted can be done again.
            await c.subscribe("U")
        elif what == "next":
            async with await anext(c):
                pass
        await c.shutdown()
        assert client_tasks() == []


async def test_a_cancelled_block_gives_the_message_back(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")
    async with PushConsumer("G", {"T": "*"}, namesrv=cluster.namesrv, start="begin") as c:
        message = await anext(c)

        async def work() -> None:
            async with message:
                await asyncio.sleep(60)

        await cancel_after(3, work())
        await until(lambda: cluster["a"].sent_back)
    assert cluster["a"].offsets["G", "T", 0] == 1
