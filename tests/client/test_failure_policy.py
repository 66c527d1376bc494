"""What becomes of messages by the exception that ended their work, and what a dead letter says of
its death."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.client.admin import Admin
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pauses import Pauses
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.producer.producer import Producer
from pocketmq.client.reconsume_later import ReconsumeLater
from pocketmq.client.send_result import SendResult
from pocketmq.message import properties as names
from pocketmq.message.limits import DELAY_LEVELS
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.message.payload import PayloadError
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.serving.request import Response
from pocketmq.testing import RocketMQ
from tests.broker.conftest import Client as RawClient
from tests.client.fake_cluster import FakeCluster
from tests.client.impatient import impatient
from tests.client.waiting import until


def consumer(cluster: FakeCluster, pauses: Pauses | None = None, **options: Any) -> PushConsumer:
    kind = impatient(PushConsumer, pauses)
    given: dict[str, Any] = {"start": "begin", "commit_interval": 0.01} | options
    return kind("G", {"T": "*"}, namesrv=cluster.namesrv, **given)


def properties_of(header: SendMessageRequestHeaderV2) -> dict[str, str]:
    return names.decode(header.properties)


@asynccontextmanager
async def ordered(message: Message) -> AsyncIterator[tuple[RocketMQ, SendResult]]:
    """A broker with one message."""
    async with RocketMQ() as rocketmq:
        await rocketmq.create_topic("orders", queues=1)
        async with Producer("shop", namesrv=rocketmq.namesrv) as producer:
            result = await producer.send(message)
        yield rocketmq, result


def billing(rocketmq: RocketMQ, handler: Any = None, **options: Any) -> PushConsumer:
    topics = {"orders": "*"} if handler else None
    options |= {"namesrv": rocketmq.namesrv, "start": "begin"}
    return PushConsumer("billing", topics, handler=handler, **options)


async def dead_letter(rocketmq: RocketMQ, offset: int = 0) -> MessageExt:
    async with Admin(namesrv=rocketmq.namesrv) as admin, asyncio.timeout(10):
        # The broker registers the topic soon after it has created it; no event tells.
        while "%DLQ%billing" not in await admin.topics():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        message = await admin.message_at(MessageQueue("%DLQ%billing", "broker-a", 0), offset)
    assert message is not None
    return message


# With a real broker


@pytest.mark.parametrize("options", [{}, {"dead_letter_on": (PayloadError,)}])
async def test_a_message_with_the_most_attempts_becomes_a_dead_letter(
    options: dict[str, Any],
) -> None:
    most = (1 << 31) - 1

    def fail(message: ConsumedMessage) -> None:
        raise PayloadError("amount missing")

    async with RocketMQ() as rocketmq:
        await rocketmq.create_topic("orders", queues=1)
        broker = RawClient()
        await broker.open(rocketmq.broker.address)
        assert (await broker.send("orders", reconsume_times=most)).code == 0
        await broker.close()
        async with billing(rocketmq, fail, **options):
            dead = await dead_letter(rocketmq)
    assert dead.reconsume_times == most


@pytest.mark.parametrize("way", ["handler", "orderly", "iteration", "batch"])
async def test_a_dead_letter_is_the_message_and_says_why_it_died(way: str) -> None:
    sent = Message(
        "orders",
        b"not JSON" * 1000,  # compressed, and the handler changes what it got
        tags="paid",
        keys=["42"],
        properties={"region": "north"},
        flag=7,
    )
    calls: list[bytes] = []

    def fail(message: ConsumedMessage) -> None:
        calls.append(message.body)
        message.body, message.topic = b"changed", "changed"
        raise PayloadError("amount:\x02 missing\n")

    async with ordered(sent) as (rocketmq, result):
        c = billing(rocketmq, orderly=way == "orderly", dead_letter_on=(PayloadError,))
        if way == "batch":
            c.on("orders", max_batch=8)(lambda messages: fail(messages[0]))
        elif way != "iteration":
            c.on("orders")(fail)
        async with c:
            if way == "iteration":
                await c.subscribe("orders")
                message = await anext(c)
                async with message:
                    fail(message)
            await rocketmq.idle("billing")
            client_id = c.client_id
        dead = await dead_letter(rocketmq)
    assert calls == [sent.body]
    assert (dead.body, dead.tags, dead.keys, dead.flag) == (sent.body, "paid", ("42",), 7)
    assert dead.user_properties == {"region": "north"}
    assert dead.msg_id == result.msg_id
    assert dead.origin is not None
    assert (dead.origin.topic, dead.origin.msg_id) == ("orders", result.offset_msg_id)
    assert dead.store_size < len(sent.body)
    assert dead.reconsume_times == 1
    assert {n: v for n, v in dead.properties.items() if n.startswith("DLQ_")} == {
        "DLQ_REASON": "amount:  missing",
        "DLQ_EXCEPTION": "pocketmq.message.payload.PayloadError",
        "DLQ_CONSUMER": client_id,
        "DLQ_ATTEMPTS": "1",
    }


@pytest.mark.parametrize("orderly", [False, True])
async def test_each_delay_is_one_redelivery(orderly: bool) -> None:
    class Busy(TimeoutError):
        """Nearer than the TimeoutError in the list."""

    attempts: list[int] = []

    async def fail(message: ConsumedMessage) -> None:
        attempts.append(message.reconsume_times)
        raise Busy(f"attempt {len(attempts)}")

    async with ordered(Message("orders", b"42")) as (rocketmq, _):
        async with billing(
            rocketmq,
            fail,
            orderly=orderly,
            max_reconsume_times=0,  # does not count for what has delays of its own
            dead_letter_on=(TimeoutError,),
            retry_delays={Busy: (0, timedelta(milliseconds=1), 0.5)},
        ):
            if not orderly:
                await rocketmq.advance(1 + 1 + 1)
            await rocketmq.idle("billing")
        dead = await dead_letter(rocketmq)
    assert attempts == [0, 1, 2, 3]
    assert dead.properties["DLQ_REASON"] == "attempt 4"
    assert dead.properties["DLQ_ATTEMPTS"] == "4"
    assert dead.reconsume_times == 4


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_dead_letter_counts_its_attempts(
    orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq.client.consumer")
    attempts: list[int] = []

    async def refuse(message: ConsumedMessage) -> None:
        attempts.append(message.reconsume_times)
        raise ReconsumeLater("never")

    async with ordered(Message("orders", b"42")) as (rocketmq, _):
        async with billing(
            rocketmq, refuse, orderly=orderly, max_reconsume_times=2, suspend_current_queue=0.01
        ):
            if not orderly:
                await rocketmq.advance(10 + 30)
            await rocketmq.idle("billing")
        dead = await dead_letter(rocketmq)
    lines = [f"{r.levelname} {r.message}" for r in caplog.records if "delivery " in r.message]
    assert [line.partition(" message")[0] for line in lines] == [
        "INFO group billing: redelivering",
        "INFO group billing: redelivering",
        "WARNING group billing: giving up",
    ]
    assert lines[-1].endswith("delivery 3), which goes to the dead letters: never")
    assert attempts == [0, 1, 2]
    assert dead.reconsume_times == 3
    assert dead.origin is not None
    assert (dead.origin.topic, dead.origin.group) == ("orders", "billing")


async def test_a_message_that_was_resent_dies_with_its_new_reason() -> None:
    reasons = iter(("first", "second"))

    async def fail(message: ConsumedMessage) -> None:
        raise PayloadError(next(reasons))

    async with ordered(Message("orders", b"42", delay_level=1)) as (rocketmq, sent):
        await rocketmq.advance(1)
        async with billing(rocketmq, fail, dead_letter_on=(PayloadError,)):
            await rocketmq.idle("billing")
            async with Admin(namesrv=rocketmq.namesrv) as admin:
                await admin.deliver_again("billing", await dead_letter(rocketmq))
            await rocketmq.advance(1)
            await rocketmq.idle("billing")
        dead = await dead_letter(rocketmq, 1)
    assert dead.properties["DLQ_REASON"] == "second"
    assert dead.properties["DLQ_ATTEMPTS"] == str(dead.reconsume_times)
    assert dead.msg_id == sent.msg_id
    assert dead.origin is not None
    assert dead.origin.topic == "orders"


# Brokers that refuse


async def test_the_reason_is_left_out_where_the_broker_refuses_it(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = cluster["a"]
    broker.store("T", 0, b"0", "UNIQ_KEY\x01id0\x02")
    broker.mode = ResponseCode.MESSAGE_ILLEGAL

    def fail(message: ConsumedMessage) -> None:
        raise PayloadError("no")

    async with consumer(cluster, handler=fail, dead_letter_on=(PayloadError,)):
        await until(lambda: broker.offsets.get(("G", "T", 0)) == 1)
    assert [(h.origin_msg_id, h.delay_level) for h in broker.sent_back] == [("id0", -1)]
    assert "message id0 of T becomes a dead letter without the reason" in caplog.text


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("trouble", ["hang", ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR])
async def test_nothing_is_lost_while_the_dead_letters_cannot_be_written(
    cluster: FakeCluster, trouble: str | int, orderly: bool
) -> None:
    broker = cluster["a"]
    broker.store("T", 0, b"0")
    broker.mode = trouble
    broker.back_answer = Response(ResponseCode.SYSTEM_ERROR, "as the test says")
    calls = 0

    def fail(message: ConsumedMessage) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            assert broker.offsets.get(("G", "T", 0), 0) == 0
            assert not broker.sent
            broker.mode = None
        raise PayloadError("no")

    async with consumer(
        cluster,
        Pauses(local_retry=0.001, send_back_timeout=0.05 if trouble == "hang" else 5.0),
        handler=fail,
        orderly=orderly,
        suspend_current_queue=0.001,
        dead_letter_on=(PayloadError,),
    ):
        await until(lambda: broker.offsets.get(("G", "T", 0)) == 1)
    assert calls == 3
    (header,) = broker.sent
    assert header.reconsume_times == 3
    assert properties_of(header)["DLQ_ATTEMPTS"] == "3"
    # Only an answer that says no is a reason to do without the reason.
    refused = 2 if trouble == ResponseCode.SYSTEM_ERROR else 0
    assert broker.seen[RequestCode.CONSUMER_SEND_MSG_BACK] == refused


async def test_a_copy_leaves_out_what_a_broker_would_act_upon(cluster: FakeCluster) -> None:
    kept = {"UNIQ_KEY": "id", "KEYS": "k", "a": "b", "RETRY_TOPIC": "T"}
    acted = {
        "DELAY": "3", "TIMER_DELIVER_MS": "9", "TIMER_DEL_UNIQKEY": "T+id", "TRAN_MSG": "true",
        "POP_CK": "1", "INNER_MULTI_DISPATCH": "%LMQ%q", "MAX_RECONSUME_TIMES": "1",
        "REAL_TOPIC": "x", "CLUSTER": "c",
    }  # fmt: skip
    cluster["a"].store("T", 0, b"0", names.encode(kept | acted | {"RETRY_TOPIC": "forged"}))

    def fail(message: ConsumedMessage) -> None:
        raise ReconsumeLater("enough", delay_level=-1)

    async with consumer(cluster, handler=fail):
        await until(lambda: cluster["a"].sent)
    found = properties_of(cluster["a"].sent[0])
    assert kept.items() <= found.items()
    assert not acted.keys() & found.keys()
    assert found["DLQ_REASON"] == "enough"


class Unprintable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PayloadError("x" * 5000), "x" * 1023 + "…"),
        (PayloadError("\ud800 and \x00"), "and"),
        (PayloadError(""), None),
        (Unprintable(), None),
    ],
)
async def test_reasons_of_any_text(
    cluster: FakeCluster, error: Exception, reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "pocketmq")  # xdist cannot send a log with surrogates
    cluster["a"].store("T", 0, b"0", "DLQ_REASON\x01of an earlier death\x02")

    def fail(message: ConsumedMessage) -> None:
        raise error

    async with consumer(cluster, handler=fail, dead_letter_on=(PayloadError, Unprintable)):
        await until(lambda: cluster["a"].sent)
    found = properties_of(cluster["a"].sent[0])
    assert found.get("DLQ_REASON") == reason
    assert found["DLQ_EXCEPTION"].endswith(type(error).__name__)


# Which exception


async def test_a_reconsume_later_decides_for_itself(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster["a"].store("T", 0, b"%d" % number, f"UNIQ_KEY\x01id{number}\x02")

    class Closed(ReconsumeLater):
        """Of the application: without a traceback in the log."""

    async def fail(message: ConsumedMessage) -> None:
        if message.body == b"0":
            raise ReconsumeLater("later", delay_level=5)
        if message.body == b"1":
            await message.reconsume()
            return
        raise Closed("until noon")

    async with consumer(
        cluster, handler=fail, dead_letter_on=(Exception,), retry_delays={Closed: (45,)}
    ):
        await until(lambda: cluster["a"].offsets.get(("G", "T", 0)) == 3)
    levels = {h.origin_msg_id: h.delay_level for h in cluster["a"].sent_back}
    assert levels == {"id0": 5, "id1": 0, "id2": 5}  # 45 s are rounded up to a minute
    assert not cluster["a"].sent


async def test_single_messages_of_a_batch_fail_with_their_own_errors(
    cluster: FakeCluster,
) -> None:
    for number in range(4):
        cluster["a"].store("T", 0, b"%d" % number, f"UNIQ_KEY\x01id{number}\x02")
    c = PushConsumer(
        "G",
        namesrv=cluster.namesrv,
        start="begin",
        dead_letter_on=(PayloadError,),
        retry_delays={TimeoutError: (30, 60)},
    )

    @c.on("T", max_batch=4)
    async def handle(messages: list[ConsumedMessage]) -> None:
        await messages[1].reconsume(error=PayloadError("is no order"))
        messages[2].ack()
        raise TimeoutError("the database is away")

    async with c:
        await until(lambda: len(cluster["a"].sent_back) == 2)
    assert {h.origin_msg_id: h.delay_level for h in cluster["a"].sent_back} == {"id0": 4, "id3": 4}
    (dead,) = map(properties_of, cluster["a"].sent)
    assert (dead["UNIQ_KEY"], dead["DLQ_REASON"]) == ("id1", "is no order")


async def test_a_whole_batch_dies_of_one_reason(cluster: FakeCluster) -> None:
    for number in range(3):
        cluster["a"].store("T", 0, b"%d" % number)
    c = PushConsumer("G", namesrv=cluster.namesrv, start="begin", dead_letter_on=(ValueError,))

    @c.on("T", max_batch=3)
    def handle(messages: list[ConsumedMessage]) -> None:
        raise ValueError("together")

    async with c:
        await until(lambda: len(cluster["a"].sent) == 3)
    assert {properties_of(h)["DLQ_REASON"] for h in cluster["a"].sent} == {"together"}
    assert {properties_of(h)["DLQ_EXCEPTION"] for h in cluster["a"].sent} == {"ValueError"}


@given(st.floats(0, DELAY_LEVELS[-1]))
def test_a_delay_is_never_cut_short(delay: float) -> None:
    from pocketmq.client.consumer.dispatch.failure_policy import delay_level

    level = delay_level(delay)
    assert DELAY_LEVELS[level - 1] >= delay
    assert level == 1 or DELAY_LEVELS[level - 2] < delay


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dead_letter_on": PayloadError}, "dead_letter_on must be a list of types"),
        ({"dead_letter_on": "PayloadError"}, "dead_letter_on takes types of exceptions, not 'P'"),
        ({"dead_letter_on": (KeyboardInterrupt,)}, "dead_letter_on takes types of exceptions"),
        ({"retry_delays": [1, 5]}, "retry_delays must be a mapping"),
        ({"retry_delays": {"X": (1,)}}, "retry_delays takes types of exceptions, not 'X'"),
        ({"retry_delays": {OSError: 5}}, r"retry_delays\[OSError\] must be a list of seconds"),
        ({"retry_delays": {OSError: (-1,)}}, r"retry_delays\[OSError\] must be 0 or more"),
        ({"retry_delays": {OSError: (7201,)}}, "must be at most 7200 seconds"),
        ({"retry_delays": {OSError: (1,) * 1025}}, "has 1025 delays, 1024 are allowed"),
        (
            {"dead_letter_on": (OSError,), "retry_delays": {OSError: (1,)}},
            "OSError is in dead_letter_on and has delays",
        ),
        ({"dead_letter_on": (OSError,), "broadcast": True}, "no effect with broadcast=True"),
    ],
)
def test_wrong_arguments_are_named(options: Mapping[str, Any], told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        PushConsumer("G", {"T": "*"}, **options)


async def test_an_error_and_a_level_are_one_too_many(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"0")
    async with consumer(cluster) as c:
        message = await anext(c)
        with pytest.raises(ValueError, match="only one of delay_level and error"):
            await message.reconsume(3, error=PayloadError("no"))
        with pytest.raises(TypeError, match="error must be"):
            await message.reconsume(error="no")  # type: ignore[arg-type]
        async with asyncio.timeout(10):
            await message.reconsume(error=PayloadError("no"))
    assert [h.delay_level for h in cluster["a"].sent_back] == [0]


@pytest.mark.parametrize("level", [-2, 19, 99])
def test_delay_levels_that_there_are_not_are_refused(level: int) -> None:
    with pytest.raises(ValueError, match="delay_level must be a whole number from -1 to 18"):
        ReconsumeLater("later", delay_level=level)
