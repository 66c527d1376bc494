"""Our PushConsumer against both makes of servers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import Message
from tests.interop.harness import wire
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import JavaPeer

TIMEOUT = 30.0


async def eventually(condition: Callable[[], object]) -> None:
    """Look again until it is there."""
    for _ in range(int(TIMEOUT / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {TIMEOUT} s")


async def create_topic(cluster: Cluster, topic: str) -> None:
    """Send the message that creates the topic, and wait until the name server routes it."""
    async with Producer("our_producer", namesrv=cluster.address) as producer:
        await producer.send(Message(topic, b"creates the topic"))

    def routed() -> bool:
        request = {"topic": topic}
        return wire.call(cluster.address, wire.GET_ROUTEINFO_BY_TOPIC, request).code == 0

    await asyncio.to_thread(wire.until, routed, f"route of {topic}", TIMEOUT)


def push(cluster: Cluster, topic: str, **options: Any) -> PushConsumer:
    options = {"start": "begin", "namesrv": cluster.address} | options
    return PushConsumer(f"push_{topic}", {topic: "*"}, **options)


async def send(cluster: Cluster, topic: str, count: int, **fields: Any) -> list[bytes]:
    bodies = [b"%d" % i for i in range(count)]
    async with Producer("our_producer", namesrv=cluster.address) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, **fields))
    return bodies


async def test_concurrent_consumers_share_and_miss_nothing(cluster: Cluster, topic: str) -> None:
    await create_topic(cluster, topic)
    seen: dict[str, list[bytes]] = defaultdict(list)

    def handler(name: str) -> Any:
        async def handle(message: ConsumedMessage) -> None:
            await asyncio.sleep(0.001)
            seen[name].append(message.body)

        return handle

    async with push(cluster, topic, handler=handler("one")) as one:
        await eventually(lambda: len(one.assignment) == 4)
        async with push(cluster, topic, handler=handler("two")) as two:
            # Told by the broker, long before each would look by itself.
            await eventually(lambda: len(one.assignment) == len(two.assignment) == 2)
            first = await send(cluster, topic, 40)
            await eventually(lambda: len(seen["one"]) + len(seen["two"]) >= 41)
        await eventually(lambda: len(one.assignment) == 4)
        await send(cluster, topic, 8)
        await eventually(lambda: sum(map(len, seen.values())) >= 49)
    assert set(seen["one"] + seen["two"]) == {*first, b"creates the topic"}
    assert seen["one"]
    assert seen["two"]
    # All of it is committed.
    async with push(cluster, topic) as again:
        await eventually(lambda: len(again.assignment) == 4)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(again)


async def test_orderly_through_a_consumers_death(cluster: Cluster, topic: str) -> None:
    await create_topic(cluster, topic)
    order: dict[int, list[int]] = defaultdict(list)
    stuck = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        if message.body == b"x":
            stuck.set()
            await asyncio.sleep(3600)
        order[message.queue_id].append(message.queue_offset)

    async with push(cluster, topic, handler=handle, orderly=True, shutdown_timeout=0.0) as survivor:
        await eventually(lambda: len(survivor.assignment) == 4)
        await eventually(lambda: sum(map(len, order.values())) == 1)
        victim = push(cluster, topic, handler=handle, orderly=True, shutdown_timeout=0.0)
        await victim.start()
        await eventually(lambda: len(victim.assignment) == 2)
        await send(cluster, topic, 20)
        await eventually(lambda: sum(map(len, order.values())) == 21)
        # It dies in the middle of a message of one of its queues, with more behind that.
        async with Producer("our_producer", namesrv=cluster.address) as producer:
            for body in (b"x", b"y", b"z"):
                await producer.send(Message(topic, body), queue=victim.assignment[0])
        await stuck.wait()
        end = order[victim.assignment[0].queue_id][-1]
        queue_id = victim.assignment[0].queue_id
        stuck.clear()
        await victim.shutdown()
        await eventually(lambda: len(survivor.assignment) == 4)
        async with asyncio.timeout(TIMEOUT):
            await stuck.wait()
        assert order[queue_id][-1] == end  # what is behind it waits
    for offsets in order.values():
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


async def test_broadcast_gives_everything_to_everyone(
    cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    await create_topic(cluster, topic)
    one: list[bytes] = []
    two: list[bytes] = []
    options: dict[str, Any] = {"broadcast": True, "offset_directory": tmp_path}
    async with (
        push(cluster, topic, handler=lambda m: one.append(m.body), instance_name="one", **options),
        push(cluster, topic, handler=lambda m: two.append(m.body), instance_name="two", **options),
    ):
        bodies = await send(cluster, topic, 12)
        await eventually(lambda: len(one) == len(two) == 13)
    assert set(one) == set(two) == {*bodies, b"creates the topic"}
    await send(cluster, topic, 1)
    one.clear()
    async with push(
        cluster, topic, handler=lambda m: one.append(m.body), instance_name="one", **options
    ):
        await eventually(lambda: one)
    assert one == [b"0"]


async def test_what_fails_comes_again_and_ends_in_the_dead_letters(
    cluster: Cluster, topic: str
) -> None:
    await create_topic(cluster, topic)
    tries: dict[bytes, list[tuple[int, str]]] = defaultdict(list)

    async def handle(message: ConsumedMessage) -> None:
        tries[message.body].append((message.reconsume_times, message.topic))
        if message.body == b"0" or (message.body == b"1" and message.reconsume_times == 0):
            raise ReconsumeLater(delay_level=1)

    async with push(cluster, topic, handler=handle, max_reconsume_times=1) as consumer:
        await eventually(lambda: len(consumer.assignment) == 4)
        await send(cluster, topic, 3)
        await eventually(lambda: len(tries[b"0"]) == len(tries[b"1"]) == 2)
        group = consumer.group
    assert tries[b"0"] == tries[b"1"] == [(0, topic), (1, topic)]
    assert tries[b"2"] == [(0, topic)]
    async with PullConsumer("reads_dead_letters", namesrv=cluster.address, start="begin") as reader:
        await reader.assign(f"%DLQ%{group}")
        [letter] = await poll(reader, 1)
    assert letter.body == b"0"
    assert letter.properties["RETRY_TOPIC"] == topic
    assert letter.reconsume_times == 2  # the attempts, as docs/consumer.md says


async def poll(reader: PullConsumer, count: int) -> list[Any]:
    got: list[Any] = []
    async with asyncio.timeout(TIMEOUT):
        while len(got) < count:
            got += await reader.poll()
    return got


async def test_orderly_ends_in_the_dead_letters_too(cluster: Cluster, topic: str) -> None:
    await create_topic(cluster, topic)
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if message.body == b"creates the topic":
            raise ReconsumeLater

    async with push(
        cluster, topic, handler=handle, orderly=True, max_reconsume_times=2,
        suspend_current_queue=0.01,
    ) as consumer:  # fmt: skip
        await eventually(lambda: len(seen) == 3)
        group = consumer.group
        async with PullConsumer("reads_letters", namesrv=cluster.address, start="begin") as reader:
            await reader.assign(f"%DLQ%{group}")
            [letter] = await poll(reader, 1)
    assert seen == [b"creates the topic"] * 3
    assert letter.body == b"creates the topic"
    assert letter.reconsume_times == 3


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_dead_letter_says_why_it_died(cluster: Cluster, topic: str, orderly: bool) -> None:
    """Also one that was delayed and compressed, and no broker has it wait once more."""
    await create_topic(cluster, topic)
    body = b"no order" * 1000
    tries: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.body == body:
            tries.append(body)
            raise LookupError("unknown customer")

    async with push(
        cluster, topic, handler=handle, orderly=orderly, retry_delays={LookupError: (1,)},
    ) as consumer:  # fmt: skip
        group, client_id = consumer.group, consumer.client_id
        async with Producer("our_producer", namesrv=cluster.address, compression="zlib") as p:
            sent = await p.send(Message(topic, body, tags="t", keys=["k"], delay_level=1))
        await eventually(lambda: len(tries) == 2)
        async with PullConsumer("reads_why", namesrv=cluster.address, start="begin") as reader:
            await reader.assign(f"%DLQ%{group}")
            [letter] = await poll(reader, 1)
    assert (letter.body, letter.tags, letter.keys) == (body, "t", ("k",))
    assert (letter.msg_id, letter.reconsume_times) == (sent.msg_id, 2)
    assert letter.properties["RETRY_TOPIC"] == topic
    why = {name: value for name, value in letter.properties.items() if name[:4] == "DLQ_"}
    assert why == {
        "DLQ_REASON": "unknown customer",
        "DLQ_EXCEPTION": "LookupError",
        "DLQ_CONSUMER": client_id,
        "DLQ_ATTEMPTS": "2",
    }


async def test_sql92(cluster: Cluster, topic: str) -> None:
    await create_topic(cluster, topic)
    pushed: list[bytes] = []
    pulled: list[bytes] = []
    condition = "amount > 10 AND kind IN ('a', 'b')"
    consumer = PushConsumer(f"push_{topic}", namesrv=cluster.address, start="begin")
    consumer.on(topic, sql=condition)(lambda message: pushed.append(message.body))
    async with (
        consumer,
        PullConsumer(f"pull_{topic}", namesrv=cluster.address, start="begin") as reader,
        Producer("our_producer", namesrv=cluster.address) as producer,
    ):
        await eventually(lambda: len(consumer.assignment) == 4)
        await reader.assign(topic, sql=condition)
        for i in range(16):
            properties = {"amount": str(i), "kind": "abcd"[i % 4]}
            await producer.send(Message(topic, b"%d" % i, properties=properties))
        await eventually(lambda: len(pushed) == 2)
        pulled = [message.body for message in await poll(reader, 2)]
    assert sorted(pushed) == sorted(pulled) == [b"12", b"13"]


async def test_sql92_that_is_none_is_refused_at_once(cluster: Cluster, topic: str) -> None:
    await create_topic(cluster, topic)
    consumer = PushConsumer(f"push_{topic}", namesrv=cluster.address)
    consumer.on(topic, sql="amount >")(print)
    with pytest.raises(RemotingError):
        await consumer.start()
    async with PullConsumer(f"pull_{topic}", namesrv=cluster.address) as reader:
        with pytest.raises(RemotingError):
            await reader.assign(topic, sql="amount >")


async def test_mqadmin_looks_into_our_consumer(
    java: JavaPeer, cluster: Cluster, topic: str
) -> None:
    await create_topic(cluster, topic)
    seen: list[ConsumedMessage] = []
    async with push(cluster, topic, handler=seen.append, commit_interval=0.1) as consumer:
        await eventually(lambda: seen)
        status = await asyncio.to_thread(
            java.mqadmin, "consumerStatus", "-n", cluster.address, "-g", consumer.group,
            "-i", consumer.client_id, "-s", "true",
        )  # fmt: skip
        assert "#Consumer MQ Detail#" in status
        assert topic in status
        assert "CONSUME_PASSIVELY" in status
        # The operator has the message worked on once more, here and now.
        again = await asyncio.to_thread(
            java.mqadmin, "queryMsgById", "-n", cluster.address, "-g", consumer.group,
            "-d", consumer.client_id, "-t", topic, "-i", seen[0].msg_id,
        )  # fmt: skip
        assert "CR_SUCCESS" in again
        assert [message.body for message in seen] == [b"creates the topic"] * 2
