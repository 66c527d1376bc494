"""Priority messages: the queue of a send, on every way into a broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.broker.broker import Broker
from pocketmq.broker.processors.send.checks import leaves_the_line, queue_by_priority
from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.limits import HALF_TOPIC
from pocketmq.message.record import Record
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from tests.broker.batch.batches import Child, batch, send
from tests.broker.conftest import Client, Connect, StartBroker
from tests.broker.transacting import records
from tests.fake_time import START, FakeTime
from tests.remoting.peers import RawPeer

QUEUES = 8
WAITING = ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")

#: A priority, the queue that the message goes to if its producer chose queue 2, and whether the
#: priority is stored.
SENDS = [
    ({names.PRIORITY: "0"}, 0, True),
    ({names.PRIORITY: "3"}, 3, True),
    ({names.PRIORITY: "100"}, 7, True),
    ({names.PRIORITY: "-1"}, 2, True),
    ({names.PRIORITY: "x"}, 2, True),
    ({names.PRIORITY: "3", names.SHARDING_KEY: "k"}, 2, False),
    ({names.PRIORITY: "3", names.TRAN_MSG: "false"}, 3, True),
    ({"KEYS": names.PRIORITY}, 2, False),
]

properties_of_a_send = st.dictionaries(
    st.sampled_from((names.PRIORITY, names.SHARDING_KEY, names.TRAN_MSG, *WAITING, "mine")),
    st.one_of(st.sampled_from(("true", "True", "false", "x", "-1")), st.integers(0, 99).map(str)),
)


@given(properties_of_a_send, st.integers(0, 9), st.integers(0, 9))
def test_the_queue_of_a_message(given: dict[str, str], chosen: int, queues: int) -> None:
    properties = dict(given)
    queue_id = queue_by_priority(properties, chosen, queues)
    text = given.get(names.PRIORITY, "")
    special = (
        names.SHARDING_KEY in given
        or given.get(names.TRAN_MSG, "").lower() == "true"
        or not given.keys().isdisjoint(WAITING)
    )
    if text.isdigit() and not special:
        assert queue_id == (min(int(text), queues - 1) if queues else chosen)
    else:
        assert queue_id == chosen
    lost = {names.PRIORITY} if special and text.isdigit() else set()
    assert properties == {name: value for name, value in given.items() if name not in lost}


@given(properties_of_a_send)
def test_the_quick_search_finds_every_priority(given: dict[str, str]) -> None:
    assert leaves_the_line(names.encode(given)) or names.PRIORITY not in given


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def broker(start_broker: StartBroker, time: FakeTime) -> Broker:
    options = {"clock": time.clock, "call_later": time.call_later}
    broker = await start_broker(options=options)
    broker.tables.topics.create_if_absent("Old", QUEUES)
    return broker


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> Client:
    client = await connect(broker)
    assert (await client.send("Old", b"first", queue_id=1)).code == 0
    return client


def stored(broker: Broker, topic: str, answer: Command) -> Record:
    """The message that this answer is about."""
    fields = answer.ext_fields
    queue_id, offset = int(fields["queueId"]), int(fields["queueOffset"])
    return records(broker, topic, queue_id)[offset]


def check(broker: Broker, topic: str, answers: list[Command]) -> None:
    for (properties, queue_id, kept), answer in zip(SENDS, answers, strict=True):
        assert answer.code == 0, answer.remark
        record = stored(broker, topic, answer)
        assert record.queue_id == queue_id, properties
        assert record.properties.get(names.PRIORITY) == (
            properties[names.PRIORITY] if kept else None
        )


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("topic", ["Old", "New"])
async def test_single_sends(broker: Broker, client: Client, topic: str, code: int) -> None:
    answers = []
    for properties, _, _ in SENDS:
        child = send(topic, code=code, queue_id=2, properties=properties)
        child.header.default_topic_queue_nums = QUEUES  # type: ignore[union-attr]
        answers.append(await client.request(code, child.header, child.body))
    check(broker, topic, answers)


def children(code: int, serialize_type: int) -> list[Child]:
    """The sends, between ordinary ones."""
    sends = [
        send("Old", code=code, queue_id=2, properties=properties, serialize_type=serialize_type)
        for properties, _, _ in SENDS
    ]
    plain = send("Old", code=code, queue_id=2, serialize_type=serialize_type)
    return [child for each in sends for child in (plain, each)]


@pytest.mark.parametrize("code", [10, 310])
@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_sends_in_one_read(
    broker: Broker, client: Client, code: int, serialize_type: int
) -> None:
    sends = children(code, serialize_type)
    peer = await RawPeer.open(int(broker.address.rpartition(":")[2]))
    try:
        peer.send(b"".join(child.frame(n) for n, child in enumerate(sends)))
        answers = {answer.opaque: answer for answer in [await peer.read() for _ in sends]}
    finally:
        await peer.close()
    check(broker, "Old", [answers[n] for n in range(1, len(sends), 2)])
    assert {answers[n].ext_fields["queueId"] for n in range(0, len(sends), 2)} == {"2"}


@pytest.mark.parametrize("code", [10, 310])
async def test_children_of_a_batch_request(broker: Broker, client: Client, code: int) -> None:
    answers = await batch(client, children(code, 0))
    check(broker, "Old", answers[1::2])


async def test_a_batch_keeps_its_queue_and_its_priorities(broker: Broker, client: Client) -> None:
    items = [(0, b"m", names.encode(properties).encode()) for properties, _, _ in SENDS]
    answer = await client.send(
        "Old", encode_batch(items), code=RequestCode.SEND_BATCH_MESSAGE, queue_id=2, batch=True
    )
    assert answer.code == 0, answer.remark
    assert answer.ext_fields["queueId"] == "2"
    found = [record.properties.get(names.PRIORITY) for record in records(broker, "Old", 2)]
    assert found == [properties.get(names.PRIORITY) for properties, _, _ in SENDS]


async def test_messages_that_wait_lose_their_priority(
    broker: Broker, client: Client, time: FakeTime
) -> None:
    due = {"DELAY": "1", "TIMER_DELIVER_MS": str(START + 2_000)}
    for name, value in due.items():
        properties = {names.PRIORITY: "5", name: value}
        answer = await client.send("Old", name.encode(), queue_id=2, properties=properties)
        assert answer.code == 0, answer.remark
    half = {names.PRIORITY: "5", "TRAN_MSG": "true", "PGROUP": "PG"}
    assert (await client.send("Old", b"half", queue_id=2, properties=half)).code == 0
    [stored_half] = records(broker, HALF_TOPIC)
    assert names.PRIORITY not in stored_half.properties
    assert stored_half.properties["REAL_QID"] == "2"
    time.advance(60_000)
    found = records(broker, "Old", 2)
    assert {bytes(record.body) for record in found} == {name.encode() for name in due}
    assert all(names.PRIORITY not in record.properties for record in found)


async def test_a_retry_topic_has_one_queue(broker: Broker, client: Client) -> None:
    """A consumer that cannot send back sends the message itself, with its properties."""
    assert (await client.heartbeat("c1", without_sub=True)).code == 0
    answer = await client.send("%RETRY%G", queue_id=0, properties={names.PRIORITY: "5"})
    assert answer.code == 0, answer.remark
    assert stored(broker, "%RETRY%G", answer).properties[names.PRIORITY] == "5"
