"""Sends that no client of today makes: stored, or refused, as the official broker does it."""

from __future__ import annotations

from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.message.record import decode
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import Client
from tests.broker.transacting import halves, records

SUCCESS, SYSTEM_ERROR, ILLEGAL, NO_TOPIC = 0, 1, 13, 17


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("batch", [False, True])
async def test_only_inner_batches_may_say_how_many_they_are(
    broker: Broker, client: Client, topic: str, known: bool, batch: bool
) -> None:
    """An official broker that reads INNER_NUM and INNER_BASE in a log takes them for numbers, and
    gives up the rest of the log when they are none."""
    if known:
        await client.send(topic)
    body = encode_batch([(0, b"a", b"")]) if batch else b"a"
    answer = await client.send(
        topic, body, properties={"INNER_NUM": "x", "INNER_BASE": "y"}, batch=batch
    )
    assert answer.code == ILLEGAL, answer.remark
    assert "INNER_NUM" in (answer.remark or "")
    assert len(records(broker, topic)) == known

    answer = await client.send(topic, body, properties={"XINNER_NUM": "x"}, batch=batch)
    assert answer.code == SUCCESS


@pytest.mark.parametrize("sys_flag", [4, 12])
@pytest.mark.parametrize("properties", [{}, {"DELAY": "2"}, {"TIMER_DELAY_SEC": "9"}])
@pytest.mark.parametrize("known", [False, True])
async def test_the_transaction_bits_alone_begin_no_transaction(
    broker: Broker,
    client: Client,
    topic: str,
    sys_flag: int,
    known: bool,
    properties: dict[str, str],
) -> None:
    if known:
        await client.send(topic)
    answer = await client.send(topic, b"unseen", properties=properties, sys_flag=sys_flag)

    assert (answer.code, answer.ext_fields["queueOffset"]) == (SUCCESS, "0")
    assert halves(broker) == []
    place = int(answer.ext_fields["msgId"][16:], 16)
    record = decode(broker.store.record_at(place))
    assert (record.topic, record.sys_flag, bytes(record.body)) == (topic, sys_flag, b"unseen")
    assert "TRAN_MSG" not in record.properties
    # No consume queue knows it.
    assert len(records(broker, topic)) == known


@pytest.mark.parametrize("fields", [{"sys_flag": 8}, {"reconsume_times": 1}])
async def test_the_property_alone_begins_a_transaction(
    broker: Broker, client: Client, topic: str, fields: dict[str, Any]
) -> None:
    await client.send(topic, b"half", properties={"TRAN_MSG": "true"}, **fields)
    [half] = halves(broker)
    assert (bytes(half.body), half.sys_flag) == (b"half", 0)
    assert records(broker, topic) == []


async def test_a_retry_that_waits_begins_no_transaction(
    broker: Broker, client: Client, topic: str
) -> None:
    properties = {"TRAN_MSG": "true", "DELAY": "2"}
    answer = await client.send(topic, properties=properties, reconsume_times=1)
    assert answer.code == SUCCESS
    assert halves(broker) == []
    assert len(records(broker, SCHEDULE_TOPIC, 1)) == 1


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_message_without_a_body_creates_no_topic(
    client: Client, topic: str, code: int
) -> None:
    assert (await client.send(topic, b"", code=code)).code == SYSTEM_ERROR
    found = await client.request(RequestCode.GET_TOPIC_CONFIG, None, ext_fields={"topic": topic})
    assert found.code == NO_TOPIC


@pytest.mark.parametrize(("level", "stored"), [("01", "01"), ("+2", "+2"), ("99", "18")])
async def test_a_delay_level_is_stored_as_it_was_sent(
    broker: Broker, client: Client, topic: str, level: str, stored: str
) -> None:
    """Consumers see the property; only what is above the last level is changed to that."""
    await client.send(topic, properties={"DELAY": level})
    [record] = records(broker, SCHEDULE_TOPIC, int(stored) - 1)
    assert record.properties["DELAY"] == stored


async def test_dead_letters_lie_in_the_first_queue(broker: Broker, client: Client) -> None:
    """Also where the topic has more: somebody sent there himself before."""
    await client.send("%DLQ%G1", default_topic_queue_nums=8)
    for _ in range(6):
        answer = await client.send("%RETRY%G1", default_topic="", reconsume_times=17)
        assert (answer.code, answer.ext_fields["queueId"]) == (SUCCESS, "0")
    assert len(records(broker, "%DLQ%G1")) == 7
