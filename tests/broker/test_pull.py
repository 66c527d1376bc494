"""PULL_MESSAGE and LITE_PULL: checks, results, tag filters, long polling."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode
from pocketmq.store.reader import DiskLimits
from tests.broker.conftest import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Connect,
    StartBroker,
    fill,
    position,
    subscription,
)

FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21


# --- results -----------------------------------------------------------------------


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_found(client: Client, topic: str, code: int) -> None:
    await fill(client, topic, "", "", "")
    answer = await client.pull(topic, 1, code=code)

    assert (answer.code, answer.remark) == (FOUND, "FOUND")
    assert [bytes(record.body) for record in iter_records(answer.body)] == [b"m1", b"m2"]
    assert answer.ext_fields == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


async def test_what_is_damaged_is_passed_over(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    """As messages that no filter lets through: official consumers then go on at the next offset."""
    broker = await start_broker()
    client = await connect(broker)
    await fill(client, topic, "", "", "")
    entry = broker.store.queues[topic][0].entry(1)
    assert entry is not None
    (log,) = broker.config.commit_log_directory.iterdir()
    with log.open("r+b") as file:
        file.seek(entry[0] + 4)
        file.write(b"nonsense")

    answer = await client.pull(topic, 1, max_msg_nums=1)
    assert (answer.code, answer.remark) == (RETRY, "NO_MATCHED_MESSAGE")
    assert position(answer) == (2, 0, 3)
    assert [bytes(r.body) for r in await client.pulled(topic)] == [b"m0", b"m2"]
    status = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert b'"damagedMessagesPassedOver":"2"' in bytes(status.body).replace(b" ", b"")


async def test_a_pull_is_bounded(client: Client, topic: str) -> None:
    body = encode_batch([(0, b"m", b"")] * 600)
    await client.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)

    assert len(await client.pulled(topic, max_msg_nums=5)) == 5
    assert len(await client.pulled(topic, max_msg_nums=50)) == 32
    assert len(await client.pulled(topic, max_msg_nums=0)) == 1
    assert len(await client.pulled(topic, max_msg_nums=1000, large_transfer=True)) == 512
    assert len(await client.pulled(topic, max_msg_nums=1000, large_transfer=False)) == 32


async def test_the_bounds_of_a_pull_are_settings(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(
        max_transfer_count_on_message_in_memory=40, max_large_transfer_count=60
    )
    client = await connect(broker)
    body = encode_batch([(0, b"m", b"")] * 100)
    await client.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)

    assert len(await client.pulled(topic, max_msg_nums=100)) == 40
    assert len(await client.pulled(topic, max_msg_nums=100, large_transfer=True)) == 60


async def test_messages_that_are_probably_on_the_disk_are_read_in_small_answers(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(await start_broker(access_message_in_memory_max_ratio=0))
    small = encode_batch([(0, b"m", b"")] * 20)
    large = encode_batch([(0, b"x" * 30_000, b"")] * 4)
    for body in (small, large):
        await client.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)

    assert len(await client.pulled(topic)) == 8
    assert len(await client.pulled(topic, 20)) == 2  # of 64 KiB
    assert len(await client.pulled(topic, large_transfer=True, max_msg_nums=100)) == 24


async def test_only_messages_far_from_the_end_of_the_log_count_as_on_the_disk(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(max_transfer_count_on_message_in_disk=2)
    client = await connect(broker)
    await fill(client, topic, *[""] * 6)
    offsets = [record.physical_offset for record in await client.pulled(topic)]
    assert len(offsets) == 6
    end = broker.store.commit_log.end

    def read(memory: int) -> int:
        limits = DiskLimits(memory, 2, 1 << 20)
        return broker.store.get(topic, 0, 0, 32, disk=limits).message_count

    assert [read(end - offsets[n]) for n in (0, 1, 2, 3, 5)] == [6, 6, 6, 2, 2]


async def test_one_large_message_is_returned_whatever_its_size(client: Client, topic: str) -> None:
    for _ in range(2):
        await client.send(topic, b"x" * 300_000)

    [record] = await client.pulled(topic)
    assert len(record.body) == 300_000


async def test_offsets_outside_the_queue(client: Client, topic: str) -> None:
    await fill(client, topic, "", "")

    answers = [await client.pull(topic, offset) for offset in (2, 3, -1)]

    assert [(answer.code, answer.remark) for answer in answers] == [
        (NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
        (MOVED, "OFFSET_OVERFLOW_BADLY"),
        (MOVED, "OFFSET_TOO_SMALL"),
    ]
    assert [position(answer) for answer in answers] == [(2, 0, 2), (2, 0, 2), (0, 0, 2)]


async def test_queues_without_messages(client: Client, topic: str) -> None:
    await fill(client, topic, "")

    at_start = await client.pull(topic, 0, queue_id=1)
    beyond = await client.pull(topic, 5, queue_id=1)

    assert at_start.code == NOT_FOUND
    assert beyond.code == MOVED
    assert position(at_start) == position(beyond) == (0, 0, 0)
    assert at_start.remark in ("NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE")


@pytest.mark.parametrize(
    ("expression", "bodies"),
    [
        ("*", [b"m0", b"m1", b"m2", b"m3"]),
        ("", [b"m0", b"m1", b"m2", b"m3"]),
        (None, [b"m0", b"m1", b"m2", b"m3"]),
        ("A", [b"m0", b"m3"]),
        ("A || B", [b"m0", b"m1", b"m3"]),
    ],
)
async def test_tags(
    client: Client, topic: str, expression: str | None, bodies: list[bytes]
) -> None:
    await fill(client, topic, "A", "B", "", "A")

    records = await client.pulled(topic, subscription=expression)

    assert [bytes(record.body) for record in records] == bodies


async def test_nothing_that_matches(client: Client, topic: str) -> None:
    await fill(client, topic, "A", "A")
    answer = await client.pull(topic, subscription="B", sys_flag=SUBSCRIPTION | SUSPEND)

    assert (answer.code, answer.remark) == (RETRY, "NO_MATCHED_MESSAGE")
    assert position(answer) == (2, 0, 2)


# --- checks ------------------------------------------------------------------------


async def refused(
    client: Client, expected: int, topic: str, *, forbidden: int | None = None, **fields: Any
) -> str:
    answer = await client.pull(topic, **fields)
    assert answer.code == expected, answer.remark
    assert answer.ext_fields == ({} if forbidden is None else {"forbiddenType": str(forbidden)})
    assert answer.remark
    return answer.remark


async def test_brokers_that_do_not_serve_pulls(start_broker: StartBroker, connect: Connect) -> None:
    client = await connect(await start_broker(broker_permission=2, lite_pull_message_enable=False))
    await refused(client, 16, "BenchmarkTest", forbidden=1)


async def test_lite_pulls_may_be_switched_off(start_broker: StartBroker, connect: Connect) -> None:
    client = await connect(await start_broker(lite_pull_message_enable=False))

    await refused(client, 16, "BenchmarkTest", forbidden=1, code=RequestCode.LITE_PULL_MESSAGE)
    assert (await client.pull("BenchmarkTest")).code == NOT_FOUND


async def test_unknown_groups(start_broker: StartBroker, connect: Connect) -> None:
    client = await connect(await start_broker(auto_create_subscription_group=False))

    assert "subscription group [G] does not exist" in await refused(client, 26, "BenchmarkTest")
    assert (await client.pull("BenchmarkTest", consumer_group="TOOLS_CONSUMER")).code == NOT_FOUND


async def test_groups_that_may_not_consume(client: Client) -> None:
    body = b'{"groupName":"G","consumeEnable":false}'
    await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)

    await refused(client, 16, "BenchmarkTest", forbidden=2)


async def test_topics(client: Client, topic: str) -> None:
    assert topic in await refused(client, 17, topic)
    fields = {"defaultTopic": "", "readQueueNums": "1", "writeQueueNums": "1", "perm": "2"}
    fields |= {"topic": topic, "topicFilterType": "SINGLE_TAG"}
    await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
    await refused(client, 16, topic, forbidden=3)


@pytest.mark.parametrize("queue_id", [-1, 4])
async def test_queues_that_are_not_there(client: Client, topic: str, queue_id: int) -> None:
    await fill(client, topic, "")
    assert "queueId" in await refused(client, 29, topic, queue_id=queue_id)


async def test_expressions_of_the_request(client: Client, topic: str) -> None:
    await fill(client, topic, "")

    await refused(client, 23, topic, subscription="||")
    await refused(client, 23, topic, subscription="", expression_type="SQL92")
    assert "SQL92" in await refused(client, 1, topic, subscription="a > 1", expression_type="SQL92")


async def test_subscriptions_of_the_group(client: Client, topic: str) -> None:
    await fill(client, topic, "A", "B")
    assert "group info" in await refused(client, 24, topic, sys_flag=0)

    await client.heartbeat("c1", subscription("other"))
    assert "subscription" in await refused(client, 24, topic, sys_flag=0)

    await client.heartbeat("c1", subscription(topic, "B", version=5))
    await refused(client, 25, topic, sys_flag=0, sub_version=6)
    [record] = await client.pulled(topic, sys_flag=0, sub_version=5, subscription="A")
    assert bytes(record.body) == b"m1"

    await client.heartbeat("c1", subscription(topic, "a > 1", version=6, expression_type="SQL92"))
    assert "SQL92" in await refused(client, 1, topic, sys_flag=0, sub_version=6)


async def test_broadcasting_may_be_forbidden(client: Client, topic: str) -> None:
    await fill(client, topic, "")
    body = b'{"groupName":"G","consumeBroadcastEnable":false}'
    await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    await client.heartbeat("c1", subscription(topic), message_model="BROADCASTING")

    await refused(client, 16, topic, forbidden=4, sys_flag=0)


# --- committing with a pull -------------------------------------------------------------------


async def committed(client: Client, topic: str) -> str | None:
    fields = {"consumerGroup": "G", "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
    answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
    return answer.ext_fields.get("offset")


async def test_a_pull_can_commit(client: Client, topic: str) -> None:
    await fill(client, topic, "", "")
    await client.pull(topic, 1, commit_offset=1)
    assert await committed(client, topic) is None

    await client.pull(topic, 1, commit_offset=1, sys_flag=COMMIT | SUBSCRIPTION)
    assert await committed(client, topic) == "1"


async def test_a_held_pull_commits_when_it_comes_and_not_again(
    client: Client, broker: Broker, connect: Connect, topic: str
) -> None:
    await fill(client, topic, "")
    consumer = await connect(broker)
    flags = COMMIT | SUSPEND | SUBSCRIPTION
    waiting = asyncio.ensure_future(consumer.pull(topic, 1, commit_offset=1, sys_flag=flags))
    while await committed(client, topic) is None:
        pass
    fields = {"consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": "0"}
    await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)

    await fill(client, topic, "")
    assert (await waiting).code == FOUND
    assert await committed(client, topic) == "0"


# --- rejectPullConsumerEnable -----------------------------------------------------------------


async def test_a_broker_without_pull_consumers(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(reject_pull_consumer_enable=True)
    pulling, pushing = await connect(broker), await connect(broker)
    await fill(pulling, topic, "")
    refused = (24, "the consumer's group info not exist, or the pull consumer is rejected by ")

    async def answer(client: Client, **fields: Any) -> tuple[int, str]:
        found = await client.pull(topic, **fields)
        return found.code, (found.remark or "")[: len(refused[1])]

    assert await answer(pulling) == refused
    # It does not become known by its heartbeats.
    pull_consumer = await pulling.heartbeat(
        "c1", subscription(topic), consume_type="CONSUME_ACTIVELY"
    )
    assert pull_consumer.code == 0
    assert broker.tables.consumers.get("G") is None
    assert await answer(pulling) == refused
    # Push consumers pull, and who knows the name of their group; tools do, too.
    await pushing.heartbeat("c2", subscription(topic), group="Pushers")
    for client in (pushing, pulling):
        assert await answer(client, consumer_group="Pushers") == (FOUND, "FOUND")
    for tool in ("TOOLS_CONSUMER", "CID_RMQ_SYS_x"):
        assert await answer(pulling, consumer_group=tool) == (FOUND, "FOUND")


async def test_a_pull_consumer_from_before_goes_on(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker()
    member, stranger = await connect(broker), await connect(broker)
    await fill(member, topic, "")
    await member.heartbeat("c1", subscription(topic), consume_type="CONSUME_ACTIVELY")
    answer = await member.request(
        RequestCode.UPDATE_BROKER_CONFIG, None, b"rejectPullConsumerEnable=true"
    )
    assert answer.code == 0

    assert (await member.pull(topic)).code == FOUND
    assert (await stranger.pull(topic)).code == 24
