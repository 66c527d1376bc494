"""Reserved properties that a client sets, on every way into a broker.

None has an effect that only the broker may give it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.limits import HALF_TOPIC, REVIVE_LOG_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.message.recall_handle import RecallHandle
from pocketmq.message.reserved import BROKERS_OWN, SET_BY, SetBy
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import ConsumerSendMsgBackRequestHeader, RecallMessageRequestHeader
from tests.broker.batch.batches import batch, send
from tests.broker.conftest import Client, Connect, subscription
from tests.broker.transacting import halves, records
from tests.fake_time import START, FakeTime
from tests.remoting.peers import RawPeer

SECRET, OWN = "Secret", "Own"
DUE = START + 60_000
ILLEGAL = ResponseCode.MESSAGE_ILLEGAL

#: What a client that means harm sets; "1" otherwise.
HOSTILE = {
    "TIMER_DEL_UNIQKEY": f"{SECRET}+K",
    "REAL_TOPIC": SECRET,
    "RETRY_TOPIC": SECRET,
    "DLQ_ORIGIN_TOPIC": SECRET,
    "TIMER_OUT_MS": str(DUE - 1000),
    "TIMER_DELIVER_MS": str(DUE),
    "TRAN_MSG": "true",
    "POP_CK": "0 1 1 0 0 b0 0 0",
    "INNER_MULTI_DISPATCH": f"%LMQ%{SECRET}",
    "_SYS_MSG_PRIORITY_": "0",  # the queue that is read
}


def hostile(name: str) -> str:
    return HOSTILE.get(name, "1")


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(tmp_path: Path, time: FakeTime) -> AsyncIterator[Broker]:
    config = BrokerConfig(
        store_path_root_dir=str(tmp_path / "store"),
        broker_name="b0",
        listen_port=0,
        recall_message_enable=True,
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=20_000,
    )
    async with Broker(config, clock=time.clock, call_later=time.call_later) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> Client:
    client = await connect(broker)
    await client.send(SECRET, b"first")
    await client.send(OWN, b"first")
    secret = {"UNIQ_KEY": "K", "TIMER_DELIVER_MS": str(DUE)}
    assert (await client.send(SECRET, b"secret", properties=secret)).code == 0
    return client


# --- the ways into a broker -------------------------------------------------------------------

Door = Callable[[Broker, Client, bytes, dict[str, str]], Awaitable[int]]
"""Sends a message with these properties to OWN, and returns the code of the answer."""


async def single(broker: Broker, client: Client, body: bytes, properties: dict[str, str]) -> int:
    return (await client.send(OWN, body, properties=properties)).code


def in_one_read(code: int, serialize_type: int, number: int) -> Door:
    """As many sends as in one read, which compiled code takes where it is there."""

    async def door(broker: Broker, client: Client, body: bytes, properties: dict[str, str]) -> int:
        child = send(OWN, body, code=code, properties=properties, serialize_type=serialize_type)
        ordinary = send(
            OWN, b"ordinary", code=code, properties={"UNIQ_KEY": "O"}, serialize_type=serialize_type
        )
        children = [ordinary] * (number - 1) + [child]
        peer = await RawPeer.open(int(broker.address.rpartition(":")[2]))
        try:
            peer.send(b"".join(one.frame(n) for n, one in enumerate(children)))
            answers = {answer.opaque: answer for answer in [await peer.read() for _ in children]}
        finally:
            await peer.close()
        return answers[number - 1].code

    return door


async def child(broker: Broker, client: Client, body: bytes, properties: dict[str, str]) -> int:
    ordinary = send(OWN, b"ordinary")
    children = [ordinary, send(OWN, body, properties=properties), ordinary]
    return (await batch(client, children))[1].code


async def whole_batch(
    broker: Broker, client: Client, body: bytes, properties: dict[str, str]
) -> int:
    items = encode_batch([(0, body, b"UNIQ_KEY\x01U\x02")])
    return (await client.send(OWN, items, code=320, batch=True, properties=properties)).code


async def in_a_batch(
    broker: Broker, client: Client, body: bytes, properties: dict[str, str]
) -> int:
    items = [(0, body, names.encode(properties).encode()), (0, b"ordinary", b"UNIQ_KEY\x01U")]
    answer = await client.send(OWN, encode_batch(items), code=320, batch=True)
    return answer.code


async def reply(broker: Broker, client: Client, body: bytes, properties: dict[str, str]) -> int:
    """Nobody takes it, but it is stored."""
    fields: dict[str, Any] = {"code": RequestCode.SEND_REPLY_MESSAGE_V2}
    await client.send(OWN, body, properties=properties, **fields)
    return 0


SINGLE: dict[str, Door] = {
    "single": single,
    "JSON": in_one_read(310, 0, 3),
    "JSON, code 10": in_one_read(10, 0, 3),
    "binary": in_one_read(310, 1, 3),
    "binary, alone": in_one_read(310, 1, 1),
    "child of a batch request": child,
}
BATCHES: dict[str, Door] = {"whole batch": whole_batch, "in a batch": in_a_batch}


def read(broker: Broker, topic: str) -> list[bytes]:
    return [bytes(record.body) for record in records(broker, topic)]


# --- row by row -------------------------------------------------------------------------------


@pytest.mark.parametrize("door", [*SINGLE, *BATCHES, "reply"])
async def test_what_a_client_sets_has_no_effect_that_it_may_not_have(
    broker: Broker, client: Client, time: FakeTime, door: str
) -> None:
    doors = {**SINGLE, **BATCHES, "reply": reply}
    delivered: set[object] = set()
    waiting: set[object] = set()
    refused: set[object] = set()
    for name, by in SET_BY.items():
        properties = {"UNIQ_KEY": "U", name: hostile(name)}
        code = await doors[door](broker, client, name.encode(), properties)
        is_read = name.encode() in read(broker, OWN)
        if code:
            assert code == ILLEGAL, name
            assert not is_read
            refused.add(by)
            continue
        (delivered if is_read else waiting).add(by if door == "reply" else name)
    for name in SET_BY:
        assert read(broker, OWN).count(name.encode()) <= 1

    may_wait = {name for name, by in SET_BY.items() if by is SetBy.SINGLE} | {names.TRAN_MSG}
    if door in SINGLE:
        assert refused == {SetBy.SAME_TOPIC, SetBy.INNER_BATCH}
        assert waiting == may_wait
    elif door in BATCHES:
        assert refused == {SetBy.SINGLE, SetBy.SAME_TOPIC, SetBy.INNER_BATCH}
        assert waiting == set()
    else:
        assert SetBy.BROKER in delivered
        assert waiting >= {SetBy.SAME_TOPIC, SetBy.INNER_BATCH}
    for record in records(broker, OWN):
        for name in (names.POP_CK, names.INNER_NUM, names.INNER_MULTI_QUEUE_OFFSET):
            assert name not in record.properties
        if door != "reply":
            assert record.properties["CLUSTER"] == "DefaultCluster"
            assert record.properties["MSG_REGION"] == "DefaultRegion"
            assert record.properties["TRACE_ON"] == "true"
    assert len(halves(broker)) == (door in SINGLE)
    time.advance(120_000)
    assert read(broker, SECRET) == [b"first", b"secret"]


@pytest.mark.parametrize("door", SINGLE)
@pytest.mark.parametrize(
    ("waits", "topic", "queue_id"),
    [
        ({"TIMER_DELIVER_MS": str(DUE)}, TIMER_TOPIC, 0),
        ({"DELAY": "1"}, SCHEDULE_TOPIC, 0),
        ({"TRAN_MSG": "true", "PGROUP": "PG"}, HALF_TOPIC, 0),
    ],
)
async def test_a_message_that_waits_has_none_of_the_brokers_own(
    broker: Broker,
    client: Client,
    time: FakeTime,
    door: str,
    waits: dict[str, str],
    topic: str,
    queue_id: int,
) -> None:
    forged = {name: hostile(name) for name in BROKERS_OWN}
    properties = {"UNIQ_KEY": "U", **forged, **waits}
    assert await SINGLE[door](broker, client, b"mine", properties) == 0
    [record] = [r for r in records(broker, topic, queue_id) if bytes(r.body) == b"mine"]
    left = {name: record.properties[name] for name in BROKERS_OWN & record.properties.keys()}
    assert left == {"REAL_TOPIC": OWN, "REAL_QID": "0"}
    time.advance(120_000)
    assert read(broker, OWN).count(b"mine") == (topic != HALF_TOPIC)
    assert read(broker, SECRET) == [b"first", b"secret"]


async def test_a_message_recalls_one_of_its_own_topic(
    broker: Broker, client: Client, time: FakeTime
) -> None:
    due = {"TIMER_DELIVER_MS": str(DUE)}
    for key in ("A", "B"):
        await client.send(OWN, key.encode(), properties={"UNIQ_KEY": key, **due})
    recall = {"UNIQ_KEY": "A", "TIMER_DEL_UNIQKEY": f"{OWN}+A", **due}
    assert (await client.send(OWN, b"recall", properties=recall)).code == 0
    time.advance(120_000)
    assert read(broker, OWN) == [b"first", b"B"]


@pytest.mark.parametrize("key", [f"{SECRET}+K", f"{OWN}{SECRET}+K", "K", "+K", "\x01"])
async def test_a_message_recalls_none_of_another_topic(
    broker: Broker, client: Client, time: FakeTime, key: str
) -> None:
    properties = {"TIMER_DEL_UNIQKEY": key, "TIMER_DELIVER_MS": str(DUE)}
    for more in ({}, {"TRAN_MSG": "true", "PGROUP": "PG"}):
        answer = await client.send(OWN, b"recall", properties={**properties, **more})
        assert answer.code == ILLEGAL
        assert f"{OWN}+UNIQ_KEY" in (answer.remark or "")
    time.advance(120_000)
    assert read(broker, SECRET) == [b"first", b"secret"]


# --- the broker's own topics ------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic", [TIMER_TOPIC, SCHEDULE_TOPIC, HALF_TOPIC, f"{REVIVE_LOG_PREFIX}DefaultCluster"]
)
async def test_nobody_sends_to_where_the_broker_keeps_what_waits(
    broker: Broker, client: Client, time: FakeTime, topic: str
) -> None:
    forged = {"REAL_TOPIC": SECRET, "REAL_QID": "0", "TIMER_OUT_MS": str(DUE), "PGROUP": "PG"}
    before = len(records(broker, topic))
    items = encode_batch([(0, b"forged", names.encode(forged).encode())])
    answers = [
        await client.send(topic, b"forged", properties=forged),
        await client.send(topic, b"forged", properties={**forged, "DELAY": "1"}),
        await client.send(topic, items, code=320, batch=True),
        await client.send(
            topic, b"forged", code=RequestCode.SEND_REPLY_MESSAGE_V2, properties=forged
        ),
        *await batch(client, [send(topic, b"forged", properties=forged)]),
    ]
    assert {answer.code for answer in answers} == {ResponseCode.NO_PERMISSION}
    recall = RecallMessageRequestHeader(
        topic=topic, recall_handle=RecallHandle(topic, "b0", str(DUE), "K").encode()
    )
    answer = await client.request(RequestCode.RECALL_MESSAGE, recall)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert len(records(broker, topic)) == before
    time.advance(120_000)
    assert read(broker, SECRET) == [b"first", b"secret"]


# --- texts that cannot be properties ----------------------------------------------------------


@pytest.mark.parametrize(
    ("message_id", "group"), [("U\x02TIMER_DEL_UNIQKEY\x01Secret+K", "PG"), ("U", "P\x02G")]
)
async def test_a_recall_with_a_separator_in_a_name(
    broker: Broker, client: Client, message_id: str, group: str
) -> None:
    handle = RecallHandle(OWN, "b0", str(DUE), message_id).encode()
    header = RecallMessageRequestHeader(topic=OWN, recall_handle=handle, producer_group=group)
    answer = await client.request(RequestCode.RECALL_MESSAGE, header)
    assert answer.code == ILLEGAL
    assert "separator" in (answer.remark or "")


# --- where a message comes from ---------------------------------------------------------------


async def test_the_origin_of_a_message_sent_back_is_where_it_was(
    broker: Broker, client: Client, time: FakeTime
) -> None:
    """Whatever its producer says. What came back once keeps its origin."""
    await client.heartbeat("c1", subscription(OWN))
    forged = {"RETRY_TOPIC": SECRET, "ORIGIN_MESSAGE_ID": "forged"}
    answer = await client.send(OWN, b"m", properties=forged)
    origin = answer.ext_fields["msgId"]
    topic = OWN
    for _ in range(2):
        record = records(broker, topic)[-1]
        header = ConsumerSendMsgBackRequestHeader(
            offset=record.physical_offset, group="G", delay_level=1
        )
        assert (await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
        time.advance(10_000)
        topic = "%RETRY%G"
        again = records(broker, topic)[-1]
        assert again.properties["RETRY_TOPIC"] == OWN
        assert again.properties["ORIGIN_MESSAGE_ID"] == origin


@pytest.mark.parametrize("separator", ["_", "+"])
async def test_a_dead_letter_of_pop_names_the_topic_of_its_message(
    broker: Broker, client: Client, time: FakeTime, separator: str
) -> None:
    await client.heartbeat("c1", subscription(OWN))
    topics = broker.tables.topics
    retry = f"%RETRY%G{separator}{OWN}"
    topics.create_if_absent(retry, 1)
    stored = broker.store.put(
        retry,
        0,
        b"m",
        f"RETRY_TOPIC\x01{SECRET}\x02",
        born_timestamp=1,
        born_host=bytes(8),
        tags_code=0,
    )
    header = ConsumerSendMsgBackRequestHeader(
        offset=stored.physical_offset, group="G", delay_level=-1
    )
    assert (await client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == 0
    [dead] = records(broker, "%DLQ%G")
    assert dead.properties["RETRY_TOPIC"] == OWN
