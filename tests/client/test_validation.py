from __future__ import annotations

from typing import Any

import pytest

from pocketmq.client.errors import InvalidMessage, InvalidName, RemotingError
from pocketmq.client.producer.prepared_message import message_properties, prepare
from pocketmq.client.producer.producer import Producer
from pocketmq.client.validation import (
    check_message,
    check_properties_length,
    check_topic_name,
    consumer_group,
    producer_group,
)
from pocketmq.message import properties as names
from pocketmq.message.limits import MAX_BODY
from pocketmq.message.message import Message


def message(**fields: Any) -> Message:
    return Message(**({"topic": "T", "body": b"x"} | fields))


@pytest.mark.parametrize(
    "topic", ["T", "a" * 127, "%RETRY%group", "%DLQ%g", "a|b", "A_b-1", "TBW102", "BenchmarkTest"]
)
def test_topics_that_may_be_sent_to(topic: str) -> None:
    check_message(message(topic=topic), MAX_BODY)


@pytest.mark.parametrize(
    "topic", ["", " ", "\t", "a" * 128, "a b", "a.b", "a/b", "ä", "a\n", "主题", "a#"]
)
def test_topics_that_are_no_names(topic: str) -> None:
    with pytest.raises(InvalidName):
        check_message(message(topic=topic), MAX_BODY)
    with pytest.raises(InvalidName):
        check_topic_name(topic)


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    ],
)
def test_topics_nobody_may_send_to(topic: str) -> None:
    for _ in range(2):
        with pytest.raises(InvalidMessage, match="forbidden"):
            check_message(message(topic=topic), MAX_BODY)


def test_the_body_must_be_bytes_of_1_to_the_maximum() -> None:
    check_message(message(body=b"x" * 10), 10)
    check_message(message(body=bytearray(b"x")), 10)
    check_message(message(body=memoryview(b"x")), 10)
    with pytest.raises(InvalidMessage, match="zero"):
        check_message(message(body=b""), 10)
    with pytest.raises(InvalidMessage, match="11 is over the maximum of 10"):
        check_message(message(body=b"x" * 11), 10)
    for body in (None, "text", 5, [1]):
        with pytest.raises(InvalidMessage, match="must be bytes"):
            check_message(message(body=body), 10)


def test_the_default_maximum_is_4_mib() -> None:
    check_message(message(body=bytes(4 * 1024 * 1024)), MAX_BODY)
    with pytest.raises(InvalidMessage):
        check_message(message(body=bytes(4 * 1024 * 1024 + 1)), MAX_BODY)


@pytest.mark.parametrize("group", ["", "  ", "a" * 256, "a b", "grüße", "a.b"])
def test_groups_that_are_no_names(group: str) -> None:
    for check in (producer_group, consumer_group):
        with pytest.raises(InvalidName):
            check(group)


@pytest.mark.parametrize("group", ["DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_the_official_defaults_are_no_groups(group: str) -> None:
    with pytest.raises(InvalidName, match="choose"):
        producer_group(group)
    with pytest.raises(InvalidName, match="choose"):
        consumer_group(group)


def test_a_group_of_255_characters_is_one() -> None:
    assert producer_group("g" * 255) == "g" * 255


@pytest.mark.parametrize("name", sorted(names.RESERVED - {"TIMER_DELAY_SEC"} - {"TAGS"}))
def test_reserved_property_names(name: str) -> None:
    allowed = {
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_DEL_UNIQKEY,
        names.CHECK_IMMUNITY_TIME_IN_SECONDS,
        names.INNER_MULTI_DISPATCH,
        names.SHARDING_KEY,
        names.TRACE_CONTEXT,
        names.LITE_TOPIC,
    }
    mine = message(properties={name: "1"})
    if name in allowed:
        assert f"{name}\x011\x02" in message_properties(mine, "ID")
    else:
        with pytest.raises(InvalidMessage, match="reserved"):
            message_properties(mine, "ID")


@pytest.mark.parametrize(
    ("name", "value"),
    [("", "v"), ("n", ""), ("n\x01", "v"), ("n", "v\x02"), ("n\x02", "v"), ("n", "\x01")],
)
def test_properties_that_would_not_arrive(name: str, value: str) -> None:
    with pytest.raises(InvalidMessage):
        message_properties(message(properties={name: value}), "ID")


def test_tags_and_keys_obey_the_same_rules() -> None:
    for fields in ({"tags": ""}, {"tags": "a\x02"}, {"keys": ["a\x01b"]}, {"keys": ["", ""][:1]}):
        with pytest.raises(InvalidMessage):
            message_properties(message(**fields), "ID")
    with pytest.raises(InvalidMessage, match="list of str"):
        message_properties(message(keys="abc"), "ID")


@pytest.mark.parametrize("level", [-1, 19, 1000])
def test_delay_levels_end_at_18(level: int) -> None:
    with pytest.raises(InvalidMessage, match="delay_level"):
        prepare(message(delay_level=level), "ID")


@pytest.mark.parametrize("flag", [2**31, -(2**31) - 1, 1.0, 0.0, "1", None])
def test_flags_are_integers_of_32_bits(flag: Any) -> None:
    with pytest.raises(InvalidMessage, match="32 bits"):
        message_properties(message(flag=flag), "ID")


def test_all_properties_together_fit_their_length_field() -> None:
    check_properties_length("x" * 32_767)
    check_properties_length("ß" * 16_383)
    for text in ("x" * 32_768, "ß" * 16_384):
        with pytest.raises(InvalidMessage, match="32768"):
            check_properties_length(text)
    with pytest.raises(InvalidMessage, match="Unicode"):
        check_properties_length("\ud800")
    with pytest.raises(InvalidMessage):
        prepare(message(properties={"a": "x" * 32_767}), "ID")


def test_invalid_messages_are_value_errors_with_a_code() -> None:
    assert issubclass(InvalidMessage, ValueError)
    assert issubclass(InvalidMessage, RemotingError)
    assert InvalidMessage("x").code == 13
    assert not InvalidMessage("x").retriable


def test_a_producer_is_made_outside_of_any_loop_and_checks_its_options() -> None:
    producer = Producer("g", namesrv="127.0.0.1:1")
    assert producer.group == "g"
    for options, error in (
        ({"group": "DEFAULT_PRODUCER"}, InvalidName),
        ({"namesrv": "nonsense"}, InvalidName),
        ({"compression": "rar"}, ValueError),
        ({"max_in_flight": 0}, ValueError),
        ({"latency_max_ms": (1,)}, ValueError),
    ):
        with pytest.raises(error):
            Producer(**({"group": "g", "namesrv": "127.0.0.1:1"} | options))
