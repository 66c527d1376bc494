"""Admin looks up single messages, and has dead letters delivered again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.errors import TopicNotExist
from pocketmq.client.producer.producer import Producer
from pocketmq.client.send_result import SendResult
from pocketmq.message.message import Message, MessageQueue
from tests.client.fake_cluster import FakeBroker, FakeCluster
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until


async def send(cluster: RealCluster, *messages: Message) -> list[SendResult]:
    async with Producer("PG", namesrv=cluster.namesrv) as producer:
        return [await producer.send(message) for message in messages]


async def test_messages_are_found_by_key_at_every_broker(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        results = await send(
            real, *(Message("orders", b"%d" % n, keys=["o-1", f"n-{n}"]) for n in range(6))
        )
        assert {result.queue.broker_name for result in results} == {"b0", "b1"}
        found = await admin.messages_by_key("orders", "o-1")
        assert sorted(message.body for message in found) == [b"%d" % n for n in range(6)]
        assert {message.broker_name for message in found} == {"b0", "b1"}
        assert [m.body for m in await admin.messages_by_key("orders", "n-3")] == [b"3"]
        assert await admin.messages_by_key("orders", "n-7") == []
        with pytest.raises(TopicNotExist):
            await admin.messages_by_key("nope", "o-1")


async def test_messages_are_found_by_tag_at_every_broker(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        await send(
            real,
            *(Message("orders", b"%d" % n, tags="paid" if n < 6 else None) for n in range(8)),
            Message("orders", b"key", keys=["paid"], tags="open"),
        )
        found = await admin.messages_by_tag("orders", "paid")
        assert sorted(message.body for message in found) == [b"%d" % n for n in range(6)]
        assert {message.broker_name for message in found} == {"b0", "b1"}
        assert len(await admin.messages_by_tag("orders", "paid", max_messages=1)) == 2
        [message] = await admin.messages_by_tag("orders", "open")
        assert message.body == b"key"
        assert await admin.messages_by_tag("orders", "shut") == []
        with pytest.raises(TopicNotExist):
            await admin.messages_by_tag("nope", "paid")
        with pytest.raises(ValueError, match="tag must not be empty"):
            await admin.messages_by_tag("orders", "")


async def test_a_message_is_found_by_either_of_its_ids(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        first, second = await send(real, Message("orders", b"a"), Message("orders", b"b"))
        for result, body in ((first, b"a"), (second, b"b")):
            [message] = await admin.messages_by_id("orders", result.msg_id)
            assert message.body == body
            assert message.queue == result.queue
            again = await admin.message_by_offset_id(message.offset_msg_id)
            assert again is not None
            assert (again.msg_id, again.body) == (result.msg_id, body)
            [again] = await admin.messages_by_id("orders", message.offset_msg_id)
            assert (again.msg_id, again.body) == (result.msg_id, body)
        assert await admin.messages_by_id("orders", "0" * 32) == []
        assert await admin.message_by_offset_id("no id") is None


async def test_an_id_of_another_topic_or_place_finds_nothing(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.create_topic("other", queues=1)
        [sent] = await send(real, Message("orders", b"a"))
        [message] = await admin.messages_by_id("orders", sent.msg_id)
        assert await admin.messages_by_id("other", message.offset_msg_id) == []
        beyond = f"{message.offset_msg_id[:16]}{message.physical_offset + 1:016X}"
        assert await admin.message_by_offset_id(beyond) is None


async def test_a_message_is_found_by_its_place(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1, broker="b1")
        await send(real, *(Message("orders", b"%d" % n) for n in range(3)))
        queue = MessageQueue("orders", "b1", 0)
        message = await admin.message_at(queue, 1)
        assert message is not None
        assert message.body == b"1"
        assert await admin.message_at(queue, 3) is None
        assert [m.body for m in (await admin.read(queue, 1)).messages] == [b"1", b"2"]
        with pytest.raises(TopicNotExist):
            await admin.message_at(MessageQueue("nope", "b1", 0), 0)


async def test_every_message_of_a_queue_is_iterated_over_up_to_the_end_that_it_had(
    real: RealCluster,
) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", broker="b0", queues=1)
        [queue] = await admin.queues("orders")
        assert [m async for m in admin.messages(queue)] == []
        await send(real, *(Message("orders", b"%d" % n) for n in range(100)))
        seen: list[bytes] = []
        async for message in admin.messages(queue):
            if not seen:
                await send(real, Message("orders", b"later"))
            seen.append(message.body)
        assert seen == [b"%d" % n for n in range(100)]
        assert [m.body async for m in admin.messages(queue, 99)] == [b"99", b"later"]
        with pytest.raises(TopicNotExist):
            [m async for m in admin.messages(MessageQueue("nope", "b0", 0))]


async def test_messages_come_from_the_master_that_the_name_servers_name_now(
    cluster: FakeCluster,
) -> None:
    """The one before it may have come back as a slave, which answers, and has fewer messages."""
    before, after = cluster["a"], FakeBroker("a")
    queue = MessageQueue("T", "a", 0)
    before.store("T", 0, b"old")
    for body in (b"old", b"new"):
        after.store("T", 0, body)
    await after.start()
    try:
        async with Admin(namesrv=cluster.namesrv) as admin:
            cluster.name_server.put("T", [before])
            assert [m.body async for m in admin.messages(queue)] == [b"old"]
            cluster.name_server.put("T", [after])
            message = await admin.message_at(queue, 1)
            assert message is not None
            assert message.body == b"new"
            cluster.name_server.put("T", [before])
            assert [m.body async for m in admin.messages(queue)] == [b"old"]
            cluster.name_server.put("T", [after])
            assert [m.body async for m in admin.messages(queue)] == [b"old", b"new"]
    finally:
        await after.stop()


async def test_offsets_are_those_of_the_master_that_the_name_servers_name_now(
    cluster: FakeCluster,
) -> None:
    """What a slave stores, its master overwrites."""
    before, after = cluster["a"], FakeBroker("a")
    queue = MessageQueue("T", "a", 0)
    for body in (b"old", b"new"):
        after.store("T", 0, body)
    await after.start()
    try:
        async with Admin(namesrv=cluster.namesrv) as admin:
            calls: list[Callable[[], Awaitable[object]]] = [
                lambda: admin.min_offset(queue),
                lambda: admin.max_offset(queue),
                lambda: admin.group_offset("G", queue),
                lambda: admin.set_group_offset("G", queue, 1),
                lambda: admin.queues("T"),
            ]
            for call in calls:
                cluster.name_server.put("T", [before], queues=1)
                await admin.max_offset(queue)
                asked = before.seen.copy()
                cluster.name_server.put("T", [after], queues=3)
                await call()
                assert before.seen == asked
            assert await admin.max_offset(queue) == 2
            assert await admin.group_offset("G", queue) == 1
            assert len(await admin.queues("T")) == 3
    finally:
        await after.stop()


async def test_a_dead_letter_is_delivered_again_to_its_group_only(real: RealCluster) -> None:
    fail = True
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        if fail:
            raise ValueError("refused")
        seen.append(message.body)

    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("orders", queues=1, broker="b0")
        await send(real, Message("orders", b"a"))
        consumer = PushConsumer("G", namesrv=real.namesrv, start="begin", max_reconsume_times=0)
        consumer.on("orders")(handle)
        dead = MessageQueue("%DLQ%G", "b0", 0)
        async with consumer:
            async with asyncio.timeout(30):
                while "%DLQ%G" not in await admin.topics() or await admin.max_offset(dead) == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            fail = False
            letter = await admin.message_at(dead, 0)
            assert letter is not None
            await admin.deliver_again("G", letter)
            await until(lambda: seen, timeout=30)
        assert seen == [b"a"]
        assert await admin.max_offset(dead) == 1
        assert await admin.max_offset(MessageQueue("orders", "b0", 0)) == 1
