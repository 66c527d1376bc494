"""Topics as admins create, change, look at and delete them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import msgspec
import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import fastjson
from pocketmq.message.incarnation import CREATED_OFFSET, CREATED_TIME
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.registration import TopicConfig, TopicConfigSerializeWrapper
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.bodies.topic import CreateTopicListRequestBody, TopicList, TopicStatsTable
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.frames.frame import Command
from tests.broker.conftest import (
    Client,
    Connect,
    NameServerStub,
    StartBroker,
    subscription,
)

SYSTEM_ERROR, NO_TOPIC, NO_GROUP, INVALID = 1, 17, 26, 29


async def create(client: Client, topic: str, **ext: Any) -> Any:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    } | {name: str(value) for name, value in ext.items()}
    return await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)


async def config_of(client: Client, topic: str) -> TopicConfig | None:
    answer = await client.request(RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic})
    if answer.code == NO_TOPIC:
        return None
    assert answer.code == 0
    config = TopicConfig.decode(answer.body)
    assert config.attributes.pop(CREATED_OFFSET).isdecimal()
    assert config.attributes.pop(CREATED_TIME).isdecimal()
    return config


async def test_create_and_change(client: Client, topic: str) -> None:
    answer = await create(client, topic, readQueueNums=3, writeQueueNums=2, topicSysFlag=1)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    assert await config_of(client, topic) == TopicConfig(
        topic_name=topic, read_queue_nums=3, write_queue_nums=2, topic_sys_flag=1
    )

    await create(client, topic, perm=4, order="true", attributes="+message.type=FIFO")
    assert await config_of(client, topic) == TopicConfig(
        topic_name=topic,
        read_queue_nums=4,
        write_queue_nums=4,
        perm=4,
        order=True,
        attributes={"message.type": "FIFO"},
    )


async def test_the_answer_comes_when_the_name_servers_know(
    start_broker: StartBroker, connect: Connect, name_server: NameServerStub, topic: str
) -> None:
    client = await connect(await start_broker(namesrv_addr=name_server.address))
    name_server.registered.get_nowait()

    await create(client, topic)

    _, body = name_server.registered.get_nowait()
    assert set(body.topic_config_serialize_wrapper.topic_config_table) == {topic}


async def test_a_queue_number_counts_for_the_next_message(client: Client, topic: str) -> None:
    await create(client, topic, readQueueNums=1, writeQueueNums=1)
    assert (await client.send(topic, queue_id=1)).code == INVALID

    await create(client, topic, readQueueNums=2, writeQueueNums=2)
    assert (await client.send(topic, queue_id=1)).code == 0
    assert (await client.pull(topic, queue_id=1)).code == 0


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [
        ("", {}, INVALID),
        ("no spaces", {}, INVALID),
        ("T" * 128, {}, INVALID),
        ("TBW102", {}, INVALID),
        ("b0", {}, INVALID),
        ("DefaultCluster", {}, INVALID),
        ("rmq_sys_mine", {}, INVALID),
        ("Fine", {"readQueueNums": "-1"}, INVALID),
        ("Fine", {"writeQueueNums": "16385"}, INVALID),
        ("Fine", {"attributes": "+no.such=1"}, SYSTEM_ERROR),
        ("Fine", {"attributes": "odd"}, SYSTEM_ERROR),
        ("Fine", {"readQueueNums": "many"}, SYSTEM_ERROR),
        ("Fine", {"topicFilterType": "EVERY_TAG"}, SYSTEM_ERROR),
    ],
)
async def test_refused(client: Client, topic: str, fields: dict[str, str], code: int) -> None:
    answer = await create(client, topic, **fields)

    assert answer.code == code
    assert answer.remark
    assert await config_of(client, "Fine") is None


async def test_several_at_once_or_none(client: Client) -> None:
    async def create_list(*names: str) -> int:
        body = CreateTopicListRequestBody(
            topic_config_list=[TopicConfig(topic_name=name) for name in names]
        )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        return (await client.request(code, None, body.encode())).code

    assert await create_list("A", "B") == 0
    assert await create_list("C", "TBW102") == INVALID

    answer = await client.request(RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
    assert {"A", "B", "TBW102", "SELF_TEST_TOPIC"} <= set(table)
    assert "C" not in table
    # Standard JSON, with the official names.
    body = msgspec.json.decode(answer.body)
    assert body["topicConfigTable"]["A"]["writeQueueNums"] == 16
    assert set(body["dataVersion"]) == {"counter", "stateVersion", "timestamp"}


@pytest.mark.parametrize(
    ("code", "table_name", "kind"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, "topicConfigTable", "Topic"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroupTable", "Group"),
    ],
)
async def test_tables_in_pages(
    start_broker: StartBroker, connect: Connect, code: int, table_name: str, kind: str
) -> None:
    client = await connect(await start_broker(split_metadata_size=5))

    async def ask(**ext: Any) -> tuple[list[str], int, str]:
        fields = {name: str(value) for name, value in ext.items()}
        answer = await client.request(code, ext_fields=fields)
        assert answer.code == 0
        body = msgspec.json.decode(answer.body)
        version = msgspec.json.encode(body["dataVersion"]).decode()
        return [*body[table_name]], int(answer.ext_fields[f"total{kind}Num"]), version

    seq, most = f"{kind.lower()}Seq", f"max{kind}Num"
    whole, total, version = await ask()
    everything = sorted(whole)
    assert len(everything) == total > 7
    first, counted, _ = await ask(**{seq: 0, "dataVersion": "", most: 2000})
    assert (first, counted) == (everything[:5], total)
    assert (await ask(**{seq: 1, "dataVersion": version, most: 2}))[0] == everything[1:3]
    # An official slave does not ask for the last entry alone.
    assert (await ask(**{seq: total - 4, "dataVersion": version, most: 3}))[0] == everything[-4:]
    assert (await ask(**{seq: total, "dataVersion": version, most: 3}))[0] == []
    # Of another version: from the first on.
    for other in ("", "odd", version.replace("{", '{"x":1,').replace('"counter":', '"counter":9')):
        assert (await ask(**{seq: 5, "dataVersion": other, most: 5}))[0] == everything[:5]


async def test_what_is_deleted_starts_anew(client: Client, topic: str) -> None:
    await client.send(topic)
    await client.pull(topic, 1, sys_flag=5, commit_offset=1)
    delete = RequestCode.DELETE_TOPIC_IN_BROKER

    assert (await client.request(delete, ext_fields={"topic": topic})).code == 0
    assert await config_of(client, topic) is None
    assert (await client.pull(topic)).code == NO_TOPIC
    assert (await client.request(delete, ext_fields={"topic": topic})).code == 0
    for name in ("TBW102", " "):
        assert (await client.request(delete, ext_fields={"topic": name})).code == INVALID

    answer = await client.send(topic, b"anew")
    assert answer.ext_fields["queueOffset"] == "0"
    assert [bytes(record.body) for record in await client.pulled(topic)] == [b"anew"]
    fields = {"consumerGroup": "G", "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
    answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
    assert answer.code == 22


async def delete_list(client: Client, *names: str) -> Command:
    body = json.dumps({"topicList": names}).encode()
    return await client.request(RequestCode.DELETE_TOPIC_IN_BROKER_LIST, None, body)


async def test_several_are_deleted_at_once(start_broker: StartBroker, connect: Connect) -> None:
    broker = await start_broker(batch_delete_topic_max_rate=0.0)
    client = await connect(broker)
    for name in ("A", "B", "C"):
        await client.send(name)
        await client.pull(name, 1, sys_flag=5, commit_offset=1)

    assert (await delete_list(client, "A", "B", "A", "unknown")).code == 0

    assert [await config_of(client, name) is None for name in ("A", "B", "C")] == [1, 1, 0]
    assert set(broker.tables.offsets.table) == {"C@G"}
    assert (await client.send("A")).ext_fields["queueOffset"] == "0"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), "The specified topic list is blank."),
        (("A", " "), "blank"),
        (("A", "TBW102"), "The topic[TBW102] is conflict with system topic."),
    ],
)
async def test_all_of_a_list_or_none(client: Client, names: tuple[str, ...], text: str) -> None:
    await client.send("A")

    answer = await delete_list(client, *names)

    assert answer.code == INVALID
    assert text in (answer.remark or "")
    assert await config_of(client, "A") is not None


async def test_a_list_has_a_bounded_length(client: Client) -> None:
    answer = await delete_list(client, *(f"T{n}" for n in range(1_200)))
    assert answer.code == SYSTEM_ERROR
    assert "1200 values, 1000 are allowed" in (answer.remark or "")


async def test_lists_are_deleted_at_a_rate(start_broker: StartBroker, connect: Connect) -> None:
    """So slow that only the first topic of the list is gone, while others are served, and the
    broker stops in time."""
    broker = await start_broker(batch_delete_topic_max_rate=0.001)
    client = await connect(broker)
    for name in ("A", "B"):
        await client.send(name)
    waiting = asyncio.ensure_future(delete_list(client, "A", "B"))
    async with asyncio.timeout(30):
        while await config_of(client, "A"):
            pass
    assert await config_of(client, "B")
    await broker.stop()
    with contextlib.suppress(RemotingError, ConnectionError):
        await waiting
    client = await connect(await start_broker())
    assert [await config_of(client, name) is None for name in ("A", "B")] == [True, False]


async def test_state_of_the_queues(client: Client, topic: str) -> None:
    await create(client, topic, readQueueNums=1, writeQueueNums=2)
    for _ in range(3):
        await client.send(topic, queue_id=0)
    last = (await client.pulled(topic))[-1]

    answer = await client.request(RequestCode.GET_TOPIC_STATS_INFO, ext_fields={"topic": topic})

    stats = TopicStatsTable.decode(answer.body)
    offsets = {
        queue: (of.min_offset, of.max_offset, of.last_update_timestamp)
        for queue, of in stats.offset_table.items()
    }
    assert offsets == {
        MessageQueue(topic, "b0", 0): (0, 3, last.store_timestamp),
        MessageQueue(topic, "b0", 1): (0, 0, 0),
    }
    assert stats.topic_put_tps > 0
    # Message queues as keys stand there as bare objects.
    assert bytes(answer.body).startswith(b'{"offsetTable":{{"brokerName":"b0"')
    unknown = {"topic": "unknown"}
    answer = await client.request(RequestCode.GET_TOPIC_STATS_INFO, ext_fields=unknown)
    assert answer.code == NO_TOPIC


async def test_auto_created_topics_survive_a_restart(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker()
    await (await connect(broker)).send(topic, b"kept", queue_id=3)
    await broker.stop()

    client = await connect(await start_broker(auto_create_topic_enable=False))
    [record] = await client.pulled(topic, queue_id=3)
    assert bytes(record.body) == b"kept"


async def test_auto_created_topics_are_bounded(
    start_broker: StartBroker,
    connect: Connect,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = await start_broker()
    own = len(broker.tables.topics.table)
    await broker.stop()
    broker = await start_broker(max_auto_created_topics=own + 3)
    client = await connect(broker)
    await client.heartbeat("c1", subscription(topic))  # its retry topic does not count

    answers = [await client.send(f"{topic}_{n}") for n in range(20)]

    assert [answer.code for answer in answers] == [0] * 3 + [NO_TOPIC] * 17
    assert f"already {own + 3} (maxAutoCreatedTopics)" in (answers[-1].remark or "")
    assert sum("is not created" in line for line in caplog.messages) == 1
    assert (await create(client, f"{topic}_of_an_admin")).code == 0
    assert (await client.send(f"{topic}_of_an_admin")).code == 0
    assert (await client.send("%RETRY%G")).code == 0
    # Less than the limit again, after a restart as well.
    for n in range(2):
        fields = {"topic": f"{topic}_{n}"}
        await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields)
    await broker.stop()
    client = await connect(await start_broker(max_auto_created_topics=own + 3))
    answers = [await client.send(f"{topic}_{n}_anew") for n in range(2)]
    assert [answer.code for answer in answers] == [0, NO_TOPIC]


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
async def test_internal_topics_may_have_longer_names(
    broker: Broker, client: Client, prefix: str
) -> None:
    """An official group of 5.3 may have a name of up to 255 characters."""
    group = "g" * (255 - len(prefix))
    broker.tables.groups.update([SubscriptionGroupConfig(group_name=group)])
    name = f"{prefix}{group}"
    assert (await create(client, name)).code == 0
    for n in range(3):
        assert (await client.send(name, b"%d" % n, queue_id=0)).code == 0
    assert [bytes(record.body) for record in await client.pulled(name)] == [b"0", b"1", b"2"]
    assert (await create(client, f"{name}g")).code == INVALID
    assert (await client.send(f"{name}g")).code == INVALID


async def test_a_retry_topic_needs_a_group(start_broker: StartBroker, connect: Connect) -> None:
    broker = await start_broker(auto_create_subscription_group=False)
    client = await connect(broker)
    assert (await client.send("%RETRY%Unknown")).code == NO_GROUP
    assert await config_of(client, "%RETRY%Unknown") is None


async def test_many_topics_at_once(client: Client) -> None:
    answers = await asyncio.gather(*(client.send(f"Many_{n}") for n in range(100)))

    assert {answer.code for answer in answers} == {0}
    answer = await client.request(RequestCode.GET_ALL_TOPIC_CONFIG)
    names = fastjson.decode(answer.body)["topicConfigTable"]
    assert {f"Many_{n}" for n in range(100)} <= set(names)


async def test_system_topics(client: Client) -> None:
    answer = await client.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    names = TopicList.decode(answer.body).topic_list
    assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "b0", "SCHEDULE_TOPIC_XXXX"} <= {*names}


async def test_topics_for_every_kind_of_message(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker()
    client = await connect(broker)
    answer = await create(client, topic, attributes="+message.type=MIXED")
    assert (answer.code, answer.remark) == (INVALID, "MIXED message type is not supported.")
    await broker.stop()

    client = await connect(await start_broker(enable_mixed_message_type=True))
    assert (await create(client, topic, attributes="+message.type=MIXED")).code == 0
