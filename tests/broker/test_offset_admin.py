"""Offsets reset by an admin, with live consumers or without, and cloned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.offset import ResetOffsetBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.serving.request import Request
from tests.broker.conftest import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Connect,
    StartBroker,
    fill,
    position,
    subscription,
)

GROUP = "G"


async def reset(client: Client, topic: str, **fields: Any) -> Command:
    values: dict[str, Any] = {"group": GROUP, "timestamp": -1, "is_force": True, **fields}
    header = ResetOffsetRequestHeader(topic=topic, **values)
    return await client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def new_offsets(answer: Command) -> dict[int, int]:
    assert answer.code == 0, answer.remark
    return {queue.queue_id: offset for queue, offset in
            ResetOffsetBody.decode(answer.body).offset_table.items()}  # fmt: skip


async def committed(client: Client, topic: str, queue_id: int = 0) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=topic, queue_id=queue_id)
    answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return int(answer.ext_fields["offset"])


async def commit(client: Client, topic: str, offset: int, queue_id: int = 0) -> Command:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=GROUP, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    return await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


@pytest.fixture
async def consumer(client: Client, topic: str) -> Client:
    """A member of the group, in a topic whose queue 0 has five messages and queue 2 has one."""
    await fill(client, topic, *[""] * 5)
    await fill(client, topic, "", queue_id=2)
    await client.heartbeat("c1", subscription(topic))
    for queue_id in range(4):
        await commit(client, topic, 1, queue_id)
    return client


# --- the broker resets ----------------------------------------------------------------------------


async def test_the_next_pull_is_sent_to_the_new_offset(consumer: Client, topic: str) -> None:
    answer = await reset(consumer, topic, timestamp=0)
    assert new_offsets(answer) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert await committed(consumer, topic) == 0
    # The consumer does not know yet, and what it says of before does not count.
    late = await commit(consumer, topic, 4)
    assert (late.code, late.remark) == (0, "Offset has been previously reset")
    moved = await consumer.pull(topic, 5, commit_offset=5, sys_flag=SUBSCRIPTION | COMMIT | SUSPEND)
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert position(moved) == (0, 0, 5)
    assert await committed(consumer, topic) == 0
    assert len(await consumer.pulled(topic, 0)) == 5
    assert (await commit(consumer, topic, 5)).remark is None
    assert await committed(consumer, topic) == 5


async def test_a_pull_that_waits_is_answered_at_once(consumer: Client, topic: str) -> None:
    waiting = asyncio.ensure_future(consumer.pull(topic, 5, sys_flag=SUBSCRIPTION | SUSPEND))
    other = asyncio.ensure_future(
        consumer.pull(topic, 5, sys_flag=SUBSCRIPTION | SUSPEND, consumer_group="Other")
    )
    await consumer.heartbeat("c1", subscription(topic))
    await reset(consumer, topic, queue_id=0, offset=3)
    moved = await waiting
    assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert position(moved) == (3, 0, 5)
    # That of another group asks again from where it was.
    assert (await other).code == ResponseCode.PULL_NOT_FOUND


async def test_where_a_reset_leads(consumer: Client, topic: str) -> None:
    assert new_offsets(await reset(consumer, topic)) == {0: 5, 1: 0, 2: 1, 3: 0}
    assert new_offsets(await reset(consumer, topic, timestamp=0)) == dict.fromkeys(range(4), 0)
    assert new_offsets(await reset(consumer, topic, timestamp=2**62, queue_id=0)) == {0: 5}
    assert new_offsets(await reset(consumer, topic, queue_id=0, offset=2)) == {0: 2}
    assert new_offsets(await reset(consumer, topic, queue_id=2, offset=-1)) == {2: 1}
    assert await committed(consumer, topic) == 2


async def test_what_can_not_be_reset(consumer: Client, topic: str) -> None:
    for fields, code, remark in (
        ({"topic": "Unknown"}, 17, "Topic Unknown does not exist"),
        ({"group": "Unknown"}, 26, "Group Unknown does not exist"),
        ({"queue_id": 0, "offset": 7}, 1, "Target offset 7 not in consume queue range [0-5]"),
        ({"queue_id": 99}, 1, "has no queue 99"),
    ):
        asked: dict[str, Any] = {"topic": topic, **fields}
        answer = await reset(consumer, **asked)
        assert answer.code == code
        assert remark in (answer.remark or "")
    assert await committed(consumer, topic) == 1


async def test_a_deleted_topic_has_no_reset_left(
    broker: Broker, consumer: Client, topic: str
) -> None:
    await reset(consumer, topic)
    broker.tables.offsets.forget_topic(topic)
    assert not broker.tables.offsets.has_reset(GROUP, topic, 0)


# --- the consumers reset --------------------------------------------------------------------------


class Told(Client):
    """A consumer that keeps what resets it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.resets: asyncio.Queue[Request[ResetOffsetRequestHeader]] = asyncio.Queue()
        self._dispatcher.register(
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset, ResetOffsetRequestHeader
        )

    def _reset(self, request: Request[ResetOffsetRequestHeader]) -> None:
        self.resets.put_nowait(request)


@pytest.fixture
async def old_way(start_broker: StartBroker) -> Broker:
    return await start_broker(use_server_side_reset_offset=False)


async def test_consumers_are_told(old_way: Broker, connect: Connect, topic: str) -> None:
    admin = await connect(old_way)
    await fill(admin, topic, *[""] * 5)
    members = [Told(), Told()]
    for n, member in enumerate(members):
        await member.open(old_way.address)
        await member.heartbeat(f"c{n}", subscription(topic))
    for queue_id in range(4):
        await commit(admin, topic, 3 if queue_id == 0 else 0, queue_id)

    answer = await reset(admin, topic, timestamp=0)
    assert new_offsets(answer) == {0: 0, 1: 0, 2: 0, 3: 0}
    for member in members:
        async with asyncio.timeout(60):
            told = await member.resets.get()
        assert told.oneway
        assert (told.header.topic, told.header.group, told.header.timestamp) == (topic, GROUP, 0)
        table = ResetOffsetBody.decode(told.body).offset_table
        assert table[MessageQueue(topic, "b0", 0)] == 0
    # The consumers store it themselves.
    assert await committed(admin, topic) == 3
    # Without force nobody is sent forward.
    assert new_offsets(await reset(admin, topic, is_force=False))[0] == 3
    assert new_offsets(await reset(admin, topic, is_force=True))[0] == 5
    for member in members:
        await member.close()


async def test_a_consumer_in_cpp_is_told_in_its_form(
    old_way: Broker, connect: Connect, topic: str
) -> None:
    member = Told()
    await member.open(old_way.address)
    await member.heartbeat("c", subscription(topic))
    await fill(member, topic, *[""] * 5)
    for queue_id in range(4):
        await commit(member, topic, 0, queue_id)
    group = old_way.tables.consumers.get(GROUP)
    assert group is not None
    for client in group.clients.values():
        client.language = "CPP"

    assert new_offsets(await reset(member, topic)) == {0: 5, 1: 0, 2: 0, 3: 0}
    async with asyncio.timeout(60):
        told = await member.resets.get()
    assert bytes(told.body).startswith(
        b'{"offsetTable":[{"brokerName":"b0","offset":5,"queueId":0,"topic":"%b"},' % topic.encode()
    )
    assert len(ResetOffsetBody.decode(told.body).offset_table) == 4
    await member.close()


async def test_nobody_to_be_told(old_way: Broker, connect: Connect, topic: str) -> None:
    admin = await connect(old_way)
    assert (await reset(admin, topic)).code == ResponseCode.TOPIC_NOT_EXIST
    await fill(admin, topic, "")
    answer = await reset(admin, topic)
    assert (answer.code, answer.remark) == (1, f"The consumer group <{GROUP}> not exist")
    await admin.heartbeat("c", subscription(topic))
    for queue_id in range(4):
        await commit(admin, topic, 0, queue_id)
    assert (await reset(admin, topic)).code == 0
    assert (await reset(admin, topic, group="Other")).code == 1
    await admin.close()
    again = await connect(old_way)
    async with asyncio.timeout(60):
        while old_way.tables.consumers.get(GROUP) is not None:
            await again.heartbeat("other")
    answer = await reset(again, topic)
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE


# --- clone ----------------------------------------------------------------------------------------


async def clone(client: Client, **fields: Any) -> Command:
    values: dict[str, Any] = {"src_group": GROUP, "dest_group": "New", **fields}
    header = CloneGroupOffsetRequestHeader(**values)
    return await client.request(RequestCode.CLONE_GROUP_OFFSET, header)


async def test_clone(broker: Broker, consumer: Client, topic: str) -> None:
    await commit(consumer, topic, 4)
    assert (await clone(consumer, topic=topic)).code == 0
    assert broker.tables.offsets.offsets("New", topic) == {0: 4, 1: 1, 2: 1, 3: 1}
    # Each has its own from now on.
    await commit(consumer, topic, 5)
    assert broker.tables.offsets.query("New", topic, 0) == 4


async def test_clone_of_all_topics(broker: Broker, consumer: Client, topic: str) -> None:
    """The group has offsets in a topic that it left; only what is online says so."""
    left = f"{topic}_left"
    await fill(consumer, left, "")
    await commit(consumer, left, 1)
    broker.tables.offsets.commit(GROUP, "Deleted", 0, 1)
    await clone(consumer)
    assert broker.tables.offsets.topics_of("New") == {topic}
    await clone(consumer, offline=True)
    assert broker.tables.offsets.topics_of("New") == {topic, left}
    await clone(consumer, src_group="Unknown", dest_group="Newer")
    assert broker.tables.offsets.topics_of("Newer") == set()
