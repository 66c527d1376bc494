"""Priorities of the client's messages: what is refused, what is sent, and what a consumer sees."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pocketmq import Message, Producer, PullConsumer, TransactionProducer, TransactionState
from pocketmq.client.admin.admin import Admin
from pocketmq.embedded import EmbeddedServer
from pocketmq.errors import InvalidMessage
from pocketmq.message import properties as names
from pocketmq.message.message import MessageExt

MOST = 2**31 - 1


async def sent(server: EmbeddedServer, *messages: Message, **options: Any) -> list[int]:
    """Send messages one by one; return their queues."""
    async with Producer("P", namesrv=server.namesrv, **options) as producer:
        return [(await producer.send(message)).queue.queue_id for message in messages]


@pytest.fixture
async def server() -> Any:
    async with EmbeddedServer() as server:
        async with Admin(namesrv=server.namesrv) as admin:
            await admin.create_topic("T", queues=4, attributes={"message.type": "PRIORITY"})
        yield server


async def test_the_priority_chooses_the_queue_and_is_received(server: EmbeddedServer) -> None:
    priorities = (0, 2, 3, 9, MOST)
    queues = await sent(server, *(Message("T", b"m", priority=each) for each in priorities))
    assert queues == [0, 2, 3, 3, 3]
    found = []
    async with PullConsumer("G", namesrv=server.namesrv, start="begin") as consumer:
        await consumer.subscribe("T")
        async for message in consumer:
            found.append(message)
            if len(found) == len(priorities):
                break
    assert sorted(message.priority or 0 for message in found) == [*priorities]
    assert not any(message.user_properties for message in found)
    assert {message.to_message().priority for message in found} == {*priorities}


async def test_messages_without_a_priority_have_none(server: EmbeddedServer) -> None:
    await sent(server, Message("T", b"m"))
    async with PullConsumer("G", namesrv=server.namesrv, start="begin") as consumer:
        await consumer.subscribe("T")
        async for message in consumer:
            assert message.priority is None
            assert message.to_message() == Message("T", b"m")
            break


async def test_posted_and_lingering_messages_are_sent_alone(server: EmbeddedServer) -> None:
    async with Producer("P", namesrv=server.namesrv, linger_ms=5) as producer:
        posted = [await producer.post(Message("T", b"m", priority=each)) for each in (1, 2)]
        results = [await each for each in posted]
        results.append(await producer.send(Message("T", b"m", priority=3)))
    assert [result.queue.queue_id for result in results] == [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"priority": -1}, "priority must be a whole number from 0 to"),
        ({"priority": MOST + 1}, "priority must be a whole number from 0 to"),
        ({"priority": "1"}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": 1.0}, "priority must be a whole number"),
        ({"priority": 1, "delay": timedelta(seconds=1)}, "together with a delay"),
        ({"priority": 1, "delay_level": 1}, "together with a delay"),
        ({"priority": 1, "deliver_at": 4_000_000_000_000}, "together with a delay"),
        ({"priority": 1, "properties": {names.TIMER_DELAY_MS: "1"}}, "together with a delay"),
        ({"priority": 1, "properties": {names.SHARDING_KEY: "k"}}, "together with a key"),
        ({"properties": {names.PRIORITY: "1"}}, "reserved"),
    ],
)
async def test_what_is_refused(server: EmbeddedServer, fields: Any, said: str) -> None:
    message = Message("T", b"m", **fields)
    async with Producer("P", namesrv=server.namesrv) as producer:
        with pytest.raises(InvalidMessage, match=said):
            await producer.send(message)
        with pytest.raises(InvalidMessage, match=said):
            await (await producer.post(message))


def rolled_back(message: MessageExt) -> TransactionState:
    return TransactionState.ROLLBACK


async def test_no_key_no_batch_no_transaction(server: EmbeddedServer) -> None:
    message = Message("T", b"m", priority=1)
    async with Producer("P", namesrv=server.namesrv) as producer:
        with pytest.raises(InvalidMessage, match="together with a key"):
            await producer.send(message, key="k")
        with pytest.raises(InvalidMessage, match="cannot be sent in a batch"):
            await producer.send_batch([message])
    async with TransactionProducer("P", namesrv=server.namesrv, check=rolled_back) as producer:
        with pytest.raises(InvalidMessage, match="together with a transaction"):
            async with producer.transaction(message):
                pass


def test_a_priority_of_zero_is_shown() -> None:
    assert repr(Message("T", b"m", priority=0)) == "Message('T', b'm', priority=0)"
