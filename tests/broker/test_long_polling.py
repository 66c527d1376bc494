"""Pulls that wait: woken by a message, ended by their time, forgotten with their client."""

from __future__ import annotations

import asyncio

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import (
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Connect,
    StartBroker,
    fill,
    position,
    subscription,
)

FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


@pytest.fixture
async def consumer(broker: Broker, connect: Connect) -> Client:
    return await connect(broker)


HOLD = SUBSCRIPTION | SUSPEND


async def held(client: Client, count: int = 1) -> None:
    """Returns when the broker holds so many pulls."""
    while True:
        answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        if b'"heldPullRequests":"%d"' % count in bytes(answer.body):
            return


async def test_a_held_pull_is_answered_by_the_next_message(
    client: Client, consumer: Client, topic: str
) -> None:
    await fill(client, topic, "")
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD))
    await held(client)
    await client.send(topic, b"new")

    answer = await waiting
    assert answer.code == FOUND
    assert [bytes(record.body) for record in iter_records(answer.body)] == [b"new"]
    assert position(answer) == (2, 0, 2)
    await held(client, 0)


async def test_a_queue_that_was_never_written_can_be_waited_for(
    client: Client, consumer: Client, topic: str
) -> None:
    await fill(client, topic, "")
    waiting = asyncio.ensure_future(consumer.pull(topic, 0, queue_id=3, sys_flag=HOLD))
    await held(client)
    await fill(client, topic, "", queue_id=3)

    assert (await waiting).code == FOUND


async def test_a_batch_is_seen_whole(client: Client, consumer: Client, topic: str) -> None:
    await fill(client, topic, "")
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD))
    await held(client)
    body = encode_batch([(0, b"m", b"")] * 7)
    await client.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)

    assert len(list(iter_records((await waiting).body))) == 7


async def test_its_time_over_a_held_pull_is_answered_not_found(
    client: Client, consumer: Client, topic: str
) -> None:
    await fill(client, topic, "")
    loop = asyncio.get_running_loop()
    begin = loop.time()

    answer = await consumer.pull(topic, 1, sys_flag=HOLD, suspend_timeout_millis=300)

    assert loop.time() - begin >= 0.29
    assert (answer.code, answer.remark) == (NOT_FOUND, "OFFSET_OVERFLOW_ONE")
    assert position(answer) == (1, 0, 1)


async def test_other_tags_pass_by_and_are_skipped_at_the_end(
    client: Client, consumer: Client, topic: str
) -> None:
    await fill(client, topic, "A")
    waiting = asyncio.ensure_future(
        consumer.pull(topic, 1, sys_flag=HOLD, subscription="A", suspend_timeout_millis=500)
    )
    await held(client)
    await fill(client, topic, "B", "B")

    answer = await waiting
    assert (answer.code, answer.remark) == (RETRY, "NO_MATCHED_MESSAGE")
    assert position(answer) == (3, 0, 3)


async def test_a_closed_consumer_is_forgotten(client: Client, consumer: Client, topic: str) -> None:
    await fill(client, topic, "")
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD))
    await held(client)
    await consumer.close()

    await held(client, 0)
    await asyncio.gather(waiting, return_exceptions=True)
    await fill(client, topic, "")


async def test_a_deleted_topic_ends_its_polls(client: Client, consumer: Client, topic: str) -> None:
    await fill(client, topic, "")
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD))
    await held(client)
    await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic})

    assert (await waiting).code == 17


async def test_too_many_polls_are_answered_at_once(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(max_held_pulls=1)
    client, consumer = await connect(broker), await connect(broker)
    await fill(client, topic, "")
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD))
    await held(client)

    assert (await consumer.pull(topic, 1, sys_flag=HOLD)).code == NOT_FOUND
    await fill(client, topic, "")
    assert (await waiting).code == FOUND


async def test_short_polling(start_broker: StartBroker, connect: Connect, topic: str) -> None:
    broker = await start_broker(long_polling_enable=False, short_polling_time_mills=50)
    client = await connect(broker)
    await fill(client, topic, "")

    answer = await client.pull(topic, 1, sys_flag=HOLD, suspend_timeout_millis=600_000)

    assert answer.code == NOT_FOUND


async def test_many_polls_for_one_queue(client: Client, consumer: Client, topic: str) -> None:
    await fill(client, topic, "")
    waiting = [asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD)) for _ in range(100)]
    await held(client, 100)
    await fill(client, topic, "")

    assert {answer.code for answer in await asyncio.gather(*waiting)} == {FOUND}


async def test_only_wanted_tags_of_a_subscription_wake(
    client: Client, consumer: Client, topic: str
) -> None:
    await fill(client, topic, "B")
    await consumer.heartbeat("c1", subscription(topic, "A"))
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=SUSPEND, sub_version=1))
    await held(client)
    await client.send(topic, b"no", properties={"TAGS": "B"})
    await client.send(topic, b"yes", properties={"TAGS": "A"})

    answer = await waiting
    assert [bytes(record.body) for record in iter_records(answer.body)] == [b"yes"]
    assert position(answer) == (3, 0, 3)


async def test_a_stop_answers_what_waits(
    broker: Broker, client: Client, consumer: Client, topic: str
) -> None:
    await fill(client, topic, "")
    waiting = [asyncio.ensure_future(consumer.pull(topic, 1, sys_flag=HOLD)) for _ in range(20)]
    await held(client, 20)
    await broker.stop()
    answers = [await answer for answer in waiting]
    assert {answer.code for answer in answers} == {NOT_FOUND}
    assert {position(answer) for answer in answers} == {(1, 0, 1)}
