"""Consumer offsets and the store's offsets, as clients ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.headers import UpdateConsumerOffsetRequestHeader
from tests.broker.conftest import Client, Connect, StartBroker

NOT_FOUND = 22


async def ask(client: Client, code: int, topic: str, queue_id: int = 0, **ext: Any) -> Any:
    """Code and the single extField of the answer."""
    fields = {"topic": topic, "queueId": str(queue_id)}
    fields |= {name: str(value) for name, value in ext.items()}
    answer = await client.request(code, ext_fields=fields)
    value = next(iter(answer.ext_fields.values()), None)
    return answer.code, None if value is None else int(value)


async def query(client: Client, topic: str, queue_id: int = 0, **ext: Any) -> Any:
    code = RequestCode.QUERY_CONSUMER_OFFSET
    return await ask(client, code, topic, queue_id, consumerGroup=ext.pop("group", "G"), **ext)


async def commit(client: Client, topic: str, offset: int, group: str = "G") -> int:
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    answer, _ = await ask(client, code, topic, consumerGroup=group, commitOffset=offset)
    assert isinstance(answer, int)
    return answer


async def test_bounds_of_a_queue(client: Client, topic: str) -> None:
    for _ in range(3):
        await client.send(topic)

    assert await ask(client, RequestCode.GET_MAX_OFFSET, topic) == (0, 3)
    assert await ask(client, RequestCode.GET_MIN_OFFSET, topic) == (0, 0)
    assert await ask(client, RequestCode.GET_MAX_OFFSET, topic, 1) == (0, 0)
    assert await ask(client, RequestCode.GET_MAX_OFFSET, "unknown") == (0, 0)
    assert await ask(client, RequestCode.GET_MIN_OFFSET, "unknown") == (0, 0)


async def test_offsets_by_time(client: Client, topic: str) -> None:
    for _ in range(2):
        await client.send(topic)
    first, last = [record.store_timestamp for record in await client.pulled(topic)]
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    assert await ask(client, search, topic, timestamp=first) == (0, 0)
    assert await ask(client, search, topic, timestamp=last + 1) == (0, 2)
    assert await ask(client, search, topic, timestamp=last, boundaryType="upper") == (0, 1)
    assert await ask(client, search, topic, timestamp=0) == (0, 0)
    assert await ask(client, search, "unknown", timestamp=first) == (0, 0)


async def test_earliest_store_time(client: Client, topic: str) -> None:
    await client.send(topic)
    [record] = await client.pulled(topic)
    earliest = RequestCode.GET_EARLIEST_MSG_STORETIME

    assert await ask(client, earliest, topic) == (0, record.store_timestamp)
    assert await ask(client, earliest, topic, 1) == (0, -1)
    assert await ask(client, earliest, "unknown") == (0, -1)


async def test_committing(client: Client, topic: str) -> None:
    await client.send(topic)
    await client.pull(topic)  # makes the group known

    assert await commit(client, topic, 5) == 0
    assert await query(client, topic) == (0, 5)
    assert await commit(client, topic, 2) == 0
    assert await query(client, topic) == (0, 2)


async def test_committing_for_what_is_unknown(client: Client, topic: str) -> None:
    await client.send(topic)
    assert await commit(client, topic, 5, group="NoSuchGroup") == 26

    await client.pull(topic)
    assert await commit(client, "unknown", 5) == 17
    for missing in ("queueId", "commitOffset"):
        fields = {"consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": "1"}
        del fields[missing]
        answer = await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        assert answer.code == 29


@pytest.mark.parametrize(
    ("queue_id", "offset", "remark"),
    [
        (-1, 5, "queueId[-1] is illegal, topic:[{}] has 4 queues"),
        (4, 5, "queueId[4] is illegal, topic:[{}] has 4 queues"),
        (2**31 - 1, 5, "queueId[2147483647] is illegal, topic:[{}] has 4 queues"),
        (3, -1, "offset[-1] is illegal, topic:[{}] queueId:[3]"),
    ],
)
async def test_committing_where_there_is_no_queue(
    client: Client, broker: Broker, topic: str, queue_id: int, offset: int, remark: str
) -> None:
    await client.send(topic)
    await client.pull(topic)
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="G", topic=topic, queue_id=queue_id, commit_offset=offset
    )
    answer = await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert (answer.code, answer.remark) == (29, remark.format(topic))
    assert broker.tables.offsets.table == {}


async def test_committing_for_a_queue_that_a_topic_has_no_more(
    client: Client, broker: Broker, topic: str
) -> None:
    await client.send(topic)
    await client.pull(topic)
    update = RequestCode.UPDATE_CONSUMER_OFFSET
    fields = {"consumerGroup": "G", "commitOffset": 0}
    assert await ask(client, update, topic, 3, **fields) == (0, None)
    config = broker.tables.topics.table[topic]
    config.read_queue_nums = config.write_queue_nums = 2

    assert await ask(client, update, topic, 2, **fields) == (29, None), "no entry"
    fields["commitOffset"] = 9
    assert await ask(client, update, topic, 3, **fields) == (0, None)
    assert await query(client, topic, 3) == (0, 9)
    fields["consumerGroup"] = "Other"
    await client.pull(topic, consumer_group="Other")
    assert await ask(client, update, topic, 3, **fields) == (29, None), "of another group"


async def test_committing_for_a_queue_that_is_only_read_or_only_written(
    client: Client, broker: Broker, topic: str
) -> None:
    await client.send(topic)
    await client.pull(topic)
    config = broker.tables.topics.table[topic]
    update, fields = RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "G", "commitOffset": 1}
    config.write_queue_nums = 2
    assert await ask(client, update, topic, 2, **fields) == (0, None)
    config.read_queue_nums, config.write_queue_nums = 2, 4
    assert await ask(client, update, topic, 3, **fields) == (0, None)


async def test_a_new_group_starts_at_zero_where_the_queue_is_whole(
    client: Client, topic: str
) -> None:
    await client.send(topic)

    assert await query(client, topic) == (0, 0)
    assert await query(client, topic, setZeroIfNotFound="false") == (NOT_FOUND, None)
    assert await query(client, topic, setZeroIfNotFound="true") == (0, 0)
    assert await query(client, "unknown") == (NOT_FOUND, None)


async def test_a_new_group_starts_at_zero_of_an_empty_queue(client: Client, topic: str) -> None:
    """Else it would ask for the end, and skip what is sent until the answer."""
    await client.send(topic)

    assert await query(client, topic, 3) == (0, 0)
    assert await query(client, topic, 3, setZeroIfNotFound="false") == (NOT_FOUND, None)
    for queue_id in (-1, 4):
        assert await query(client, topic, queue_id) == (NOT_FOUND, None), "the topic has 4 queues"


async def test_a_new_group_does_not_start_at_zero_far_behind(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(await start_broker(access_message_in_memory_max_ratio=0))
    for _ in range(2):
        await client.send(topic)

    assert await query(client, topic) == (NOT_FOUND, None)


async def test_offsets_survive_a_restart(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker: Broker = await start_broker()
    client = await connect(broker)
    await client.send(topic)
    await client.pull(topic)
    await commit(client, topic, 7)
    await broker.stop()

    client = await connect(await start_broker())
    assert await query(client, topic) == (0, 7)
    assert await ask(client, RequestCode.GET_MAX_OFFSET, topic) == (0, 1)


@pytest.mark.parametrize("boundary", ["UPPER", "upper", "Lower", "nonsense"])
async def test_words_for_the_boundary(client: Client, topic: str, boundary: str) -> None:
    await client.send(topic)
    [record] = await client.pulled(topic)
    code, _ = await ask(
        client,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        topic,
        timestamp=record.store_timestamp,
        boundaryType=boundary,
    )
    assert code == 0


async def test_the_whole_table(client: Client, topic: str) -> None:
    await client.send(topic)
    await client.pull(topic, sys_flag=5, commit_offset=1)

    answer = await client.request(RequestCode.GET_ALL_CONSUMER_OFFSET)

    body = ConsumerOffsetSerializeWrapper.decode(answer.body)
    assert body.offset_table == {f"{topic}@G": {0: 1}}
    assert body.group_topic_map == {"G": [topic]}
    assert b"{0:1}" in bytes(answer.body)


async def test_the_table_of_the_delay_levels(client: Client, topic: str) -> None:
    answer = await client.request(RequestCode.GET_ALL_DELAY_OFFSET)

    body = DelayOffsetSerializeWrapper.decode(answer.body)
    assert body.offset_table == {}
    assert body.data_version is not None
