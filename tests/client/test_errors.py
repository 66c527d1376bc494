"""What errors tell besides their class."""

from __future__ import annotations

import inspect
import pickle
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pocketmq import Admin, PullConsumer, PushConsumer, errors
from pocketmq.client.consumer.fetch.puller import PullStatus
from pocketmq.client.errors import (
    BatchSendError,
    BrokerNotFound,
    ClientError,
    NoRouteInfo,
    NotRunning,
    RemotingClosed,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    RequestTimeout,
    SendAttempt,
    SendError,
    SendTimeout,
    error_for,
    once_more,
)
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.client.send_result import SendStatus
from pocketmq.message.message import Message, MessageQueue
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import SystemBusy
from pocketmq.remoting.serving.request import Request, Response
from pocketmq.testing import RocketMQ
from tests.client.fake_cluster import FakeCluster

QUEUE = MessageQueue("T", "broker-a", 3)


def test_a_batch_error_tells_what_its_cause_tells() -> None:
    busy = SystemBusy("too many", "broker-a")
    cause = SendError("T", 0.5, [SendAttempt(QUEUE, 0.5, busy)], busy)
    message = Message("T", b"x")
    error = BatchSendError(cause, [None], [message])
    assert (error.code, error.remark, error.broker) == (cause.code, "too many", "broker-a")
    assert error.tries == cause.tries
    assert error.retriable
    assert str(error) == f"1 of 1 messages not stored; {cause}"


def test_a_batch_error_without_a_route_has_no_tries() -> None:
    error = BatchSendError(NoRouteInfo("T"), [None], [Message("T", b"x")])
    assert error.tries == ()
    assert "No route info of this topic: T" in str(error)


BUSY = SystemBusy("too many", "broker-a")


@pytest.mark.parametrize(
    "error",
    [
        BUSY,
        SendError("T", 0.5, [SendAttempt(QUEUE, 0.5, BUSY)], BUSY),
        NoRouteInfo("T"),
        BrokerNotFound("broker-a"),
        NotRunning("producer"),
        RemotingError(1, "as it is", "broker-a"),
        RemotingConnectError("refused", "127.0.0.1:1"),
        RemotingTimeout("no answer", "127.0.0.1:1"),
        SendTimeout("T", 0.5, [SendAttempt(QUEUE, 0.5, BUSY)], BUSY),
    ],
)
def test_an_error_for_somebody_else_tells_the_same(error: RemotingError) -> None:
    with pytest.raises(type(error)) as raised:
        raise error from BUSY
    other = once_more(raised.value)
    assert type(other) is type(error)
    assert (str(other), repr(other), vars(other)) == (str(error), repr(error), vars(error))
    assert other.__cause__ is BUSY
    assert other.__traceback__ is None


@pytest.mark.parametrize("error", [RemotingTimeout("too late", "a:1"), RequestTimeout("T", 3.0)])
def test_what_took_too_long_is_a_timeout_error(error: RemotingError) -> None:
    assert isinstance(error, TimeoutError)
    assert error.remark
    assert getattr(error, "errno", None) is None


@pytest.mark.parametrize("kind", [RemotingConnectError, RemotingClosed])
def test_a_connection_that_fails_is_a_connection_error(
    kind: type[RemotingConnectError | RemotingClosed],
) -> None:
    error = kind("refused", "127.0.0.1:10911")
    assert isinstance(error, ConnectionError)
    assert str(error) == "RPC_SEND_TO_CHANNEL_FAILED(-1004): refused [127.0.0.1:10911]"
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.remark, copy.broker) == (str(error), "refused", "127.0.0.1:10911")


def test_a_send_that_ran_out_of_time_lists_its_attempts_in_a_short_text() -> None:
    refused = RemotingConnectError("refused", "127.0.0.1:1")
    tries = [SendAttempt(QUEUE, 0.5, BUSY), *[SendAttempt(QUEUE, 0.1, refused)] * 14]
    error = SendTimeout("T", 10.0, tries, refused)
    assert isinstance(error, SendError)
    assert isinstance(error, TimeoutError)
    assert error.tries == tuple(tries)
    assert str(error) == (
        "send to topic T failed after 15 attempts in 10.000 s: "
        f"broker-a: {BUSY}; broker-a: {refused} (14 times)"
    )


def test_codes_print_their_names_and_count_as_numbers() -> None:
    for code, number in (
        (TransactionState.COMMIT, 8),
        (SendStatus.FLUSH_DISK_TIMEOUT, 10),
        (PullStatus.FOUND, 0),
        (RequestCode.SEND_MESSAGE_V2, 310),
        (ResponseCode.SYSTEM_BUSY, 2),
    ):
        assert str(code) == f"{code}" == code.name
        assert (f"{code:d}", code) == (str(number), number)


def test_what_is_not_running_says_what_to_do() -> None:
    assert str(NotRunning("producer", "call start() first")) == (
        "the producer is not running: call start() first"
    )


def test_every_error_of_an_answer_has_its_class_in_the_public_module() -> None:
    for code in ResponseCode:
        kind = type(error_for(code))
        assert getattr(errors, kind.__name__) is kind


@pytest.mark.parametrize("timeout", [0, 0.000001])
@pytest.mark.parametrize("key", [None, "k"])
async def test_a_send_that_has_no_time_fails_as_the_documentation_says(
    cluster: FakeCluster, timeout: float, key: str | None
) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as producer:
        with pytest.raises(NoRouteInfo, match="no name server answered within"):
            await producer.send(Message("T", b"x"), timeout=timeout, key=key)
        await producer.send(Message("T", b"x"))
        with pytest.raises(SendTimeout, match="to topic T failed after 0 attempts") as caught:
            await producer.send(Message("T", b"x"), timeout=timeout, key=key)
        assert caught.value.tries == ()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotRunning("PushConsumer('g')", "start it"), "PushConsumer('g') is not running: start it"),
        (BrokerNotFound("a"), "no address of broker 'a' in the routes"),
        (NoRouteInfo("T", "why", exists=True), "topic T has no queue to send to (why)"),
        (
            error_for(17, "No topic route info: T\nSee https://somewhere for details.", "a:1"),
            "TOPIC_NOT_EXIST(17): No topic route info: T [a:1]",
        ),
    ],
)
def test_texts_of_errors(error: RemotingError, text: str) -> None:
    assert str(error) == text


def test_name_servers_of_a_wrong_type_are_told_what_is_allowed() -> None:
    wrong: Any = 9876
    with pytest.raises(TypeError, match="namesrv must be a str or a list of str, not 9876"):
        Producer("PG", namesrv=wrong)


KINDS = [value for value in vars(errors).values() if isinstance(value, type)]


@pytest.mark.parametrize("kind", [k for k in KINDS if issubclass(k, errors.RemotingError)])
def test_an_error_is_an_outage_or_a_bug_or_neither_but_not_both(kind: type[Exception]) -> None:
    assert not (issubclass(kind, errors.Unavailable) and issubclass(kind, errors.UsageError))
    bug = issubclass(kind, ValueError | RuntimeError)
    assert issubclass(kind, errors.UsageError) == bug or kind is errors.UsageError


def test_every_error_of_a_client_is_in_the_table_of_its_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "producer.md").read_text()
    own = [k for k in KINDS if issubclass(k, ClientError) and k is not ClientError]
    assert own
    missing = [kind.__name__ for kind in own if f"`{kind.__name__}`" not in page]
    assert missing == []


@pytest.mark.parametrize(
    "client", [Producer, TransactionProducer, PushConsumer, PullConsumer, Admin]
)
def test_each_call_says_what_it_raises(client: type) -> None:
    """In its own description; or in that of its class, if it holds for every method."""
    calls = inspect.getmembers(client, inspect.iscoroutinefunction)
    silent = {
        name
        for name, call in calls
        if not name.startswith("_") and not re.search("raises|errors", call.__doc__ or "", re.I)
    }
    if "Every method raises" in (client.__doc__ or ""):
        silent.clear()
    assert silent <= {"shutdown"}  # which raises nothing


@pytest.mark.parametrize("away", ["name server", "broker"])
async def test_an_outage_is_one_class_for_every_call(cluster: FakeCluster, away: str) -> None:
    """So that a web application has one handler, which answers 503."""
    cluster.put("T")
    message = Message("T", b"x")
    async with Producer("PG", namesrv=cluster.namesrv, timeout=0.3) as producer:
        if away == "broker":
            await producer.queues("T")
            for broker in cluster.brokers.values():
                await broker.stop()
        else:
            await cluster.name_server.stop()
        for call in (
            lambda: producer.send(message),
            lambda: producer.send(message, key="k"),
            lambda: producer.send_oneway(message),
            lambda: producer.send_batch([message, message]),
            lambda: producer.request(message),
        ):
            with pytest.raises(errors.Unavailable):
                await call()
        with pytest.raises(errors.Unavailable):
            await (await producer.post(message))


async def test_an_outage_is_this_class_for_consumers_and_administration_as_well(
    rocketmq: RocketMQ,
) -> None:
    await rocketmq.create_topic("T", queues=1)
    async with (
        Producer("P", namesrv=rocketmq.namesrv) as producer,
        PullConsumer("G", namesrv=rocketmq.namesrv) as consumer,
        Admin(namesrv=rocketmq.namesrv) as admin,
    ):
        await consumer.assign("T")
        await producer.send(Message("T", b"x"))
        assert await consumer.poll(timeout=60)
        [queue] = consumer.assignment
        await rocketmq.stop()
        for call in (
            consumer.commit,
            lambda: consumer.committed(queue),
            lambda: consumer.end_offset(queue),
            lambda: consumer.pull(queue, 0),
            consumer.ping,
            admin.topics,
            lambda: admin.create_topic("U"),
            lambda: admin.lag("G"),
            lambda: admin.message_at(queue, 0),
            lambda: admin.update_broker_config({"recallMessageEnable": "true"}),
        ):
            with pytest.raises(errors.Unavailable):
                await call()


async def test_a_message_larger_than_a_frame_is_not_sent(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("T", queues=1)
    options: Any = {"max_message_size": 1 << 25, "compression": None, "timeout": 600}
    async with Producer("PG", namesrv=rocketmq.namesrv, **options) as producer:
        with pytest.raises(errors.InvalidMessage, match="a frame has at most 16777216"):
            await producer.send(Message("T", bytes(20_000_000)))
        await producer.send(Message("T", b"small"))
    assert [message.body for message in await rocketmq.drain("T")] == [b"small"]


async def test_what_a_broker_finds_illegal_is_the_mistake_of_the_caller(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("T")
    async with Producer("PG", namesrv=rocketmq.namesrv) as producer:
        with pytest.raises(errors.InvalidMessage) as raised:
            await producer.send(Message("T", b"x", delay=timedelta(days=30)))
        assert isinstance(raised.value, SendError)
        [broker] = producer.brokers
        assert broker.available
        assert len(raised.value.tries) == 1


async def test_an_attempt_without_an_answer_is_an_outage(cluster: FakeCluster) -> None:
    """Also where no other attempt is allowed, so that the error is no SendTimeout."""
    cluster.put("T")
    for broker in cluster.brokers.values():
        broker.dispatcher.wrap(RequestCode.SEND_MESSAGE_V2, lambda _: busy)
    options: Any = {"namesrv": cluster.namesrv, "retries": 0, "timeout": 5}
    async with Producer("PG", **options) as producer:
        with pytest.raises(errors.Unavailable) as raised:
            await producer.send(Message("T", b"x"), queue=(await producer.queues("T"))[0])
    assert type(raised.value) is errors.SendUnavailable
    assert isinstance(raised.value, errors.SendFailed)


def busy(request: Request[Any]) -> Response:
    return Response(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")
