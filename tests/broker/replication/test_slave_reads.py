"""Consumers that read from slaves, and what of their progress reaches the master again.

After the reference's PullMultipleReplicasIT, PushMultipleReplicasIT and GetMetadataReverseIT.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pocketmq import Message, MessageExt, Producer, PushConsumer
from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig, BrokerRole
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.message.record import Record
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageResponseHeader,
)
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


def test_of_a_slave_less_memory_counts() -> None:
    """30 % of the memory in place of 40 %: a slave has more to read from its disk."""
    master, slave = BrokerConfig(), BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1)
    assert slave.message_memory * 4 == pytest.approx(master.message_memory * 3, abs=4)
    few = BrokerConfig(
        broker_role=BrokerRole.SLAVE, broker_id=1, access_message_in_memory_max_ratio=5
    )
    assert few.message_memory == 0


async def told(broker: Broker, offset: int = 0) -> tuple[int, int, int]:
    """Code, suggested broker and next offset of a pull of one message."""
    async with client_of(broker) as client:
        answer = await client.pull("T", offset, max_msg_nums=1)
    header = PullMessageResponseHeader.from_ext(answer.ext_fields)
    assert header.suggest_which_broker_id is not None
    assert header.next_begin_offset is not None
    return answer.code, header.suggest_which_broker_id, header.next_begin_offset


@pytest.mark.parametrize("slowly", [1, 2])
async def test_readers_that_are_behind_are_sent_where_their_group_says(
    pair: Pair, slowly: int
) -> None:
    """With a ratio of 0, and of 10 at a slave, only the last message counts as in memory."""
    await pair.start(0, access_message_in_memory_max_ratio=0)
    await pair.start(1, access_message_in_memory_max_ratio=10)
    await pair.connected()
    group = SubscriptionGroupConfig(group_name="G", which_broker_when_consume_slowly=slowly)
    pair.master.tables.groups.update([group])
    async with client_of(pair.master) as client:
        await fill(client, "T", "", "")
    await copied(pair)
    assert await told(pair.master) == (0, slowly, 1)
    assert await told(pair.slave) == (0, slowly, 1)
    # What is at the end of the log is in memory.
    assert await told(pair.master, 1) == (0, 0, 2)
    assert await told(pair.slave, 1) == (0, 0, 2)


async def test_readers_that_keep_up_are_sent_to_the_master(pair: Pair) -> None:
    await pair.start(0)
    await pair.start(1)
    await pair.connected()
    async with client_of(pair.master) as client:
        await fill(client, "T", "", "")
    await copied(pair)
    assert await told(pair.master) == (0, 0, 1)
    assert await told(pair.slave) == (0, 0, 1)


async def test_a_master_whose_slaves_may_not_be_read_keeps_its_readers(pair: Pair) -> None:
    await pair.start(0, access_message_in_memory_max_ratio=0, slave_read_enable=False)
    async with client_of(pair.master) as client:
        await fill(client, "T", "", "")
    assert await told(pair.master) == (0, 0, 1)


@pytest.mark.parametrize(
    ("checks", "with_master", "without"),
    [
        (False, (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 100), (ResponseCode.PULL_NOT_FOUND, 100)),
        (True, (ResponseCode.PULL_RETRY_IMMEDIATELY, 0, 2), (ResponseCode.PULL_OFFSET_MOVED, 2)),
    ],
    ids=["offsets are left alone", "offsetCheckInSlave"],
)
async def test_wrong_offsets_at_a_slave(
    pair: Pair,
    checks: bool,
    with_master: tuple[ResponseCode, int, int],
    without: tuple[ResponseCode, int],
) -> None:
    await pair.start(0)
    await pair.start(1, offset_check_in_slave=checks)
    await pair.connected()
    async with client_of(pair.master) as client:
        await fill(client, "T", "", "")
    await copied(pair)
    assert await told(pair.slave, 100) == with_master
    await pair.stop(0)
    await until(lambda: pair.slave.components.replication.lacks_master)
    code, next_offset = without
    assert await told(pair.slave, 100) == (code, 1, next_offset)


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
