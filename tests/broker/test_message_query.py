"""QUERY_MESSAGE by key and unique key, QUERY_CONSUME_QUEUE."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.record import iter_records
from pocketmq.message.tags import tag_hash
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
)
from pocketmq.store.index.message_index import FoundMessages
from tests.broker.batch.batches import batch, send
from tests.broker.conftest import Client, Connect, StartBroker, fill, subscription
from tests.remoting.peers import frame


async def query(client: Client, topic: str, key: str, **fields: Any) -> Command:
    values = {"max_num": 64, "begin_timestamp": 0, "end_timestamp": 2**63 - 1, **fields}
    header = QueryMessageRequestHeader(topic=topic, key=key, **values)
    return await client.request(RequestCode.QUERY_MESSAGE, header)


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == 0, answer.remark
    return [bytes(record.body) for record in iter_records(answer.body)]


async def test_messages_are_found_by_key_right_after_the_send(client: Client, topic: str) -> None:
    for n in range(6):
        properties = {"KEYS": f"all order{n}", "UNIQ_KEY": f"id{n}"}
        await client.send(topic, b"m%d" % n, properties=properties)
        assert bodies(await query(client, topic, f"order{n}")) == [b"m%d" % n]
    answer = await query(client, topic, "all")
    assert bodies(answer) == [b"m%d" % n for n in range(6)]
    header = QueryMessageResponseHeader.from_ext(answer.ext_fields)
    assert header.index_last_update_timestamp > 1_700_000_000_000
    assert header.index_last_update_phyoffset > 0
    # The newest ones when there are more.
    assert bodies(await query(client, topic, "all", max_num=2)) == [b"m4", b"m5"]


async def test_by_unique_key_max_num_is_the_brokers(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(await start_broker(default_query_max_num=3))
    for n in range(5):
        await client.send(topic, b"m%d" % n, properties={"UNIQ_KEY": "same"})
    answer = await query(client, topic, "same", max_num=1, unique_key_query=True)
    assert bodies(answer) == [b"m2", b"m3", b"m4"]
    assert bodies(await query(client, topic, "same", max_num=1)) == [b"m4"]


async def test_messages_are_found_by_their_tags(client: Client, topic: str) -> None:
    for n, tags in enumerate(("a", "b", "a", "a b", "")):
        properties = {"TAGS": tags, "KEYS": "b", "UNIQ_KEY": f"id{n}"}
        await client.send(topic, b"m%d" % n, properties=properties)
    assert bodies(await query(client, topic, "a", index_type="T")) == [b"m0", b"m2"]
    assert bodies(await query(client, topic, "a", index_type="T", max_num=1)) == [b"m2"]
    assert bodies(await query(client, topic, "b", index_type="T", last_key="none")) == [b"m1"]
    assert bodies(await query(client, topic, "a b", index_type="T")) == [b"m3"]
    # Everything else is by keys.
    for index_type in ("K", "U", "", None):
        answer = await query(client, topic, "b", index_type=index_type)
        assert bodies(answer) == [b"m%d" % n for n in range(5)]
    for key, index_type in (("a", None), ("T#a", None), ("id0", "T"), ("", "T")):
        answer = await query(client, topic, key, index_type=index_type)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    answer = await query(client, topic, "id2", index_type="T", unique_key_query=True)
    assert bodies(answer) == [b"m2"]


async def test_the_index_may_be_neither_read_nor_written(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    async def found() -> list[bytes]:
        answer = await query(client, topic, "k")
        return [] if answer.code == ResponseCode.QUERY_NOT_FOUND else bodies(answer)

    broker = await start_broker()
    client = await connect(broker)
    await client.send(topic, b"m0", properties={"KEYS": "k"})
    assert await found() == [b"m0"]
    update = RequestCode.UPDATE_BROKER_CONFIG
    for value, wanted in ((b"false", []), (b"true", [b"m0"])):
        assert (await client.request(update, None, b"indexFileReadEnable=" + value)).code == 0
        assert await found() == wanted
    await broker.stop()
    broker = await start_broker(index_file_write_enable=False)
    client = await connect(broker)
    await client.send(topic, b"m1", properties={"KEYS": "k"})
    assert await found() == [b"m0"]
    await broker.stop()
    client = await connect(await start_broker())
    assert await found() == [b"m0", b"m1"]


async def test_what_is_not_found_still_has_a_header(client: Client, topic: str) -> None:
    await client.send(topic, properties={"KEYS": "k"})
    for found_by in ({"key": "other"}, {"key": "k", "end_timestamp": 1000}):
        answer = await query(client, topic, found_by.pop("key"), **found_by)  # type: ignore[arg-type]
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"
        header = QueryMessageResponseHeader.from_ext(answer.ext_fields)
        assert (header.index_last_update_phyoffset, header.index_last_update_timestamp) == (0, 0)


async def test_the_index_survives_a_restart(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker()
    client = await connect(broker)
    await client.send(topic, b"before", properties={"KEYS": "k"})
    await broker.stop()
    client = await connect(await start_broker())
    assert bodies(await query(client, topic, "k")) == [b"before"]


async def test_many_queries_at_once(client: Client, topic: str) -> None:
    for n in range(30):
        await client.send(topic, b"m%d" % n, properties={"KEYS": f"k{n}"})
    answers = await asyncio.gather(*(query(client, topic, f"k{n}") for n in range(30)))
    assert [bodies(answer) for answer in answers] == [[b"m%d" % n] for n in range(30)]


# --- QUERY_CONSUME_QUEUE ------------------------------------------------------------------------


async def entries(client: Client, topic: str, **fields: Any) -> Command:
    values = {"queue_id": 0, "index": 0, "count": 10, **fields}
    header = QueryConsumeQueueRequestHeader(topic=topic, **values)
    return await client.request(RequestCode.QUERY_CONSUME_QUEUE, header)


async def test_entries_of_a_consume_queue(broker: Broker, client: Client, topic: str) -> None:
    await fill(client, topic, "a", "b", "", "a")
    answer = await entries(client, topic, index=1, count=2)
    assert (answer.code, answer.remark) == (0, "not set any response code")
    body = msgspec.json.decode(answer.body)
    stored = [broker.store.queues[topic][0].entry(n) for n in (1, 2)]
    assert body == {
        "maxQueueIndex": 4,
        "minQueueIndex": 0,
        "queueData": [
            {"eval": False, "physicOffset": physical, "physicSize": size, "tagsCode": code}
            for physical, size, code in filter(None, stored)
        ],
    }
    assert [entry["tagsCode"] for entry in body["queueData"]] == [tag_hash("b"), 0]
    all_of_them = msgspec.json.decode((await entries(client, topic, count=10**6)).body)
    assert len(all_of_them["queueData"]) == 4


async def test_entries_of_a_long_queue_are_asked_for_in_parts(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(mapped_file_size_consume_queue=200_000)
    client = await connect(broker)
    await client.send(topic)
    for _ in range(4):
        await batch(client, [send(topic)] * 1000)
    got: list[int] = []
    parts = 0
    while len(got) < 4001:
        body = msgspec.json.decode((await entries(client, topic, index=len(got), count=10**6)).body)
        got += [entry["physicOffset"] for entry in body["queueData"]]
        parts += 1
        assert parts < 10
    assert got == sorted(set(got))
    assert parts > 2


async def test_entries_that_are_not_there(client: Client, topic: str) -> None:
    answer = await entries(client, topic)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"0@{topic} is not exist!")
    await fill(client, topic, "a")
    for index in (-1, 1, 99):
        answer = await entries(client, topic, index=index)
        assert (answer.code, bytes(answer.body)) == (0, b"")
        assert answer.remark == f"Index {index} of 0@{topic} is not exist!"


async def test_entries_with_a_consumers_expression(client: Client, topic: str) -> None:
    await fill(client, topic, "a")
    wanted = subscription(topic, version=7, expression_type="SQL92")
    wanted.sub_string = "TAGS = 'a'"
    await client.heartbeat("c1", wanted)

    body = msgspec.json.decode((await entries(client, topic, consumer_group="G")).body)

    known = msgspec.json.decode(body["filterData"])
    assert (known["expression"], known["expressionType"]) == ("TAGS = 'a'", "SQL92")
    assert (known["clientVersion"], known["dead"]) == (7, False)
    assert set(known["bloomFilterData"]) == {"bitNum", "bitPos"}
    assert body["subscriptionData"]["subString"] == "TAGS = 'a'"


@pytest.mark.parametrize("online", [True, False])
async def test_entries_with_a_consumers_subscription(
    client: Client, topic: str, online: bool
) -> None:
    await fill(client, topic, "a")
    if online:
        await client.heartbeat("c1", subscription(topic, "a"))
    body = msgspec.json.decode((await entries(client, topic, consumer_group="G")).body)
    if online:
        assert body["subscriptionData"]["subString"] == "a"
        assert body["filterData"] == "null"
    else:
        assert body["filterData"] == f"G@{topic} is not online!"
        assert "subscriptionData" not in body


async def test_queries_of_one_address_leave_the_index_to_others(
    broker: Broker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    arrived, end = asyncio.Event(), asyncio.Event()

    async def search(topic: str, key: str, *bounds: int, **chosen: Any) -> FoundMessages:
        asked.append(key)
        if key == "other":
            arrived.set()
        await end.wait()
        return FoundMessages()

    monkeypatch.setattr(broker.store.index, "query", search)
    queries = [asyncio.create_task(query(client, topic, f"mine{n}")) for n in range(3)]
    await client.send(topic)  # the queries have arrived
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", broker.port, local_addr=("127.0.0.2", 0)
    )
    header = QueryMessageRequestHeader(
        topic=topic, key="other", max_num=1, begin_timestamp=0, end_timestamp=1
    )
    writer.write(frame(RequestCode.QUERY_MESSAGE, 1, ext_fields=header.to_ext()))
    await arrived.wait()
    assert asked == ["mine0", "other"]
    end.set()
    assert await reader.readexactly(4)
    writer.close()
    await asyncio.gather(*queries)
    assert sorted(asked) == ["mine0", "mine1", "mine2", "other"]
