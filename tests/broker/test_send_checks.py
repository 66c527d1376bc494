"""What a send must pass: each check with its answer, and retry topics."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.send.send import MOST_REFUSALS
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.limits import MOST_IN_BATCH, MOST_IN_UNUSUAL_BATCH
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import Client, Connect, StartBroker

SUCCESS, SYSTEM_ERROR, ILLEGAL, NO_PERMISSION, NO_TOPIC, INVALID = 0, 1, 13, 16, 17, 29


async def refused(client: Client, code: int, topic: str, **options: Any) -> str:
    """Asserts the answer's code, and that it carries the map that clients rely on."""
    answer = await client.send(topic, **options)
    assert answer.code == code, answer.remark
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert answer.remark
    return answer.remark


async def test_a_start_in_the_future(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    future = time.time_ns() // 1_000_000 + 3_600_000
    client = await connect(await start_broker(start_accept_send_request_time_stamp=future))

    assert "broker unable to service, until" in await refused(client, SYSTEM_ERROR, topic)


async def test_ordered_topics_of_a_broker_that_may_not_write(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(await start_broker(broker_permission=4))
    create = {"defaultTopic": "", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    create |= {"topic": topic, "topicFilterType": "SINGLE_TAG", "order": "true"}
    await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=create)

    assert "sending message is forbidden" in await refused(client, NO_PERMISSION, topic)
    assert (await client.send("BenchmarkTest")).code == SUCCESS


@pytest.mark.parametrize("name", ["", " ", "a b", "täg", "T" * 128, "T.T", "T\n"])
async def test_illegal_topic_names(client: Client, name: str) -> None:
    await refused(client, INVALID, name)


async def test_a_queue_that_is_not_there_until_it_is(client: Client, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    for queues in ("2", "3"):
        fields |= {"readQueueNums": queues, "writeQueueNums": queues}
        await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
        for _ in range(3):
            remark = await refused(client, INVALID, topic, queue_id=3)
            assert f"queueId[3] is illegal, topic {topic} has {queues} read" in remark
        assert (await client.send(topic, queue_id=2)).code == (
            SUCCESS if queues == "3" else INVALID
        )
    # What else is wrong comes first, as it did before.
    assert "no body" in await refused(client, SYSTEM_ERROR, topic, body=b"", queue_id=3)


async def test_refusals_that_are_remembered_are_bounded(broker: Broker, client: Client) -> None:
    refusals = broker.components.sends.refusals
    for number in range(MOST_REFUSALS + 10):
        await refused(client, INVALID, f"{number}.")
        assert 0 < len(refusals) <= MOST_REFUSALS
    count = len(refusals)
    await refused(client, INVALID, "." * 10_000)
    assert len(refusals) == count


async def test_topics_of_the_longest_name(client: Client) -> None:
    name = "T" * 127
    assert (await client.send(name, b"x")).code == SUCCESS
    [record] = await client.pulled(name)
    assert record.topic == name


@pytest.mark.parametrize(
    "name",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
async def test_topics_nobody_may_send_to(client: Client, name: str) -> None:
    remark = await refused(client, NO_PERMISSION, name)
    assert remark == f"Sending message to topic[{name}] is forbidden."


async def test_an_unknown_topic_without_a_template(client: Client, topic: str) -> None:
    remark = await refused(client, NO_TOPIC, topic, default_topic="NoSuchTopic")
    assert f"topic[{topic}] not exist, apply first please!" in remark
    await refused(client, NO_TOPIC, topic, default_topic="")


async def test_a_created_topic_has_the_wanted_queues(client: Client, topic: str) -> None:
    assert (await client.send(topic, default_topic_queue_nums=2, queue_id=1)).code == SUCCESS
    await refused(client, INVALID, topic, queue_id=2)
    assert (await client.send(topic, queue_id=1)).code == SUCCESS


async def test_no_auto_creation(start_broker: StartBroker, connect: Connect, topic: str) -> None:
    client = await connect(await start_broker(auto_create_topic_enable=False))

    await refused(client, NO_TOPIC, topic)
    assert (await client.send("%RETRY%G1")).code == SUCCESS


async def test_an_empty_body(client: Client, topic: str) -> None:
    await client.send(topic)
    await refused(client, SYSTEM_ERROR, topic, body=b"")


async def test_sizes(start_broker: StartBroker, connect: Connect, topic: str) -> None:
    client = await connect(await start_broker(max_message_size=10_000))

    assert (await client.send(topic, b"x" * 10_000)).code == SUCCESS
    await refused(client, ILLEGAL, topic, body=b"x" * 10_001)
    await refused(client, ILLEGAL, topic, properties={"a": "x" * 32_767})


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "3"},
        {"DELAY": "+3"},
        {"DELAY": "x"},
        {"TIMER_DELAY_SEC": "10"},
        {"TIMER_DELAY_MS": "10"},
        {"TIMER_DELIVER_MS": "1"},
        {"TIMER_DEL_UNIQKEY": "U"},
    ],
)
async def test_a_batch_can_not_be_delayed(
    client: Client, topic: str, properties: dict[str, str]
) -> None:
    await client.send(topic)
    remark = await refused(
        client,
        ILLEGAL,
        topic,
        body=encode_batch([(0, b"a", b"")]),
        properties=properties,
        batch=True,
    )
    assert next(iter(properties)) in remark
    assert len(await client.pulled(topic)) == 1


@pytest.mark.parametrize("level", ["0", "-1"])
async def test_no_delay_is_no_delay(client: Client, topic: str, level: str) -> None:
    assert (await client.send(topic, properties={"DELAY": level})).code == SUCCESS


@pytest.mark.parametrize(
    "options", [{"properties": {"TRAN_MSG": "true", "PGROUP": "PG"}}, {"sys_flag": 4}]
)
async def test_half_messages_are_not_delivered_at_once(
    client: Client, topic: str, options: dict[str, Any]
) -> None:
    await client.send(topic)
    assert (await client.send(topic, **options)).code == SUCCESS
    assert (await client.send(topic, properties={"TRAN_MSG": "false"})).code == SUCCESS
    assert len(await client.pulled(topic)) == 2


# --- retry topics -----------------------------------------------------------------------------


async def test_a_retry_topic_is_created_with_its_group(client: Client, broker: Broker) -> None:
    answer = await client.send("%RETRY%G1", default_topic="", reconsume_times=1)

    assert answer.code == SUCCESS
    config = (await client.request(351, None, ext_fields={"topic": "%RETRY%G1"})).body
    assert b'"readQueueNums":1' in bytes(config)
    [record] = await client.pulled("%RETRY%G1", consumer_group="G1")
    assert record.reconsume_times == 1


async def test_messages_consumed_too_often_are_dead_letters(client: Client) -> None:
    answer = await client.send("%RETRY%G1", b"dead", reconsume_times=17, default_topic="")
    assert answer.code == SUCCESS
    answer = await client.send(
        "%RETRY%G1", b"soon dead", reconsume_times=3, max_reconsume_times=2, default_topic=""
    )
    assert answer.code == SUCCESS

    records = await client.pulled("%DLQ%G1")
    assert [bytes(record.body) for record in records] == [b"dead", b"soon dead"]
    assert (await client.pull("%RETRY%G1")).code == 19


async def test_what_a_group_in_order_sends_back_is_a_dead_letter(client: Client) -> None:
    body = (
        b'{"clientId":"c1","consumerGroup":"G1","mqSet":'
        b'[{"brokerName":"b0","queueId":0,"topic":"T"}]}'
    )
    assert (await client.request(RequestCode.LOCK_BATCH_MQ, None, body)).code == SUCCESS

    await client.send("%RETRY%G1", b"given up", default_topic="")

    [record] = await client.pulled("%DLQ%G1")
    assert bytes(record.body) == b"given up"


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_binary_header_leaves_empty_names_out(client: Client, code: int) -> None:
    names = ("topic", "queueId", "sysFlag", "bornTimestamp", "flag", "defaultTopicQueueNums")
    letters = ("b", "e", "f", "g", "h", "d")
    fields = dict(
        zip(
            names if code == RequestCode.SEND_MESSAGE else letters,
            ("BenchmarkTest", "0", "0", "0", "0", "4"),
            strict=True,
        )
    )

    answer = await client.request(code, None, b"body", ext_fields=fields)

    assert answer.code == SUCCESS, answer.remark
    [record] = await client.pulled("BenchmarkTest")
    assert bytes(record.body) == b"body"


@pytest.mark.parametrize(
    ("count", "properties", "remark"),
    [
        (MOST_IN_BATCH, b"", ""),
        (MOST_IN_BATCH + 1, b"", "a batch of more than 65536 messages"),
        (MOST_IN_UNUSUAL_BATCH, b"DELAY\x010\x02", ""),
        (
            MOST_IN_UNUSUAL_BATCH + 1,
            b"DELAY\x010\x02",
            "a batch of more than 8192 messages of which each has to be looked at",
        ),
    ],
)
async def test_the_messages_of_a_batch_are_limited(
    start_broker: StartBroker,
    connect: Connect,
    count: int,
    properties: bytes,
    remark: str,
) -> None:
    broker = await start_broker(mapped_file_size_commit_log=16 << 20)
    client = await connect(broker)
    body = encode_batch([(0, b"x", properties)] * count)
    answer = await client.send("T", body, batch=True)
    assert (answer.code == SUCCESS) is (not remark)
    assert (answer.remark or "").startswith(remark)
    assert not properties or not remark or "leave the property out" in (answer.remark or "")
    assert broker.store.queues["T"][0].max_offset == (0 if remark else count)
