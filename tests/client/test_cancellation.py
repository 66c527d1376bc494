"""A task may be cancelled at any await: nothing of it stays behind, and the rest goes on."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.observation.consume_hooks import ConsumeContext, ConsumeHook
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message, MessageExt
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


async def cancel_after(turns: int, work: Awaitable[Any]) -> bool:
    """Cancel after so many turns of the loop; whether that was before its end."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task])
    assert done
    return task.cancelled()


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kind", ["send", "send_oneway", "send_batch"])
async def test_sends(cluster: FakeCluster, kind: str, warm: bool) -> None:
    calls: dict[str, Callable[[Producer], Awaitable[Any]]] = {
        "send": lambda p: p.send(Message("T", b"x" * 5000)),
        "send_oneway": lambda p: p.send_oneway(Message("T", b"x")),
        "send_batch": lambda p: p.send_batch([Message("T", bytes(900)) for _ in range(10)]),
    }
    cancelled = 0
    for turns in range(25):
        async with Producer("PG", namesrv=cluster.namesrv, batch_bytes=2000) as p:
            if warm:
                await p.send(Message("T", b"x"))
            cancelled += await cancel_after(turns, calls[kind](p))
            assert p.in_flight == 0
            assert all(broker.available for broker in p.brokers)
            # The cancelled one took nothing from those that follow.
            await asyncio.gather(*(calls[kind](p) for _ in range(3)))
            assert p.in_flight == 0
            assert not any(broker.in_flight for broker in p.brokers)
    assert cancelled > 0


@pytest.mark.parametrize("what", ["assign", "subscribe", "poll", "seek", "commit"])
async def test_consumers(cluster: FakeCluster, what: str) -> None:
    for i in range(40):
        cluster["ab"[i % 2]].store("T", i // 2 % 2, b"%d" % i)
    calls: dict[str, Callable[[PullConsumer], Awaitable[Any]]] = {
        "assign": lambda c: c.assign("T"),
        "subscribe": lambda c: c.subscribe("T"),
        "poll": lambda c: c.poll(4),
        "seek": lambda c: c.seek("begin"),
        "commit": lambda c: c.commit(),
    }
    for turns in range(12):
        group = f"G-{what}-{turns}"
        async with PullConsumer(group, namesrv=cluster.namesrv, start="begin") as c:
            if what not in ("assign", "subscribe"):
                await c.assign("T")
            await cancel_after(turns, calls[what](c))
            # What was interrupted can be done again.
            if what == "subscribe":
                await c.subscribe("T")
                await until(lambda c=c: len(c.assignment) == 4)  # type: ignore[misc]
            else:
                await c.assign("T")
            await c.seek("begin")
            seen: set[bytes] = set()
            async with asyncio.timeout(10):
                while len(seen) < 40:
                    seen |= {m.body for m in await c.poll()}


@pytest.mark.parametrize("seed", range(4))
async def test_lost_connections_lose_and_repeat_nothing(cluster: FakeCluster, seed: int) -> None:
    """A consumer that polls while connections break at random sees each message once, each queue
    in order."""
    chance = random.Random(seed)
    total = 200
    expected = {(b, q): [b"%s%d-%d" % (b.encode(), q, i) for i in range(total // 4)]
                for b in "ab" for q in range(2)}  # fmt: skip
    waiting = {place: list(bodies) for place, bodies in expected.items()}
    seen: dict[tuple[str, int], list[bytes]] = {place: [] for place in expected}
    options = {"start": "begin", "batch": 3, "max_buffered": 5}
    async with PullConsumer("G", namesrv=cluster.namesrv, **options) as c:  # type: ignore[arg-type]
        await c.assign("T")
        async with asyncio.timeout(60):
            while sum(map(len, seen.values())) < total:
                for (broker, queue_id), bodies in waiting.items():
                    for body in bodies[: chance.randrange(4)]:
                        cluster[broker].store("T", queue_id, body)
                        bodies.pop(0)
                if chance.random() < 0.1:
                    cluster["ab"[chance.randrange(2)]].drop_connections()
                if chance.random() < 0.1:
                    cluster.name_server.drop_connections()
                for message in await c.poll(chance.randint(1, 20), timeout=0.01):
                    seen[message.broker_name, message.queue_id].append(message.body)
    assert seen == expected


class SlowHook:
    """Takes two turns of the loop before and after the work."""

    async def before_consume(self, context: ConsumeContext) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def after_consume(self, context: ConsumeContext) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def next_message(consumer: PullConsumer) -> list[MessageExt]:
    return [await anext(consumer)]


@pytest.mark.parametrize("take", [lambda c: c.poll(4), next_message], ids=["poll", "iteration"])
@pytest.mark.parametrize("hooks", [[], [SlowHook()]], ids=["plain", "hooked"])
async def test_a_cancelled_poll_loses_no_message(
    cluster: FakeCluster,
    take: Callable[[PullConsumer], Awaitable[list[MessageExt]]],
    hooks: list[ConsumeHook],
) -> None:
    for i in range(40):
        cluster["ab"[i % 2]].store("T", i // 2 % 2, b"%d" % i)
    async with PullConsumer("G", namesrv=cluster.namesrv, start="begin", hooks=hooks) as c:
        await c.assign("T")
        seen: list[bytes] = []
        async with asyncio.timeout(30):
            for turns in itertools.cycle(range(24)):
                task = asyncio.ensure_future(take(c))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    seen += [message.body for message in task.result()]
                if len(seen) >= 40:
                    break
                await c.commit()
                await asyncio.sleep(0)
        await c.commit()
        assert sorted(seen, key=int) == [b"%d" % i for i in range(40)]
        for broker, queue in itertools.product("ab", range(2)):
            bodies = [body for body in seen if int(body) % 2 == "ab".index(broker)]
            of_queue = [int(body) for body in bodies if int(body) // 2 % 2 == queue]
            assert of_queue == sorted(of_queue)
            assert cluster[broker].offsets["G", "T", queue] == 10


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_a_cancelled_work_on_a_message_is_done_again(
    cluster: FakeCluster, orderly: bool
) -> None:
    """At whatever step `async with message` is cancelled: the message comes again, or is done."""
    total = 24
    for i in range(total):
        cluster["a"].store("T", 0, b"%d" % i)
    done: set[bytes] = set()
    async with PushConsumer(
        "G",
        {"T": "*"},
        namesrv=cluster.namesrv,
        start="begin",
        orderly=orderly,
        hooks=[SlowHook()],
        suspend_current_queue=0.001,
        commit_interval=0.01,
    ) as c:

        async def work() -> None:
            message = await anext(c)
            async with message:
                await asyncio.sleep(0)
                done.add(message.body)

        async with asyncio.timeout(60):
            for turns in itertools.cycle(range(1, 12)):
                await cancel_after(turns, work())
                await asyncio.sleep(0.002)
                if cluster["a"].offsets.get(("G", "T", 0)) == total:
                    break
    # The broker has those that were sent back; in order, messages are done again here.
    back = {header.offset for header in cluster["a"].sent_back}
    assert not orderly or not back
    assert len(done) + len(back) >= total
