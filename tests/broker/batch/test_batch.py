"""COMMON_BATCH_REQUEST over real connections, also where the reference left something out."""

from __future__ import annotations

import asyncio
import gc
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.batch import BatchProcessor
from pocketmq.broker.waiting.hold_service import HeldPull
from pocketmq.message import loose_json
from pocketmq.message.record import iter_records
from pocketmq.remoting.answers.batch import NOT_FOUND_REMARK, RATE_LIMIT_REMARK, decode_answers
from pocketmq.remoting.answers.batch_answers import BatchAnswers
from pocketmq.remoting.bodies.heartbeat import HeartbeatData, ProducerData
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingClosed
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    GetMaxOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import LongRequests
from pocketmq.remoting.serving.request import Response
from pocketmq.remoting.serving.server import RemotingServer, ServerConnection
from pocketmq.store.config import FlushDiskType
from pocketmq.store.recovery.flush import FlushListener
from tests.broker.batch.batches import Child, batch, body_of, held, parent, pull, send
from tests.broker.conftest import COMMIT, SUBSCRIPTION, Client, Connect, StartBroker
from tests.remoting.peers import RawPeer

PARENT = int(RequestCode.COMMON_BATCH_REQUEST)
TOPICS = [f"Batch_{n}" for n in range(20)]


@pytest.fixture(params=list(FlushDiskType), ids=lambda kind: kind.name)
async def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> Broker:
    return await start_broker(flush_disk_type=request.param)


async def fill(client: Client, topics: list[str], count: int = 1) -> None:
    for _ in range(count):
        for answer in await batch(client, [send(topic, topic.encode()) for topic in topics]):
            assert answer.code == 0, answer.remark


def put_in_one_turn(broker: Broker, topics: list[str]) -> None:
    """A parent of sends may take several turns of the event loop on a busy machine."""
    for topic in topics:
        broker.store.put(topic, 0, b"", "", born_timestamp=0, born_host=bytes(8), tags_code=0)
    broker.store.settle()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something that another task does has happened; pytest ends it."""
    while not condition():  # noqa: ASYNC110 (what is looked at has no event)
        await asyncio.sleep(0.001)


# Sends (cases 2 and 3)


@pytest.mark.parametrize("code", [10, 310, 320])
async def test_sends_to_twenty_topics(client: Client, code: int) -> None:
    answers = await batch(client, [send(topic, code=code) for topic in TOPICS])
    assert [answer.code for answer in answers] == [0] * 20
    assert [answer.ext_fields["queueOffset"] for answer in answers] == ["0"] * 20
    again = await batch(client, [send(topic, code=code) for topic in TOPICS])
    assert [answer.ext_fields["queueOffset"] for answer in again] == ["1"] * 20
    for topic in TOPICS:
        assert [r.queue_offset for r in await client.pulled(topic)] == [0, 1]


async def test_sends_that_fail_fail_each_by_itself(client: Client) -> None:
    answers = await batch(client, [send(topic, default_topic="Nobody") for topic in TOPICS])
    assert {answer.code for answer in answers} == {ResponseCode.TOPIC_NOT_EXIST}


async def test_sends_to_one_queue_keep_the_order_of_the_body(client: Client, topic: str) -> None:
    bodies = [b"%d" % n for n in range(300)]
    for _ in range(2):  # the topic is new to the first parent and known to the second
        await batch(client, [send(topic, body) for body in bodies])
    found: list[bytes] = []
    while len(found) < 600:
        found += [bytes(r.body) for r in await client.pulled(topic, len(found))]
    assert found == bodies * 2


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30, 0x7B])
async def test_bits_of_hosts_that_a_child_sends_are_not_stored(
    client: Client, topic: str, sys_flag: int
) -> None:
    await fill(client, [topic])
    flags = (0, sys_flag, 0)
    answers = await batch(client, [send(topic, b"%d" % n, sys_flag=n) for n in flags])
    assert [answer.code for answer in answers] == [0, 0, 0]
    await client.send(topic, b"later")

    records = await client.pulled(topic)
    assert [bytes(record.body) for record in records] == [
        topic.encode(), b"0", b"%d" % sys_flag, b"0", b"later",
    ]  # fmt: skip
    assert [record.sys_flag for record in records] == [0, 0, sys_flag & ~0x30, 0, 0]
    assert {record.born_host for record in records} == {records[0].born_host}


async def test_unusual_sends_between_ordinary_ones(client: Client, topic: str) -> None:
    await client.send(topic)
    answers = await batch(
        client,
        [
            send(topic, b"1"),
            send(topic, b"2", properties={"DELAY": "3"}),
            send(topic, b"3", queue_id=99),
            send(topic, b""),
            send("bad topic", b"5"),
            send(topic, b"6", code=320),
            send(topic, b"7", properties={"TAGS": "A", "UNIQ_KEY": "U7"}),
            send("New_of_" + topic, b"8"),
            send(topic, b"9", queue_id=-1),
        ],
    )
    assert [answer.code for answer in answers] == [0, 0, 29, 1, 29, 0, 0, 0, 0]
    assert answers[6].ext_fields["transactionId"] == "U7"
    assert [bytes(r.body) for r in await client.pulled(topic, 1)][:3] == [b"1", b"6", b"7"]


async def test_statistics_count_children_like_single_sends(
    broker: Broker, client: Client, topic: str
) -> None:
    await client.send(topic)
    traffic = broker.tables.statistics.put
    messages, times, size = traffic.messages, traffic.times, traffic.size
    await client.send(topic)
    one = traffic.size - size
    await batch(client, [send(topic)] * 10)
    assert (traffic.messages, traffic.times) == (messages + 11, times + 11)
    assert traffic.size - size == 11 * one
    of_topic = broker.tables.statistics.put_of(topic)
    assert of_topic.messages == 12


async def test_a_run_goes_on_in_the_next_commit_log_file(client: Client, topic: str) -> None:
    # 1 MiB per file (conftest): these fill more than two.
    children = [send(topic, bytes(60_000)) for _ in range(40)]
    answers = await batch(client, children)
    assert [answer.code for answer in answers] == [0] * 40
    assert [int(a.ext_fields["queueOffset"]) for a in answers] == list(range(40))
    offset = 0
    while offset < 40:
        records = await client.pulled(topic, offset)
        assert [r.queue_offset for r in records] == list(range(offset, offset + len(records)))
        offset += len(records)


# Offsets and other codes (cases 4 to 6)


async def test_offsets_are_committed_and_queried(client: Client) -> None:
    await fill(client, TOPICS)
    query = [
        Child(14, QueryConsumerOffsetRequestHeader(consumer_group="G", topic=topic, queue_id=0))
        for topic in TOPICS
    ]
    commits = [
        Child(
            15,
            UpdateConsumerOffsetRequestHeader(
                consumer_group="G", topic=topic, queue_id=0, commit_offset=n
            ),
        )
        for n, topic in enumerate(TOPICS)
    ]
    assert len(await batch(client, query)) == 20  # with whatever codes they have alone
    await client.pull(TOPICS[0])  # makes the group known
    assert {answer.code for answer in await batch(client, commits)} == {0}
    answers = await batch(client, query)
    assert [answer.ext_fields["offset"] for answer in answers] == [str(n) for n in range(20)]


async def test_a_child_that_needs_the_connection(broker: Broker, client: Client) -> None:
    data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="P")])
    (answer,) = await batch(client, [Child(34, None, data.encode())])
    assert answer.ext_fields["IS_SUPPORT_BATCH_PROTOCOL"] == "true"
    assert [c.client_id for c in broker.tables.producers.clients("P") or ()] == ["c"]


async def test_runtime_info_says_that_batches_are_served(client: Client) -> None:
    answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert b'"isSupportBatchProtocol":"true"' in bytes(answer.body)


async def test_admin_codes_with_asynchronous_handlers(client: Client) -> None:
    fields = {
        "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "2", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    children = [Child(17, None, b"", fields | {"topic": topic}) for topic in TOPICS[:3]]
    assert [answer.code for answer in await batch(client, children)] == [0, 0, 0]


# Pulls (cases 7 to 11)


async def test_pulls_that_all_find_something(client: Client) -> None:
    await fill(client, TOPICS)
    answers = await batch(client, [pull(topic) for topic in TOPICS])
    for topic, answer in zip(TOPICS, answers, strict=True):
        assert answer.code == 0
        (record,) = iter_records(answer.body)
        assert (record.topic, bytes(record.body)) == (topic, topic.encode())
        assert answer.ext_fields["nextBeginOffset"] == "1"


async def test_one_empty_topic_among_twenty(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    children = [
        pull(topic, offset=1 if n == 7 else 0, hold=15_000) for n, topic in enumerate(TOPICS)
    ]
    answers = await batch(client, children)
    assert [answer.code for answer in answers] == [19 if n == 7 else 0 for n in range(20)]
    assert (answers[7].remark, answers[7].ext_fields) == (NOT_FOUND_REMARK, {})
    assert held(broker) == 0


async def test_held_pulls_end_with_the_first_message(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    waiting = asyncio.create_task(batch(client, [pull(t, 1, hold=15_000) for t in TOPICS]))
    await until(lambda: held(broker) == 20)
    assert not waiting.done()
    await client.send(TOPICS[11], b"at last")
    answers = await waiting
    assert [answer.code for answer in answers] == [0 if n == 11 else 19 for n in range(20)]
    assert [bytes(r.body) for r in iter_records(answers[11].body)] == [b"at last"]
    assert {answers[n].remark for n in range(20) if n != 11} == {NOT_FOUND_REMARK}
    assert held(broker) == 0


async def test_messages_of_one_turn_wake_all_their_pulls(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    waiting = asyncio.create_task(batch(client, [pull(t, 1, hold=15_000) for t in TOPICS]))
    await until(lambda: held(broker) == 20)
    put_in_one_turn(broker, TOPICS[:5])
    assert [answer.code for answer in await waiting] == [0] * 5 + [19] * 15


async def test_the_earliest_deadline_ends_the_wait(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    children = [pull(t, 1, hold=100 if n == 3 else 60_000) for n, t in enumerate(TOPICS)]
    answers = await batch(client, children)
    assert {answer.code for answer in answers} == {19}
    assert answers[3].ext_fields["nextBeginOffset"] == "1"  # it ended by itself
    assert held(broker) == 0


async def test_an_error_beside_a_ready_and_a_held_child(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS[:2])
    answers = await batch(
        client,
        [
            pull(TOPICS[0]),
            pull("Nowhere"),
            pull(TOPICS[1], 1, hold=15_000),
            pull(TOPICS[0], 77),
            pull(TOPICS[0], queue_id=99),
        ],
    )
    assert [answer.code for answer in answers] == [0, 17, 19, 21, 29]
    assert held(broker) == 0


async def test_enough_data_ends_the_reading(start_broker: StartBroker, connect: Connect) -> None:
    broker = await start_broker(batch_pull_enough_bytes=3_000)
    client = await connect(broker)
    await fill(client, TOPICS)
    await batch(client, [send(topic, bytes(1_000)) for topic in TOPICS])
    codes = [a.code for a in await batch(client, [pull(topic, hold=15_000) for topic in TOPICS])]
    assert 0 < codes.count(0) < 5
    assert set(codes) == {0, 19}
    seen = {n for n, code in enumerate(codes) if code == 0}
    while len(seen) < 20:  # nobody starves: each parent begins one queue further
        codes = [a.code for a in await batch(client, [pull(topic) for topic in TOPICS])]
        seen |= {n for n, code in enumerate(codes) if code == 0}


async def test_an_offset_carried_by_a_pull_that_is_not_read_any_more_is_stored(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(batch_pull_enough_messages=1)
    client = await connect(broker)
    await fill(client, TOPICS)
    flag = SUBSCRIPTION | COMMIT
    await batch(client, [pull(topic, sys_flag=flag, commit_offset=1) for topic in TOPICS])
    for topic in TOPICS:
        header = QueryConsumerOffsetRequestHeader(consumer_group="G", topic=topic, queue_id=0)
        answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        assert answer.ext_fields["offset"] == "1"


# Pulls whose client wants no word of those that found nothing


async def news(client: Client, children: list[Child]) -> dict[int, int]:
    """The codes of the children that are in the answer, by their place."""
    answer = await parent(client, children, omit=True)
    assert answer.code == 0
    return {opaque - 100: child.code for opaque, child in decode_answers(answer.body).items()}


async def test_children_without_news_are_left_out(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    assert await news(client, [pull(t, n % 2) for n, t in enumerate(TOPICS)]) == {
        n: 19 if n % 2 else 0
        for n in range(20)  # answered, where they do not wait
    }
    held_children = [pull(t, n % 2, hold=15_000) for n, t in enumerate(TOPICS)]
    assert await news(client, held_children) == dict.fromkeys(range(0, 20, 2), 0)


async def test_equal_children_take_over_what_was_left_waiting(
    broker: Broker, client: Client
) -> None:
    await fill(client, TOPICS)
    children = [pull(topic, 1, hold=15_000) for topic in TOPICS]
    waiting = asyncio.create_task(news(client, children))
    await until(lambda: held(broker) == 20)
    await client.send(TOPICS[3])
    assert await waiting == {3: 0}
    assert held(broker) == 19, "they go on waiting"
    misses = broker.tables.statistics.get_miss
    waiting = asyncio.create_task(
        news(client, [*children[:3], pull(TOPICS[3], 2, hold=15_000), *children[4:]])
    )
    await until(lambda: held(broker) == 20)
    assert broker.tables.statistics.get_miss == misses
    put_in_one_turn(broker, TOPICS[10:12])
    assert await waiting == {10: 0, 11: 0}
    await until(lambda: held(broker) == 0)  # nobody took them over this time


async def test_news_between_two_parents_are_not_lost(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    children = [pull(topic, 1, hold=15_000) for topic in TOPICS]
    waiting = asyncio.create_task(news(client, children))
    await until(lambda: held(broker) == 20)
    await client.send(TOPICS[3])
    assert await waiting == {3: 0}
    await client.send(TOPICS[4])  # while its pull belongs to nobody
    assert await news(client, children) == {3: 0, 4: 0}


async def test_children_that_were_not_read_are_not_taken_for_waiting(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker(batch_pull_enough_messages=1)
    client = await connect(broker)
    await fill(client, TOPICS)
    children = [pull(topic, hold=15_000) for topic in TOPICS]
    seen: set[int] = set()
    async with asyncio.timeout(10):
        while len(seen) < 20:
            seen |= set(await news(client, children))
    assert held(broker) == 0


async def test_the_same_child_twice_on_one_connection(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    children = [pull(topic, 1, hold=15_000) for topic in TOPICS]
    tasks = [asyncio.create_task(news(client, children)) for _ in range(3)]
    await until(lambda: held(broker) == 60)
    await client.send(TOPICS[0])
    assert await asyncio.gather(*tasks) == [{0: 0}] * 3
    waiting = asyncio.create_task(news(client, children[1:]))
    await until(lambda: held(broker) == 19)
    await client.send(TOPICS[1])
    assert await waiting == {0: 0}


async def one_answered(broker: Broker, client: Client) -> list[Child]:
    """Two pulls that waited in one parent, of which the second waits on."""
    await fill(client, TOPICS[:2])
    children = [pull(TOPICS[0], 1, hold=15_000), pull(TOPICS[1], 1, hold=15_000)]
    waiting = asyncio.create_task(news(client, children))
    await until(lambda: held(broker) == 2)
    await client.send(TOPICS[0])
    await waiting
    return children


async def test_a_refused_parent_takes_nothing_over(broker: Broker, client: Client) -> None:
    children = await one_answered(broker, client)
    body = body_of(children)
    answer = await client.request(
        666, BatchRequestHeader(dispatch_code=11, omit_not_found=True), body + body
    )
    assert "duplicated key" in (answer.remark or "")
    await until(lambda: held(broker) == 0)


async def test_a_known_child_that_is_cut_off(broker: Broker, client: Client) -> None:
    children = await one_answered(broker, client)
    frame = children[1].frame(101)
    length, word = struct.unpack_from(">II", frame)
    # Its header says to be longer than what is there, which is the known one's to the byte.
    body = struct.pack(">II", length + 100, word + 100) + frame[8:]
    answer = await client.request(
        666, BatchRequestHeader(dispatch_code=11, omit_not_found=True), body
    )
    assert f"child frame of {length + 100} bytes at byte 0" in (answer.remark or "")


# Parents that are refused, and children that are


async def refused(client: Client, body: bytes, code: int | None = 30) -> str:
    answer = await client.request(
        RequestCode.COMMON_BATCH_REQUEST, BatchRequestHeader(dispatch_code=code), body
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert not answer.body
    return answer.remark or ""


async def test_refused_parents_execute_nothing(broker: Broker, client: Client, topic: str) -> None:
    good = body_of([send(topic), send(topic)])
    assert "dispatchCode None" in await refused(client, good, None)
    assert "dispatchCode 0" in await refused(client, good, 0)
    assert "dispatchCode 4711" in await refused(client, good, 4711)
    assert "dispatchCode 666" in await refused(client, body_of([Child(666)]), 666)
    assert "no child" in await refused(client, b"", 310)
    assert "child frame" in await refused(client, good[:-1], 310)
    assert "duplicated key 100" in await refused(client, good + good[: len(good) // 2], 310)
    many = b"".join(send(topic).frame(n) for n in range(1001))
    assert "more than 1000" in await refused(client, many, 310)
    assert broker.store.counters.messages_put == 0


async def test_the_number_of_children_can_be_limited(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = await connect(await start_broker(max_child_request_num=2))
    children = [Child(30, GetMaxOffsetRequestHeader(topic="T", queue_id=0))] * 3
    assert len(await batch(client, children[:2])) == 2
    assert "more than 2 children" in await refused(client, body_of(children))


async def test_headers_that_take_long_to_decode_are_bounded_together(
    client: Client, topic: str
) -> None:
    """A thousand headers of 4 KiB that are not standard JSON took four seconds in one go."""

    def frames(count: int, text: str) -> bytes:
        heads = [(text % opaque).encode() for opaque in range(count)]
        return b"".join(struct.pack(">II", 4 + len(head), len(head)) + head for head in heads)

    loose = "{code:30,opaque:%d,extFields:{topic:'T',queueId:0,x:[" + "{a:1}," * 150 + "1]}}"
    assert len(loose) * 4 < loose_json.MAX_LENGTH
    dispatch = BatchRequestHeader(dispatch_code=30)
    code = RequestCode.COMMON_BATCH_REQUEST
    assert (await client.request(code, dispatch, frames(4, loose))).code == 0
    assert "are not standard JSON" in await refused(client, frames(5, loose))
    tolerated = '{"opaque":%d,"code":30,"extFields":{"topic":"T","queueId":0,"x":[' + "[]," * 1300
    tolerated += "1]}}"
    assert (await client.request(code, dispatch, frames(32, tolerated))).code == 0
    assert "bytes of unusual headers" in await refused(client, frames(40, tolerated))


async def test_children_of_another_code_are_refused_alone(client: Client, topic: str) -> None:
    nested = Child(666, BatchRequestHeader(dispatch_code=310), body_of([send(topic)]))
    maximum = Child(30, GetMaxOffsetRequestHeader(topic=topic, queue_id=0))
    answers = await batch(client, [send(topic), nested, maximum, send(topic), Child(4711)])
    assert [answer.code for answer in answers] == [0, 1, 1, 0, 1]
    assert "request code 666 in a batch of 310" in (answers[1].remark or "")


async def test_a_header_without_its_mandatory_fields_fails_alone(
    client: Client, topic: str
) -> None:
    answers = await batch(client, [send(topic), Child(310, None, b"x", {"b": topic}), send(topic)])
    assert [answer.code for answer in answers] == [0, 1, 0]
    assert "SendMessageRequestHeaderV2" in (answers[1].remark or "")


async def test_children_of_mixed_serialization(client: Client, topic: str) -> None:
    children = [send(topic, b"%d" % n, serialize_type=n % 2) for n in range(6)]
    answers = await batch(client, children)
    assert [answer.code for answer in answers] == [0] * 6
    assert [answer.serialize_type for answer in answers] == [0, 1] * 3
    assert [bytes(r.body) for r in await client.pulled(topic)] == [b"%d" % n for n in range(6)]


async def test_a_thousand_children(client: Client, topic: str) -> None:
    answers = await batch(client, [send(topic, queue_id=n % 4) for n in range(1000)])
    assert {answer.code for answer in answers} == {0}


async def test_a_oneway_child_is_answered_and_a_oneway_parent_is_not(
    broker: Broker, client: Client, topic: str
) -> None:
    (answer,) = await batch(client, [send(topic)._replace(flag=2)])
    assert answer.code == 0
    await client.connection.send_oneway(
        666, BatchRequestHeader(dispatch_code=310), body_of([send(topic)])
    )
    await until(lambda: broker.store.counters.messages_put == 2)


async def test_sends_above_the_limit_in_flight_are_refused(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(
        flush_disk_type=FlushDiskType.SYNC_FLUSH, send_thread_pool_queue_capacity=10
    )
    client = await connect(broker)
    await client.send(topic)
    answers = await batch(client, [send(topic) for _ in range(30)])
    assert [answer.code for answer in answers] == [0] * 10 + [ResponseCode.SYSTEM_BUSY] * 20
    unflushed = broker.components.sends.unflushed
    assert (unflushed.count, unflushed.size) == (0, 0)


async def test_sync_flush_commits_a_parent_as_one_group(
    start_broker: StartBroker, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    client = await connect(broker)
    for _ in range(2):  # the first one makes the topic, the second finds it checked
        await batch(client, [send(topic, queue_id=n % 4) for n in range(4)])
    waits: list[int] = []
    when_flushed = broker.store.when_flushed

    def counted(end_offset: int, listener: FlushListener) -> None:
        waits.append(end_offset)
        when_flushed(end_offset, listener)

    monkeypatch.setattr(broker.store, "when_flushed", counted)
    answers = await batch(client, [send(topic, queue_id=n % 4) for n in range(500)])
    assert {answer.code for answer in answers} == {0}
    assert waits == [broker.store.commit_log.end], "one wait for the disk for all children"


async def test_a_child_that_is_never_answered_does_not_keep_the_others(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker()
    dispatcher = Dispatcher()
    dispatcher.register(1, lambda request: Response() if request.body else None)
    holds = broker.components.pulls.holds
    long = LongRequests()
    BatchProcessor(broker.config, dispatcher, holds, long, base_deadline=0.05).register(dispatcher)
    server = RemotingServer(dispatcher)
    await server.start()
    client = Client()
    await client.open(f"127.0.0.1:{server.port}")
    answers = await batch(client, [Child(1, None, b"x"), Child(1), Child(1, None, b"x")])
    assert [answer.code for answer in answers] == [0, 1, 0]
    assert answers[1].remark == RATE_LIMIT_REMARK
    await client.close()
    await server.stop()


async def test_more_parents_of_pulls_than_may_wait_for_their_turn(
    start_broker: StartBroker, connect: Connect
) -> None:
    broker = await start_broker()
    await fill(await connect(broker), TOPICS[:1], 100)
    dispatcher = Dispatcher()
    broker.components.pulls.register(dispatcher)
    holds = broker.components.pulls.holds
    long = LongRequests()
    BatchProcessor(broker.config, dispatcher, holds, long, most_queued=1).register(dispatcher)
    server = RemotingServer(dispatcher)
    await server.start()
    client = Client()
    await client.open(f"127.0.0.1:{server.port}")
    children = [
        pull(TOPICS[0], 0, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=n) for n in range(20)
    ]
    parents = [batch(client, [child] * 30) for child in children]
    for answers in await asyncio.gather(*parents):
        assert {answer.code for answer in answers} == {0}
    assert broker.tables.offsets.query("G", TOPICS[0], 0) == 19, "they keep their order"
    await client.close()
    await server.stop()


# Nothing is left behind


async def test_nothing_is_left_of_a_parent_whose_connection_closes(
    broker: Broker, client: Client, connect: Connect
) -> None:
    await fill(client, TOPICS)
    before = live(BatchAnswers, HeldPull)
    other = await connect(broker)
    waiting = asyncio.create_task(parent(other, [pull(t, 1, hold=60_000) for t in TOPICS]))
    await until(lambda: held(broker) == 20)
    await other.close()
    await until(lambda: held(broker) == 0)
    with pytest.raises(RemotingClosed):
        await waiting
    await client.send(TOPICS[0])  # wakes nobody
    await asyncio.sleep(0)
    assert live(BatchAnswers, HeldPull) == before


async def test_no_garbage_collection_is_needed_for_parents(
    broker: Broker, client: Client, connect: Connect
) -> None:
    """What was held for long is old, and old garbage is looked for very rarely."""
    await fill(client, TOPICS)
    gc.collect()
    gc.disable()
    try:
        before = counted(BatchAnswers, HeldPull, ServerConnection)
        other = await connect(broker)
        waiting = asyncio.create_task(parent(other, [pull(t, 1, hold=60_000) for t in TOPICS]))
        await until(lambda: held(broker) == 20)
        await other.close()
        with pytest.raises(RemotingClosed):
            await waiting
        answered = asyncio.create_task(batch(client, [pull(t, 1, hold=60_000) for t in TOPICS]))
        await until(lambda: held(broker) == 20)
        await client.send(TOPICS[11])
        await answered
        del other, waiting, answered
        async with asyncio.timeout(10):
            await until(lambda: counted(BatchAnswers, HeldPull, ServerConnection) == before)
    finally:
        gc.enable()


def live(*kinds: type[object]) -> int:
    """How many objects of these classes there are, apart from garbage."""
    gc.collect()
    return counted(*kinds)


def counted(*kinds: type[object]) -> int:
    return sum(1 for thing in gc.get_objects() if type(thing) in kinds)


def test_mapped_slices_are_never_unmapped_under_a_write(tmp_path: Path) -> None:
    """A client that does not read: what it asked for waits in the transport while files go.

    On uvloop, whose transports keep the slices they are given.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(slices_outlive_their_file(tmp_path))


async def slices_outlive_their_file(directory: Path) -> None:
    config = BrokerConfig(
        store_path_root_dir=str(directory),
        broker_name="b0",
        listen_port=0,
        mapped_file_size_commit_log=4 << 20,
    )
    before = live(BatchAnswers)
    async with Broker(config) as broker:
        client = Client()
        await client.open(broker.address)
        slow = await RawPeer.open(broker.port)
        for _ in range(8):
            await batch(client, [send("T", bytes(200_000), queue_id=q) for q in range(4)])
        header = BatchRequestHeader(dispatch_code=RequestCode.PULL_MESSAGE)
        body = body_of([pull("T", queue_id=q) for q in range(4)])
        for opaque in range(20):
            slow.send(encode_command(PARENT, opaque, header=header, body=body))
        await until(lambda: any(not c.writable for c in connections()))
        files = broker.store.commit_log.files
        retired = files.retired
        first = files.take_first()
        files.discard(first)  # as the cleaning of expired files does
        assert not first.path.exists()
        assert len(retired) == 1, "still mapped, for the write"
        retired.sweep()
        assert len(retired) == 1
        codes = set()
        for _ in range(20):
            answer = await slow.read()
            for child in decode_answers(answer.body).values():
                codes.add(child.code)
                assert all(bytes(r.body) == bytes(200_000) for r in iter_records(child.body))
        assert 0 in codes

        def unmapped() -> bool:
            # Not while its last sync is under way, which takes long on a busy disk.
            retired.sweep()
            return len(retired) == 0

        gc.collect()
        await until(unmapped)
        await slow.close()
        await client.close()
    assert live(BatchAnswers) == before


def connections() -> list[ServerConnection]:
    return [thing for thing in gc.get_objects() if isinstance(thing, ServerConnection)]


async def test_an_answered_parent_leaves_nothing(broker: Broker, client: Client) -> None:
    await fill(client, TOPICS)
    before = live(BatchAnswers)
    waiting = asyncio.create_task(batch(client, [pull(t, 1, hold=15_000) for t in TOPICS]))
    await until(lambda: held(broker) == 20)
    assert live(BatchAnswers) == before + 1
    await client.send(TOPICS[0])
    await waiting
    assert held(broker) == 0
    assert live(BatchAnswers) == before
