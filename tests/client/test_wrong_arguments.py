"""Whatever a call gets, only documented errors come out of it, and soon.

Every public method of the producers, of the consumers, of Router and of Admin is called with odd
values in the place of each argument. What comes out is a result, one of our errors, or a ValueError
or TypeError that names the argument; never an error of the client's insides.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pocketmq import sync
from pocketmq.client.admin.admin import Admin
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.consumer.router import Router
from pocketmq.client.errors import NotRunning, RemotingError
from pocketmq.client.options import ClientOptions
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.message.message import Message, MessageExt, MessageQueue
from tests.client.fake_cluster import FakeCluster
from tests.client.real_cluster import RealCluster

#: Seconds for one call; those that find no topic or no broker wait so long.
TIMEOUT = 0.02
QUEUE = MessageQueue("T", "a", 0)
#: What documented errors are; RemotingError is the root of ours.
DOCUMENTED = (ValueError, TypeError, RemotingError)
#: A message that was received, and that is a request.
RECEIVED = MessageExt(
    "T", b"x", b"CLUSTER\x01c\x02REPLY_TO_CLIENT\x01x\x02", 0, 0, 5, 99, 0, 1, bytes(8), 2,
    bytes(8), 0, 0, 100, 0, "b0",
)  # fmt: skip

ODD: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, float("nan"), float("inf"), "", "T", "begin", "no topic",
    "a" * 300, "\x00", "é", b"x", [], ["T"], [None], {}, {0: 5}, {"T": None}, {QUEUE: "x"},
    {None: 1}, (), object(), int, len, lambda: None, QUEUE, MessageQueue("T", "a", -1),
    MessageQueue(None, 3, "x"),  # type: ignore[arg-type]
    [QUEUE], [1], datetime(2026, 1, 1, tzinfo=UTC), datetime.max, timedelta(seconds=-1),
    timedelta(days=10**8), Message("T", b"x"), Message("T", None),  # type: ignore[arg-type]
]  # fmt: skip

#: A good value for each parameter without a default.
GOOD: dict[str, Any] = {
    "body": b"x",
    "broker": "a",
    "check": lambda message: TransactionState.UNKNOWN,
    "client_id": "c",
    "config": "x",
    "group": "G",
    "groups": ["G"],
    "half": SendResult(SendStatus.SEND_OK, "ID", "0" * 32, QUEUE, 0),
    "key": "k",
    "local": lambda message, half: TransactionState.COMMIT,
    "message": Message("T", b"x"),
    "messages": [Message("T", b"x")],
    "msg_id": "ID",
    "name": "TOPIC_PUT_NUMS",
    "namespace": "ORDER_TOPIC_CONFIG",
    "offset": 0,
    "position": "end",
    "queue": QUEUE,
    "recall_handle": "x",
    "request": RECEIVED,
    "route": None,
    "settings": {"a": "b"},
    "source": "G",
    "state": TransactionState.COMMIT,
    "tag": "t",
    "target": "G2",
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "to": "end",
    "topic": "T",
    "topics": ["T"],
    "value": "v",
    "what": "T",
}
#: What is another one for Admin.
GOOD_FOR_ADMIN = GOOD | {"broker": "b0", "message": RECEIVED, "queue": MessageQueue("T", "b0", 0)}
#: Calls that would end the client, or wait as they should.
LEFT_OUT = {"run", "shutdown", "start"}


def methods(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    for name, function in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and name not in LEFT_OUT:
            yield name, inspect.signature(function)


def odd_calls(
    signature: inspect.Signature, options: type = ClientOptions, values: Mapping[str, Any] = GOOD
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments that are good but for one, and its name; `options` are what `**` stands for."""
    parameters = [
        parameter
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    good = {
        parameter.name: values.get(parameter.name)
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty
    }
    names = [parameter.name for parameter in parameters]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values()):
        names += [name for name in options.__annotations__ if name not in names]
    for name in names:
        for odd in ODD:
            yield name, good | {name: odd}


async def outcome(
    call: Callable[..., Any], arguments: dict[str, Any], name: str = ""
) -> str | None:
    """What was wrong, if anything was; `name` is that of the argument that is odd."""
    try:
        async with asyncio.timeout(40):
            result = call(**arguments)
            if inspect.isawaitable(result):
                await result
    except TimeoutError as error:
        return None if isinstance(error, RemotingError) else "it took too long"
    except DOCUMENTED as error:
        named = name in str(error) or isinstance(error, RemotingError)
        if not str(error) or not named:
            return f"{type(error).__name__} that does not name {name}: {error}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


async def wrong_outcomes(client: Any) -> list[str]:
    wrong = []
    values = GOOD_FOR_ADMIN if isinstance(client, Admin) else GOOD
    strict = isinstance(client, Producer | Admin)
    for name, signature in methods(type(client)):
        for odd, arguments in odd_calls(signature, values=values):
            # What a function raises comes out as it is.
            named = odd if strict and odd != "local" else ""
            told = await outcome(getattr(client, name), arguments, named)
            if told is not None:
                wrong.append(f"{name}({arguments}): {told}")
    return wrong


def transaction_producer(**options: Any) -> TransactionProducer:
    return TransactionProducer("G", check=GOOD["check"], **options)


async def test_pull_consumer(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"x")  # so that no pull waits for one
    async with PullConsumer("G", namesrv=cluster.namesrv, auto_commit=False) as client:
        await client.assign([QUEUE])
        assert await wrong_outcomes(client) == []


async def test_push_consumer(cluster: FakeCluster) -> None:
    async with PushConsumer("G", {"T": "*"}, namesrv=cluster.namesrv) as client:
        assert await wrong_outcomes(client) == []


async def test_producer(cluster: FakeCluster) -> None:
    async with Producer("G", namesrv=cluster.namesrv, timeout=TIMEOUT) as client:
        assert await wrong_outcomes(client) == []


async def test_producer_in_a_namespace_that_lingers(cluster: FakeCluster) -> None:
    cluster.put("N%T")
    async with Producer(
        "G", namesrv=cluster.namesrv, timeout=TIMEOUT, namespace="N", linger_ms=1
    ) as client:
        assert await wrong_outcomes(client) == []


async def test_transaction_producer(cluster: FakeCluster) -> None:
    async with transaction_producer(namesrv=cluster.namesrv, timeout=TIMEOUT) as client:
        assert await wrong_outcomes(client) == []


async def test_admin(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("T")
        await admin.create_group("G")
    async with Admin(namesrv=real.namesrv, timeout=TIMEOUT) as client:
        assert await wrong_outcomes(client) == []


async def test_clients_that_are_not_started() -> None:
    address = "127.0.0.1:1"
    clients: list[Any] = [
        PullConsumer("G", namesrv=address), PushConsumer("G"), Router(),
        Producer("G", namesrv=address), transaction_producer(namesrv=address),
        Admin(namesrv=address),
    ]  # fmt: skip
    for client in clients:
        assert await wrong_outcomes(client) == []
        if isinstance(client, PullConsumer | PushConsumer):
            with pytest.raises(NotRunning):
                await anext(client)


@pytest.mark.parametrize("kind", [Producer, TransactionProducer, Admin])
async def test_each_argument_is_checked_before_anything_is_sent(kind: Any) -> None:
    """A client that is not started sends nothing; yet it says which argument is wrong."""
    group = {"group": "G"} if kind is Producer else {"group": "G", "check": GOOD["check"]}
    client = kind(**({} if kind is Admin else group), namesrv="127.0.0.1:1")
    wrong = next(odd for odd in ODD if type(odd) is object)
    values = GOOD_FOR_ADMIN if kind is Admin else GOOD
    for name, signature in methods(kind):
        for odd, arguments in odd_calls(signature, values=values):
            if arguments[odd] is wrong:
                with pytest.raises((TypeError, ValueError), match=odd) as raised:
                    await getattr(client, name)(**arguments)
                assert "object" in str(raised.value), (name, odd)


@pytest.mark.parametrize("kind", [PullConsumer, PushConsumer, Producer, TransactionProducer, Admin])
async def test_constructors(kind: type) -> None:
    options = ProducerOptions if kind is TransactionProducer else ClientOptions
    strict = issubclass(kind, Producer | Admin)
    wrong = []
    for odd, arguments in odd_calls(inspect.signature(kind), options):
        given = arguments if odd == "namesrv" else {"namesrv": "127.0.0.1:1"} | arguments
        told = await outcome(kind, given, odd if strict else "")
        if told is not None:
            wrong.append(f"{arguments}: {told}")
    assert wrong == []


@pytest.mark.parametrize("kind", [PullConsumer, PushConsumer, Producer, TransactionProducer, Admin])
async def test_a_client_that_was_made_starts_or_says_why(cluster: FakeCluster, kind: Any) -> None:
    """What the constructor accepts does not fail at the start in an undocumented way."""
    wrong = []
    options = ProducerOptions if kind is TransactionProducer else ClientOptions
    for _, arguments in odd_calls(inspect.signature(kind), options):
        given = {"namesrv": cluster.namesrv, "start_timeout": 0} | arguments
        try:
            client = kind(**given)
        except DOCUMENTED:
            continue
        told = await outcome(client.start, {})
        if told is not None:
            wrong.append(f"{arguments}: {told}")
        await client.shutdown()
    assert wrong == []


@pytest.mark.parametrize("kind", [Producer, Admin])
async def test_unknown_options(kind: type) -> None:
    for options in ({"namesvr": "x"}, {"nope": 1}):
        with pytest.raises(TypeError, match=next(iter(options))):
            kind(**({"group": "G"} if kind is Producer else {}), **options)


@pytest.mark.parametrize("kind", [PullConsumer, PushConsumer])
def test_an_unknown_option_of_a_consumer_is_named(kind: Any) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__} has no option 'namspace'.*'namespace'"):
        kind("G", namspace="x")


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"max_reconsume_times": -3}, ValueError, "max_reconsume_times must be .* not -3"),
        ({"start": "first"}, ValueError, "start must be .*'begin', 'end'.* not 'first'"),
        ({"start": 1795370851.5}, TypeError, "start must be a queue offset"),
        ({"start": -1}, ValueError, "start must be a queue offset from 0"),
        ({"consume_timeout": 0}, ValueError, "consume_timeout must be above 0"),
        ({"commit_interval": "5"}, TypeError, "commit_interval must be seconds"),
        ({"concurrency": 2.5}, TypeError, "concurrency must be a whole number"),
        ({"orderly": "yes"}, TypeError, "orderly must be True or False"),
        ({"strategy": "average"}, TypeError, "strategy must be a function"),
        ({"on_event": 3}, TypeError, "on_event must be a function"),
        ({"handler": "x", "subscriptions": {"T": "*"}}, TypeError, "handler must be a function"),
        ({"handler": print}, ValueError, "`handler` needs `subscriptions`"),
        ({"handler": print, "subscriptions": Router()}, ValueError, "Router has handlers"),
        ({"subscriptions": ["T"]}, TypeError, "subscriptions must be a Router or a mapping"),
        ({"subscriptions": {"T": ["a"]}}, TypeError, "tags must be a text"),
    ],
)
def test_wrong_options_are_named(
    options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        PushConsumer("G", **options)


async def test_wrong_queues_and_positions_are_named(cluster: FakeCluster) -> None:
    async with PullConsumer("G", namesrv=cluster.namesrv) as client:
        odd: Any = client
        with pytest.raises(TypeError, match=r"each of what must be a MessageQueue.* not 't'"):
            await odd.assign(["t"])
        with pytest.raises(TypeError, match=r"queue must be a MessageQueue.* not 0"):
            await odd.seek(1, queue=0)
        with pytest.raises(TypeError, match="each key of offsets must be a MessageQueue"):
            await odd.commit({0: 5})
        with pytest.raises(TypeError, match="tags must be a text"):
            await odd.subscribe("t", ["a"])
        with pytest.raises(TypeError, match="'begin', 'end', or a datetime"):
            await odd.seek(1795370851.5)
        with pytest.raises(TypeError, match="timeout must be seconds"):
            await odd.poll(timeout="1")


def test_durations_may_be_timedeltas() -> None:
    second = timedelta(seconds=1)
    push = PushConsumer(
        "G", consume_timeout=second, suspend_current_queue=second, suspend=second,
        commit_interval=second, start_timeout=second, shutdown_timeout=second,
    )  # fmt: skip
    assert repr(push) == "PushConsumer('G')"
    pull = PullConsumer("G", auto_commit_interval=second, suspend=second, start_timeout=second)
    assert repr(pull) == "PullConsumer('G')"


PUBLIC_CLASSES = [Admin, Producer, PullConsumer, PushConsumer, TransactionProducer]


@pytest.mark.parametrize("kind", PUBLIC_CLASSES)
def test_help_shows_the_defaults_and_the_same_options_of_scripts(kind: type) -> None:
    signature = inspect.signature(kind)
    assert " at 0x" not in str(signature)
    assert inspect.signature(getattr(sync, kind.__name__)) == signature


def test_a_producer_has_no_public_internals() -> None:
    producer = TransactionProducer(
        "PG", check=lambda message: TransactionState.UNKNOWN, namesrv="127.0.0.1:1"
    )
    assert {name for name in dir(producer) if not name.startswith("_")} == {
        "brokers", "buffered_bytes", "client_id", "flush", "group", "healthy", "hooks", "in_flight",
        "last_success", "ping", "post", "queues", "recall", "reply", "request", "running", "send",
        "send_batch",
        "send_in_transaction", "send_oneway", "shutdown", "start", "switches", "timeout",
        "transaction",
    }  # fmt: skip


def test_help_shows_the_public_interface_only() -> None:
    shown = {name for name in dir(PushConsumer) if not name.startswith("_")}
    assert shown == {
        "assignment", "cached", "client_id", "dropped_requests", "healthy", "lag", "last_success",
        "namesrv", "on", "pause", "ping", "resume", "run", "running", "shutdown", "start",
        "subscribe", "unsubscribe",
    }  # fmt: skip
    shown = {name for name in dir(PullConsumer) if not name.startswith("_")}
    assert shown == {
        "assign", "assignment", "begin_offset", "buffered_bytes", "client_id", "healthy", "lag",
        "last_success", "ping", "commit",
        "committed", "end_offset", "namesrv", "pause", "poll", "position", "pull", "queues",
        "resume", "running", "seek", "shutdown", "start", "subscribe", "unassign",
    }  # fmt: skip


async def test_messages_that_cannot_be_sent(cluster: FakeCluster) -> None:
    """A Message takes what it is given; the send says what is wrong with it."""
    wrong = []
    async with Producer("G", namesrv=cluster.namesrv, timeout=1) as client:
        for _, arguments in odd_calls(inspect.signature(Message)):
            message = Message(**({"topic": "T", "body": b"x"} | arguments))
            told = await outcome(client.send, {"message": message})
            if told is not None:
                wrong.append(f"{arguments}: {told}")
    assert wrong == []
