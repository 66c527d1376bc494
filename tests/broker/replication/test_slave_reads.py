"""Consumers that read from slaves, and what of their progress reaches the master again.

After the reference's PullMultipleReplicasIT, PushMultipleReplicasIT and GetMetadataReverseIT.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq import Message, MessageExt, Producer, PushConsumer
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.message.record import Record
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import ConsumerSendMsgBackRequestHeader
from tests.broker.conftest import fill
from tests.broker.replication.pair import Pair, classic, client_of, running
from tests.client.impatient import impatient
from tests.client.waiting import until


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(tmp_path) as pair:
        yield pair


async def copied(pair: Pair) -> None:
    """Until every slave has everything that the master has, tables too."""
    end = pair.master.store.commit_log.end
    for number, slave in pair.brokers.items():
        metadata = classic(slave).metadata
        if number:
            assert metadata is not None
            await until(lambda slave=slave: slave.store.commit_log.whole >= end)  # type: ignore[misc]
            await metadata.copy_all()


def places(records: list[Record]) -> list[tuple[int, int, bytes]]:
    return [(each.physical_offset, each.queue_offset, bytes(each.body)) for each in records]


async def test_each_replica_answers_pulls(pair: Pair) -> None:
    await pair.start(0, in_sync_replicas=3)
    await pair.start(1)
    await pair.start(2)
    await pair.connected(2)
    async with client_of(pair.master) as client:
        await fill(client, "T", *["A", "B"] * 5)
        original = places(await client.pulled("T", subscription="A"))
    await copied(pair)
    for number in (1, 2):
        async with client_of(pair.brokers[number]) as client:
            assert places(await client.pulled("T", subscription="A")) == original
    assert len(original) == 5


async def test_a_slave_takes_no_message_back(pair: Pair) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        await fill(client, "T", "")
        [record] = await client.pulled("T")
    await copied(pair)
    header = ConsumerSendMsgBackRequestHeader(
        offset=record.physical_offset, group="G", delay_level=1, origin_topic="T"
    )
    async with client_of(pair.slave) as client:
        refused = await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert pair.slave.store.commit_log.end == pair.master.store.commit_log.end


async def test_what_is_read_from_a_slave_and_fails_is_tried_again(pair: Pair) -> None:
    """Its offset is committed when it has been consumed, at the master too once that is back: the
    consumer itself carries its progress there."""
    tries: list[str] = []

    async def handle(message: MessageExt) -> None:
        tries.append(f"{message.body.decode()} {message.reconsume_times}")
        if message.body == b"2" and message.reconsume_times == 0:
            raise ValueError("not now")

    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    one_queue = TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1)
    pair.master.tables.topics.update([one_queue])
    async with Producer("PG", namesrv=pair.namesrv) as producer:
        for number in range(1, 4):
            await producer.send(Message("T", b"%d" % number))
    await copied(pair)
    await pair.stop(0)
    impatient_consumer = impatient(PushConsumer, Pauses(local_retry=0.1))
    async with impatient_consumer(
        "G", namesrv=pair.namesrv, start="begin", commit_interval=0.1, route_interval=0.1
    ) as consumer:
        await consumer.subscribe("T", handler=handle)
        await until(lambda: len(tries) == 4, 60)
        assert sorted(tries) == ["1 0", "2 0", "2 1", "3 0"]
        await until(lambda: pair.slave.tables.offsets.query("G", "T", 0) == 3, 60)
        await pair.start(0)
        await until(lambda: pair.master.tables.offsets.query("G", "T", 0) == 3, 60)
    assert len(tries) == 4
