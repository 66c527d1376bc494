"""Topics of an official store that are not served: refused by name, and left as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pocketmq.message.limits import SCHEDULE_TOPIC
from pocketmq.remoting.bodies.consumer import ConsumeStats
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    DeleteTopicRequestHeader,
    GetConsumeStatsRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    Header,
    QueryConsumerOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.conftest import Client, Connect, StartBroker


def store_with_topics(root: Path) -> None:
    """Write the tables of an official broker's store."""
    attributes = {
        "Batch": {"queue.type": "BatchCQ"},
        "Compact": {"cleanup.policy": "COMPACTION"},
        "Static": {},
        "%LMQ%light": {},
        "Plain": {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"},
    }
    topics = {
        name: {
            "topicName": name,
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": values,
        }
        for name, values in attributes.items()
    }
    mapping = {"topicQueueMappingInfoMap": {"Static": {"topic": "Static", "totalQueues": 4}}}
    config = root / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (config / "topicQueueMapping.json").write_text(json.dumps(mapping))


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("Batch", "queue.type=BatchCQ"),
        ("Compact", "cleanup.policy=COMPACTION"),
        ("Static", "it is a static topic"),
        ("%LMQ%light", "it is a light queue"),
    ],
)
async def test_sends_and_pulls_are_refused_by_name(
    start_broker: StartBroker, connect: Connect, tmp_path: Path, topic: str, why: str
) -> None:
    root = tmp_path / "store"
    store_with_topics(root)
    client = await connect(await start_broker())
    refused = (
        ResponseCode.INVALID_PARAMETER,
        f"topic[{topic}] is not served by this broker: {why}; use an official broker for it",
    )

    for answer in (
        await client.send(topic),
        await client.pull(topic),
        await client.pull(topic, code=RequestCode.LITE_PULL_MESSAGE),
    ):
        assert (answer.code, answer.remark) == refused
    # Again, now that the topic is known; and others are served.
    assert (await client.send(topic)).code == ResponseCode.INVALID_PARAMETER
    assert (await client.send("Plain")).code == 0
    assert (await client.pull("Plain")).code == 0
    assert not (root / "consumequeue" / topic).exists()


QUEUE: dict[str, Any] = {"queue_id": 0}
GROUP: dict[str, Any] = {"consumer_group": "G"}


@pytest.mark.parametrize("topic", ["Batch", "Static", "%LMQ%light"])
@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_MAX_OFFSET, partial(GetMaxOffsetRequestHeader, **QUEUE)),
        (RequestCode.GET_MIN_OFFSET, partial(GetMinOffsetRequestHeader, **QUEUE)),
        (
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            partial(SearchOffsetRequestHeader, **QUEUE, timestamp=0),
        ),
        (
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            partial(GetEarliestMsgStoretimeRequestHeader, **QUEUE),
        ),
        (
            RequestCode.QUERY_CONSUMER_OFFSET,
            partial(QueryConsumerOffsetRequestHeader, **QUEUE, **GROUP),
        ),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            partial(UpdateConsumerOffsetRequestHeader, **QUEUE, **GROUP, commit_offset=5),
        ),
        (
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            partial(ResetOffsetRequestHeader, group="G", timestamp=0, is_force=True),
        ),
        (RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader),
        (
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            partial(QueryConsumeTimeSpanRequestHeader, group="G"),
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader),
    ],
    ids=lambda value: value.name if isinstance(value, RequestCode) else "",
)
async def test_their_offsets_are_not_made_up_and_they_are_not_deleted(
    start_broker: StartBroker,
    connect: Connect,
    tmp_path: Path,
    topic: str,
    code: RequestCode,
    header: Callable[..., Header],
) -> None:
    """A static topic has other queue numbers, and a BatchCQ topic other files."""
    store_with_topics(tmp_path / "store")
    client = await connect(await start_broker())
    await client.pull("Plain", consumer_group="G")  # makes the group

    answer = await client.request(code, header(topic=topic))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert f"topic[{topic}] is not served by this broker" in (answer.remark or "")
    assert (await client.request(code, header(topic="Plain"))).code != answer.code


async def test_the_progress_of_a_group_leaves_them_out(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    store_with_topics(root)
    offsets = {f"{topic}@G": {"0": 3} for topic in ("Batch", "Static", "Plain")}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    client = await connect(await start_broker())
    header = GetConsumeStatsRequestHeader(consumer_group="G")
    answer = await client.request(RequestCode.GET_CONSUME_STATS, header)
    stats = ConsumeStats.decode(answer.body)
    assert {queue.topic for queue in stats.offset_table} == {"Plain"}


async def test_a_first_send_does_not_create_a_light_queue(
    client: Client,
) -> None:
    answer = await client.send("%LMQ%new")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    header = GetTopicConfigRequestHeader(topic="%LMQ%new")
    answer = await client.request(RequestCode.GET_TOPIC_CONFIG, header)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_delayed_messages_to_them_wait(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    """An official broker acknowledged them, and will deliver them."""
    broker = await start_broker(message_delay_level="1s 1h")
    client = await connect(broker)
    for topic in ("Batch", "Static"):
        assert (await client.send(topic, properties={"DELAY": "2"})).code == 0
    await broker.stop()
    config = tmp_path / "store" / "config"
    for file in config.glob("topics.json*"):
        file.unlink()
    store_with_topics(tmp_path / "store")

    broker = await start_broker(message_delay_level="1s 1s")
    client = await connect(broker)
    # Sent after them, and due after them.
    assert (await client.send("Plain", properties={"DELAY": "2"})).code == 0
    answer = await client.pull("Plain", sys_flag=6)
    assert answer.code == 0
    for topic in ("Batch", "Static"):
        assert broker.store.max_offset(topic, 0) == 0
    assert broker.store.max_offset(SCHEDULE_TOPIC, 1) > 3, "they are waiting again"
