from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting import headers
from pocketmq.remoting.errors import HeaderError
from pocketmq.remoting.frames.binary_header import iter_entries
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


OPTIONAL: list[tuple[type[Header], dict[str, str], dict[str, Any]]] = [
    (
        SendMessageRequestHeader,
        {"topic": "t", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0"},
        {"default_topic_queue_nums": None},
    ),
    (
        SendMessageRequestHeaderV2,
        {"b": "t", "e": "0", "f": "0", "g": "1", "h": "0"},
        {"default_topic_queue_nums": None},
    ),
    (
        PullMessageRequestHeader,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "queueOffset": "0",
         "maxMsgNums": "1", "sysFlag": "4"},
        {"commit_offset": None, "suspend_timeout_millis": None, "sub_version": 0},
    ),
    (headers.RecallMessageRequestHeader, {}, {"topic": "", "recall_handle": ""}),
    (
        QueryMessageRequestHeader,
        {"maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"},
        {"topic": "", "key": ""},
    ),
    (UnregisterClientRequestHeader, {}, {"client_id": ""}),
    (headers.GetConsumeStatsInBrokerHeader, {}, {"is_order": False}),
    (
        CreateTopicRequestHeader,
        {"topic": "t", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
         "topicFilterType": "SINGLE_TAG"},
        {"default_topic": "", "topic_sys_flag": None},
    ),
    (headers.DeleteTopicRequestHeader, {}, {"topic": ""}),
    (headers.QueryConsumeTimeSpanRequestHeader, {"topic": "t"}, {"group": ""}),
    (
        headers.QueryConsumerOffsetRequestHeader,
        {"topic": "t", "queueId": "0"},
        {"consumer_group": ""},
    ),
    (headers.UpdateConsumerOffsetRequestHeader, {"topic": "t"}, {"consumer_group": ""}),
    (
        ResetOffsetRequestHeader,
        {"topic": "t"},
        {"group": "", "timestamp": 0, "is_force": False, "queue_id": -1},
    ),
    (headers.CloneGroupOffsetRequestHeader, {"destGroup": "g"}, {"src_group": ""}),
    (headers.QueryCorrectionOffsetHeader, {"topic": "t"}, {"compare_group": ""}),
    (headers.GetKVConfigRequestHeader, {}, {"namespace": None, "key": None}),
    (headers.DeleteKVConfigRequestHeader, {}, {"namespace": None, "key": None}),
    (headers.GetKVListByNamespaceRequestHeader, {}, {"namespace": None}),
    (
        RegisterBrokerRequestHeader,
        {"brokerName": "b", "brokerAddr": "a", "clusterName": "c", "brokerId": "0"},
        {"ha_server_addr": ""},
    ),
    (
        headers.UnRegisterBrokerRequestHeader,
        {},
        {"broker_name": "", "broker_addr": "", "cluster_name": "", "broker_id": 0},
    ),
    (headers.GetRouteInfoRequestHeader, {}, {"topic": None}),
    (headers.WipeWritePermOfBrokerRequestHeader, {}, {"broker_name": ""}),
    (headers.AddWritePermOfBrokerRequestHeader, {}, {"broker_name": ""}),
    (headers.DeleteTopicFromNamesrvRequestHeader, {}, {"topic": "", "cluster_name": None}),
    (headers.GetTopicsByClusterRequestHeader, {}, {"cluster": ""}),
    (
        headers.QueryDataVersionRequestHeader,
        {"brokerAddr": "a", "clusterName": "c"},
        {"broker_name": "", "broker_id": 0},
    ),
    (headers.GetBrokerMemberGroupRequestHeader, {}, {"cluster_name": "", "broker_name": ""}),
    (
        headers.BrokerHeartbeatRequestHeader,
        {"clusterName": "c", "brokerAddr": "a"},
        {"broker_name": "", "broker_id": None},
    ),
    (
        headers.PopMessageRequestHeader,
        {"consumerGroup": "g", "topic": "t", "queueId": "-1", "maxMsgNums": "32",
         "invisibleTime": "60000", "pollTime": "15000", "initMode": "0"},
        {"born_time": 0, "exp_type": None, "exp": None, "order": False, "attempt_id": None},
    ),
    (
        headers.NotificationRequestHeader,
        {"consumerGroup": "g", "topic": "t", "queueId": "-1", "pollTime": "15000"},
        {"born_time": 0, "order": False, "attempt_id": None},
    ),
    (
        headers.ChangeInvisibleTimeRequestHeader,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "extraInfo": "x", "offset": "1",
         "invisibleTime": "10000"},
        {},
    ),
    (
        headers.PeekMessageRequestHeader,
        {"consumerGroup": "g", "topic": "t", "queueId": "0", "maxMsgNums": "1"},
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "ext", "expected"), OPTIONAL)
def test_fields_that_the_reference_does_not_need(
    cls: type[Header], ext: dict[str, str], expected: dict[str, Any]
) -> None:
    header = cls.from_ext(ext)
    assert {name: getattr(header, name) for name in expected} == expected
    for name in ext:
        with pytest.raises(HeaderError, match=f"`{name}`"):
            cls.from_ext({key: value for key, value in ext.items() if key != name})


@pytest.mark.parametrize("text", ["00", "+0", "-0", "000000000000000000000000"])
def test_numbers_may_be_written_as_java_reads_them(text: str) -> None:
    assert headers.GetMaxOffsetRequestHeader.from_ext({"topic": "t", "queueId": text}).queue_id == 0
    assert BatchRequestHeader.from_ext({"dispatchCode": text}).dispatch_code == 0


@pytest.mark.parametrize("text", ["", "abc", "1.5", "0x1", "1_0", " 1", "9" * 5000, "2147483648"])
def test_a_number_that_makes_no_sense_is_missing(text: str) -> None:
    ext = {"topic": "t", "index": "1", "queueId": text}
    header = headers.QueryConsumeQueueRequestHeader.from_ext(ext)
    assert (header.queue_id, header.index) == (0, 1)
    with pytest.raises(HeaderError, match="queueId"):
        headers.GetMaxOffsetRequestHeader.from_ext(ext)


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
    query = QueryMessageRequestHeader(
        topic="t", key="k", max_num=32, begin_timestamp=0, end_timestamp=2**63 - 1
    )
    assert query.to_ext()["_UNIQUE_KEY_QUERY"] == "false"
    topic = CreateTopicRequestHeader(
        topic="t", read_queue_nums=8, write_queue_nums=8, perm=6, topic_filter_type="SINGLE_TAG"
    )
    assert (topic.order, topic.force, topic.attributes) == (False, False, None)
    assert Header().to_ext() == {}
