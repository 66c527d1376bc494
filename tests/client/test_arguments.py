"""Wrong arguments of a producer fail at once: name, value and what is allowed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pocketmq.client.errors import InvalidMessage, InvalidName
from pocketmq.client.producer.producer import Producer
from pocketmq.client.producer.transaction import TransactionProducer, TransactionState
from pocketmq.message.message import Message, MessageExt, MessageQueue
from tests.client.fake_cluster import FakeCluster

WRONG_MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"tags": ["x", "y"]}, r"tags must be one tag \(str\), not \['x', 'y'\]"),
    ({"tags": "x || y"}, "tags must be one tag, not 'x || y'"),
    ({"keys": ["o 42"]}, "keys must be a text without spaces.*not 'o 42'"),
    ({"keys": ["a", ""]}, "keys must be a text without spaces.*not ''"),
    ({"keys": [42]}, "each of keys must be a text.*not 42"),
    ({"keys": 42}, "keys must be a list of str, not 42"),
    ({"keys": "o-42"}, "keys must be a list of str, not 'o-42'"),
    ({"deliver_at": 1795370851}, "deliver_at must be.*multiply by 1000"),
    ({"deliver_at": "soon"}, "deliver_at must be a datetime"),
    ({"properties": {"n": 1}}, "property 'n' must be a text.*not 1"),
    ({"properties": {1: "n"}}, "name of a property must be a text.*not 1"),
    ({"properties": ["n"]}, "properties must be a dict"),
    ({"delay_level": 19}, "delay_level must be a whole number from 1 to 18, not 19"),
    ({"delay_level": "3"}, "delay_level must be a whole number from 1 to 18, not '3'"),
    ({"delay": -1}, "delay must be 0 or more seconds"),
    ({"delay": "1"}, "delay must be seconds"),
    ({"delay": 1, "delay_level": 1}, "only one of"),
    ({"flag": "x"}, "flag must be an integer of 32 bits, not 'x'"),
    ({"topic": ["T"]}, r"topic must be a text \(str\), not \['T'\]"),
    ({"topic": 3}, r"topic must be a text \(str\), not 3"),
    ({"topic": None}, "topic must be a text"),
    ({"body": "x"}, "body must be bytes, not str"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "text"), WRONG_MESSAGES, ids=lambda value: str(value)[:30])
async def test_a_wrong_message_never_leaves(
    cluster: FakeCluster, fields: dict[str, Any], text: str
) -> None:
    message = Message(**{"topic": "T", "body": b"x", **fields})
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        for call in (p.send, p.post, p.send_oneway, lambda m: p.send(m, key="k")):
            with pytest.raises((InvalidMessage, InvalidName), match=text):
                await call(message)
    assert cluster["a"].seen[310] + cluster["b"].seen[310] == 0


async def test_only_messages_are_sent(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv, namespace="N") as p:
        calls: list[Any] = [p.send, p.post, p.send_oneway, p.request]
        for call in calls:
            with pytest.raises(TypeError, match="message must be a Message, not b'x'"):
                await call(b"x")
        wrong: Any
        for wrong in (Message("T", b"x"), b"x", None, 3):
            with pytest.raises(TypeError, match="messages must be a list of Message, not"):
                await p.send_batch(wrong)
        wrong = [b"x"]
        with pytest.raises(TypeError, match="each of messages must be a Message, not b'x'"):
            await p.send_batch(wrong)


@pytest.mark.parametrize("timeout", ["3", -3, True, float("nan"), timedelta(seconds=-1)])
async def test_timeouts_are_seconds(cluster: FakeCluster, timeout: Any) -> None:
    refused = (TypeError, ValueError)
    with pytest.raises(refused, match="timeout must be"):
        Producer("PG", namesrv=cluster.namesrv, timeout=timeout)
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        message = Message("T", b"x")
        for call in (p.send, p.send_oneway, p.request):
            with pytest.raises(refused, match="timeout must be"):
                await call(message, timeout=timeout)
        with pytest.raises(refused, match="timeout must be"):
            await p.send(message, key="k", timeout=timeout)
        with pytest.raises(refused, match="timeout must be"):
            await p.send_batch([message], timeout=timeout)
        with pytest.raises(refused, match="timeout must be"):
            p.timeout = timeout
        await p.send(message, timeout=timedelta(seconds=3))


async def test_a_recall_needs_a_handle(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        wrong: Any = 3
        with pytest.raises(InvalidMessage, match=r"recall_handle must be .* not 3"):
            await p.recall("T", wrong)
        with pytest.raises(InvalidMessage, match="recall_handle is None"):
            await p.recall("T", None)
        with pytest.raises(InvalidName, match="topic must be a text"):
            await p.recall(wrong, "x")


async def test_a_queue_is_a_queue_of_the_topic(cluster: FakeCluster) -> None:
    wrong: Any = 3
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        for call in (p.send, p.post, p.send_oneway, p.request):
            with pytest.raises(TypeError, match=r"queue must be a MessageQueue\(.*\), not 3"):
                await call(Message("T", b"x"), queue=wrong)
            other = MessageQueue("U", "a", 0)
            with pytest.raises(InvalidMessage, match="must be a MessageQueue of topic T, not"):
                await call(Message("T", b"x"), queue=other)


async def test_a_key_is_a_text_or_a_number(cluster: FakeCluster) -> None:
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        wrong: Any
        for wrong in (True, 1.5, ["k"], b"k"):
            for call in (p.send, p.post, p.send_oneway, p.request):
                with pytest.raises(TypeError, match=r"key must be a text \(str\) or a whole"):
                    await call(Message("T", b"x"), key=wrong)
    assert cluster["a"].seen[310] + cluster["b"].seen[310] == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"retries": -1}, "retries must be 0 or more, not -1"),
        ({"retries": "2"}, "retries must be a whole number, 0 or more, not '2'"),
        ({"compression": "gzip"}, "compression must be one of .*'zlib', None, not 'gzip'"),
        ({"linger_ms": -5}, "linger_ms must be 0 or more milliseconds"),
        ({"linger_ms": timedelta(seconds=-1)}, "linger_ms must be 0 or more"),
        (
            {"queue_selector": lambda queues, key: queues[0]},
            r"queue_selector is called with \(queues, message, key\), which <function",
        ),
        ({"queue_selector": 3}, r"queue_selector must be a text \(str\), not 3"),
        ({"selection": "best"}, "selection must be one of 'penalised', 'round-robin', not 'best'"),
        ({"filters": ["a"]}, "each of filters must be a function, not 'a'"),
        ({"latency_max_ms": ["a"]}, r"each of latency_max_ms must be milliseconds \(a number or"),
        ({"latency_max_ms": 50}, "latency_max_ms must be a list of milliseconds, not 50"),
        ({"detect_timeout_ms": 0}, "detect_timeout_ms must be above 0 milliseconds"),
        ({"hooks": [3]}, "each of hooks must have a method before_send or after_send, not 3"),
        ({"trace": 3}, r"trace must be True, False or the name of a topic \(str\), not 3"),
        ({"tls": "yes"}, "tls must be True, False or an SSLContext, not 'yes'"),
        ({"credentials": "me"}, "credentials must be a Credentials, not 'me'"),
        ({"vip_channel": 1}, "vip_channel must be True or False, not 1"),
        ({"namespace": 3}, r"namespace must be a text \(str\), not 3"),
        ({"attempt_timeout": 0}, "attempt_timeout must be above 0"),
        ({"max_in_flight": 0}, "max_in_flight must be 1 or more, not 0"),
        ({"accumulate": 1}, "accumulate must be True or False, not 1"),
        ({"retrys": 3}, r"Producer has no option 'retrys'; did you mean 'retries'\?"),
        ({"credential": None}, r"no option 'credential'; did you mean 'credentials'\?"),
        ({"start_timeout": -1}, "start_timeout must be 0 or more"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_options_are_checked(options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        Producer("PG", namesrv="127.0.0.1:9876", **options)
    with pytest.raises((TypeError, ValueError), match=text):
        TransactionProducer(
            "PG", check=lambda message: TransactionState.UNKNOWN, namesrv="a:1", **options
        )


async def test_durations_and_points_in_time(cluster: FakeCluster) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    in_ms = int(at.timestamp() * 1000)
    sent = {
        "TIMER_DELAY_MS\x011500\x02": [
            Message("T", b"x", delay=1.5),
            Message("T", b"x", delay=timedelta(seconds=1.5)),
        ],
        f"TIMER_DELIVER_MS\x01{in_ms}\x02": [
            Message("T", b"x", deliver_at=at),
            Message("T", b"x", deliver_at=in_ms),
        ],
    }
    async with Producer(
        "PG",
        namesrv=cluster.namesrv,
        timeout=timedelta(seconds=5),
        linger_ms=timedelta(0),
        detect_interval_ms=timedelta(seconds=3),
        detect_timeout_ms=timedelta(milliseconds=150),
        latency_max_ms=[timedelta(milliseconds=50), 100],
        not_available_duration_ms=[0, timedelta(seconds=2)],
    ) as p:
        assert p.timeout == 5.0
        switches = p.switches
        assert (switches.detect_interval, switches.detect_timeout) == (3000, 150)
        for text, messages in sent.items():
            for message in messages:
                result = await p.send(message)
                assert text in cluster[result.queue.broker_name].sent[-1].properties


def received(topic: str = "T", **properties: str) -> MessageExt:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return MessageExt(
        topic, b"body", text.encode(), 7, 1, 5, 99, 0, 1, bytes(8), 2, bytes(8), 0, 0, 100, 0
    )


async def test_a_received_message_is_resent_by_to_message(cluster: FakeCluster) -> None:
    got = received(UNIQ_KEY="ID", TAGS="paid", KEYS="o-1 o-2", colour="red", MIN_OFFSET="0")
    assert got.user_properties == {"colour": "red"}
    message = got.to_message()
    expected = Message(
        "T", b"body", tags="paid", keys=("o-1", "o-2"), properties={"colour": "red"}, flag=7
    )
    assert message == expected
    assert got.to_message("elsewhere").topic == "elsewhere"
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        await p.send(message)
        calls: list[Any] = [p.send, p.post]
        for call in calls:
            with pytest.raises(TypeError, match=r"send message\.to_message\(\)"):
                await call(got)


def test_a_dead_letter_tells_where_it_comes_from() -> None:
    assert received().origin is None
    dead = received("%DLQ%billing", RETRY_TOPIC="orders", ORIGIN_MESSAGE_ID="AC1", UNIQ_KEY="ID")
    assert dead.origin == ("orders", "AC1", "billing")
    assert dead.to_message().topic == "orders"
    both = received(
        "%DLQ%billing",
        RETRY_TOPIC="%RETRY%billing",
        DLQ_ORIGIN_TOPIC="orders",
        DLQ_ORIGIN_MESSAGE_ID="AC2",
    )
    assert both.origin == ("orders", "AC2", "billing")
    retried = received("%RETRY%billing", RETRY_TOPIC="orders", UNIQ_KEY="ID")
    assert retried.origin == ("orders", "ID", "billing")


def test_messages_print_in_a_line() -> None:
    assert repr(Message("T", b"x")) == "Message('T', b'x')"
    assert repr(Message("T", b"x", tags="t", keys=["k"], wait_stored=False)) == (
        "Message('T', b'x', tags='t', keys=['k'], wait_stored=False)"
    )
    assert repr(Message("T", b"x" * 1000)) == f"Message('T', {b'x' * 64!r}... (1000 bytes))"
    got = received(UNIQ_KEY="ID")
    got.body = b"y" * 1_000_000
    assert repr(got).startswith("MessageExt(topic='T', msg_id='ID', queue_id=1, queue_offset=5")
    assert len(repr(got)) < 250
