"""What producers hear: SendMessage, EndTransaction, RecallMessage, and each of their statuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.embedded import EmbeddedServer
from pocketmq.message import properties as names
from pocketmq.message.message import MessageExt
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.service.checks import REFUSED_USER_PROPERTIES
from pocketmq.remoting.codes import RequestCode
from tests.proxy.conftest import create_topics, grpc_port
from tests.proxy.grpc_client import GrpcClient, message
from tests.proxy.watched import Held, watched_proxy

#: `broker-a` in a transaction id.
BROKER_A = "YnJva2VyLWE"


async def first(server: EmbeddedServer, topic: str) -> MessageExt:
    """Return the first message of a topic."""
    async with PullConsumer("readers", namesrv=server.namesrv, start="begin") as consumer:
        await consumer.subscribe(topic)
        async for got in consumer:
            return got
    raise AssertionError("unreachable")


async def send(client: GrpcClient, *messages: pb.Message) -> Any:
    return await client.call("SendMessage", pb.SendMessageRequest(messages=messages))


def with_properties(properties: dict[str, str]) -> pb.Message:
    made = message()
    made.user_properties.update(properties)
    return made


def in_seconds(seconds: float) -> dict[str, int]:
    return {"seconds": int(time.time() + seconds)}


REFUSED: list[tuple[str, Callable[[], list[Any]], int]] = [
    ("no message", list, pb.MESSAGE_CORRUPTED),
    ("two topics", lambda: [message(), message("Other")], pb.MESSAGE_CORRUPTED),
    ("empty body", lambda: [message(body=b"")], pb.MESSAGE_BODY_EMPTY),
    ("large body", lambda: [message(body=bytes((4 << 20) + 1))], pb.MESSAGE_BODY_TOO_LARGE),
    (
        "many properties",
        lambda: [with_properties({f"p{n}": "v" for n in range(129)})],
        pb.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    (
        "large properties",
        lambda: [with_properties({"p": "v" * (16 << 10)})],
        pb.MESSAGE_PROPERTIES_TOO_LARGE,
    ),
    (
        "control character in a property",
        lambda: [with_properties({"p": "a\x01b"})],
        pb.ILLEGAL_MESSAGE_PROPERTY_KEY,
    ),
    ("blank tag", lambda: [message(tag=" ")], pb.ILLEGAL_MESSAGE_TAG),
    ("tag with a bar", lambda: [message(tag="a|b")], pb.ILLEGAL_MESSAGE_TAG),
    ("blank key", lambda: [message(keys=[" "])], pb.ILLEGAL_MESSAGE_KEY),
    ("control character in a key", lambda: [message(keys=["a\nb"])], pb.ILLEGAL_MESSAGE_KEY),
    ("blank id", lambda: [message(message_id="")], pb.ILLEGAL_MESSAGE_ID),
    ("blank message group", lambda: [message("Fifo", message_group="")], pb.ILLEGAL_MESSAGE_GROUP),
    (
        "long message group",
        lambda: [message("Fifo", message_group="g" * 64)],
        pb.ILLEGAL_MESSAGE_GROUP,
    ),
    (
        "far delivery",
        lambda: [message("Delay", delivery_timestamp=in_seconds(2 * 86_400))],
        pb.ILLEGAL_DELIVERY_TIME,
    ),
    (
        "long recovery",
        lambda: [
            message(
                "Transaction",
                message_type=pb.TRANSACTION,
                orphaned_transaction_recovery_duration={"seconds": 3601},
            )
        ],
        pb.BAD_REQUEST,
    ),
    ("missing topic", lambda: [message("Missing")], pb.TOPIC_NOT_FOUND),
    ("illegal topic", lambda: [message("no/topic")], pb.ILLEGAL_TOPIC),
    ("system topic", lambda: [message("SCHEDULE_TOPIC_XXXX")], pb.ILLEGAL_TOPIC),
    ("long topic", lambda: [message("t" * 128)], pb.ILLEGAL_TOPIC),
    (
        "delayed, to a topic of normal ones",
        lambda: [message(delivery_timestamp=in_seconds(5))],
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "with a message group as a user property, to a topic of normal ones",
        lambda: [with_properties({names.SHARDING_KEY: "group"})],
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "with a priority, to a topic of normal ones",
        lambda: [message(priority=0)],
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "normal, to a topic of priority messages",
        lambda: [message("Priority")],
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "ordered, to a topic of priority messages",
        lambda: [message("Priority", priority=1, message_group="g")],
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
    (
        "negative priority",
        lambda: [message("Priority", priority=-1)],
        pb.BAD_REQUEST,
    ),
    (
        "born after the year 9999",
        lambda: [message(born_timestamp={"seconds": 2**63 - 1})],
        pb.BAD_REQUEST,
    ),
    (
        "born before the year 1",
        lambda: [message(born_timestamp={"seconds": -(2**63)})],
        pb.BAD_REQUEST,
    ),
    (
        "normal, to a topic of ordered ones",
        lambda: [message("Fifo")],
        pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
    ),
]


async def test_what_is_refused(client: GrpcClient) -> None:
    answered = {}
    for name, made, _ in REFUSED:
        answer = await send(client, *made())
        assert answer.status.message, name
        answered[name] = answer.status.code  # of the call, or of its one entry
    assert answered == {name: code for name, _, code in REFUSED}


async def test_reserved_names_are_refused(client: GrpcClient) -> None:
    codes = {
        (await send(client, with_properties({name: "v"}))).status.code
        for name in REFUSED_USER_PROPERTIES
    }
    assert codes == {pb.ILLEGAL_MESSAGE_PROPERTY_KEY}


async def test_a_call_without_a_client_id_is_refused(client: GrpcClient) -> None:
    request = pb.SendMessageRequest(messages=[message()])
    answer = await client.call("SendMessage", request, x_mq_client_id="")
    assert answer.status.code == pb.CLIENT_ID_REQUIRED


async def test_a_message_is_stored_with_all_that_it_has(
    client: GrpcClient, server: EmbeddedServer
) -> None:
    sent = message(tag="red", keys=["k1", "k2"], trace_context="trace")
    sent.user_properties["colour"] = "blue"
    answer = await send(client, sent)
    entry = answer.entries[0]
    assert answer.status.code == entry.status.code == pb.OK
    assert entry.message_id == entry.transaction_id == sent.system_properties.message_id
    got = await first(server, "Normal")
    assert got.body == b"body"
    assert got.tags == "red"
    assert got.keys == ("k1", "k2")
    assert got.properties["colour"] == "blue"
    assert got.properties["UNIQ_KEY"] == sent.system_properties.message_id
    assert got.born_host.startswith("127.0.0.1:")


async def test_sends_that_wait_for_the_disk_are_answered() -> None:
    async with EmbeddedServer(grpc_port=0, properties={"flushDiskType": "SYNC_FLUSH"}) as server:
        await create_topics(server.namesrv)
        async with GrpcClient(grpc_port(server)) as client:
            answers = [await send(client, message("Fifo", message_type=pb.FIFO, message_group="g"))
                       for _ in range(3)]  # fmt: skip
    assert [answer.status.code for answer in answers] == [pb.OK] * 3
    assert [answer.entries[0].offset for answer in answers] == [0, 1, 2]


async def test_sends_on_the_way_are_answered_when_their_client_stops(
    server: EmbeddedServer,
) -> None:
    """Also one that the proxy passes to the broker only after the good-bye."""
    sends, topics = Held(), Held()
    wrappers = {
        RequestCode.SEND_MESSAGE_V2: sends.wrap,
        RequestCode.GET_TOPIC_CONFIG: topics.wrap,
    }
    async with watched_proxy(server.broker, wrappers) as port, GrpcClient(port) as client:
        stream = await client.as_producer("Normal")
        sends.hold()
        begun = client.call("SendMessage", pb.SendMessageRequest(messages=[message()]))
        await sends.reached.wait()
        topics.hold()
        other = message("Fifo", message_type=pb.FIFO, message_group="g")
        waiting = client.call("SendMessage", pb.SendMessageRequest(messages=[other]))
        await topics.reached.wait()
        request = pb.NotifyClientTerminationRequest()
        assert (await client.call("NotifyClientTermination", request)).status.code == pb.OK
        stream.cancel()
        topics.release()
        sends.release()
        for send in (begun, waiting):
            assert (await send).status.code == pb.OK


async def test_messages_of_one_group_stay_in_one_queue(client: GrpcClient) -> None:
    sent = [message("Fifo", message_type=pb.FIFO, message_group="orders") for _ in range(20)]
    answer = await send(client, *sent)
    assert [entry.offset for entry in answer.entries] == list(range(20))


async def test_others_go_to_the_queues_in_turn(client: GrpcClient) -> None:
    answer = await send(client, *(message() for _ in range(20)))
    assert sorted(entry.offset for entry in answer.entries) == sorted([*range(10), *range(10)])


async def test_a_transaction_is_ended_by_its_id_alone(
    client: GrpcClient, server: EmbeddedServer
) -> None:
    ids = {}
    for body in (b"kept", b"dropped"):
        sent = message("Transaction", body, message_type=pb.TRANSACTION)
        ids[body] = (await send(client, sent)).entries[0].transaction_id
    async with GrpcClient(grpc_port(server), client_id="another") as other:
        # Another client over another connection: nothing is kept in the proxy.
        for body, resolution in ((b"kept", pb.COMMIT), (b"dropped", pb.ROLLBACK)):
            request = pb.EndTransactionRequest(
                transaction_id=ids[body], resolution=resolution, source=pb.SOURCE_CLIENT
            )
            request.topic.name = "Transaction"
            answer = await other.call("EndTransaction", request)
            assert answer.status.code == pb.OK
    assert (await first(server, "Transaction")).body == b"kept"


@pytest.mark.parametrize(
    "transaction_id",
    [
        *("", " ", "unknown", "a@b@c@d"),
        *(f"K@{BROKER_A}@0@{place}" for place in ("f" * 4_000, "f" * 16, "-1", "0x1", "1_0", "")),
        f"K@{BROKER_A}@{'f' * 4_000}@0",
    ],
)
async def test_a_transaction_id_that_names_no_place_is_refused(
    client: GrpcClient, transaction_id: str
) -> None:
    request = pb.EndTransactionRequest(transaction_id=transaction_id, resolution=pb.COMMIT)
    request.topic.name = "Transaction"
    answer = await client.call("EndTransaction", request)
    assert answer.status.code == pb.INVALID_TRANSACTION_ID


async def test_a_delayed_message_is_recalled(client: GrpcClient) -> None:
    sent = message("Delay", message_type=pb.DELAY, delivery_timestamp=in_seconds(60))
    entry = (await send(client, sent)).entries[0]
    request = pb.RecallMessageRequest(recall_handle=entry.recall_handle)
    request.topic.name = "Delay"
    answer = await client.call("RecallMessage", request)
    assert (answer.status.code, answer.message_id) == (pb.OK, sent.system_properties.message_id)


async def test_a_recall_handle_that_is_none_is_refused(client: GrpcClient) -> None:
    request = pb.RecallMessageRequest(recall_handle="nonsense")
    request.topic.name = "Delay"
    answer = await client.call("RecallMessage", request)
    assert answer.status.code == pb.BAD_REQUEST


async def test_an_orphaned_transaction_is_recovered_by_a_producer_of_its_topic() -> None:
    properties = {"transactionTimeOut": "200", "transactionCheckInterval": "200"}
    async with EmbeddedServer(grpc_port=0, properties=properties) as server:
        await create_topics(server.namesrv)
        async with GrpcClient(grpc_port(server)) as client:
            stream = await client.as_producer("Transaction")
            sent = message("Transaction", b"orphan", message_type=pb.TRANSACTION)
            await send(client, sent)
            command = (await stream.next(30)).recover_orphaned_transaction_command
            assert command.message.body == b"orphan"
            assert command.message.topic.name == "Transaction"
            request = pb.EndTransactionRequest(
                transaction_id=command.transaction_id,
                message_id=command.message.system_properties.message_id,
                resolution=pb.COMMIT,
                source=pb.SOURCE_SERVER_CHECK,
            )
            request.topic.name = "Transaction"
            answer = await client.call("EndTransaction", request)
            assert answer.status.code == pb.OK
            assert (await first(server, "Transaction")).body == b"orphan"
