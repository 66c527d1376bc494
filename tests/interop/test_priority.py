"""Priority messages (RIP-80): the newest official broker and ours are asked the same, and answer
the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pocketmq.message import properties as names
from pocketmq.message.batch_body import encode_batch
from pocketmq.message.pop_offsets import parse_message_offsets
from pocketmq.message.record import Record, iter_records
from pocketmq.remoting.codes import RequestCode as Code
from tests.cli.running import Running

from .harness import official, ours, proxy, wire
from .harness.official import NEWEST, Server
from .harness.reading import read_queue

QUEUES = 8
CHOSEN = 2  # by the producer

#: The properties of sends. What is delayed is delivered within the test.
SENDS: list[dict[str, str]] = [
    *({names.PRIORITY: text} for text in ("0", "3", "7", "100", "-1", "x", "+4", "007", "-0")),
    *({names.PRIORITY: text} for text in ("2147483647", "2147483648", "1_0", " 1", "٣")),
    {names.PRIORITY: "3", names.SHARDING_KEY: "k"},
    {names.PRIORITY: "x", names.SHARDING_KEY: "k"},
    {names.PRIORITY: "3", names.LITE_TOPIC: "lite"},
    {names.PRIORITY: "3", names.TRAN_MSG: "false"},
    {names.PRIORITY: "3", names.DELAY: "1"},
    {names.PRIORITY: "3", names.DELAY: "0"},
    {},
]  # fmt: skip


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    try:
        official.jars(NEWEST)
    except official.Unavailable as missing:
        pytest.skip(str(missing))
    server = official.start_name_server(tmp_path_factory.mktemp("newest"), version=NEWEST)
    yield server
    server.process.kill()


@pytest.fixture(scope="module")
def brokers(namesrv: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    directory = tmp_path_factory.mktemp("brokers")
    started = {
        "official": official.start_broker(
            directory, namesrv.address, name="theirs", version=NEWEST
        ),
        "ours": ours.start_broker(directory, namesrv.address, name="ours"),
    }
    yield {name: broker.address for name, broker in started.items()}
    for broker in started.values():
        broker.process.kill()


def ask(broker: str, code: Code, body: bytes = b"", **fields: object) -> wire.Answer:
    text = {name: str(value) for name, value in fields.items()}
    answer = wire.call(broker, code, text, body, timeout=30)
    assert answer.code == 0, answer
    return answer


def create_topic(broker: str, name: str, kind: str) -> None:
    ask(
        broker, Code.UPDATE_AND_CREATE_TOPIC, topic=name, defaultTopic="TBW102",
        readQueueNums=QUEUES, writeQueueNums=QUEUES, perm=6, topicFilterType="SINGLE_TAG",
        attributes=f"+message.type={kind}",
    )  # fmt: skip


def create_group(broker: str, name: str, factor: int) -> None:
    body = {"groupName": name, "attributes": {"+priority.factor": str(factor)}}
    ask(broker, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(body).encode())


def set_up(broker: str, **settings: object) -> None:
    text = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
    ask(broker, Code.UPDATE_BROKER_CONFIG, text)


def send(broker: str, topic: str, body: bytes, properties: dict[str, str], **more: object) -> int:
    """Send to the queue that the producer chose; return the queue of the answer."""
    fields = {
        "producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1,
        "queueId": CHOSEN, "sysFlag": 0, "bornTimestamp": 1, "flag": 0,
        "properties": names.encode(properties), "reconsumeTimes": 0, "unitMode": "false",
        "maxReconsumeTimes": 16, "batch": "false",
    } | more  # fmt: skip
    if more:
        # SendMessageRequestHeaderV2 has these fields, in this order, as a to m.
        fields = dict(zip("abcdefghijklm", fields.values(), strict=True))
        return int(ask(broker, Code.SEND_BATCH_MESSAGE, body, **fields).ext_fields["queueId"])
    return int(ask(broker, Code.SEND_MESSAGE, body, **fields).ext_fields["queueId"])


def readable(broker: str, topic: str, queue_id: int, number: int) -> list[Record]:
    """The messages of a queue, once there are so many."""
    found: list[Record] = []

    def are_there() -> bool:
        found[:] = read_queue(broker, topic, queue_id)
        return len(found) == number

    wire.until(are_there, f"{number} messages in {topic}/{queue_id}", 60, 0.5)
    return found


class Place(NamedTuple):
    """What a broker answered to a send, and what it stored: the queue and the priority."""

    answered: int
    queue_id: int
    priority: str | None


def places(broker: str, topic: str) -> list[Place]:
    answered = [send(broker, topic, b"%d" % n, sent) for n, sent in enumerate(SENDS)]
    found: dict[int, tuple[int, str | None]] = {}

    def is_complete() -> bool:
        for queue_id in range(QUEUES):
            for record in read_queue(broker, topic, queue_id):
                priority = record.properties.get(names.PRIORITY)
                found[int(bytes(record.body))] = record.queue_id, priority
        return len(found) == len(SENDS)

    wire.until(is_complete, "all messages are stored", 60, 0.5)
    return [Place(queue, *found[number]) for number, queue in enumerate(answered)]


@pytest.mark.parametrize("kind", ["PRIORITY", "NORMAL"])
def test_the_queues_of_sends(brokers: dict[str, str], kind: str) -> None:
    topic = f"Sends{kind}"
    found = {}
    for name, broker in brokers.items():
        create_topic(broker, topic, kind)
        found[name] = places(broker, topic)
    assert found["ours"] == found["official"]


def test_the_queue_of_a_batch(brokers: dict[str, str]) -> None:
    items = encode_batch([(0, b"m", names.encode({names.PRIORITY: "5"}).encode())] * 2)
    found = {}
    for name, broker in brokers.items():
        create_topic(broker, "Batch", "PRIORITY")
        queue_id = send(broker, "Batch", items, {}, batch="true")
        records = readable(broker, "Batch", CHOSEN, 2)
        found[name] = queue_id, [record.properties.get(names.PRIORITY) for record in records]
    assert found["ours"] == found["official"] == (CHOSEN, ["5", "5"])


def pop(broker: str, topic: str, group: str, most: int = 1, **more: object) -> list[int]:
    """The queues of the messages that a pop gets, as it has them; retries count 100 more."""
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": most,
        "invisibleTime": 300_000, "pollTime": 0, "bornTime": 0, "initMode": 0, "expType": "TAG",
        "exp": "*", "order": "false",
    } | more  # fmt: skip
    text = {name: str(value) for name, value in fields.items()}
    answer = wire.call(broker, Code.POP_MESSAGE, text, timeout=30)
    assert answer.code in (0, 210), answer
    if answer.code:
        return []
    retries = {key for key in parse_message_offsets(answer.ext_fields["msgOffsetInfo"]) if key.kind}
    return [
        int(bytes(record.body)) + 100 * bool(retries and names.POP_CK in record.properties)
        for record in iter_records(answer.body)
    ]


def fill(broker: str, topic: str, priorities: list[int]) -> None:
    """Send messages with these priorities, and wait until they can be read."""
    before = count(broker, topic)
    for priority in priorities:
        send(broker, topic, b"%d" % priority, {names.PRIORITY: str(priority)})
    wire.until(lambda: count(broker, topic) == before + len(priorities), "all are readable", 60)


def count(broker: str, topic: str) -> int:
    return sum(len(read_queue(broker, topic, queue_id)) for queue_id in range(QUEUES))


@pytest.mark.parametrize("ascending", [True, False])
def test_the_order_of_pops(brokers: dict[str, str], ascending: bool) -> None:
    topic = f"Pops{ascending}"
    found = {}
    for name, broker in brokers.items():
        set_up(broker, priorityOrderAsc=str(ascending).lower())
        create_topic(broker, topic, "PRIORITY")
        create_group(broker, "One", 100)
        create_group(broker, "Many", 100)
        fill(broker, topic, [0, 7, 3, 1, 7, 3, 0])
        found[name] = [pop(broker, topic, "One") for _ in range(8)], pop(broker, topic, "Many", 5)
        set_up(broker, priorityOrderAsc="true")
    assert found["ours"] == found["official"]
    order = [7, 7, 3, 3, 1, 0, 0] if ascending else [0, 0, 1, 3, 3, 7, 7]
    assert found["ours"] == ([*([each] for each in order), []], order[:5])


@pytest.mark.parametrize("probability", [0, 100])
def test_retries(brokers: dict[str, str], probability: int) -> None:
    topic = f"Retries{probability}"
    found = {}
    for name, broker in brokers.items():
        set_up(broker, popFromRetryProbabilityForPriority=probability)
        create_topic(broker, topic, "PRIORITY")
        create_group(broker, "G", 100)
        fill(broker, topic, [5])
        assert pop(broker, topic, "G", invisibleTime=1_000) == [5]
        readable(broker, f"%RETRY%G_{topic}", 0, 1)
        fill(broker, topic, [2, 7])
        found[name] = [each for _ in range(3) for each in pop(broker, topic, "G")]
        set_up(broker, popFromRetryProbabilityForPriority=0)
    assert found["ours"] == found["official"] == ([105, 7, 2] if probability else [7, 2, 105])


def test_retries_in_separate_queues(brokers: dict[str, str]) -> None:
    """Messages fail from the least urgent on, and come back with the most urgent first."""
    topic, retries = "Separate", "%RETRY%G_Separate"
    found = {}
    for name, broker in brokers.items():
        create_topic(broker, topic, "PRIORITY")
        create_group(broker, "G", 100)
        # The retry topic is there, with one queue.
        fill(broker, topic, [4])
        assert pop(broker, topic, "G", invisibleTime=1_000) == [4]
        readable(broker, retries, 0, 1)
        assert pop(broker, topic, "G") == [104]
        set_up(broker, useSeparateRetryQueue="true")
        for priority in (1, 3, 6):
            fill(broker, topic, [priority])
            assert pop(broker, topic, "G", invisibleTime=1_000) == [priority]
            readable(broker, retries, priority, 1)
        found[name] = [each for _ in range(4) for each in pop(broker, topic, "G")]
        set_up(broker, useSeparateRetryQueue="false")
    assert found["ours"] == found["official"] == [106, 103, 101]


def test_a_group_without_priority(brokers: dict[str, str]) -> None:
    """It gets messages of many queues, in another order with each broker."""
    for broker in brokers.values():
        create_topic(broker, "Fair", "PRIORITY")
        create_group(broker, "Fair", 0)
        fill(broker, "Fair", [*range(QUEUES)] * 30)
        found = [each for _ in range(60) for each in pop(broker, "Fair", "Fair")]
        assert len({*found}) > 4
        assert found.count(7) < 30


# --- clients of gRPC ------------------------------------------------------------------------------


class GrpcPlace(NamedTuple):
    """A gRPC port, and the address of the broker behind it."""

    port: int
    broker: str


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GrpcPlace]]:
    directory = tmp_path_factory.mktemp("proxies")
    arguments: list[str | Path] = ["serve", "--store", directory / "ours", "--no-dashboard"]
    for option in ("--grpc-port", "--namesrv-port", "--listen-port"):
        arguments += [option, "0"]
    with ExitStack() as stack:
        try:
            namesrv = official.start_name_server(directory, version=NEWEST)
            stack.callback(namesrv.process.kill)
            theirs = proxy.start_local_proxy(directory, namesrv.address, version=NEWEST)
            stack.callback(theirs.process.kill)
        except official.Unavailable as missing:
            pytest.skip(str(missing))
        running = stack.enter_context(Running(*arguments))
        found = running.wait_for(r"broker on (\S+), gRPC on port (\d+)")
        yield {
            "official": GrpcPlace(int(theirs.broker_name), theirs.address),
            "ours": GrpcPlace(int(found[2]), found[1]),
        }


#: The topic, the priority, and other properties of sends.
GRPC_SENDS: list[tuple[str, int | None, dict[str, Any]]] = [
    ("Urgent", 3, {}),
    ("Urgent", 100, {}),
    ("Urgent", 0, {}),
    ("Urgent", None, {}),
    ("Urgent", 3, {"message_group": "g"}),
    ("Plain", 3, {}),
    ("Ordered", 3, {"message_group": "g"}),
]


async def through(place: GrpcPlace) -> list[object]:
    """What a client is told of the topic and of its sends, and what another one receives."""
    from pocketmq.proxy.proto import service_pb2 as pb
    from tests.proxy.grpc_client import GrpcClient, message
    from tests.proxy.test_consuming import ack, receive

    said: list[object] = []
    async with GrpcClient(place.port) as client:
        await client.as_producer("Urgent", "Plain", "Ordered")
        for topic in ("Urgent", "Plain", "Ordered"):
            route = pb.QueryRouteRequest()
            route.topic.name = topic
            for _ in range(300):  # until the proxy knows the topic
                answer = await client.call("QueryRoute", route)
                if answer.status.code == pb.OK:
                    break
                await asyncio.sleep(0.2)
            said.append([[*queue.accept_message_types] for queue in answer.message_queues])
        for topic, priority, others in GRPC_SENDS:
            one = message(topic, b"m", **others)
            if priority is not None:
                one.system_properties.priority = priority
            answer = await client.call("SendMessage", pb.SendMessageRequest(messages=[one]))
            said.append((answer.entries[0] if answer.entries else answer).status.code)
        for topic, expected in (("Urgent", 3), ("Ordered", 1)):
            await client.as_consumer("readers", topic)
            for _ in range(expected):
                code = 0
                found: list[Any] = []
                while not found:
                    code, found = await client.receive(receive(topic, batch=1), timeout=30)
                [got] = found
                system = got.system_properties
                priority = system.priority if system.HasField("priority") else None
                said.append((code, priority, system.queue_id if topic == "Urgent" else None))
                said.append((system.message_type, dict(got.user_properties)))
                await client.call("AckMessage", ack(got, topic=topic))
    return said


def test_clients_of_grpc(proxies: dict[str, GrpcPlace]) -> None:
    pytest.importorskip("grpc", reason="pip install grpcio")
    found = {}
    for name, place in proxies.items():
        for topic, kind in (("Urgent", "PRIORITY"), ("Plain", "NORMAL"), ("Ordered", "FIFO")):
            create_topic(place.broker, topic, kind)
        create_group(place.broker, "readers", 100)
        found[name] = asyncio.run(through(place))
    assert found["ours"] == found["official"]
