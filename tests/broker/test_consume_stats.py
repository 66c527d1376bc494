"""How far groups have consumed, as admins see it."""

from __future__ import annotations

from typing import Any

from pocketmq.message import fastjson
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.consumer import ConsumeStats
from pocketmq.remoting.bodies.offset import QueryCorrectionOffsetBody
from pocketmq.remoting.bodies.table import GroupList
from pocketmq.remoting.bodies.topic import QueryConsumeTimeSpanBody, QueueTimeSpan, TopicList
from pocketmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.conftest import Client, subscription

NO_TOPIC = 17
NO_CORRECTION = 2**63 - 1


async def stats(client: Client, **ext: str) -> ConsumeStats:
    fields = {"consumerGroup": "G"} | ext
    answer = await client.request(RequestCode.GET_CONSUME_STATS, ext_fields=fields)
    assert answer.code == 0
    return ConsumeStats.decode(answer.body)


async def test_how_far_a_group_is(client: Client, topic: str) -> None:
    assert (await stats(client)).offset_table == {}
    for _ in range(5):
        await client.send(topic)
    records = await client.pulled(topic, max_msg_nums=3, sys_flag=5, commit_offset=2)

    table = (await stats(client)).offset_table

    assert set(table) == {MessageQueue(topic, "b0", queue_id) for queue_id in range(4)}
    first = table[MessageQueue(topic, "b0", 0)]
    assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (5, 2, 3)
    assert first.last_timestamp == records[1].store_timestamp
    other = table[MessageQueue(topic, "b0", 1)]
    assert (other.broker_offset, other.consumer_offset, other.last_timestamp) == (0, 0, 0)
    assert (await stats(client, topic=topic)).consume_tps > 0
    assert (await stats(client, topic="unknown")).offset_table == {}


async def test_only_subscribed_topics_of_an_online_group(client: Client, topic: str) -> None:
    for name in (topic, topic + "_old"):
        await client.send(name)
        await client.pull(name, sys_flag=5, commit_offset=1)
    await client.heartbeat("c1", subscription(topic))

    assert {queue.topic for queue in (await stats(client)).offset_table} == {topic}
    listed = await stats(client, topicList=f"{topic};{topic}_old")
    assert {queue.topic for queue in listed.offset_table} == {topic, topic + "_old"}


async def commit(client: Client, group: str, topic: str, queue_id: int, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
    await client.pull(topic, consumer_group=group, queue_id=queue_id, suspend_timeout_millis=0)
    answer = await client.request(
        RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields={**fields, "commitOffset": str(offset)}
    )
    assert answer.code == 0, answer.remark


async def test_who_consumes_a_topic(client: Client, topic: str) -> None:
    async def groups() -> list[str]:
        answer = await client.request(
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, ext_fields={"topic": topic}
        )
        assert answer.code == 0
        return GroupList.decode(answer.body).group_list

    assert await groups() == []
    await client.send(topic)
    await client.pull(topic, sys_flag=5, commit_offset=1, consumer_group="Stored")
    await client.heartbeat("c1", subscription(topic), group="Online")
    assert await groups() == ["Online", "Stored"]


async def test_which_topics_a_group_consumes(client: Client, topic: str) -> None:
    for name in (topic, topic + "_2"):
        await client.send(name)
        await commit(client, "G", name, 0, 1)

    code = RequestCode.QUERY_TOPICS_BY_CONSUMER
    answer = await client.request(code, ext_fields={"group": "G"})

    body = TopicList.decode(answer.body)
    assert body.topic_list == [topic, topic + "_2"]
    assert (body.broker_addr or "").startswith("127.0.0.1:")
    answer = await client.request(code, ext_fields={"group": "Nobody"})
    assert TopicList.decode(answer.body).topic_list == []


async def test_all_groups_of_a_broker(client: Client, topic: str) -> None:
    async def of_all(*, ordered: bool = False) -> dict[str, Any]:
        fields = {"isOrder": "true" if ordered else "false"}
        answer = await client.request(RequestCode.GET_BROKER_CONSUME_STATS, ext_fields=fields)
        assert answer.code == 0
        body: dict[str, Any] = fastjson.decode(answer.body)
        return body

    for _ in range(5):
        await client.send(topic)
    await commit(client, "G", topic, 0, 2)
    await commit(client, "H", topic, 0, 4)

    body = await of_all()

    groups = {group: stats for entry in body["consumeStatsList"] for group, stats in entry.items()}
    assert groups["TOOLS_CONSUMER"] == []
    [stats_of_g] = groups["G"]
    table = ConsumeStats.decode(fastjson.encode(stats_of_g)).offset_table
    first = table[MessageQueue(topic, "b0", 0)]
    assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (5, 2, 5)
    assert (body["totalDiff"], body["totalInflightDiff"]) == (3 + 1, 3 + 1)
    assert body["brokerAddr"].startswith("127.0.0.1:")
    assert (await of_all(ordered=True))["totalDiff"] == 0
    await client.heartbeat("c1", subscription("other"), group="G")
    assert (await of_all())["totalDiff"] == 1


async def test_an_answer_that_fits_into_no_frame(client: Client) -> None:
    queues = {"readQueueNums": "16384", "writeQueueNums": "16384"}
    fields = {"topic": "wide", "defaultTopic": "TBW102", "perm": "6", "order": "false"}
    answer = await client.request(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        ext_fields={**fields, **queues, "topicFilterType": "SINGLE_TAG"},
    )
    assert answer.code == 0, answer.remark
    for number in range(10):
        await commit(client, f"G{number}", "wide", 0, 0)
    answer = await client.request(
        RequestCode.GET_BROKER_CONSUME_STATS, ext_fields={"isOrder": "false"}, timeout=60.0
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the answer would have more than 16777216 bytes" in (answer.remark or "")


async def test_times_of_the_queues(client: Client, topic: str) -> None:
    async def spans(name: str) -> list[QueueTimeSpan]:
        fields = {"topic": name, "group": "G"}
        answer = await client.request(RequestCode.QUERY_CONSUME_TIME_SPAN, ext_fields=fields)
        assert answer.code == (0 if name == topic else NO_TOPIC), answer.remark
        if answer.code:
            return []
        return QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set

    assert await spans("unknown") == []
    for _ in range(3):
        await client.send(topic)
    records = await client.pulled(topic)

    first, empty, *_ = await spans(topic)

    assert first.message_queue == MessageQueue(topic, "b0", 0)
    assert first.min_time_stamp == first.consume_time_stamp == records[0].store_timestamp
    assert first.max_time_stamp == records[2].store_timestamp
    assert first.delay_time >= 0
    assert (empty.min_time_stamp, empty.max_time_stamp, empty.consume_time_stamp) == (-1, -1, -1)
    await commit(client, "G", topic, 0, 3)
    assert (await spans(topic))[0].delay_time == 0
    assert (await spans(topic))[0].consume_time_stamp == records[2].store_timestamp


async def test_corrections(client: Client, topic: str) -> None:
    async def correction(group: str, left_out: str = "") -> dict[int, int]:
        fields = {"topic": topic, "compareGroup": group, "filterGroups": left_out}
        answer = await client.request(RequestCode.QUERY_CORRECTION_OFFSET, ext_fields=fields)
        assert answer.code == 0
        return QueryCorrectionOffsetBody.decode(answer.body).correction_offsets

    for _ in range(5):
        await client.send(topic)
    await commit(client, "G", topic, 0, 2)
    await commit(client, "H", topic, 0, 4)

    assert await correction("H") == {0: 2}
    assert await correction("G") == {0: 2}
    assert await correction("G", "x,G") == {0: NO_CORRECTION}
    assert await correction("H", "G") == {0: 4}
