"""Our Producer and PullConsumer against both makes of servers, and beside the Java client."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.errors import RemotingError
from pocketmq.client.producer.producer import Producer
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.message.message import Message, MessageExt
from tests.interop.harness import wire
from tests.interop.harness.cluster import Cluster
from tests.interop.harness.official import JavaPeer

TIMEOUT = 30.0


def messages(topic: str, count: int, prefix: str = "m") -> list[Message]:
    return [
        Message(
            topic,
            f"{prefix}{i} – 消息".encode(),
            tags=("TagA", "TagB", "标签")[i % 3],
            keys=(f"k{i}", "all"),
            properties={"step": str(i), "名": "值"},
        )
        for i in range(count)
    ]


async def receive(consumer: PullConsumer, count: int) -> list[MessageExt]:
    """The next `count` messages of what the consumer is assigned."""
    got: list[MessageExt] = []
    async with asyncio.timeout(TIMEOUT):
        async for message in consumer:
            got.append(message)
            if len(got) == count:
                break
    return got


async def create_topic(producer: Producer, cluster: Cluster, topic: str) -> None:
    """Send the message that creates the topic, and wait until the name server routes it."""
    await producer.send(Message(topic, b"creates the topic"))

    def routed() -> bool:
        request = {"topic": topic}
        return wire.call(cluster.address, wire.GET_ROUTEINFO_BY_TOPIC, request).code == 0

    await asyncio.to_thread(wire.until, routed, f"route of {topic}", TIMEOUT)


async def eventually(condition: Callable[[], bool]) -> None:
    """A division of queues has no event to wait on, so look again until it is there."""
    for _ in range(int(TIMEOUT / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not within {TIMEOUT} s")


def assert_stored_as_acknowledged(
    got: Sequence[MessageExt], sent: Sequence[Message], results: Sequence[SendResult]
) -> None:
    by_place = {(m.broker_name, m.queue_id, m.queue_offset): m for m in got}
    assert len(by_place) == len(got) == len(sent)
    for message, result in zip(sent, results, strict=True):
        queue = result.queue
        stored = by_place[queue.broker_name, queue.queue_id, result.queue_offset]
        assert result.status is SendStatus.SEND_OK
        assert stored.body == message.body
        assert (stored.tags, stored.keys) == (message.tags, tuple(message.keys))
        assert stored.properties.items() >= message.properties.items()
        assert stored.offset_msg_id == result.offset_msg_id


async def test_single_sends_come_back(cluster: Cluster, topic: str) -> None:
    sent = messages(topic, 30)
    async with (
        Producer("our_producer", namesrv=cluster.address) as producer,
        PullConsumer(f"our_{topic}", namesrv=cluster.address, start="begin") as consumer,
    ):
        first = await producer.send(sent[0])  # The one that creates the topic.
        rest = await asyncio.gather(*map(producer.send, sent[1:]))
        await consumer.assign(topic)
        got = await receive(consumer, 30)

    assert_stored_as_acknowledged(got, sent, [first, *rest])
    ids = {message.msg_id for message in got}
    assert ids == {result.msg_id for result in (first, *rest)}


async def test_batches_come_back(cluster: Cluster, topic: str) -> None:
    sent = messages(topic, 100)
    async with (
        Producer("our_producer", namesrv=cluster.address, batch_bytes=4096) as producer,
        PullConsumer(f"our_{topic}", namesrv=cluster.address, start="begin") as consumer,
    ):
        results = await producer.send_batch(sent)
        await consumer.assign(topic)
        got = await receive(consumer, 100)

    assert_stored_as_acknowledged(got, sent, results)


async def test_oneway_sends_arrive_at_a_waiting_consumer(cluster: Cluster, topic: str) -> None:
    sent = messages(topic, 20)
    async with (
        Producer("our_producer", namesrv=cluster.address) as producer,
        PullConsumer(f"our_{topic}", namesrv=cluster.address) as consumer,
    ):
        await create_topic(producer, cluster, topic)
        await consumer.assign(topic)
        await consumer.seek("end")
        for message in sent:
            await producer.send_oneway(message)
        got = await receive(consumer, 20)

    assert sorted(message.body for message in got) == sorted(message.body for message in sent)


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
async def test_java_reads_our_compressed_bodies(
    java: JavaPeer, cluster: Cluster, topic: str, compression: str
) -> None:
    body = b"compresses well " * 4096
    async with Producer(
        "our_producer", namesrv=cluster.address, compression=compression
    ) as producer:
        await producer.send(Message(topic, body))

    answer = java("pull", namesrv=cluster.address, group="java_reader", topics=[topic])

    [message] = answer["messages"]
    assert message["storeSize"] < 4096
    assert message["bodySha256"] == hashlib.sha256(body).hexdigest()


async def test_java_reads_what_we_send(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    sent = messages(topic, 12)
    async with Producer("our_producer", namesrv=cluster.address) as producer:
        single = [await producer.send(message) for message in sent[:6]]
        batch = await producer.send_batch(sent[6:])

    answer = java("pull", namesrv=cluster.address, group="java_reader", topics=[topic])

    by_place = {(m["queueId"], m["queueOffset"]): m for m in answer["messages"]}
    assert len(by_place) == 12
    for message, result in zip(sent, (*single, *batch), strict=True):
        stored = by_place[result.queue.queue_id, result.queue_offset]
        assert stored["body"] == message.body.decode()
        assert stored["tags"] == message.tags
        assert stored["keys"] == " ".join(message.keys)
        assert stored["properties"].items() >= message.properties.items()
        assert stored["offsetMsgId"] == result.offset_msg_id


async def test_we_read_what_java_sends(java: JavaPeer, cluster: Cluster, topic: str) -> None:
    wanted = [
        {"body": f"java {i} – 消息", "tags": "TagA", "keys": f"k{i}", "properties": {"n": str(i)}}
        for i in range(10)
    ]
    big = {"body": "0123456789", "size": 50_000}
    for mode, some in (("sync", [*wanted[:5], big]), ("batch", wanted[5:])):
        java(
            "send",
            namesrv=cluster.address,
            group="java_producer",
            topic=topic,
            mode=mode,
            messages=some,
        )

    async with PullConsumer(f"our_{topic}", namesrv=cluster.address, start="begin") as consumer:
        await consumer.assign(topic)
        got = await receive(consumer, 11)

    by_body = {message.body: message for message in got}
    for message in wanted:
        stored = by_body[str(message["body"]).encode()]
        assert stored.tags == "TagA"
        assert stored.keys == (message["keys"],)
    assert b"0123456789" * 5_000 in by_body


async def test_tags_are_filtered(cluster: Cluster, topic: str) -> None:
    async with (
        Producer("our_producer", namesrv=cluster.address) as producer,
        PullConsumer(f"our_{topic}", namesrv=cluster.address, start="begin") as consumer,
    ):
        await producer.send_batch(messages(topic, 30))
        await consumer.assign(topic, tags="标签 || TagB")
        got = await receive(consumer, 20)

    assert {message.tags for message in got} == {"标签", "TagB"}


async def test_long_poll_hands_over_a_message_as_it_comes(cluster: Cluster, topic: str) -> None:
    async with (
        Producer("our_producer", namesrv=cluster.address) as producer,
        PullConsumer(f"our_{topic}", namesrv=cluster.address) as consumer,
    ):
        await create_topic(producer, cluster, topic)
        [queue, *_] = await consumer.queues(topic)
        end = await consumer.end_offset(queue)
        waiting = asyncio.create_task(consumer.pull(queue, end, suspend=20.0, timeout=25.0))
        # A request on the same connection: once it is answered, the pull was received before it.
        await consumer.end_offset(queue)
        await producer.send(Message(topic, b"the one waited for"), queue=queue)
        # Far less than the 5 s after which a broker would look by itself.
        async with asyncio.timeout(3.0):
            result = await waiting

    assert [message.body for message in result.messages] == [b"the one waited for"]
    assert result.next_begin_offset == end + 1


async def test_offsets_are_kept_by_the_broker(cluster: Cluster, topic: str) -> None:
    group = f"our_{topic}"
    sent = messages(topic, 40)
    async with Producer("our_producer", namesrv=cluster.address) as producer:
        await producer.send_batch(sent)
        async with PullConsumer(
            group, namesrv=cluster.address, start="begin", auto_commit=False
        ) as consumer:
            await consumer.assign(topic)
            first = await receive(consumer, 25)
            await consumer.commit()
        async with PullConsumer(group, namesrv=cluster.address, start="begin") as consumer:
            await consumer.assign(topic)
            second = await receive(consumer, 15)

    got = [message.body for message in (*first, *second)]
    assert sorted(got) == sorted(message.body for message in sent)


async def test_two_consumers_of_a_group_share_the_queues(cluster: Cluster, topic: str) -> None:
    group = f"our_{topic}"
    async with (
        Producer("our_producer", namesrv=cluster.address) as producer,
        PullConsumer(group, namesrv=cluster.address, start="begin") as one,
        PullConsumer(group, namesrv=cluster.address, start="begin") as other,
    ):
        await create_topic(producer, cluster, topic)
        await one.subscribe(topic)
        await other.subscribe(topic)
        await eventually(lambda: len(one.assignment) == len(other.assignment) == 2)
        assert not set(one.assignment) & set(other.assignment)


async def test_our_consumer_and_javas_share_a_group(
    java: JavaPeer, cluster: Cluster, topic: str
) -> None:
    group = f"mixed_{topic}"
    async with (
        Producer("our_producer", namesrv=cluster.address) as producer,
        PullConsumer(group, namesrv=cluster.address, start="begin") as consumer,
    ):
        await create_topic(producer, cluster, topic)
        await consumer.subscribe(topic)
        start = asyncio.to_thread(
            java,
            "push-start",
            namesrv=cluster.address,
            group=group,
            topic=topic,
            expression="*",
            queues=2,
        )
        try:
            [assigned] = await start
            await eventually(lambda: len(consumer.assignment) == 2)
            ours = {queue.queue_id for queue in consumer.assignment}
            assert ours | set(assigned) == {0, 1, 2, 3}
        finally:
            await asyncio.to_thread(java, "push-stop", group=group)


async def test_an_illegal_topic_is_refused_before_sending(cluster: Cluster) -> None:
    async with Producer("our_producer", namesrv=cluster.address) as producer:
        with pytest.raises((RemotingError, ValueError)):
            await producer.send(Message("no blanks allowed", b"x"))
