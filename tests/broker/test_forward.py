"""Requests of admins that the broker hands on to a consumer, and the consumer's answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.forward import ForwardProcessor
from pocketmq.message.message import MessageQueue
from pocketmq.message.record import decode
from pocketmq.remoting.bodies.offset import GetConsumerStatusBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response
from tests.broker.conftest import Client, serving, subscription

RUNNING_INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
STATUS = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT


class Consumer(Client):
    """A consumer that answers what it is asked by `answers`, and keeps the questions."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request[Any]] = []
        self.answers: dict[int, Response | None] = {}
        for code in (RUNNING_INFO, DIRECTLY, STATUS):
            self._dispatcher.register(code, self._ask)

    def _ask(self, request: Request[Any]) -> Response | None:
        self.asked.append(request)
        return self.answers.get(request.code)


@pytest.fixture
async def consumer(broker: Broker, topic: str) -> AsyncIterator[Consumer]:
    member = Consumer()
    await member.open(broker.address)
    await member.heartbeat("c1", subscription(topic))
    yield member
    await member.close()


async def running_info(client: Client, **fields: Any) -> Command:
    values: dict[str, Any] = {"consumer_group": "G", "client_id": "c1", **fields}
    return await client.request(RUNNING_INFO, GetConsumerRunningInfoRequestHeader(**values))


async def consume(client: Client, msg_id: str | None, **fields: Any) -> Command:
    values: dict[str, Any] = {"consumer_group": "G", "client_id": "c1", **fields}
    header = ConsumeMessageDirectlyResultRequestHeader(msg_id=msg_id, **values)
    return await client.request(DIRECTLY, header)


async def status(client: Client, topic: str, **fields: Any) -> Command:
    header = GetConsumerStatusRequestHeader(topic=topic, **{"group": "G", **fields})
    return await client.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)


async def test_running_info_is_the_consumers_own(client: Client, consumer: Consumer) -> None:
    consumer.answers[RUNNING_INFO] = Response(
        body=b'{"any":"thing"}', remark="as it is", ext_fields={"more": "1"}
    )
    answer = await running_info(client, jstack_enable=True)
    assert (answer.code, answer.remark, answer.body) == (0, "as it is", b'{"any":"thing"}')
    assert answer.ext_fields == {"more": "1"}
    [asked] = consumer.asked
    assert asked.ext_fields == {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "true"}


async def test_the_consumers_failure_is_handed_back(client: Client, consumer: Consumer) -> None:
    consumer.answers[RUNNING_INFO] = Response(ResponseCode.SYSTEM_ERROR, "no such group here")
    answer = await running_info(client)
    assert (answer.code, answer.remark) == (1, "no such group here")


@pytest.mark.parametrize("fields", [{"client_id": "c2"}, {"consumer_group": "Other"}])
async def test_who_is_not_online_can_not_be_asked(
    client: Client, consumer: Consumer, fields: dict[str, str]
) -> None:
    answer = await running_info(client, **fields)
    name = {"consumer_group": "G", "client_id": "c1", **fields}
    assert answer.code == ResponseCode.SYSTEM_ERROR
    expected = f"The Consumer <{name['consumer_group']}> <{name['client_id']}> not online"
    assert answer.remark == expected


async def test_an_old_client_is_not_asked(
    broker: Broker, client: Client, consumer: Consumer, topic: str
) -> None:
    for member in broker.tables.consumers.get("G").clients.values():  # type: ignore[union-attr]
        member.version = 27
    assert "too low" in ((await running_info(client)).remark or "")
    assert "does not support" in ((await status(client, topic)).remark or "")
    assert consumer.asked == []


async def test_a_consumer_that_does_not_answer(broker: Broker, consumer: Consumer) -> None:
    dispatcher = Dispatcher()
    tables = broker.tables
    ForwardProcessor(
        broker.config,
        broker.store,
        tables.topics,
        tables.groups,
        tables.consumers,
        call_seconds=0.05,
    ).register(dispatcher)
    async with serving(dispatcher, broker) as client:
        answer = await running_info(client)
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert (answer.remark or "").startswith("consumer <G> <c1> Timeout: ")


async def test_a_consumer_that_leaves_meanwhile(client: Client, consumer: Consumer) -> None:
    asking = asyncio.ensure_future(running_info(client))
    while not consumer.asked:
        await client.heartbeat("admin")
    await consumer.close()
    answer = await asking
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("invoke consumer <G> <c1> Exception: ")


async def test_a_message_is_consumed_out_of_turn(
    client: Client, consumer: Consumer, topic: str
) -> None:
    sent = await client.send(topic, b"now", queue_id=1)
    consumer.answers[DIRECTLY] = Response(body=b'{"consumeResult":"CR_SUCCESS"}')
    answer = await consume(client, sent.ext_fields["msgId"], topic=topic)
    assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
    [asked] = consumer.asked
    record = decode(bytes(asked.body))
    assert (record.topic, record.queue_id, bytes(record.body)) == (topic, 1, b"now")
    assert (
        asked.ext_fields.items()
        >= {
            "brokerName": "b0",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
            "msgId": sent.ext_fields["msgId"],
            "consumerGroup": "G",
            "clientId": "c1",
        }.items()
    )


@pytest.mark.parametrize("msg_id", [None, "x", "7F00000100002A9F00000000FFFFFFFF"])
async def test_only_a_stored_message_can_be_consumed(
    client: Client, consumer: Consumer, msg_id: str | None
) -> None:
    answer = await consume(client, msg_id)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the message to consume is not here" in (answer.remark or "")
    assert consumer.asked == []


async def test_offsets_of_the_consumers(
    broker: Broker, client: Client, consumer: Consumer, topic: str
) -> None:
    others = [Consumer() for _ in range(2)]
    for n, other in enumerate(others):
        await other.open(broker.address)
        await other.heartbeat(f"d{n}", subscription(topic))
    queue = MessageQueue(topic, "b0", 1)
    for n, member in enumerate((consumer, others[0])):
        body = GetConsumerStatusBody(message_queue_table={queue: 7 + n})
        member.answers[STATUS] = Response(body=body.encode())
    others[1].answers[STATUS] = Response(ResponseCode.SYSTEM_ERROR)

    answer = await status(client, topic)
    assert answer.code == 0
    table = GetConsumerStatusBody.decode(answer.body).consumer_table
    assert table == {"c1": {queue: 7}, "d0": {queue: 8}}
    assert consumer.asked[0].ext_fields == {"topic": topic, "group": "G"}

    answer = await status(client, topic, client_addr="d0")
    assert GetConsumerStatusBody.decode(answer.body).consumer_table == {"d0": {queue: 8}}
    answer = await status(client, topic, client_addr="nobody")
    assert GetConsumerStatusBody.decode(answer.body).consumer_table == {}
    for other in others:
        await other.close()


async def test_offsets_of_nobody(client: Client, topic: str) -> None:
    answer = await status(client, topic)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "No Any Consumer online in the consumer group: [G]"
