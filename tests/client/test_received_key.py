"""The key that chose a message's queue is on the message that a consumer gets."""

from __future__ import annotations

from typing import Any

import pytest

from pocketmq import Message, MessageExt, Producer, TransactionProducer, TransactionState
from pocketmq.client.errors import InvalidMessage
from pocketmq.testing import RocketMQ


async def received(rocketmq: RocketMQ) -> dict[bytes, str | None]:
    messages: list[MessageExt] = await rocketmq.drain("T")
    assert not any(message.user_properties for message in messages)
    return {message.body: message.key for message in messages}


@pytest.mark.parametrize("options", [{}, {"linger_ms": 1}, {"trace": True}, {"namespace": "N"}])
async def test_every_way_to_send(rocketmq: RocketMQ, options: dict[str, Any]) -> None:
    topic = "N%T" if "namespace" in options else "T"
    await rocketmq.create_topic(topic)
    async with Producer("P", namesrv=rocketmq.namesrv, **options) as producer:
        await producer.send(Message("T", b"one"), key="a b")
        await producer.send(Message("T", b"number"), key=7)
        await producer.send(Message("T", b"none"))
        await producer.send_batch([Message("T", b"two"), Message("T", b"three")], key="Zürich")
        posted = [await producer.post(Message("T", b"p%d" % n), key=f"k{n}") for n in range(3)]
        for each in posted:
            await each
        await producer.send_oneway(Message("T", b"oneway"), key="o")
        await producer.send(Message("T", b"last"), key="o")  # in order after the one before
    found = {m.body: m.key for m in await rocketmq.drain(topic)}
    assert found == {
        b"one": "a b",
        b"number": "7",
        b"none": None,
        b"two": "Zürich",
        b"three": "Zürich",
        b"p0": "k0",
        b"p1": "k1",
        b"p2": "k2",
        b"oneway": "o",
        b"last": "o",
    }


async def test_a_message_of_a_transaction(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("T")
    commit = TransactionState.COMMIT
    async with TransactionProducer(
        "P", check=lambda _: commit, namesrv=rocketmq.namesrv
    ) as producer:
        await producer.send_in_transaction(Message("T", b"x"), lambda *_: commit, key="k")
    assert await received(rocketmq) == {b"x": "k"}


async def test_a_key_that_would_be_another_property(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("T")
    async with Producer("P", namesrv=rocketmq.namesrv) as producer:
        with pytest.raises(InvalidMessage, match="separates properties"):
            await producer.send(Message("T", b"x"), key="a\x02TAGS\x01b")
        assert producer.in_flight == 0
    assert await received(rocketmq) == {}
