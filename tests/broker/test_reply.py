"""Replies: pushed to the requester, stored, and refused where there is nobody to take them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import properties as names
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import ReplyMessageRequestHeader
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.store.config import FlushDiskType
from tests.broker.conftest import Client, Connect, StartBroker
from tests.broker.transacting import records

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


class Requester(Client):
    """A client that takes replies; `answer` is what it answers them."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: asyncio.Queue[Request[ReplyMessageRequestHeader]] = asyncio.Queue()
        self.answer = Response()
        self.answers = asyncio.Event()
        self.answers.set()
        self._dispatcher.register(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take, ReplyMessageRequestHeader
        )

    async def _take(self, request: Request[ReplyMessageRequestHeader]) -> Response:
        self.replies.put_nowait(request)
        await self.answers.wait()
        return self.answer


@pytest.fixture
async def requester(broker: Broker) -> Any:
    client = Requester()
    await client.open(broker.address)
    await client.heartbeat("requester", producer="RequestGroup")
    yield client
    await client.close()


async def reply(
    client: Client, to: str | None = "requester", body: bytes = b"the reply", **fields: Any
) -> Command:
    properties = {"CORRELATION_ID": "c1", "MSG_TYPE": "reply"}
    if to is not None:
        properties["REPLY_TO_CLIENT"] = to
    values: dict[str, Any] = {"code": RequestCode.SEND_REPLY_MESSAGE_V2, **fields}
    return await client.send(REPLY_TOPIC, body, properties=properties, **values)


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE]
)
async def test_a_reply_is_pushed_to_the_requester_and_stored(
    broker: Broker, client: Client, requester: Requester, code: int
) -> None:
    if code == RequestCode.SEND_REPLY_MESSAGE:
        fields = {
            "producerGroup": "PG", "topic": REPLY_TOPIC, "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "1",
            "bornTimestamp": "1700000000000", "flag": "5", "reconsumeTimes": "0",
            "properties": names.encode({"REPLY_TO_CLIENT": "requester", "CORRELATION_ID": "c1"}),
        }  # fmt: skip
        answer = await client.request(code, None, b"the reply", ext_fields=fields)
    else:
        answer = await reply(client, code=code, flag=5, sys_flag=1)
    pushed = requester.replies.get_nowait()
    header = pushed.header
    assert bytes(pushed.body) == b"the reply"
    assert (header.producer_group, header.topic, header.queue_id) == ("PG", REPLY_TOPIC, 0)
    assert (header.flag, header.sys_flag, header.born_timestamp) == (5, 1, 1_700_000_000_000)
    host, _, port = header.born_host.rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    assert header.store_host == broker.address
    properties = names.decode(header.properties)
    assert properties["CORRELATION_ID"] == "c1"
    assert (properties["MSG_REGION"], properties["TRACE_ON"]) == ("DefaultRegion", "true")
    assert int(properties["PUSH_REPLY_TIME"]) == header.store_timestamp

    [record] = records(broker, REPLY_TOPIC)
    assert bytes(record.body) == b"the reply"
    assert (record.flag, record.sys_flag) == (5, 1)
    stored = record.properties
    assert (stored["MSG_REGION"], stored["TRACE_ON"]) == ("DefaultRegion", "true")
    assert "PUSH_REPLY_TIME" not in record.properties
    assert (answer.code, answer.remark) == (0, None)
    assert answer.ext_fields["queueOffset"] == "0"
    assert int(answer.ext_fields["msgId"][16:], 16) == record.physical_offset
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"


async def test_a_reply_need_not_be_stored(start_broker: StartBroker, connect: Connect) -> None:
    broker = await start_broker(store_reply_message_enable=False)
    requester = Requester()
    await requester.open(broker.address)
    await requester.heartbeat("requester", producer="RequestGroup")
    answer = await reply(await connect(broker), queue_id=-1)
    assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")
    assert answer.ext_fields["queueId"] == answer.ext_fields["queueOffset"] == "0"
    assert records(broker, REPLY_TOPIC) == []
    await requester.close()


async def test_with_sync_flush_the_reply_is_on_the_disk(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    answer = await reply(await connect(broker))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    [record] = records(broker, REPLY_TOPIC)
    assert broker.store.flushed_offset >= record.physical_offset + record.size


@pytest.mark.parametrize(
    ("to", "remark"),
    [
        (None, "reply message properties[REPLY_TO_CLIENT] is null"),
        ("nobody", "push reply message fail, channel of <nobody> not found."),
    ],
)
async def test_nobody_waits_for_it(
    broker: Broker, client: Client, to: str | None, remark: str
) -> None:
    answer = await reply(client, to)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert len(records(broker, REPLY_TOPIC)) == 1  # for later inquiries


async def broker_noticed(broker: Broker, client: Client) -> None:
    """A connection that was closed before is forgotten when a few requests have been answered."""
    async with asyncio.timeout(60):
        while broker.tables.producers.find("requester") is not None:
            await client.heartbeat("other")


async def test_a_requester_that_left_is_not_found(
    broker: Broker, client: Client, requester: Requester
) -> None:
    await requester.close()
    await broker_noticed(broker, client)
    answer = await reply(client)
    assert "not found" in (answer.remark or "")


async def test_unanswered_replies_of_a_requester_are_bounded(
    client: Client, requester: Requester
) -> None:
    body = bytes(4_000_000)
    requester.answers.clear()
    waiting = [asyncio.create_task(reply(client, body=body)) for _ in range(4)]
    for _ in waiting:
        await requester.replies.get()
    refused = await reply(client, body=body)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "It has many unanswered replies." in (refused.remark or "")
    requester.answers.set()
    assert [(await each).code for each in waiting] == [0] * 4
    assert (await reply(client, body=body)).code == 0


async def test_a_requester_that_refuses_it(client: Client, requester: Requester) -> None:
    requester.answer = Response(ResponseCode.SYSTEM_ERROR, "process reply message fail")
    answer = await reply(client)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "process reply message fail" in (answer.remark or "")


async def test_what_is_checked_before(broker: Broker, client: Client) -> None:
    for fields, code in (
        ({"queue_id": 5}, ResponseCode.INVALID_PARAMETER),
        ({"code": RequestCode.SEND_REPLY_MESSAGE_V2, "body": b""}, ResponseCode.SYSTEM_ERROR),
    ):
        if "body" in fields:
            answer = await client.send(REPLY_TOPIC, **fields)
        else:
            answer = await reply(client, **fields)
        assert answer.code == code
    answer = await client.send(
        "Unknown", code=RequestCode.SEND_REPLY_MESSAGE_V2, default_topic="None"
    )
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert records(broker, REPLY_TOPIC) == []
