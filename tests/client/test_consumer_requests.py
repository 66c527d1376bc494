"""What a broker asks of a push consumer, and what it is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from pocketmq.remoting.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from pocketmq.remoting.headers.offset import ResetOffsetRequestHeader
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

A0 = MessageQueue("T", "a", 0)


def consumer(cluster: FakeCluster, **options: Any) -> PushConsumer:
    return PushConsumer("G", {"T": "*"}, namesrv=cluster.namesrv, **({"start": "begin"} | options))


@pytest.mark.parametrize("orderly", [False, True])
async def test_offsets_are_reset(cluster: FakeCluster, orderly: bool) -> None:
    for i in range(10):
        cluster["a"].store("T", 0, b"%d" % i)
    seen: list[bytes] = []
    gate = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if message.body == b"9":
            await gate.wait()

    async with consumer(cluster, handler=handle, orderly=orderly):
        await until(lambda: len(seen) == 10)
        header = ResetOffsetRequestHeader(topic="T", group="G", timestamp=0, is_force=True)
        body = ResetOffsetBody(offset_table={A0: 4, MessageQueue("T", "nowhere", 0): 1}).encode()
        (connection,) = cluster["a"].clients.values()
        connection.send_oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body)
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 4)
        # What was in work counts no more, in whichever way it ends; in order, the rest waits.
        gate.set()
        await until(lambda: len(seen) == 16)
    assert [int(body) for body in seen[10:]] == list(range(4, 10))
    assert cluster["a"].offsets["G", "T", 0] == 10


async def test_the_offsets_are_told(cluster: FakeCluster) -> None:
    for i in range(3):
        cluster["a"].store("T", 0, b"%d" % i)
    async with consumer(cluster) as c:
        (await anext(c)).ack()
        header = GetConsumerStatusRequestHeader(topic="T", group="G")
        answer = await cluster["a"].ask_client(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
        table = GetConsumerStatusBody.decode(answer.body).message_queue_table
        assert table[A0] == 1
        assert {queue.topic for queue in table} == {"T"}
        other = GetConsumerStatusRequestHeader(topic="T", group="other")
        answer = await cluster["a"].ask_client(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, other)
        assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("orderly", [False, True])
async def test_the_insides_are_told(cluster: FakeCluster, orderly: bool) -> None:
    for i in range(5):
        cluster["a"].store("T", 0, bytes(i + 1))
    gate = asyncio.Event()
    working: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        working.append(message.body)
        await gate.wait()

    async with consumer(cluster, handler=handle, orderly=orderly, concurrency=2) as c:
        await until(lambda: len(working) == (1 if orderly else 2))
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group="G", client_id=c.client_id, jstack_enable=True
        )
        answer = await cluster["a"].ask_client(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        info = ConsumerRunningInfo.decode(answer.body)
        queue = info.mq_table[A0]
        assert (queue.cached_msg_count, queue.cached_msg_max_offset, queue.commit_offset) == (
            5,
            4,
            0,
        )
        assert queue.locked is orderly
        assert queue.transaction_msg_count == (1 if orderly else 0)
        assert queue.last_pull_timestamp > 0
        assert info.properties["PROP_CONSUMEORDERLY"] == str(orderly).lower()
        assert {data.topic for data in info.subscription_set} == {"T", "%RETRY%G"}
        assert info.jstack is not None
        assert "test_the_insides_are_told.<locals>.handle" in info.jstack
        gate.set()
        await until(lambda: len(working) == 5)
        async with asyncio.timeout(10):
            while (await cluster["a"].running_info(c.client_id)).mq_table[A0].cached_msg_count:
                pass


async def test_a_message_is_worked_on_directly(cluster: FakeCluster) -> None:
    seen: list[tuple[str, bytes]] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append((message.topic, message.body))
        if message.body == b"later":
            raise ReconsumeLater("not now")
        if message.body == b"never":
            raise KeyError("nothing")

    for body in (b"now", b"later", b"never"):
        cluster["a"].store("%RETRY%G", 0, body, "RETRY_TOPIC\x01T\x02")
    records = cluster["a"].records["%RETRY%G", 0]
    header = ConsumeMessageDirectlyResultRequestHeader(consumer_group="G", broker_name="a")

    async def ask(body: bytes) -> ConsumeMessageDirectlyResult:
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await cluster["a"].ask_client(code, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return ConsumeMessageDirectlyResult.decode(answer.body)

    async with consumer(cluster, handler=handle):
        results = [await ask(record) for record in records]
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        answer = await cluster["a"].ask_client(code, header, b"no record")
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert [(result.consume_result, result.remark) for result in results] == [
        ("CR_SUCCESS", None),
        ("CR_LATER", "not now"),
        ("CR_THROW_EXCEPTION", "KeyError: 'nothing'"),
    ]
    assert seen == [("T", b"now"), ("T", b"later"), ("T", b"never")]
    assert not cluster["a"].sent_back
    async with consumer(cluster):
        result = await ask(records[0])
        assert result.consume_result == "CR_LATER"
        assert "no handler" in str(result.remark)
