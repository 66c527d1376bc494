"""CONSUMER_SEND_MSG_BACK and RECALL_MESSAGE, as requests to a broker whose time is made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.limits import TIMER_TOPIC
from pocketmq.message.recall_handle import RecallHandle, decode_recall_handle
from pocketmq.message.record import Record
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import ConsumerSendMsgBackRequestHeader, RecallMessageRequestHeader
from tests.broker.conftest import Client, Connect, subscription
from tests.fake_time import START, FakeTime

SUCCESS, SYSTEM_ERROR, NO_PERMISSION, TOPIC_NOT_EXIST, ILLEGAL_OPERATION = 0, 1, 16, 17, 604
INVALID_PARAMETER = 29
RETRY, DLQ = "%RETRY%G", "%DLQ%G"


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def settings() -> dict[str, Any]:
    return {}


@pytest.fixture
async def broker(tmp_path: Path, time: FakeTime, settings: dict[str, Any]) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        store_path_root_dir=str(tmp_path / "store"),
        broker_name="b0",
        listen_port=0,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
        **settings,
    )
    async with Broker(config, clock=time.clock, call_later=time.call_later) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> Client:
    return await connect(broker)


async def send_back(client: Client, offset: int, **fields: Any) -> Command:
    values: dict[str, Any] = {"offset": offset, "group": "G", "delay_level": 0, **fields}
    header = ConsumerSendMsgBackRequestHeader(**values)
    return await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def sent(client: Client, **fields: Any) -> Record:
    """A message of topic T, as stored."""
    answer = await client.send("T", b"m", **fields)
    assert answer.code == SUCCESS, answer.remark
    return (await client.pulled("T"))[-1]


async def test_a_message_comes_again_on_the_retry_topic(
    client: Client, broker: Broker, time: FakeTime
) -> None:
    first = await sent(client, properties={"TAGS": "A", "KEYS": "k", "UNIQ_KEY": "U"}, flag=3)
    answer = await send_back(client, first.physical_offset)
    assert (answer.code, answer.remark) == (SUCCESS, None)

    # Level 3 with the first attempt: 10 s.
    time.advance(9_999)
    assert broker.store.max_offset(RETRY, 0) == 0
    time.advance(1)
    [again] = await client.pulled(RETRY)
    assert (bytes(again.body), again.flag, again.reconsume_times) == (b"m", 3, 1)
    assert (again.born_timestamp, again.born_host) == (first.born_timestamp, first.born_host)
    origin = again.properties.pop("ORIGIN_MESSAGE_ID")
    assert decode_offset_msg_id(origin).physical_offset == first.physical_offset
    assert again.properties == {
        **first.properties,
        "RETRY_TOPIC": "T",
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": RETRY,
        "REAL_QID": "0",
    }

    # Its second attempt waits for a level more, and remembers where it came from.
    await send_back(client, again.physical_offset)
    time.advance(30_000)
    [_, third] = await client.pulled(RETRY)
    assert third.reconsume_times == 2
    assert third.properties["DELAY"] == "4"
    assert third.properties["ORIGIN_MESSAGE_ID"] == origin
    assert third.properties["RETRY_TOPIC"] == "T"


async def test_the_topics_and_the_group_are_there_and_kept(
    client: Client, broker: Broker, tmp_path: Path
) -> None:
    first = await sent(client)
    await send_back(client, first.physical_offset)
    await send_back(client, first.physical_offset, delay_level=-1)
    config = tmp_path / "store" / "config"
    await broker.tables.groups.saved()
    assert '"G"' in (config / "subscriptionGroup.json").read_text()
    topics = (config / "topics.json").read_text()
    assert RETRY in topics
    assert DLQ in topics
    assert broker.tables.topics.table[DLQ].perm == 6


async def test_the_consumer_may_say_how_long(
    client: Client, broker: Broker, time: FakeTime
) -> None:
    first = await sent(client)
    await send_back(client, first.physical_offset, delay_level=1)
    time.advance(1_000)
    assert len(await client.pulled(RETRY)) == 1


@pytest.mark.parametrize(
    ("reconsumed", "fields"),
    [
        (0, {"delay_level": -1}),
        (16, {}),
        (2, {"max_reconsume_times": 2}),
    ],
)
async def test_given_up_messages_are_dead_letters(
    client: Client, reconsumed: int, fields: dict[str, Any]
) -> None:
    first = await sent(client, reconsume_times=reconsumed)
    assert (await send_back(client, first.physical_offset, **fields)).code == SUCCESS
    [dead] = await client.pulled(DLQ)
    assert dead.reconsume_times == reconsumed + 1
    assert dead.properties["DELAY"] == "0"
    assert dead.properties["RETRY_TOPIC"] == "T"
    assert "REAL_TOPIC" not in dead.properties


async def test_a_message_with_the_most_attempts_is_a_dead_letter_too(client: Client) -> None:
    most = (1 << 31) - 1
    first = await sent(client, reconsume_times=most)
    assert (await send_back(client, first.physical_offset)).code == SUCCESS
    [dead] = await client.pulled(DLQ)
    assert dead.reconsume_times == most


async def test_the_group_says_how_often_and_over_how_many_queues(
    client: Client, broker: Broker, time: FakeTime
) -> None:
    group = SubscriptionGroupConfig(group_name="G", retry_max_times=3, retry_queue_nums=8)
    broker.tables.groups.update([group])
    last = await sent(client, reconsume_times=2)
    for _ in range(60):
        await send_back(client, last.physical_offset, delay_level=1)
    time.advance(1_000)
    used = [n for n in range(8) if broker.store.max_offset(RETRY, n)]
    assert len(used) > 1
    assert sum(broker.store.max_offset(RETRY, n) for n in range(8)) == 60
    assert broker.tables.topics.table[RETRY].write_queue_nums == 8

    too_often = await sent(client, reconsume_times=3)
    await send_back(client, too_often.physical_offset)
    assert len(await client.pulled(DLQ)) == 1


async def test_a_group_without_retry_queues_gets_nothing_again(
    client: Client, broker: Broker, time: FakeTime
) -> None:
    broker.tables.groups.update([SubscriptionGroupConfig(group_name="G", retry_queue_nums=0)])
    first = await sent(client)
    assert (await send_back(client, first.physical_offset, delay_level=-1)).code == SUCCESS
    assert RETRY not in broker.tables.topics.table
    assert DLQ not in broker.tables.topics.table


@pytest.mark.parametrize("offset", [7, 10**12, -1])
async def test_an_offset_without_a_message(client: Client, offset: int) -> None:
    await sent(client)
    answer = await send_back(client, offset)
    assert (answer.code, answer.remark) == (
        SYSTEM_ERROR,
        f"look message by offset failed, {offset}",
    )


async def test_a_retry_topic_that_may_not_be_written(client: Client, broker: Broker) -> None:
    first = await sent(client)
    await send_back(client, first.physical_offset)
    broker.tables.topics.table[RETRY].perm = 4
    answer = await send_back(client, first.physical_offset)
    assert (answer.code, answer.remark) == (
        NO_PERMISSION,
        f"the topic[{RETRY}] sending message is forbidden",
    )


@pytest.mark.parametrize(
    ("length", "delay_level", "topic"),
    [
        (248, 0, None),
        (249, 0, "%RETRY%"),
        (255, 0, "%RETRY%"),
        (250, -1, None),
        (251, -1, "%DLQ%"),
    ],
)
async def test_a_group_whose_topic_can_not_be_a_directory(
    client: Client, broker: Broker, length: int, delay_level: int, topic: str | None
) -> None:
    """It is told at once: what is delayed would only fail when it is acknowledged and due."""
    first = await sent(client)
    end = broker.store.commit_log.end
    group = "g" * length
    broker.tables.groups.update([SubscriptionGroupConfig(group_name=group)])
    answer = await send_back(client, first.physical_offset, group=group, delay_level=delay_level)
    if topic is None:
        assert answer.code == SUCCESS
        return
    assert (answer.code, answer.remark) == (
        INVALID_PARAMETER,
        f"the topic {topic}{group} has {len(topic) + length} characters, 255 are allowed: "
        "give the group a shorter name",
    )
    assert broker.store.commit_log.end == end


async def test_send_backs_are_counted(client: Client, broker: Broker, time: FakeTime) -> None:
    first = await sent(client)
    await send_back(client, first.physical_offset)
    time.advance(1_000)
    rates = broker.tables.statistics.item("SNDBCK_PUT_NUMS", "T@G", "minute")
    assert rates is not None
    assert rates.sum == 1


class TestWithoutAutomaticGroups:
    @pytest.fixture
    def settings(self) -> dict[str, Any]:
        return {"auto_create_subscription_group": False}

    async def test_an_unknown_group(self, client: Client) -> None:
        assert (await client.send("T")).code == SUCCESS
        answer = await send_back(client, 0)
        assert (answer.code, answer.remark) == (26, "subscription group not exist, G")


async def test_a_consumer_waiting_for_its_retries_is_woken(
    client: Client, connect: Connect, broker: Broker, time: FakeTime
) -> None:
    """The long poll of a push consumer on its retry topic ends with the delivery."""
    await client.heartbeat("c1", subscription("T"), subscription(RETRY))
    first = await sent(client)
    waiting = asyncio.create_task(client.pulled(RETRY, sys_flag=2 | 4))
    await send_back(await connect(broker), first.physical_offset)
    time.advance(10_000)
    [again] = await waiting
    assert bytes(again.body) == b"m"


# --- recall -----------------------------------------------------------------------------------


async def recall(client: Client, handle: str, topic: str = "T") -> Command:
    header = RecallMessageRequestHeader(topic=topic, recall_handle=handle, producer_group="PG")
    return await client.request(RequestCode.RECALL_MESSAGE, header)


async def test_recalling_must_be_allowed(client: Client) -> None:
    await sent(client)
    handle = RecallHandle("T", "b0", str(START + 5), "U").encode()
    answer = await recall(client, handle)
    assert (answer.code, answer.remark) == (
        NO_PERMISSION,
        "recall failed, operation is forbidden: the broker has recallMessageEnable=false",
    )
    assert answer.ext_fields["MSG_REGION"] == "DefaultRegion"


class TestRecall:
    @pytest.fixture
    def with_topic(self) -> bool:
        return True

    @pytest.fixture
    def settings(self, with_topic: bool) -> dict[str, Any]:
        return {
            "recall_message_enable": True,
            "append_topic_for_timer_delete_key": with_topic,
        }

    @pytest.mark.parametrize("with_topic", [True, False], ids=["as 5.3", "as 5.4"])
    async def test_a_timed_message_is_recalled(
        self, client: Client, time: FakeTime, settings: dict[str, Any]
    ) -> None:
        delayed = {"UNIQ_KEY": "U", "TIMER_DELAY_SEC": "60"}
        answer = await client.send("T", b"recalled", properties=delayed)
        kept = await client.send("T", b"kept", properties={"TIMER_DELAY_SEC": "60"})
        handle = answer.ext_fields["recallHandle"]
        assert decode_recall_handle(handle) == ("T", "b0", str(START + 59_001), "U")
        assert kept.ext_fields["recallHandle"] != handle

        answer = await recall(client, handle)
        assert (answer.code, answer.ext_fields["msgId"]) == (SUCCESS, "U")
        recorded = (await client.pulled(TIMER_TOPIC))[-1].properties["TIMER_DEL_UNIQKEY"]
        assert recorded == ("T+U" if settings["append_topic_for_timer_delete_key"] else "U")
        time.advance(60_000)
        assert [bytes(r.body) for r in await client.pulled("T")] == [b"kept"]

    @pytest.mark.parametrize(
        ("handle", "remark"),
        [
            ("", "recall handle is invalid"),
            ("?", "recall handle is invalid"),
            ("djIgVCBiMCAxIFU=", "recall handle is invalid"),
            (RecallHandle("U", "b0", str(START + 5), "U").encode(), "topic not match"),
            (RecallHandle("T", "b1", str(START + 5), "U").encode(), "service not available"),
            (RecallHandle("T", "b0", str(START), "U").encode(), "timestamp invalid"),
            (RecallHandle("T", "b0", "soon", "U").encode(), "timestamp invalid"),
            (RecallHandle("T", "b0", "9" * 13, "U").encode(), "timestamp invalid"),
        ],
    )
    async def test_handles_of_no_message(self, client: Client, handle: str, remark: str) -> None:
        await sent(client)
        answer = await recall(client, handle)
        assert answer.code == ILLEGAL_OPERATION
        assert remark in (answer.remark or "")

    async def test_an_unknown_topic(self, client: Client) -> None:
        assert (await recall(client, "x", topic="None")).code == TOPIC_NOT_EXIST


async def test_only_timed_messages_have_a_handle(client: Client) -> None:
    for properties in ({}, {"DELAY": "1"}, {"TIMER_DELIVER_MS": "5"}):
        answer = await client.send("T", b"m", properties=properties)
        assert answer.code == SUCCESS
        assert "recallHandle" not in answer.ext_fields
