"""Light queues of a broker: every way into them, and the requests that name them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.limits import HALF_TOPIC
from pocketmq.message.record import Record
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import (
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.batch.batches import batch, send
from tests.broker.conftest import Client, Connect, StartBroker, subscription
from tests.broker.transacting import Clock, Producer, records
from tests.fake_time import START, FakeTime
from tests.remoting.peers import RawPeer

ON = {"enable_lmq": True, "enable_multi_dispatch": True}
A, B = "%LMQ%a", "%LMQ%$Parent$b"
BOTH = {names.INNER_MULTI_DISPATCH: f"{A},{B}"}


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(start_broker: StartBroker, time: FakeTime) -> Broker:
    return await start_broker(options={"clock": time.clock, "call_later": time.call_later}, **ON)


async def pulled(client: Client, name: str, offset: int = 0) -> list[Record]:
    return await client.pulled(name, offset, consumer_group="%LMQ%g")


def offsets(found: list[Record]) -> list[str]:
    return [record.properties[names.INNER_MULTI_QUEUE_OFFSET] for record in found]


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_sends_of_every_kind(
    broker: Broker, client: Client, code: int, serialize_type: int
) -> None:
    """By themselves, in one read, and as children of a batch request; between ordinary ones."""
    assert (await client.send("T")).code == 0
    dispatched = send("T", b"x", code=code, properties=BOTH, serialize_type=serialize_type)
    plain = send("T", code=code, serialize_type=serialize_type)
    assert (await client.request(code, dispatched.header, dispatched.body)).code == 0
    sends = [plain, dispatched, plain, dispatched]
    peer = await RawPeer.open(int(broker.address.rpartition(":")[2]))
    try:
        peer.send(b"".join(child.frame(n) for n, child in enumerate(sends)))
        assert {(await peer.read()).code for _ in sends} == {0}
    finally:
        await peer.close()
    assert {answer.code for answer in await batch(client, sends)} == {0}
    expected = [f"{number},{number}" for number in range(5)]
    for name in (A, B):
        found = await pulled(client, name)
        assert offsets(found) == expected
        assert {(record.topic, bytes(record.body)) for record in found} == {("T", b"x")}
    assert len(records(broker, "T")) == 10


async def test_records_within_batches_are_not_dispatched(broker: Broker, client: Client) -> None:
    """As with the official broker; nor can they say that they were."""
    text = names.encode({**BOTH, names.INNER_MULTI_QUEUE_OFFSET: "5,6"})
    body = encode_batch([(0, b"m", text.encode())])
    answer = await client.send("T", body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert answer.code == 0, answer.remark
    (record,) = records(broker, "T")
    assert record.properties[names.INNER_MULTI_DISPATCH] == f"{A},{B}"
    assert names.INNER_MULTI_QUEUE_OFFSET not in record.properties
    assert A not in broker.store.queues


async def test_a_client_does_not_choose_the_offsets(broker: Broker, client: Client) -> None:
    mine = {names.INNER_MULTI_QUEUE_OFFSET: "5,6"}
    assert (await client.send("T", properties={**BOTH, **mine})).code == 0
    assert offsets(await pulled(client, A)) == ["0,0"]
    assert (await client.send("T", properties=mine)).code == 0
    assert names.INNER_MULTI_QUEUE_OFFSET not in records(broker, "T")[1].properties


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELIVER_MS"])
async def test_messages_that_wait_are_dispatched_when_they_are_due(
    broker: Broker, client: Client, time: FakeTime, name: str
) -> None:
    due = {"DELAY": "1", "TIMER_DELIVER_MS": str(START + 2_000)}[name]
    for _ in range(2):
        assert (await client.send("T", properties={**BOTH, name: due})).code == 0
        assert (await client.send("T", properties={name: due})).code == 0
    assert A not in broker.store.queues
    time.advance(60_000)
    assert offsets(await pulled(client, A)) == ["0,0", "1,1"]
    assert len(records(broker, "T")) == 4


async def test_half_messages_are_dispatched_when_they_are_committed(
    broker: Broker, client: Client
) -> None:
    producer = Producer()
    await producer.open(broker.address)
    try:
        await producer.send("T")
        half = await producer.begin("T", Clock(START), b"half", **BOTH)
        other = await producer.begin("T", Clock(START))
        (stored, _) = records(broker, HALF_TOPIC)
        assert names.INNER_MULTI_QUEUE_OFFSET not in stored.properties
        assert A not in broker.store.queues
        for each in (half, other):
            assert (await producer.end(each)).code == 0
    finally:
        await producer.close()
    (record,) = await pulled(client, A)
    assert (record.topic, offsets([record])) == ("T", ["0,0"])


async def test_a_message_that_is_sent_back_is_not_dispatched_again(
    broker: Broker, client: Client, time: FakeTime
) -> None:
    assert (await client.heartbeat("c1", subscription("T"))).code == 0
    assert (await client.send("T", properties=BOTH)).code == 0
    (record,) = records(broker, "T")
    header = ConsumerSendMsgBackRequestHeader(
        offset=record.physical_offset, group="G", delay_level=1, max_reconsume_times=16
    )
    assert (await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
    time.advance(60_000)
    (retry,) = records(broker, "%RETRY%G")
    assert names.INNER_MULTI_QUEUE_OFFSET not in retry.properties
    assert broker.store.max_offset(A, 0) == 1


@pytest.mark.parametrize(
    "value", ["plain", "%LMQ%a/b", f"{A},{A}", ",".join(f"%LMQ%{n}" for n in range(200)), f"{A},"]
)
async def test_names_that_no_light_queue_has_are_refused(
    broker: Broker, client: Client, value: str
) -> None:
    for _ in range(2):  # to a topic that is new, and to one that is known
        answer = await client.send("T", properties={names.INNER_MULTI_DISPATCH: value})
        if value.endswith(","):
            assert answer.code == 0
        else:
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert names.INNER_MULTI_DISPATCH in (answer.remark or "")
        await client.send("T")


async def test_direct_sends_and_pops_are_refused(broker: Broker, client: Client) -> None:
    assert (await client.send("T", properties=BOTH)).code == 0
    for _ in range(2):
        answer = await client.send(A)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "is a light queue" in (answer.remark or "")
    assert broker.store.max_offset(A, 0) == 1
    answer = await client.send("%RETRY%%LMQ%g")
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_the_number_of_light_queues_is_limited(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = await connect(await start_broker(**ON, max_lmq_consume_queue_num=1))
    for name, code in ((A, 0), (B, ResponseCode.LMQ_QUOTA_EXCEEDED), (A, 0)):
        answer = await client.send("T", properties={names.INNER_MULTI_DISPATCH: name})
        assert answer.code == code
    assert (await client.send("T")).code == 0


async def test_a_pull_waits_for_the_next_message(broker: Broker, client: Client) -> None:
    first = asyncio.ensure_future(client.pull(A, 0, sys_flag=6))
    assert (await client.send("T")).code == 0
    assert (await client.send("T", properties=BOTH)).code == 0
    answer = await first
    assert answer.code == 0
    following = asyncio.ensure_future(client.pull(A, 1, sys_flag=6))
    assert (await client.send("T", properties=BOTH)).code == 0
    assert (await following).code == 0


async def test_requests_about_offsets(broker: Broker, client: Client, time: FakeTime) -> None:
    for _ in range(3):
        assert (await client.send("T", properties=BOTH)).code == 0
    queue: dict[str, Any] = {"topic": A, "queue_id": 0}

    async def field(code: int, header: Any, name: str = "offset") -> int:
        answer = await client.request(code, header)
        assert answer.code == 0, answer.remark
        return int(answer.ext_fields[name])

    assert await field(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(**queue)) == 3
    assert await field(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(**queue)) == 0
    search = SearchOffsetRequestHeader(**queue, timestamp=0)
    assert await field(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search) == 0
    earliest = GetEarliestMsgStoretimeRequestHeader(**queue)
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    assert await field(code, earliest, "timestamp") == time.clock()
    for group in ("%LMQ%g", "G"):
        await client.pull(A, consumer_group=group)
        commit = UpdateConsumerOffsetRequestHeader(consumer_group=group, **queue, commit_offset=2)
        assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
        query = QueryConsumerOffsetRequestHeader(consumer_group=group, **queue)
        assert await field(RequestCode.QUERY_CONSUMER_OFFSET, query) == 2
    await broker.stop()
    root = Path(broker.config.store_path_root_dir)
    written = json.loads((root / "config" / "lmqConsumerOffset.json").read_text())
    assert written["lmqOffsetTable"] == {f"{A}@%LMQ%g": 2}
    assert written["offsetTable"] == {f"{A}@G": {"0": 2}}


async def test_light_queues_and_their_groups_have_no_entries_in_tables(
    broker: Broker, client: Client, start_broker: StartBroker, connect: Connect
) -> None:
    assert (await client.send("T", properties=BOTH)).code == 0
    create = CreateTopicRequestHeader(
        topic=B, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6,
        topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False,
    )  # fmt: skip
    assert (await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, create)).code == 0
    group = SubscriptionGroupConfig(group_name="%LMQ%g").encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await client.request(code, None, group)).code == 0
    assert (await client.heartbeat("c", subscription(A), group="%LMQ%g")).code == 0
    await pulled(client, A)
    answer = await client.request(
        RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=B)
    )
    config = TopicConfig.decode(answer.body)
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)
    stats = GetTopicStatsInfoRequestHeader(topic=A)
    assert (await client.request(RequestCode.GET_TOPIC_STATS_INFO, stats)).code == 0
    assert (await client.request(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
    await broker.stop()
    again = await start_broker(**ON)
    for each in (broker, again):
        assert not any("%LMQ%" in name for name in each.tables.topics.table)
        assert not any("%LMQ%" in name for name in each.tables.groups.table)
    assert len(await pulled(await connect(again), A)) == 1


async def test_a_deleted_light_queue_stays_deleted(
    broker: Broker, client: Client, start_broker: StartBroker, connect: Connect
) -> None:
    for _ in range(2):
        assert (await client.send("T", properties=BOTH)).code == 0
    commit = UpdateConsumerOffsetRequestHeader(
        consumer_group="%LMQ%g", topic=B, queue_id=0, commit_offset=2
    )
    assert (await client.request(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    delete = DeleteTopicRequestHeader(topic=B)
    assert (await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, delete)).code == 0
    assert B not in broker.store.queues
    assert broker.tables.offsets.query("%LMQ%g", B, 0) == -1
    await broker.stop()
    queues = Path(broker.config.store_path_root_dir) / "consumequeue"
    for path in sorted(queues.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    again = await start_broker(**ON)
    assert {*again.store.queues} >= {A, "T"}
    assert B not in again.store.queues
    client = await connect(again)
    assert (await client.send("T", properties=BOTH)).code == 0
    assert offsets(await pulled(client, B)) == ["2,0"]


async def test_a_broker_without_light_queues_keeps_them(
    broker: Broker, client: Client, start_broker: StartBroker, connect: Connect
) -> None:
    assert (await client.send("T", properties=BOTH)).code == 0
    await broker.stop()
    off = await start_broker()
    client = await connect(off)
    answer = await client.pull(A)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (await client.send("T", properties=BOTH)).code == 0
    assert (await client.send("T", properties={names.INNER_MULTI_DISPATCH: "x"})).code == 0
    await off.stop()
    client = await connect(await start_broker(**ON))
    assert (await client.send("T", properties=BOTH)).code == 0
    assert offsets(await pulled(client, A)) == ["0,0", "1,1"]
