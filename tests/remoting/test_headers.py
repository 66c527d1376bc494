from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting import headers
from pocketmq.remoting.binary_header import iter_entries
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    CreateTopicRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    Header,
    HeartbeatResponseHeader,
    PullMessageRequestHeader,
    QueryMessageRequestHeader,
    RegisterBrokerRequestHeader,
    ResetOffsetRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
)

CLASSES = [getattr(headers, name) for name in headers.__all__ if name != "Header"]


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field of this type, as its annotation describes it."""
    if hasattr(kind, "__metadata__"):
        meta = kind.__metadata__[0]
        return st.integers(meta.ge, meta.le)
    arguments = getattr(kind, "__args__", ())
    if arguments:
        return st.one_of(*map(values, arguments))
    return {
        str: st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
        int: st.integers(-(2**63), 2**63 - 1),
        bool: st.booleans(),
        type(None): st.none(),
    }[kind]


def instances(cls: type[Header]) -> st.SearchStrategy[Header]:
    return st.builds(cls, **{f.name: values(f.type) for f in msgspec.structs.fields(cls)})


@given(st.sampled_from(CLASSES).flatmap(instances))
def test_every_header_reads_back_from_each_of_its_forms(header: Header) -> None:
    cls = type(header)
    ext = header.to_ext()
    assert all(type(value) is str for value in ext.values())
    assert cls.from_ext(ext) == header
    assert msgspec.json.decode(header.ext_json(), type=dict[str, str]) == ext
    entries = header.ext_binary()
    assert ext == {
        key.decode(): entries[start:end].decode()
        for key, start, end in iter_entries(entries, 0, len(entries))
    }


def test_wire_names_are_those_of_the_reference() -> None:
    names = {cls.__name__: set(cls.__struct_encode_fields__) for cls in CLASSES}
    assert names["SendMessageRequestHeaderV2"] == set("abcdefghijklmn")
    assert names["RegisterBrokerRequestHeader"] == {
        "brokerName",
        "brokerAddr",
        "clusterName",
        "haServerAddr",
        "brokerId",
        "heartbeatTimeoutMillis",
        "enableActingMaster",
        "compressed",
        "bodyCrc32",
        "__ZONE_NAME",
        "__ZONE_MODE",
    }
    assert names["UnregisterClientRequestHeader"] == {"clientID", "producerGroup", "consumerGroup"}
    assert "proxyFrowardClientId" in names["PullMessageRequestHeader"]
    assert "_UNIQUE_KEY_QUERY" in names["QueryMessageRequestHeader"]
    assert "hasMsg" in names["NotificationResponseHeader"]
    assert "isForce" in names["ResetOffsetRequestHeader"]
    assert {"MSG_REGION", "TRACE_ON"} < names["SendMessageResponseHeader"]


def test_both_send_headers_have_the_same_attributes() -> None:
    v1 = SendMessageRequestHeader.__struct_fields__
    assert SendMessageRequestHeaderV2.__struct_fields__ == v1


def test_texts_become_values_and_back() -> None:
    ext = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "3",
        "queueOffset": "12345678901",
        "maxMsgNums": "32",
        "sysFlag": "22",
        "commitOffset": "-1",
        "suspendTimeoutMillis": "15000",
        "subVersion": "0",
        "subscription": "a || b",
        "bname": "unknown to us",
    }
    header = PullMessageRequestHeader.from_ext(ext)
    assert (header.queue_id, header.queue_offset, header.commit_offset) == (3, 12345678901, -1)
    assert header.expression_type is None
    del ext["bname"]
    assert header.to_ext() == ext


def test_booleans_are_words_and_any_other_word_is_false() -> None:
    for text, value in {
        "true": True,
        "TRUE": True,
        "True": True,
        "false": False,
        "no": False,
        "": False,
    }.items():
        header = GetConsumerRunningInfoRequestHeader.from_ext(
            {"consumerGroup": "g", "clientId": "c", "jstackEnable": text}
        )
        assert header.jstack_enable is value
    assert header.to_ext()["jstackEnable"] == "false"


def test_an_empty_number_is_absent() -> None:
    ext = {"offset": "1", "group": "g", "delayLevel": "0", "maxReconsumeTimes": ""}
    assert ConsumerSendMsgBackRequestHeader.from_ext(ext).max_reconsume_times is None
    with pytest.raises(HeaderError, match="delayLevel"):
        ConsumerSendMsgBackRequestHeader.from_ext(ext | {"delayLevel": ""})


@pytest.mark.parametrize("value", ["x", "1.5", "2147483648", "-2147483649", "9" * 5000, "0x10"])
def test_a_number_has_to_fit_its_java_type(value: str) -> None:
    with pytest.raises(HeaderError):
        BatchRequestHeader.from_ext({"dispatchCode": value})


def test_a_missing_mandatory_field_is_named() -> None:
    with pytest.raises(HeaderError, match=r"RegisterBrokerRequestHeader.*brokerName"):
        RegisterBrokerRequestHeader.from_ext({})


def test_defaults() -> None:
    assert SendMessageResponseHeader().to_ext() == {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert HeartbeatResponseHeader().to_ext() == {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "true",
    }
    assert UnregisterClientRequestHeader(client_id="c").to_ext() == {"clientID": "c"}
    reset = ResetOffsetRequestHeader.from_ext(
        {"topic": "t", "group": "g", "timestamp": "-1", "isForce": "true"}
    )
    assert (reset.queue_id, reset.offset) == (-1, None)
    query = QueryMessageRequestHeader("t", "k", 32, 0, 2**63 - 1)
    assert query.to_ext()["_UNIQUE_KEY_QUERY"] == "false"
    topic = CreateTopicRequestHeader("t", "TBW102", 8, 8, 6, "SINGLE_TAG")
    assert (topic.order, topic.force, topic.attributes) == (False, False, None)
    assert Header().to_ext() == {}
