"""Handlers that do not wait, and do anything to their consumer meanwhile: each message is done in
the end, nothing is committed before it is, and what flow control counts comes back to nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.serving.request import Response
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.test_push_chaos import Ledger, fill
from tests.client.waiting import until


@pytest.mark.parametrize("seed", range(6))
async def test_chaos_of_plain_handlers(cluster: FakeCluster, seed: int) -> None:
    chance = random.Random(seed)
    fill(cluster)
    for broker in cluster.brokers.values():
        broker.back_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")
    ledger = Ledger(cluster)
    tasks: set[asyncio.Task[None]] = set()
    turns = [0.0, 0.002]  # times that the topic is left, and for how long
    loop = asyncio.get_running_loop()

    def consumer() -> PushConsumer:
        c = impatient(PushConsumer, Pauses(local_retry=0.002))(
            "G", namesrv=cluster.namesrv, start="begin", commit_interval=0.005,
            pull_batch_size=chance.choice([4, 64]), concurrency=chance.choice([1, 8]),
            pull_threshold_for_queue=chance.choice([16, 1000]), shutdown_timeout=0.05,
            pull_threshold_for_topic=chance.choice([None, 40]),
            consume_concurrently_max_span=chance.choice([8, 2000]),
        )  # fmt: skip

        def later(work: Awaitable[None]) -> None:
            async def run() -> None:
                await work

            task = loop.create_task(run())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        async def wait(message: ConsumedMessage) -> None:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            done(message)

        def done(message: ConsumedMessage) -> None:
            ledger.done[message.queue].add(message.queue_offset)

        async def leave(seconds: float) -> None:
            await c.unsubscribe("T")
            await asyncio.sleep(seconds)
            await c.subscribe("T", handler=handle)

        @c.on("T")
        def handle(message: ConsumedMessage) -> Awaitable[None] | None:
            pq = message.process_queue
            if pq.paused or pq.dropped:
                ledger.wrong.append(f"{message.queue} at {message.queue_offset} is handed out")
            match chance.randrange(40):
                case 0:
                    raise ReconsumeLater
                case 1:
                    raise RuntimeError("as the test says")
                case 2:
                    raise asyncio.CancelledError
                case 3:
                    c.pause()
                    loop.call_later(0.002, c.resume)
                case 4:
                    c.pause()
                    c.resume()
                case 5 if turns:
                    later(leave(turns.pop()))
                case 6:
                    later(message.reconsume())
                    done(message)
                    return asyncio.sleep(0.001)
                case 7:
                    done(message)
                    message.ack()
                    raise RuntimeError("it is acknowledged already")
                case 8:
                    future = loop.create_future()
                    future.cancel()
                    return future
                case 9 | 10 | 11:
                    return wait(message)
            done(message)
            return None

        return c

    c = consumer()
    await c.start()
    async with asyncio.timeout(20):
        while not ledger.all_done():
            await asyncio.sleep(0.003)
            if chance.random() < 0.1:
                cluster["ab"[chance.randrange(2)]].drop_connections()
    await until(lambda: not tasks)
    c.resume()
    async with asyncio.timeout(10):
        while True:
            await asyncio.sleep(0)
            with contextlib.suppress(RemotingError):  # until it has connected again
                queues = (await cluster["a"].running_info(c.client_id)).mq_table.values()
                if not any(queue.cached_msg_count for queue in queues):
                    break
    assert {queue.cached_msg_size_in_mib for queue in queues} <= {0}
    await c.shutdown()
    assert ledger.commits > 0
    assert not ledger.wrong
