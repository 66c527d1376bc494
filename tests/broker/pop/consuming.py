"""A client that pops from a broker, with the receipt handles that go with what it gets."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from pocketmq.message import properties as names
from pocketmq.message.pop_offsets import parse_message_offsets, parse_start_offsets
from pocketmq.message.receipt_handle import ReceiptHandle, decode_receipt_handle
from pocketmq.message.record import Record, iter_records
from pocketmq.message.retry_topic import TopicKind
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from tests.broker.conftest import Client
from tests.fake_time import FakeTime

STEP_MS: Final = 500
TURNS: Final = 4  # of the event loop in each step
FOUND, POLLING_FULL, POLLING_TIMEOUT = 0, 209, 210


async def passes(time: FakeTime, milliseconds: int) -> None:
    """Let time pass in small steps, and the broker work in between as it does for real."""
    end = time.now + milliseconds
    while time.now < end:
        time.advance(min(STEP_MS, end - time.now))
        for _ in range(TURNS):
            await asyncio.sleep(0)


class Popped(NamedTuple):
    """A message as a consumer has it."""

    record: Record
    handle: ReceiptHandle

    @property
    def body(self) -> bytes:
        return bytes(self.record.body)


def popped(answer: Command, broker_name: str = "b0") -> list[Popped]:
    """The messages of an answer, with the handles that official clients build."""
    header = PopMessageResponseHeader.from_ext(answer.ext_fields)
    starts = parse_start_offsets(header.start_offset_info)
    offsets = parse_message_offsets(header.msg_offset_info)
    assert starts.keys() == offsets.keys()
    of_normal = {key.queue_id: start for key, start in starts.items() if not key.kind}
    found = []
    for record in iter_records(answer.body, strict=True):
        text = record.properties.get(names.POP_CK)
        if text is not None:
            handle = decode_receipt_handle(text)
        else:
            handle = ReceiptHandle(
                of_normal[record.queue_id],
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                TopicKind.NORMAL,
                broker_name,
                record.queue_id,
                record.queue_offset,
            )
        assert record.queue_offset in offsets[handle.kind, handle.queue_id]  # type: ignore[index]
        found.append(Popped(record, handle))
    assert len(found) == sum(map(len, offsets.values()))
    return found


class PopClient:
    """Pops from one topic for one group."""

    def __init__(
        self, client: Client, topic: str, group: str = "G", broker_name: str = "b0"
    ) -> None:
        self.broker_name = broker_name
        self.client = client
        self.topic = topic
        self.group = group

    async def request(self, **fields: Any) -> Command:
        values: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "init_mode": 0,
            **fields,
        }
        return await self.client.request(RequestCode.POP_MESSAGE, PopMessageRequestHeader(**values))

    async def pop(self, **fields: Any) -> list[Popped]:
        """The messages that a pop gets; none when there are none."""
        answer = await self.request(**fields)
        if answer.code in (POLLING_FULL, POLLING_TIMEOUT):
            return []
        assert answer.code == FOUND, answer.remark
        return popped(answer, self.broker_name)

    async def ack(self, message: Popped) -> Command:
        handle = message.handle
        header = AckMessageRequestHeader(
            consumer_group=self.group,
            topic=handle.stored_topic(self.topic, self.group),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.queue_offset,
        )
        return await self.client.request(RequestCode.ACK_MESSAGE, header)

    async def ask_change(self, message: Popped, invisible_time: int) -> Command:
        handle = message.handle
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self.group,
            topic=handle.stored_topic(self.topic, self.group),
            queue_id=handle.queue_id,
            extra_info=handle.encode(),
            offset=handle.queue_offset,
            invisible_time=invisible_time,
        )
        return await self.client.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def change(self, message: Popped, invisible_time: int) -> Popped:
        """The message with its new handle."""
        handle = message.handle
        answer = await self.ask_change(message, invisible_time)
        assert answer.code == 0, answer.remark
        new = ChangeInvisibleTimeResponseHeader.from_ext(answer.ext_fields)
        start = handle.start_offset if handle.in_order else handle.queue_offset
        return message._replace(
            handle=handle._replace(
                start_offset=start,
                pop_time=new.pop_time,
                invisible_time=new.invisible_time,
                revive_queue_id=new.revive_qid,
            )
        )
