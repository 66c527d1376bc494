"""What is late for a topic that was deleted, created again, or given fewer queues."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.incarnation import CREATED_OFFSET, CREATED_TIME, created_offset
from pocketmq.message.record import Record, iter_records
from pocketmq.message.retry_topic import pop_retry_topic
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command, decode_command, encode_command
from pocketmq.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    EndTransactionRequestHeader,
    QueryMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.conftest import Client, Connect, StartBroker, subscription
from tests.broker.pop.consuming import PopClient, Popped, passes
from tests.fake_time import FakeTime

COMMIT = 8
LONG = 2 * 60_000


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(start_broker: StartBroker, time: FakeTime) -> Broker:
    return await start_broker(options={"clock": time.clock, "call_later": time.call_later})


async def create(client: Client, topic: str, queues: int = 1, **fields: Any) -> None:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=fields.pop("read_queues", queues),
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        **fields,
    )
    answer = await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == 0, answer.remark


async def delete(client: Client, topic: str) -> None:
    answer = await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": topic})
    assert answer.code == 0, answer.remark


async def recreate(client: Client, time: FakeTime, topic: str, queues: int = 1) -> None:
    await delete(client, topic)
    time.advance(1)
    await create(client, topic, queues)


async def config_of(client: Client, topic: str) -> TopicConfig | None:
    answer = await client.request(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic})
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    assert answer.code == 0, answer.remark
    return TopicConfig.decode(answer.body)


def records(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    found = broker.store.get(topic, queue_id, broker.store.min_offset(topic, queue_id), 1000)
    return [record for buffer in found.buffers for record in iter_records(buffer)]


def bodies(broker: Broker, topic: str, queue_id: int = 0) -> list[bytes]:
    return [bytes(record.body) for record in records(broker, topic, queue_id)]


WAYS = [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "10"}]


async def test_a_topic_says_where_and_when_it_was_created(
    broker: Broker, client: Client, time: FakeTime, topic: str
) -> None:
    await client.send("Before")
    end = broker.store.commit_log.end
    await create(client, topic)

    first = await config_of(client, topic)
    assert first is not None
    assert created_offset(first.attributes) == end
    assert first.attributes[CREATED_TIME] == str(time.now)

    await client.send(topic)
    await create(client, topic, 3)  # a change is no creation
    changed = await config_of(client, topic)
    assert changed is not None
    assert changed.attributes == first.attributes

    await recreate(client, time, topic)
    second = await config_of(client, topic)
    assert second is not None
    assert created_offset(second.attributes) == broker.store.commit_log.end > end
    assert records(broker, topic) == []


async def test_a_topic_of_a_first_send_says_it_as_well(client: Client, topic: str) -> None:
    await client.send("Before")
    answer = await client.send(topic)
    config = await config_of(client, topic)
    assert config is not None
    place = decode_offset_msg_id(answer.ext_fields["msgId"]).physical_offset
    assert created_offset(config.attributes) == place


async def test_clients_do_not_change_it(client: Client, topic: str) -> None:
    await create(client, topic)
    for change in (f"+{CREATED_OFFSET}=7", f"-{CREATED_OFFSET}"):
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "attributes": change,
        }
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        assert (await client.request(code, ext_fields=fields)).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_due_in_a_deleted_topic_is_dropped(
    broker: Broker,
    client: Client,
    time: FakeTime,
    topic: str,
    way: dict[str, str],
    start_broker: StartBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await create(client, topic)
    for _ in range(3):
        await client.send(topic, properties=way)
    await delete(client, topic)

    await passes(time, 20_000)
    assert topic not in broker.store.queues
    assert await config_of(client, topic) is None
    assert broker.components.sends is not None
    told = [line for line in caplog.messages if f"topic {topic} was deleted" in line]
    assert len(told) == 1

    await broker.stop()
    again = await start_broker(options={"clock": time.clock, "call_later": time.call_later})
    assert again.tables.topics.get(topic) is None


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_late_does_not_come_into_the_topic_created_again(
    broker: Broker, client: Client, time: FakeTime, topic: str, way: dict[str, str]
) -> None:
    await create(client, topic)
    await client.send(topic, b"old", properties=way)
    await recreate(client, time, topic)
    await client.send(topic, b"new", properties=way)

    await passes(time, 20_000)
    assert bodies(broker, topic) == [b"new"]


async def test_a_timed_message_that_was_rolled_is_dropped_as_well(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later}, timer_roll_window_slot=10
    )
    client = await connect(broker)
    await create(client, topic)
    await client.send(topic, b"old", properties={"TIMER_DELAY_SEC": "60"})
    await passes(time, 25_000)
    await recreate(client, time, topic)
    await client.send(topic, b"new", properties={"TIMER_DELAY_SEC": "60"})
    await passes(time, LONG)
    assert bodies(broker, topic) == [b"new"]


async def test_a_topic_that_is_not_in_the_table_is_created_for_what_is_due(
    broker: Broker, client: Client, time: FakeTime, topic: str, start_broker: StartBroker
) -> None:
    await create(client, topic, 3)
    await client.send(topic, b"due", queue_id=2, properties={"DELAY": "3"})
    await broker.stop()
    for name in ("topics.json", "topics.json.bak"):
        (broker.config.root / "config" / name).unlink(missing_ok=True)

    again = await start_broker(options={"clock": time.clock, "call_later": time.call_later})
    await passes(time, 20_000)
    assert bodies(again, topic, 2) == [b"due"]
    config = again.tables.topics.get(topic)
    assert config is not None
    assert config.read_queue_nums == 3


# --- transactions -----------------------------------------------------------------------------


async def half(client: Client, topic: str, body: bytes, **fields: Any) -> tuple[int, int]:
    properties = {"TRAN_MSG": "true", "PGROUP": "PG"}
    answer = await client.send(topic, body, properties=properties, sys_flag=4, **fields)
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["queueOffset"]), int(answer.ext_fields["msgId"][16:], 16)


async def commit(client: Client, place: tuple[int, int]) -> Command:
    header = EndTransactionRequestHeader(
        producer_group="PG",
        tran_state_table_offset=place[0],
        commit_log_offset=place[1],
        commit_or_rollback=COMMIT,
        msg_id="U",
    )
    return await client.request(RequestCode.END_TRANSACTION, header)


@pytest.mark.parametrize("again", [False, True])
async def test_a_commit_for_a_topic_that_was_deleted_is_refused(
    broker: Broker, client: Client, time: FakeTime, topic: str, again: bool
) -> None:
    await create(client, topic)
    place = await half(client, topic, b"old")
    await delete(client, topic)
    if again:
        await create(client, topic)
        new = await half(client, topic, b"new")
        assert (await commit(client, new)).code == 0

    answer = await commit(client, place)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert topic in (answer.remark or "")
    assert bodies(broker, topic) == [b"new"] * again
    assert place[0] in broker.components.transactions.ops.ended


async def test_nobody_is_asked_about_a_transaction_of_a_topic_that_was_deleted(
    broker: Broker, client: Client, time: FakeTime, topic: str
) -> None:
    await client.heartbeat("p", producer="PG")
    await create(client, topic)
    place = await half(client, topic, b"old", born_timestamp=time.now)
    await recreate(client, time, topic)
    time.advance(3_600_000)
    checks = broker.components.transactions.checks
    await checks.check()
    assert checks.asked == 0
    assert place[0] in broker.components.transactions.ops.ended


# --- pops -------------------------------------------------------------------------------------


async def one(pops: PopClient, **fields: Any) -> Popped:
    (message,) = await pops.pop(**fields)
    return message


@pytest.mark.parametrize("kept", [True, False])
async def test_what_was_popped_does_not_come_back(
    start_broker: StartBroker, connect: Connect, time: FakeTime, topic: str, kept: bool
) -> None:
    broker = await start_broker(
        options={"clock": time.clock, "call_later": time.call_later}, enable_pop_buffer_merge=kept
    )
    client = await connect(broker)
    pops = PopClient(client, topic)
    await create(client, topic)
    await client.send(topic, b"old")
    await one(pops, invisible_time=30_000)
    await recreate(client, time, topic)
    await client.send(topic, b"new")
    message = await one(pops)
    assert message.body == b"new"
    assert (await pops.ack(message)).code == 0

    await passes(time, LONG)
    assert await pops.pop() == []


async def test_retries_of_pops_are_deleted_with_their_topic(
    broker: Broker, client: Client, time: FakeTime, topic: str
) -> None:
    pops = PopClient(client, topic)
    await create(client, topic)
    await client.send(topic, b"old")
    await one(pops, invisible_time=10_000)
    await passes(time, 20_000)
    retry = pop_retry_topic(topic, "G", v2=False)
    assert bodies(broker, retry) == [b"old"]

    await recreate(client, time, topic)
    assert await config_of(client, retry) is None
    assert await pops.pop() == []


async def test_the_retry_topic_of_another_group_stays(
    broker: Broker, client: Client, time: FakeTime
) -> None:
    """`%RETRY%G_T` is that of group G for topic T, and that of the group G_T."""
    await create(client, "T")
    await client.send("T")
    await one(PopClient(client, "T"))
    await client.heartbeat("c", subscription("Other"), group="G_T")
    await client.pull("%RETRY%G_T", consumer_group="G_T", sys_flag=5, suspend_timeout_millis=0)
    await delete(client, "T")
    assert await config_of(client, "%RETRY%G_T") is not None


async def test_an_old_handle_moves_no_offset(
    broker: Broker, client: Client, time: FakeTime, topic: str
) -> None:
    pops = PopClient(client, topic)
    await create(client, topic)
    await client.send(topic, b"old")
    old = await one(pops, order=True, queue_id=0)
    await recreate(client, time, topic)
    await client.send(topic, b"new")
    new = await one(pops, order=True, queue_id=0)
    assert (await pops.ack(old)).code == ResponseCode.NO_MESSAGE
    assert (await pops.ack(new)).code == 0
    assert broker.tables.offsets.query("G", topic, 0) == 1


# --- retries ----------------------------------------------------------------------------------


async def send_back(client: Client, offset: int) -> Command:
    header = ConsumerSendMsgBackRequestHeader(
        offset=offset, group="G", delay_level=3, unit_mode=False, max_reconsume_times=16
    )
    return await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


@pytest.mark.parametrize("before", [True, False])
async def test_what_consumers_send_back_is_dropped(
    broker: Broker, client: Client, time: FakeTime, topic: str, before: bool
) -> None:
    """Also when the message waits for its retry while the topic is deleted."""
    await client.heartbeat("c", subscription(topic))
    await create(client, topic)
    await client.send(topic, b"old")
    (record,) = await client.pulled(topic)
    if before:
        assert (await send_back(client, record.physical_offset)).code == 0
    await recreate(client, time, topic)
    if not before:
        assert (await send_back(client, record.physical_offset)).code == 0
    await client.send(topic, b"new")
    (record,) = await client.pulled(topic)
    assert (await send_back(client, record.physical_offset)).code == 0

    await passes(time, 20_000)
    assert bodies(broker, "%RETRY%G") == [b"new"]


# --- offsets ----------------------------------------------------------------------------------


async def test_a_commit_past_the_end_of_the_new_topic_is_rejected(
    broker: Broker, client: Client, time: FakeTime, topic: str
) -> None:
    await client.heartbeat("c", subscription(topic))
    await create(client, topic)
    for _ in range(5):
        await client.send(topic)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic=topic, queue_id=0, commit_offset=5
    )
    update = RequestCode.UPDATE_CONSUMER_OFFSET
    assert (await client.request(update, header)).code == 0
    await recreate(client, time, topic)
    await client.send(topic)

    answer = await client.request(update, header)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert topic in (answer.remark or "")
    await client.pull(topic, 1, sys_flag=5, commit_offset=5)
    assert broker.tables.offsets.query("G", topic, 0) == -1
    header.commit_offset = 1
    assert (await client.request(update, header)).code == 0
    assert broker.tables.offsets.query("G", topic, 0) == 1


# --- fewer queues -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_due_in_a_queue_that_is_gone_comes_into_one_that_can_be_read(
    broker: Broker, client: Client, time: FakeTime, topic: str, way: dict[str, str]
) -> None:
    await create(client, topic, 4)
    await client.send(topic, b"3", queue_id=3, properties=way)
    halves = [await half(client, topic, b"half %d" % n, queue_id=n) for n in (2, 3)]
    await create(client, topic, 2, read_queues=3)
    for place in halves:
        assert (await commit(client, place)).code == 0
    await passes(time, 20_000)
    assert bodies(broker, topic, 2) == [b"half 2"]  # it is still read
    assert bodies(broker, topic, 1) == [b"half 3", b"3"]


# --- restarts ---------------------------------------------------------------------------------


async def test_a_kill_does_not_bring_anything_back(
    broker: Broker,
    client: Client,
    connect: Connect,
    start_broker: StartBroker,
    time: FakeTime,
    topic: str,
    tmp_path: Path,
) -> None:
    await create(client, topic)
    await client.send(topic, b"old", properties={"DELAY": "3"})
    await recreate(client, time, topic)
    config = await config_of(client, topic)
    await client.send(topic, b"new", properties={"DELAY": "3"})
    killed = shutil.copytree(tmp_path / "store", tmp_path / "killed")
    await broker.stop()
    await asyncio.to_thread(shutil.rmtree, tmp_path / "store")
    killed.rename(tmp_path / "store")

    again = await start_broker(options={"clock": time.clock, "call_later": time.call_later})
    assert await config_of(await connect(again), topic) == config
    await passes(time, 20_000)
    assert bodies(again, topic) == [b"new"]


async def test_the_log_names_the_queues_that_nobody_can_read_any_more(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    await create(client, topic, 4)
    for queue_id in (1, 3, 3):
        await client.send(topic, queue_id=queue_id)
    await create(client, topic, 2, read_queues=4)
    await create(client, topic, 3)
    (line,) = [line for line in caplog.messages if "cannot be read until it has" in line]
    assert f"topic {topic} has fewer queues now" in line
    assert "the 2 messages in queues 3 " in line


async def test_official_slaves_see_no_attribute_of_ours(
    broker: Broker, client: Client, topic: str
) -> None:
    """They would lose the topic."""
    await create(client, topic)
    host, port = broker.address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    for language in ("JAVA", "PYTHON"):
        writer.write(encode_command(RequestCode.GET_ALL_TOPIC_CONFIG, 1, language=language))
        length = int.from_bytes(await reader.readexactly(4), "big")
        answer = decode_command(await reader.readexactly(length))
        table = json.loads(bytes(answer.body))["topicConfigTable"]
        assert (CREATED_OFFSET in table[topic]["attributes"]) == (language == "PYTHON")
    writer.close()


async def test_queries_do_not_show_the_messages_of_the_topic_before(
    client: Client, time: FakeTime, topic: str
) -> None:
    """Another user may have the right to the name by now."""

    async def with_key() -> list[bytes]:
        header = QueryMessageRequestHeader(
            topic=topic, key="k", max_num=64, begin_timestamp=0, end_timestamp=2**63 - 1
        )
        answer = await client.request(RequestCode.QUERY_MESSAGE, header)
        return [bytes(record.body) for record in iter_records(answer.body)]

    async def at(offset: int) -> Command:
        return await client.request(
            RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(offset)}
        )

    await create(client, topic)
    old = await client.send(topic, b"old", properties={"KEYS": "k"})
    old_place = decode_offset_msg_id(old.ext_fields["msgId"])[-1]
    assert await with_key() == [b"old"]
    await delete(client, topic)
    assert await with_key() == [b"old"]
    assert (await at(old_place)).code == ResponseCode.SYSTEM_ERROR  # no queue has it any more
    time.advance(1)
    await create(client, topic)
    assert await with_key() == []
    assert (await at(old_place)).code == ResponseCode.SYSTEM_ERROR
    new = await client.send(topic, b"new", properties={"KEYS": "k"})
    assert await with_key() == [b"new"]
    assert (await at(decode_offset_msg_id(new.ext_fields["msgId"])[-1])).code == 0
