"""A topic of the most queues, or with very many groups: other clients are served meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message import fastjson
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from pocketmq.remoting.bodies.offset import ResetOffsetBody
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingClosed
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.serving.long_requests import TURN
from tests.broker.conftest import Client, Connect, StartBroker, subscription

QUEUES = 16_384
POP = {"maxMsgNums": "1", "invisibleTime": "60000", "pollTime": "0", "bornTime": "0"}
POP |= {"initMode": "1", "order": "false"}
POLLING_TIMEOUT = 210


@pytest.fixture
async def wide(client: Client) -> str:
    await create(client, "wide", QUEUES)
    return "wide"


async def create(client: Client, topic: str, queues: int) -> None:
    fields = {"topic": topic, "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields |= {"perm": "6", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
    fields |= {"order": "false"}
    created = await client.request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
    assert created.code == 0


async def overtaken(
    client: Client,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    begun: Callable[[], bool] = lambda: False,
) -> Command:
    """The answer of a request that takes long, which a later one of its connection overtakes,
    before anything has `begun` to change."""
    # A connection's requests are handled in their order.
    long = asyncio.ensure_future(client.request(code, None, body, ext_fields=fields))
    other = asyncio.ensure_future(client.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    done: list[tuple[asyncio.Future[Command], bool]] = []
    for request in (long, other):
        request.add_done_callback(lambda ended: done.append((ended, begun())))
    answer = await long
    assert done[0] == (other, False)
    return answer


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
    ],
)
async def test_figures(client: Client, wide: str, code: RequestCode) -> None:
    names = {"topic": wide, "consumerGroup": "G", "group": "G"}
    answer = await overtaken(client, code, names)
    assert answer.code == 0
    assert bytes(answer.body).count(b'"queueId":') == QUEUES


async def test_corrections(client: Client, broker: Broker, wide: str) -> None:
    for group in ("G", "H"):
        broker.tables.offsets.reset(group, wide, dict.fromkeys(range(QUEUES), 3))
    fields = {"topic": wide, "compareGroup": "G", "filterGroups": "H"}
    answer = await overtaken(client, RequestCode.QUERY_CORRECTION_OFFSET, fields)
    lowest = fastjson.decode(answer.body)["correctionOffsets"]
    assert lowest == dict.fromkeys(map(str, range(QUEUES)), 3)


async def test_a_reset(client: Client, broker: Broker, wide: str) -> None:
    await client.heartbeat("c", subscription(wide))
    fields = {"topic": wide, "group": "G", "timestamp": "-1", "isForce": "true"}
    answer = await overtaken(
        client,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        fields,
        begun=lambda: bool(broker.tables.offsets.offsets("G", wide)),
    )
    assert bytes(answer.body) == reset_to(dict.fromkeys(range(QUEUES), 0))
    assert broker.tables.offsets.offsets("G", wide) == dict.fromkeys(range(QUEUES), 0)
    assert broker.tables.offsets.has_reset("G", wide, QUEUES - 1)


def reset_to(offsets: dict[int, int]) -> bytes:
    table = {MessageQueue("wide", "b0", queue_id): each for queue_id, each in offsets.items()}
    return ResetOffsetBody(offset_table=table).encode()


async def test_a_reset_of_a_topic_that_is_deleted_meanwhile(client: Client, wide: str) -> None:
    """A new topic of the same name does not begin at the offsets of the other one."""
    await client.heartbeat("c", subscription(wide))
    fields = {"topic": wide, "group": "G", "timestamp": "-1", "isForce": "true"}
    resetting = asyncio.ensure_future(
        client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
    )
    await asyncio.sleep(0)  # it is sent
    deleted = await client.request(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields={"topic": wide})
    assert deleted.code == 0
    assert (await resetting).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_reset_by_the_consumers(start_broker: StartBroker, connect: Connect) -> None:
    # Each step is a turn of the event loop.
    ticks = itertools.count()
    options = {"work_clock": lambda: next(ticks) * TURN}
    broker = await start_broker(options=options, use_server_side_reset_offset=False)
    client = await connect(broker)
    await create(client, "wide", QUEUES)
    await client.heartbeat("c", subscription("wide"))
    broker.tables.offsets.reset("G", "wide", dict.fromkeys(range(QUEUES), 3))
    fields = {"topic": "wide", "group": "G", "timestamp": "-1", "isForce": "true"}
    resetting = asyncio.ensure_future(
        client.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields)
    )
    for _ in range(10):
        await client.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert not resetting.done()
    assert bytes((await resetting).body) == reset_to(dict.fromkeys(range(QUEUES), 0))


async def test_a_peek(client: Client, wide: str) -> None:
    await client.heartbeat("c", subscription(wide))
    assert (await client.send(wide, queue_id=7)).code == 0
    fields = {"topic": wide, "consumerGroup": "G", "queueId": "-1", "maxMsgNums": "2"}
    answer = await overtaken(client, RequestCode.PEEK_MESSAGE, fields)
    assert (answer.code, answer.ext_fields["restNum"]) == (0, "1")


async def test_acknowledgements_of_many_queues(start_broker: StartBroker, connect: Connect) -> None:
    # Each step is a turn of the event loop.
    ticks = itertools.count()
    broker = await start_broker(options={"work_clock": lambda: next(ticks) * TURN})
    client = await connect(broker)
    await create(client, "wide", 256)
    await client.heartbeat("c", subscription("wide"))
    for queue_id in range(256):
        assert (await client.send("wide", queue_id=queue_id)).code == 0
    acks = []
    for queue_id in range(256):
        fields = {"topic": "wide", "consumerGroup": "G", "queueId": str(queue_id), **POP}
        popped = await client.request(RequestCode.POP_MESSAGE, ext_fields=fields)
        assert popped.code == 0
        acks.append({
            "c": "G", "t": "wide", "q": queue_id, "so": 0, "b": "AQ==", "r": "0",
            "pt": popped.ext_fields["popTime"], "it": 60_000,
            "rq": popped.ext_fields["reviveQid"],
        })  # fmt: skip
    body = json.dumps({"brokerName": "b0", "acks": acks}).encode()
    answer = await overtaken(client, RequestCode.BATCH_ACK_MESSAGE, body=body)
    assert answer.code == 0


async def test_the_first_pop_of_a_group(client: Client, broker: Broker, wide: str) -> None:
    """It starts in every queue before it takes anything."""
    await client.heartbeat("c", subscription(wide))
    assert (await client.send(wide, queue_id=7)).code == 0
    fields = {"topic": wide, "consumerGroup": "G", "queueId": "-1", **POP}
    answer = await overtaken(client, RequestCode.POP_MESSAGE, fields)
    assert answer.code == 0
    assert len(broker.tables.offsets.offsets("G", wide)) == QUEUES


async def test_a_pop_that_reads_many_queues_in_vain(client: Client, broker: Broker) -> None:
    queues = 1_500
    await create(client, "wide", queues)
    await client.heartbeat("c", subscription("wide"))
    for queue_id in range(queues):
        broker.tables.offsets.commit("G", "wide", queue_id, 0)
    sent = [client.send("wide", properties={"TAGS": "A"}, queue_id=q) for q in range(queues)]
    assert {answer.code for answer in await asyncio.gather(*sent)} == {0}
    fields: dict[str, Any] = {"topic": "wide", "consumerGroup": "G", "queueId": "-1", **POP}
    answer = await overtaken(
        client, RequestCode.POP_MESSAGE, {**fields, "expType": "TAG", "exp": "B"}
    )
    assert answer.code == POLLING_TIMEOUT
    # Another one begins after what this one has seen.
    assert set(broker.tables.offsets.offsets("G", "wide").values()) == {1}


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION])
async def test_all_queues_are_looked_at_after_a_restart(
    start_broker: StartBroker, connect: Connect, code: RequestCode
) -> None:
    """Queues are opened when they are needed for the first time."""
    queues = 200
    broker = await start_broker()
    client = await connect(broker)
    await create(client, "wide", queues)
    sent = [client.send("wide", queue_id=queue_id) for queue_id in range(queues)]
    assert {answer.code for answer in await asyncio.gather(*sent)} == {0}
    for queue_id in range(queues - 1):
        broker.tables.offsets.commit("G", "wide", queue_id, 1)
    await broker.stop()
    broker = await start_broker()
    client = await connect(broker)
    await client.heartbeat("c", subscription("wide"))
    fields = {"topic": "wide", "consumerGroup": "G", "queueId": "-1", **POP}
    answer = await overtaken(client, code, fields)
    assert answer.code == 0
    assert answer.ext_fields.get("hasMsg", "true") == "true"


async def test_a_list_of_groups(client: Client, broker: Broker) -> None:
    names = [f"G{number}" for number in range(14_000)]
    body = fastjson.encode({"groupConfigList": [{"groupName": name} for name in names]})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    answer = await overtaken(
        client, code, body=body, begun=lambda: broker.tables.groups.known(names[-1])
    )
    assert answer.code == 0
    assert all(map(broker.tables.groups.known, names))


GROUPS = [f"G{number}" for number in range(1_000)]


def heartbeat(consumers: list[str], producers: list[str], *topics: str) -> bytes:
    data = [
        ConsumerData(group_name=name, subscription_data_set=[*map(subscription, topics)])
        for name in consumers
    ]
    return HeartbeatData(
        client_id="c",
        consumer_data_set=data,
        producer_data_set=[ProducerData(group_name=name) for name in producers],
    ).encode()


async def test_a_heartbeat_with_many_groups(client: Client, broker: Broker, topic: str) -> None:
    """Its groups are new: each gets a retry topic."""
    code, body = RequestCode.HEART_BEAT, heartbeat(GROUPS, [], topic)
    consumers = broker.tables.consumers
    answer = await overtaken(
        client, code, body=body, begun=lambda: consumers.get(GROUPS[-1]) is not None
    )
    assert answer.code == 0
    assert set(GROUPS) <= set(consumers.names())
    assert broker.tables.topics.get(f"%RETRY%{GROUPS[-1]}") is not None


async def test_a_heartbeat_with_many_subscriptions(
    start_broker: StartBroker, connect: Connect
) -> None:
    # Each step is a turn of the event loop.
    ticks = itertools.count()
    broker = await start_broker(options={"work_clock": lambda: next(ticks) * TURN})
    client = await connect(broker)
    body = heartbeat(["G"], [], *(f"T{number}" for number in range(1_100)))
    answer = await overtaken(client, RequestCode.HEART_BEAT, body=body)
    assert answer.code == 0
    assert broker.tables.consumers.get("G") is not None


async def test_a_heartbeat_with_many_producer_groups(client: Client, broker: Broker) -> None:
    names = [f"G{number}" for number in range(10_000)]
    code, body = RequestCode.HEART_BEAT, heartbeat([], names)
    producers = broker.tables.producers
    answer = await overtaken(
        client, code, body=body, begun=lambda: producers.clients(names[-1]) is not None
    )
    assert answer.code == 0
    assert set(names) <= set(producers.all())


async def test_what_follows_a_heartbeat_with_many_groups(
    client: Client, broker: Broker, topic: str
) -> None:
    """Unregistrations and heartbeats of the connection are executed after it, in their order."""
    first, last = GROUPS[0], GROUPS[-1]
    requests = [
        (RequestCode.HEART_BEAT, None, heartbeat(GROUPS, GROUPS, topic)),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": last, "consumerGroup": last}, b""),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": first, "consumerGroup": first}, b""),
        (RequestCode.HEART_BEAT, None, heartbeat([first], [first], topic)),
    ]
    sent = [
        client.request(code, None, body, ext_fields={"clientID": "c"} | (fields or {}))
        for code, fields, body in requests
    ]
    assert [answer.code for answer in await asyncio.gather(*sent)] == [0, 0, 0, 0]
    consumers, producers = broker.tables.consumers, broker.tables.producers
    assert set(consumers.names()) == set(producers.all()) == {*GROUPS} - {last}


async def test_a_client_that_leaves_during_its_heartbeat(
    start_broker: StartBroker, connect: Connect
) -> None:
    # Each step is a turn of the event loop.
    ticks = itertools.count()
    broker = await start_broker(options={"work_clock": lambda: next(ticks) * TURN})
    client, other = await connect(broker), await connect(broker)
    await create(other, "T", 1)
    beating = asyncio.ensure_future(
        client.request(RequestCode.HEART_BEAT, None, heartbeat(GROUPS, [], "T"))
    )
    while not broker.tables.consumers.names():
        await other.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    assert not beating.done()
    await client.close()
    while broker.tables.consumers.names():
        await other.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    # As many turns as the rest of the heartbeat would have taken.
    for _ in GROUPS:
        await other.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert not broker.tables.consumers.names()
    with pytest.raises(RemotingClosed):
        await beating
    assert len(broker.tables.groups.table) < len(GROUPS)
