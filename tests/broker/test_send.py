"""SEND_MESSAGE, V2 and batch: what is stored, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.limits import SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.command import Command
from pocketmq.remoting.headers import SendMessageRequestHeader
from pocketmq.store.config import FlushDiskType
from tests.broker.conftest import (
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Connect,
    NameServerStub,
    StartBroker,
)

SUCCESS, BUSY, FLUSH_DISK_TIMEOUT, ILLEGAL = 0, 2, 10, 13


def version_1(topic: str, *, queue_id: int = 0, properties: str = "") -> SendMessageRequestHeader:
    return SendMessageRequestHeader(
        producer_group="PG",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
        properties=properties,
    )


# --- what is stored and answered --------------------------------------------------------------


async def test_a_message_is_stored_as_sent(client: Client, broker: Broker, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    answer = await client.send(
        topic,
        b"hello",
        properties={"TAGS": "A", "KEYS": "k1", "UNIQ_KEY": "U1", "a": "b"},
        queue_id=2,
        flag=7,
        sys_flag=0x100,
        reconsume_times=3,
    )

    assert answer.code == SUCCESS
    [record] = await client.pulled(topic, queue_id=2)
    assert bytes(record.body) == b"hello"
    assert (record.topic, record.queue_id, record.queue_offset) == (topic, 2, 0)
    assert (record.flag, record.sys_flag, record.reconsume_times) == (7, 0x100, 3)
    assert record.born_timestamp == 1_700_000_000_000
    assert before <= record.store_timestamp <= time.time_ns() // 1_000_000
    assert record.properties == {
        "TAGS": "A",
        "KEYS": "k1",
        "UNIQ_KEY": "U1",
        "a": "b",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert answer.ext_fields == {
        "msgId": answer.ext_fields["msgId"],
        "queueId": "2",
        "queueOffset": "0",
        "transactionId": "U1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    place = decode_offset_msg_id(answer.ext_fields["msgId"])
    assert (place.host, place.port) == ("127.0.0.1", broker.port)
    assert place.physical_offset == record.physical_offset


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30])
async def test_bits_of_hosts_that_a_client_sends_are_not_stored(
    client: Client, topic: str, sys_flag: int
) -> None:
    await client.send(topic, b"first")
    body = encode_batch([(0, b"in a batch", b"")])
    assert (await client.send(topic, b"alone", sys_flag=sys_flag)).code == SUCCESS
    late = {"DELAY": "18"}
    answer = await client.send(topic, b"delayed", sys_flag=sys_flag, properties=late)
    assert answer.code == SUCCESS
    assert (await client.send(topic, body, sys_flag=sys_flag, batch=True)).code == SUCCESS

    records = await client.pulled(topic)
    assert [bytes(record.body) for record in records] == [b"first", b"alone", b"in a batch"]
    [delayed] = await client.pulled(SCHEDULE_TOPIC, queue_id=17)
    for record in (*records, delayed):
        assert record.sys_flag == 0
        assert record.born_host == records[0].born_host
        assert record.store_host == records[0].store_host


@pytest.mark.parametrize(
    ("properties", "waits_in", "queue_id"),
    [({"DELAY": "17"}, SCHEDULE_TOPIC, 16), ({"TIMER_DELAY_SEC": "600"}, TIMER_TOPIC, 0)],
)
async def test_a_late_message_is_answered_with_the_offset_where_it_waits(
    client: Client, topic: str, properties: dict[str, str], waits_in: str, queue_id: int
) -> None:
    """As the official broker does; the queue in the answer is that of the request."""
    for _ in range(3):
        await client.send(topic, queue_id=2)
    for body in (b"one", b"two"):
        answer = await client.send(topic, body, queue_id=2, properties=properties)
        assert answer.ext_fields["queueId"] == "2"
        offset = int(answer.ext_fields["queueOffset"])
        [waiting] = await client.pulled(waits_in, offset, queue_id=queue_id)
        assert (bytes(waiting.body), waiting.properties["REAL_TOPIC"]) == (body, topic)


async def test_old_send_code_means_the_same(client: Client, topic: str) -> None:
    header = version_1(topic, queue_id=1, properties="TAGS\x01A\x02")
    answer = await client.request(RequestCode.SEND_MESSAGE, header, b"old")

    assert answer.code == SUCCESS
    [record] = await client.pulled(topic, queue_id=1)
    assert bytes(record.body) == b"old"
    assert record.properties["TAGS"] == "A"


async def test_a_missing_unique_key_is_added(client: Client, topic: str) -> None:
    answer = await client.send(topic)

    [record] = await client.pulled(topic)
    assert record.properties["UNIQ_KEY"] == answer.ext_fields["transactionId"]
    assert len(record.properties["UNIQ_KEY"]) in (32, 56)


@pytest.mark.parametrize(
    "text",
    [
        "TAGS\x01A\x02UNIQ_KEY\x01U\x02",
        "TAGS\x01A\x02UNIQ_KEY\x01U",  # as old clients write it
        "UNIQ_KEY\x01first\x02TAGS\x01first\x02TAGS\x01A\x02UNIQ_KEY\x01U\x02",  # the last counts
        "MY_TAGS\x01no\x02X_UNIQ_KEY\x01no\x02UNIQ_KEY\x01U\x02TAGS\x01A\x02a\x01TAGS\x02",
    ],
)
async def test_properties_texts(client: Client, topic: str, text: str) -> None:
    answer = await client.send(topic, properties=text)

    assert answer.ext_fields["transactionId"] == "U"
    [record] = await client.pulled(topic, subscription="A")
    assert record.properties["TAGS"] == "A"
    assert record.properties["UNIQ_KEY"] == "U"
    assert (await client.pull(topic, subscription="no")).code == 20


async def test_a_unique_key_that_needs_escaping(client: Client, topic: str) -> None:
    key = 'a"b\\c\u00e9\x01d'
    answer = await client.send(topic, properties=f"UNIQ_KEY\x01{key}\x02")

    assert answer.ext_fields["transactionId"] == key


async def test_pop_mark_is_removed(client: Client, topic: str) -> None:
    await client.send(topic, properties={"POP_CK": "x", "a": "POP_CK"})

    [record] = await client.pulled(topic)
    assert "POP_CK" not in record.properties
    assert record.properties["a"] == "POP_CK"


async def test_values_that_look_like_reserved_names(client: Client, topic: str) -> None:
    answer = await client.send(topic, properties={"note": "DELAY TRAN_MSG TIMER_DELAY_MS"})

    assert answer.code == SUCCESS
    [record] = await client.pulled(topic)
    assert record.properties["note"] == "DELAY TRAN_MSG TIMER_DELAY_MS"


async def test_queue_offsets_follow_each_other(client: Client, topic: str) -> None:
    answers = await asyncio.gather(*(client.send(topic, b"%d" % n) for n in range(50)))

    offsets = {int(answer.ext_fields["queueOffset"]) for answer in answers}
    assert offsets == set(range(50))


async def test_a_negative_queue_is_chosen_by_the_broker(client: Client, topic: str) -> None:
    answers = await asyncio.gather(*(client.send(topic, queue_id=-1) for _ in range(60)))

    queues = {int(answer.ext_fields["queueId"]) for answer in answers}
    assert queues <= {0, 1, 2, 3}
    assert len(queues) > 1


async def test_oneway_is_stored_without_an_answer(client: Client, topic: str) -> None:
    header = version_1(topic)
    await client.connection.send_oneway(RequestCode.SEND_MESSAGE, header, b"gone")
    await client.send(topic, b"later")

    bodies = [bytes(record.body) for record in await client.pulled(topic)]
    assert bodies == [b"gone", b"later"]


# --- batches ----------------------------------------------------------------------------------


async def test_a_batch_takes_consecutive_offsets(client: Client, topic: str) -> None:
    await client.send(topic)
    items = [(n, b"m%d" % n, names.encode({"TAGS": f"T{n}"}).encode()) for n in range(5)]
    answer = await client.send(
        topic,
        encode_batch(items),
        code=RequestCode.SEND_BATCH_MESSAGE,
        properties={"UNIQ_KEY": "BATCH", "WAIT": "true"},
        batch=True,
    )

    assert answer.code == SUCCESS
    assert answer.ext_fields["queueOffset"] == "1"
    assert answer.ext_fields["transactionId"] == "BATCH"
    records = await client.pulled(topic, 1)
    assert [bytes(record.body) for record in records] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert [record.queue_offset for record in records] == [1, 2, 3, 4, 5]
    assert [record.flag for record in records] == [0, 1, 2, 3, 4]
    ids = answer.ext_fields["msgId"].split(",")
    assert [decode_offset_msg_id(i).physical_offset for i in ids] == [
        record.physical_offset for record in records
    ]
    for n, record in enumerate(records):
        assert record.properties == {
            "TAGS": f"T{n}",
            "UNIQ_KEY": "BATCH",
            "WAIT": "true",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
        }
    [second] = await client.pulled(topic, 1, subscription="T1")
    assert bytes(second.body) == b"m1"


async def test_a_batch_gets_no_unique_keys(client: Client, topic: str) -> None:
    body = encode_batch([(0, b"a", b"x\x01y"), (0, b"b", b"")])
    answer = await client.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)

    assert "transactionId" not in answer.ext_fields
    for record in await client.pulled(topic):
        assert "UNIQ_KEY" not in record.properties
        assert record.properties["CLUSTER"] == "DefaultCluster"


@pytest.mark.parametrize(
    "body",
    [
        b"\0" * 5,
        b"\0\0\0\x01" * 9,
        encode_batch([(0, b"body", b""), (0, b"", b"")]),
        encode_batch([(0, b"", b"k\x01v"), (0, b"body", b"k\x01v")]),
    ],
)
async def test_a_broken_batch_stores_nothing(client: Client, topic: str, body: bytes) -> None:
    await client.send(topic)
    answer = await client.send(topic, body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)

    assert answer.code == ILLEGAL
    assert len(await client.pulled(topic)) == 1


async def test_batches_to_retry_topics_are_refused(client: Client) -> None:
    body = encode_batch([(0, b"a", b"")])
    answer = await client.send("%RETRY%G", body, batch=True)

    assert answer.code == ILLEGAL
    assert "retry" in (answer.remark or "")


# --- flushing and back-pressure ---------------------------------------------------------------


class Disk:
    """Takes the place of a store's flush: tells those who wait when the test says so."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[Callable[[bool], None]] = []
        self.changed = asyncio.Event()
        monkeypatch.setattr(broker.store, "when_flushed", self._when_flushed)

    def _when_flushed(self, end_offset: int, callback: Callable[[bool], None]) -> None:
        self.waiting.append(callback)
        self.changed.set()

    async def asked(self, count: int) -> None:
        while len(self.waiting) < count:
            self.changed.clear()
            await self.changed.wait()

    def flushed(self, done: bool = True) -> None:
        for callback in self.waiting:
            callback(done)
        self.waiting.clear()


async def readable(client: Client, topic: str, count: int) -> list[bytes]:
    """The bodies of `count` messages, once they are on the disk: before that none is shown."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        answer = await client.pull(topic, len(bodies), sys_flag=SUBSCRIPTION | SUSPEND)
        bodies += [bytes(record.body) for record in iter_records(answer.body)]
    return bodies


async def test_sync_flush_answers_what_is_on_the_disk(
    start_broker: StartBroker, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    client = await connect(broker)
    assert (await client.send(topic, b"0")).code == SUCCESS  # by the real disk
    disk = Disk(broker, monkeypatch)

    single = asyncio.ensure_future(client.send(topic, b"a"))
    batch = asyncio.ensure_future(
        client.send(topic, encode_batch([(0, b"b", b"")] * 3), batch=True)
    )
    await disk.asked(2)
    assert (await client.send(topic, b"c", properties={"WAIT": "false"})).code == SUCCESS
    assert not single.done()
    assert not batch.done()

    disk.flushed()
    assert (await single).ext_fields["queueOffset"] == "1"
    assert (await batch).code == SUCCESS
    assert await readable(client, topic, 6) == [b"0", b"a", b"b", b"b", b"b", b"c"]


async def test_a_disk_that_does_not_answer_is_told_but_the_message_is_stored(
    start_broker: StartBroker, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    client = await connect(broker)
    disk = Disk(broker, monkeypatch)

    waiting = asyncio.ensure_future(client.send(topic, b"a", properties={"UNIQ_KEY": "U"}))
    await disk.asked(1)
    disk.flushed(False)

    answer = await waiting
    assert answer.code == FLUSH_DISK_TIMEOUT
    assert answer.ext_fields["queueOffset"] == "0"
    assert answer.ext_fields["transactionId"] == "U"
    assert await readable(client, topic, 1) == [b"a"]


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("kind", ["alone", "in one read", "batch"])
async def test_answers_that_waited_name_the_place_of_the_message(
    start_broker: StartBroker,
    connect: Connect,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    done: bool,
) -> None:
    """Whether the disk answered in time or not."""
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    client = await connect(broker)
    for body in (b"0", b"1"):  # from then on the topic needs no check
        await client.send(topic, body)
    disk = Disk(broker, monkeypatch)

    def send(number: int) -> asyncio.Future[Command]:
        body = encode_batch([(0, b"x", b"")] * 2) if kind == "batch" else b"x"
        properties = {"UNIQ_KEY": f"U{number}"}
        return asyncio.ensure_future(
            client.send(topic, body, properties=properties, batch=kind == "batch")
        )

    waiting = [send(number) for number in range(3 if kind == "in one read" else 1)]
    while broker.components.sends.unflushed.count < len(waiting):
        await disk.asked(len(disk.waiting) + 1)
    disk.flushed(done)

    answers = await asyncio.gather(*waiting)
    await readable(client, topic, 4 if kind == "batch" else len(waiting) + 2)
    places = [record.physical_offset for record in await client.pulled(topic, offset=2)]
    for number, answer in enumerate(answers):
        fields = dict(answer.ext_fields)
        ids = [decode_offset_msg_id(each) for each in fields.pop("msgId").split(",")]
        assert answer.code == (SUCCESS if done else FLUSH_DISK_TIMEOUT)
        assert [each.physical_offset for each in ids] == (
            places if kind == "batch" else [places[number]]
        )
        assert fields == {
            "queueId": "0",
            "queueOffset": str(number + 2),
            "transactionId": f"U{number}",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


@pytest.mark.parametrize(
    "limit", [{"send_thread_pool_queue_capacity": 2}, {"max_in_flight_bytes": 500}]
)
async def test_too_much_in_flight_is_refused_until_it_is_flushed(
    start_broker: StartBroker,
    connect: Connect,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    limit: dict[str, int],
) -> None:
    broker = await start_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH, **limit)
    client = await connect(broker)
    await client.send(topic, b"0")
    disk = Disk(broker, monkeypatch)
    waiting = [asyncio.ensure_future(client.send(topic, b"x" * 100)) for _ in range(2)]
    await disk.asked(2)

    answer = await client.send(topic)
    assert answer.code == BUSY
    assert "[OVERLOAD]system busy" in (answer.remark or "")
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}

    disk.flushed()
    assert [answer.code for answer in await asyncio.gather(*waiting)] == [SUCCESS, SUCCESS]
    last = asyncio.ensure_future(client.send(topic, b"last"))
    await disk.asked(1)
    disk.flushed()
    assert (await last).ext_fields["queueOffset"] == "3", "what was refused was not stored"


@pytest.mark.parametrize("batch", [False, True])
async def test_a_topic_made_by_a_send_is_registered_before_the_answer(
    start_broker: StartBroker, connect: Connect, name_server: NameServerStub, batch: bool
) -> None:
    """Who sent the first message may ask a name server for the topic's route right away."""
    broker = await start_broker(namesrv_addr=name_server.address)
    client = await connect(broker)
    name_server.registered.get_nowait()
    body = encode_batch([(0, b"b", b"")] * 3) if batch else b"b"

    await client.send("New", body, batch=batch)

    _, registered = name_server.registered.get_nowait()
    assert set(registered.topic_config_serialize_wrapper.topic_config_table) == {"New"}
    await client.send("New", body, batch=batch)
    assert name_server.registered.empty()
