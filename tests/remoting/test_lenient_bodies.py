from __future__ import annotations

import contextlib
import importlib
import pkgutil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message import loose_json
from pocketmq.message.message import MessageQueue
from pocketmq.remoting import bodies
from pocketmq.remoting.bodies import lenient
from pocketmq.remoting.bodies.base import Body, QueueBody
from pocketmq.remoting.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from pocketmq.remoting.bodies.offset import ResetOffsetBody
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody
from pocketmq.remoting.bodies.registration import DataVersion, RegisterBrokerBody
from pocketmq.remoting.bodies.route import TopicRouteData
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.errors import BodyError

LOCK = LockBatchRequestBody(
    client_id="c", consumer_group="g", mq_set=[MessageQueue("T", "b0", 3)], only_this_broker=True
)
HEARTBEAT = HeartbeatData(
    client_id="c",
    consumer_data_set=[
        ConsumerData(
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            consume_type="CONSUME_ACTIVELY",
            group_name="g",
            message_model="BROADCASTING",
            subscription_data_set=[SubscriptionData(sub_string="a || b", sub_version=7, topic="T")],
        )
    ],
    without_sub=True,
)


def all_bodies() -> list[type[Body]]:
    found: list[type[Body]] = []
    for module in pkgutil.iter_modules(bodies.__path__):
        members = vars(importlib.import_module(f"pocketmq.remoting.bodies.{module.name}")).values()
        found += [m for m in members if isinstance(m, type) and issubclass(m, Body)]
    return sorted(set(found) - {Body, QueueBody}, key=lambda cls: cls.__name__)


@st.composite
def respelt(draw: st.DrawFn, name: str) -> str:
    """`name` with other cases, and with `_` and `-` in between."""
    parts = (
        draw(st.sampled_from((c, c.upper(), c.lower(), f"_{c}", f"-{c.upper()}"))) for c in name
    )
    return "".join(parts)


class TestSpelling:
    @given(st.data())
    def test_keys_in_any_spelling(self, data: st.DataObject) -> None:
        def spell(value: Any) -> Any:
            if isinstance(value, dict):
                return {data.draw(respelt(key)): spell(item) for key, item in value.items()}
            return [spell(item) for item in value] if isinstance(value, list) else value

        for body in (HEARTBEAT, LOCK):
            fields = msgspec.json.decode(body.encode())
            text = msgspec.json.encode(spell(fields))
            assert type(body).decode(text) == body

    @pytest.mark.parametrize("cls", all_bodies())
    def test_every_body_is_read_with_all_its_keys_in_capitals(self, cls: type[Body]) -> None:
        fields = msgspec.json.decode(cls().encode(standard_json=True))
        text = msgspec.json.encode({key.upper(): value for key, value in fields.items()})
        assert cls.decode(text) == cls()

    def test_keys_of_maps_stay(self) -> None:
        body = RegisterBrokerBody.decode(
            b'{"TopicConfigSerializeWrapper":{"topic_config_table":{"A_b":{"topicName":"A_b"},'
            b'"AB":{"TopicName":"AB"}}}}'
        )
        table = body.topic_config_serialize_wrapper.topic_config_table
        assert {name: config.topic_name for name, config in table.items()} == {
            "A_b": "A_b",
            "AB": "AB",
        }

    def test_the_exact_spelling_counts_most(self) -> None:
        for text in (
            b'{"counter":1,"Counter":2,"x":0}',
            b'{"Counter":2,"counter":1}',
            b'{"Counter":1,"COUNTER":2}',
        ):
            assert DataVersion.decode(text).counter == 1

    def test_message_queues_as_keys(self) -> None:
        table = {MessageQueue("T", "b", 1): 7}
        for text in (
            b'{"OffsetTable":{{"Topic":"T","BrokerName":"b","QueueId":1}:7}}',
            b"{'offsetTable':{{'Topic':'T','BrokerName':'b','QueueId':'01',}:7}}",
            b'{"offsetTable":{"{\\"topic\\":\\"T\\",\\"broker_name\\":\\"b\\",\\"queueId\\":1}":"7"}}',
        ):
            assert ResetOffsetBody.decode(text).offset_table == table

    def test_a_boolean_may_be_named_as_its_getter(self) -> None:
        assert HeartbeatData.decode(b'{"clientID":"c","isWithoutSub":true}').without_sub

    def test_unknown_keys_beside_known_ones_are_ignored(self) -> None:
        body = HeartbeatData.decode(b'{"clientID":"c","new":{"clientID":"x"},"z":[1]}')
        assert body == HeartbeatData(client_id="c")


class TestValues:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ('"00"', 0), ('"+12"', 12), ('"-3"', -3), ('"5.00"', 5), ('"1,000"', 1000), ("3.7", 3),
            ("true", 1), ('""', 0), ('"null"', 0), ("null", 0), ("+4", 4), ("007", 7), ("8L", 8),
        ],
    )  # fmt: skip
    def test_numbers(self, text: str, number: int) -> None:
        assert DataVersion.decode(f'{{"counter":{text}}}'.encode()).counter == number

    @pytest.mark.parametrize(
        "text", ['"abc"', '" 5 "', '"0x1"', "[]", "{}", '"1.5"', "1e300", "-1e300"]
    )
    def test_what_is_no_number_is_refused_by_name(self, text: str) -> None:
        with pytest.raises(BodyError, match=r"\$\.counter"):
            DataVersion.decode(f'{{"counter":{text}}}'.encode())

    @pytest.mark.parametrize(
        ("text", "value"),
        [('"Y"', True), ('"TRUE"', True), ("1", True), ('"1"', True), ("2", False), ('"n"', False),
         ('"F"', False), ('""', False)],
    )  # fmt: skip
    def test_booleans(self, text: str, value: bool) -> None:
        body = HeartbeatData.decode(f'{{"clientID":"c","withoutSub":{text}}}'.encode())
        assert body.without_sub is value
        with pytest.raises(BodyError, match="withoutSub"):
            HeartbeatData.decode(b'{"clientID":"c","withoutSub":"abc"}')

    def test_texts_of_numbers(self) -> None:
        assert HeartbeatData.decode(b'{"clientID":17}').client_id == "17"
        assert HeartbeatData.decode(b'{"clientID":true}').client_id == "true"
        assert HeartbeatData.decode(b'{"clientID":{"a":1}}').client_id == '{"a":1}'

    def test_enumerations_by_ordinal_or_in_small_letters(self) -> None:
        for kind, where, model in ((0, 4, 0), ('"consume_actively"', 4, '"Broadcasting"')):
            text = f"""{{"consumerDataSet":[{{"consumeType":{kind},"consumeFromWhere":{where},
                "messageModel":{model}}}]}}"""
            [consumer] = HeartbeatData.decode(text.encode()).consumer_data_set
            assert consumer.consume_type == "CONSUME_ACTIVELY"
            assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
            assert consumer.message_model == "BROADCASTING"
        group = SubscriptionGroupConfig.decode(b'{"groupName":"g","groupRetryPolicy":{"type":0}}')
        assert group.group_retry_policy.type == "EXPONENTIAL"
        with pytest.raises(BodyError, match="consumeType"):
            HeartbeatData.decode(b'{"consumerDataSet":[{"consumeType":9}]}')

    def test_nulls_are_defaults(self) -> None:
        body = HeartbeatData.decode(
            b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[{"groupName":null}]}'
        )
        assert body.consumer_data_set == []
        assert body.producer_data_set[0].group_name == ""

    def test_nulls_within_lists_are_refused(self) -> None:
        for text in (b'{"filterServerList":[null]}', b'{"FilterServerList":["a",null]}'):
            with pytest.raises(BodyError, match="filterServerList"):
                RegisterBrokerBody.decode(text)

    def test_a_queue_without_an_id_is_queue_0(self) -> None:
        body = LockBatchRequestBody.decode(b'{"mqSet":[{"topic":"T","brokerName":"b"}]}')
        assert body.mq_set == [MessageQueue("T", "b", 0)]
        for text in (b'{"mqSet":[{"topic":"T","queueId":1}]}', b'{"mqSet":[7]}'):
            with pytest.raises(BodyError, match="brokerName"):
                LockBatchRequestBody.decode(text)


class TestText:
    def test_what_is_no_json(self) -> None:
        text = HEARTBEAT.encode().decode()
        odd = "\ufeff" + text.replace('"', "'").replace("[", "Set[").replace("}", ",}") + "\n\0"
        assert HeartbeatData.decode(odd.encode()) == HEARTBEAT

    def test_keys_in_another_spelling_as_well(self) -> None:
        text = b"{ClientId:'c',consumer_group:'g',MqSet:[{Topic:'T',BrokerName:'b',QueueId:'00',}]}"
        assert LockBatchRequestBody.decode(text) == LockBatchRequestBody(
            client_id="c", consumer_group="g", mq_set=[MessageQueue("T", "b", 0)]
        )


class TestRefusals:
    @pytest.mark.parametrize("cls", all_bodies())
    def test_a_body_of_which_nothing_is_understood(self, cls: type[Body]) -> None:
        with pytest.raises(BodyError, match="none of its keys is known: 'nothing'; known are "):
            cls.decode(b'{"nothing":1}')
        assert cls.decode(b"{}") == cls()

    @pytest.mark.parametrize("text", [b"abc", b'"abc"', b"[]", b"null", b"1", b'{"counter":1}{}'])
    def test_no_object(self, text: bytes) -> None:
        with pytest.raises(BodyError, match="not a DataVersion"):
            DataVersion.decode(text)

    def test_a_long_body_has_to_be_spelled_exactly(self) -> None:
        def body(key: str, size: int) -> bytes:
            text = '{"orderTopicConf":"%s","%s":[]}'
            return (text % ("x" * (size - len(text % ("", key))), key)).encode()

        for key in ("queueDatas", "QueueDatas", "unknown"):
            TopicRouteData.decode(body(key, lenient.MAX_LENGTH))
        TopicRouteData.decode(body("queueDatas", lenient.MAX_LENGTH + 1))
        for key in ("QueueDatas", "unknown"):
            with pytest.raises(BodyError, match=key):
                TopicRouteData.decode(body(key, lenient.MAX_LENGTH + 1))

    def test_a_long_text_that_is_no_json(self) -> None:
        text = "{'clientID':'%s'}"
        fits = text % ("x" * (loose_json.MAX_LENGTH - len(text % "")))
        assert HeartbeatData.decode(fits.encode()).client_id.startswith("xx")
        with pytest.raises(BodyError):
            HeartbeatData.decode(fits.encode() + b" ")

    @given(st.sampled_from(all_bodies()), st.binary(max_size=60))
    def test_any_bytes_are_read_or_refused(self, cls: type[Body], data: bytes) -> None:
        with contextlib.suppress(BodyError):
            cls.decode(data)

    @given(
        st.sampled_from(all_bodies()),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["topic", "MqSet", "offset_table", "table", "x", "0"]), inner
                )
            ),
        ),
    )
    def test_any_json_is_read_or_refused(self, cls: type[Body], value: Any) -> None:
        with contextlib.suppress(BodyError):
            cls.decode(msgspec.json.encode(value))


def test_files_are_read_with_the_same_leniency() -> None:
    fields = {"Counter": 3, "new": 1}
    assert lenient.convert(fields, DataVersion) == DataVersion(counter=3)
