from __future__ import annotations

import importlib
import pkgutil
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.message.message import MessageQueue
from pocketmq.remoting import bodies
from pocketmq.remoting.bodies.base import Body, QueueBody
from pocketmq.remoting.bodies.cluster import ClusterInfo, GetBrokerMemberGroupResponseBody
from pocketmq.remoting.bodies.consumer import ConsumerConnection, ConsumeStats, ProducerTableInfo
from pocketmq.remoting.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from pocketmq.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from pocketmq.remoting.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    bit_set_of,
)
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody
from pocketmq.remoting.bodies.registration import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from pocketmq.remoting.bodies.route import (
    BrokerData,
    QueueData,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from pocketmq.remoting.bodies.running_info import ConsumerRunningInfo
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupConfig
from pocketmq.remoting.bodies.topic import QueryConsumeTimeSpanBody, TopicList, TopicStatsTable
from pocketmq.remoting.errors import BodyError
from pocketmq.remoting.headers.base import I32, Header
from pocketmq.remoting.serving.request import Request
from tests.namesrv.registrations import finished

QUEUE = MessageQueue("T", "b0", 1)
QUEUE_JSON = '{"brokerName":"b0","queueId":1,"topic":"T"}'
QUEUE_AS_TEXT = '"{\\"brokerName\\":\\"b0\\",\\"queueId\\":1,\\"topic\\":\\"T\\"}"'


def all_bodies() -> list[type[Body]]:
    found: list[type[Body]] = []
    for module in pkgutil.iter_modules(bodies.__path__):
        members = vars(importlib.import_module(f"pocketmq.remoting.bodies.{module.name}")).values()
        found += [m for m in members if isinstance(m, type) and issubclass(m, Body)]
    return sorted(set(found) - {Body, QueueBody}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", all_bodies())
def test_every_body_has_defaults_and_fields_in_fastjsons_order(cls: type[Body]) -> None:
    assert cls.decode(b"{}") == cls()
    assert cls.decode(cls().encode()) == cls()
    names = cls.__struct_encode_fields__
    assert list(names) == sorted(names)


@pytest.mark.parametrize("cls", all_bodies())
@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{", b"\xff", b'{"a":', b"[" * 100_000])
def test_what_is_no_body_is_an_error(cls: type[Body], data: bytes) -> None:
    with pytest.raises(BodyError, match=cls.__name__):
        cls.decode(data)


@given(data=st.binary(max_size=60), cls=st.sampled_from(all_bodies()))
def test_noise_gives_a_body_or_a_body_error(data: bytes, cls: type[Body]) -> None:
    try:
        body = cls.decode(b'{"offsetTable":' + data)
    except BodyError:
        return
    assert isinstance(body, cls)


class TestHeartbeat:
    TEXT = (
        '{"clientID":"1.2.3.4@1#2","consumerDataSet":[{"consumeFromWhere":'
        '"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"G",'
        '"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,'
        '"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB",'
        '"subVersion":100,"tagsSet":["TagA","TagB"],"topic":"T"}],"unitMode":false}],'
        '"heartbeatFingerprint":0,"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}'
    )

    def test_of_the_java_client(self) -> None:
        subscription = SubscriptionData(
            code_set=[2598919, 2598920],
            sub_string="TagA || TagB",
            sub_version=100,
            tags_set=["TagA", "TagB"],
            topic="T",
        )
        heartbeat = HeartbeatData(
            client_id="1.2.3.4@1#2",
            consumer_data_set=[ConsumerData(group_name="G", subscription_data_set=[subscription])],
            producer_data_set=[ProducerData(group_name="PG")],
        )
        assert HeartbeatData.decode(self.TEXT.encode()) == heartbeat
        assert heartbeat.encode().decode() == self.TEXT

    def test_with_nulls_and_numbers_as_text(self) -> None:
        text = (
            '{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":'
            '"T","tagsSet":null,"codeSet":["2598919"],"subVersion":"100"}]}],"producerDataSet":null}'
        )
        heartbeat = HeartbeatData.decode(text.encode())
        (subscription,) = heartbeat.consumer_data_set[0].subscription_data_set
        assert (subscription.code_set, subscription.tags_set) == ([2598919], [])
        assert (subscription.sub_version, heartbeat.producer_data_set) == (100, [])

    def test_check_client(self) -> None:
        text = b'{"clientId":"cid","group":"G","subscriptionData":{"topic":"T"}}'
        body = CheckClientRequestBody.decode(text)
        assert (body.client_id, body.subscription_data.topic, body.namespace) == ("cid", "T", None)


class TestRoute:
    ROUTE = TopicRouteData(
        broker_datas=[
            BrokerData(
                broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:20911"},
                broker_name="b0",
                cluster="c",
            )
        ],
        order_topic_conf="b0:4",
        queue_datas=[QueueData(broker_name="b0", perm=6, read_queue_nums=4, write_queue_nums=4)],
    )
    OLD = (
        '{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:20911"},'
        '"brokerName":"b0","cluster":"c","enableActingMaster":false}],"filterServerTable":{},'
        '"orderTopicConf":"b0:4","queueDatas":[{"brokerName":"b0","perm":6,"readQueueNums":4,'
        '"topicSysFlag":0,"writeQueueNums":4}]}'
    )

    def test_old_style(self) -> None:
        assert self.ROUTE.encode().decode() == self.OLD
        assert TopicRouteData.decode(self.OLD.encode()) == self.ROUTE

    def test_standard_style(self) -> None:
        standard = self.OLD.replace('{0:"', '{"0":"').replace(',1:"', ',"1":"')
        assert self.ROUTE.encode(standard_json=True).decode() == standard
        assert TopicRouteData.decode(standard.encode()) == self.ROUTE

    def test_only_the_standard_style_is_ascii(self) -> None:
        route = TopicRouteData(broker_datas=[BrokerData(cluster="标😀")])
        assert "标😀".encode() in route.encode()
        assert b"\\u6807\\ud83d\\ude00" in route.encode(standard_json=True)
        assert TopicRouteData.decode(route.encode(standard_json=True)) == route

    def test_the_same_object_twice_is_a_reference(self) -> None:
        text = (
            '{"brokerDatas":[],"queueDatas":[{"brokerName":"b0","perm":6},'
            '{"$ref":"$.queueDatas[0]"}]}'
        )
        queue_datas = TopicRouteData.decode(text.encode()).queue_datas
        assert [q.broker_name for q in queue_datas] == ["b0", "b0"]

    def test_cluster_info(self) -> None:
        text = (
            '{"brokerAddrTable":{"b0":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"b0",'
            '"cluster":"c0","enableActingMaster":false}},"clusterAddrTable":{"c0":["b0"]}}'
        )
        info = ClusterInfo.decode(text.encode())
        assert info.broker_addr_table["b0"].broker_addrs == {0: "127.0.0.1:10911"}
        assert info.encode().decode() == text

    def test_member_group(self) -> None:
        text = '{"brokerMemberGroup":{"brokerAddrs":{0:"a"},"brokerName":"b","cluster":"c"}}'
        body = GetBrokerMemberGroupResponseBody.decode(text.encode())
        assert body.encode().decode() == text

    def test_system_topics(self) -> None:
        text = b'{"brokerAddr":"1.2.3.4:10911","topicList":["c0","b0"]}'
        assert TopicList.decode(text).encode() == text


class TestRegistration:
    PLAIN = (
        '{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,'
        '"stateVersion":0,"timestamp":1},"mappingDataVersion":{"counter":0,"stateVersion":0,'
        '"timestamp":1},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,'
        '"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,'
        '"writeQueueNums":4}},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}'
    )

    def test_plain(self) -> None:
        body = RegisterBrokerBody.decode(self.PLAIN.encode())
        topic = body.topic_config_serialize_wrapper.topic_config_table["T"]
        assert topic == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        assert body.encode().decode() == self.PLAIN

    def test_plain_without_mappings(self) -> None:
        body = RegisterBrokerBody.decode(
            b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"topicName":"T"}},'
            b'"topicQueueMappingInfoMap":null}}'
        )
        assert list(body.topic_config_serialize_wrapper.topic_config_table) == ["T"]

    LARGE: ClassVar = RegisterBrokerBody(
        filter_server_list=["10.0.0.1:1"],
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=7),
            topic_config_table={
                name: TopicConfig(topic_name=name, perm=4, attributes={"+k": '"},"{1: [,'})
                for name in map("topic{}".format, range(2_000))
            },
        ),
    )

    @pytest.mark.parametrize(
        "respelt",
        [
            lambda data: data,
            lambda data: re.sub(rb'([0-9])\},"', rb'\1} ,\n "', data),
            lambda data: data.replace(b'"perm"', b'"Perm"').replace(
                b'"order"', b'"new":{},"order"'
            ),
            lambda data: data.replace(
                b'"filterServerList"', b'"new":[{"a":{}}],"filterServerList"'
            ),
        ],
    )
    def test_a_large_one_is_read_in_steps(self, respelt: Callable[[bytes], bytes]) -> None:
        data = respelt(self.LARGE.encode())
        steps = RegisterBrokerBody.decode_steps(data)
        assert sum(1 for _ in steps) >= len(data) // (128 << 10)
        assert finished(RegisterBrokerBody.decode_steps(data)) == self.LARGE
        at = data.index(b'"topicConfigSerializeWrapper":') + 30
        alone = finished(RegisterBrokerBody.decode_steps(data[at:-1], table_alone=True))
        expected = self.LARGE.topic_config_serialize_wrapper
        assert alone.topic_config_serialize_wrapper == expected

    def test_a_large_one_with_static_topics_is_read(self) -> None:
        mappings = {"T": TopicQueueMappingInfo(topic="T", curr_id_map={0: 1, 1: 0})}
        body = msgspec.structs.replace(self.LARGE)
        body.topic_config_serialize_wrapper = msgspec.structs.replace(
            self.LARGE.topic_config_serialize_wrapper,
            topic_config_table={
                name: TopicConfig(topic_name=name) for name in map("t{}".format, range(2_000))
            },
            topic_queue_mapping_info_map=mappings,
        )
        data = body.encode()
        assert b"{0:1,1:0}" in data
        assert finished(RegisterBrokerBody.decode_steps(data)) == body

    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (
                b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b}}}',
                "more than 100000 topics",
            ),
            (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":[%b{}]}}}', "entry"),
            (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{%b"a":{}}}', "truncated"),
            (b'{"topicConfigSerializeWrapper":{"topicConfigTable":[%b{}]}}', "registration"),
            (b'{"topicConfigSerializeWrapper":{"a":{%b"a":{}}}}', "topicConfigTable"),
            (b'{"a":{%b"a":{"$ref":"$"}}}', "references"),
        ],
    )
    def test_a_large_one_that_is_not_one_is_refused(self, data: bytes, why: str) -> None:
        opened = data[: data.index(b"%")]
        filling = b"{}," if opened.endswith(b"[") else b'"%x":{"topicName":"%x"},'
        many = b"".join(filling % ((n,) * filling.count(b"%x")) for n in range(120_000))
        if data.endswith(b"%b}}}"):
            many = many[:-1]
        with pytest.raises(BodyError, match=why):
            finished(RegisterBrokerBody.decode_steps(data.replace(b"%b", many)))

    def test_compressed_round_trip(self) -> None:
        body = RegisterBrokerBody.decode(self.PLAIN.encode())
        wrapper = body.topic_config_serialize_wrapper
        wrapper.topic_queue_mapping_info_map["T"] = TopicQueueMappingInfo(topic="T", total_queues=3)
        data = body.encode_compressed()
        assert data[:2] == b"\x78\xda"
        decoded = finished(RegisterBrokerBody.decode_compressed_steps(data, 479))
        wrapper.mapping_data_version = DataVersion()  # not part of this form
        assert decoded == body

    def test_compressed_layout(self) -> None:
        def sized(text: str) -> bytes:
            return struct.pack(">i", len(text)) + text.encode()

        version = '{"counter":1,"stateVersion":2,"timestamp":3}'
        plain = (
            sized(version)
            + struct.pack(">i", 2)
            + sized("T 4 8 6 SINGLE_TAG {}")
            + sized("U 1 1 2 MULTI_TAG")
            + sized("[]")
        )
        # Brokers before 5.0 end here; later ones are cut short without the mappings.
        body = finished(RegisterBrokerBody.decode_compressed_steps(zlib.compress(plain), 412))
        wrapper = body.topic_config_serialize_wrapper
        assert wrapper.data_version == DataVersion(counter=1, state_version=2, timestamp=3)
        assert wrapper.topic_config_table["T"].write_queue_nums == 8
        assert wrapper.topic_config_table["U"].topic_filter_type == "MULTI_TAG"
        with pytest.raises(BodyError, match="cut short"):
            finished(RegisterBrokerBody.decode_compressed_steps(zlib.compress(plain), 413))
        again = zlib.decompress(body.encode_compressed())
        assert again.startswith(
            sized(version) + struct.pack(">i", 2) + sized("T 4 8 6 SINGLE_TAG {}")
        )
        assert again.endswith(sized("[]") + struct.pack(">i", 0))

    @pytest.mark.parametrize(
        "plain",
        [
            b"",
            struct.pack(">i", 100) + b"{}",
            struct.pack(">i", -1),
            struct.pack(">i", 2) + b"{}" + struct.pack(">i", 2**31 - 1),
            struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 3) + b"T 4",
            struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 1, 2) + b"\xff\xff",
            struct.pack(">i", 2) + b"{}" + struct.pack(">ii", 0, 2) + b"{}",
            struct.pack(">i", 2) + b"[]" + struct.pack(">i", 0),
        ],
    )
    def test_broken_contents(self, plain: bytes) -> None:
        with pytest.raises(BodyError):
            finished(RegisterBrokerBody.decode_compressed_steps(zlib.compress(plain), 479))

    def test_broken_stream(self) -> None:
        data = RegisterBrokerBody.decode(self.PLAIN.encode()).encode_compressed()
        for broken in (b"", b"{}", data[:-1], data[:10]):
            with pytest.raises(BodyError):
                finished(RegisterBrokerBody.decode_compressed_steps(broken, 479))

    def test_inflation_is_bounded(self) -> None:
        bomb = zlib.compress(b"\0" * (65 << 20), 9)
        with pytest.raises(BodyError, match="more than"):
            finished(RegisterBrokerBody.decode_compressed_steps(bomb, 479))

    @given(
        st.builds(
            TopicConfig,
            attributes=st.dictionaries(st.text(st.characters(codec="utf-8")), st.just("a b")),
            perm=st.integers(0, 15),
            topic_name=st.from_regex(r"[%|a-zA-Z0-9_-]+", fullmatch=True),
        )
    )
    def test_topic_texts(self, topic: TopicConfig) -> None:
        assert TopicConfig.from_text(topic.to_text()) == topic


class TestMessageQueues:
    @pytest.mark.parametrize(
        "text",
        [
            '{"offsetTable":{' + QUEUE_JSON + ":7}}",
            '{"offsetTable":{' + QUEUE_AS_TEXT + ":7}}",
            '{"offsetTable":[' + QUEUE_JSON[:-1] + ',"offset":7}]}',
            '{"offsetTable":[[' + QUEUE_JSON + ",7]]}",
        ],
    )
    def test_reset_offsets_in_all_forms(self, text: str) -> None:
        assert ResetOffsetBody.decode(text.encode()).offset_table == {QUEUE: 7}

    def test_reset_offsets_as_written(self) -> None:
        body = ResetOffsetBody(offset_table={QUEUE: 7})
        assert body.encode().decode() == '{"offsetTable":{' + QUEUE_JSON + ":7}}"
        assert body.encode(standard_json=True).decode() == (
            '{"offsetTable":{' + QUEUE_AS_TEXT + ":7}}"
        )

    def test_locks(self) -> None:
        text = (
            '{"clientId":"C","consumerGroup":"G","mqSet":['
            + QUEUE_JSON
            + '],"onlyThisBroker":false}'
        )
        body = LockBatchRequestBody.decode(text.encode())
        assert (body.client_id, body.mq_set) == ("C", [QUEUE])
        assert body.encode().decode() == text
        answer = LockBatchResponseBody(lock_ok_mq_set=[QUEUE])
        assert answer.encode().decode() == '{"lockOKMQSet":[' + QUEUE_JSON + "]}"
        assert LockBatchResponseBody.decode(answer.encode()) == answer

    def test_topic_stats(self) -> None:
        text = (
            '{"offsetTable":{' + QUEUE_JSON + ':{"lastUpdateTimestamp":0,"maxOffset":9,'
            '"minOffset":0}},"topicPutTps":0.0}'
        )
        body = TopicStatsTable.decode(text.encode())
        assert body.offset_table[QUEUE].max_offset == 9
        assert body.encode().decode() == text

    def test_consume_stats(self) -> None:
        text = (
            '{"consumeTps":0.0,"offsetTable":{' + QUEUE_JSON + ':{"brokerOffset":10,'
            '"consumerOffset":5,"lastTimestamp":0,"pullOffset":5}}}'
        )
        stats = ConsumeStats.decode(text.encode())
        assert stats.offset_table[QUEUE].consumer_offset == 5
        assert stats.encode().decode() == text

    def test_consumer_status_of_several_clients(self) -> None:
        text = '{"consumerTable":{"cid":{' + QUEUE_JSON + ':3}},"messageQueueTable":{}}'
        body = GetConsumerStatusBody.decode(text.encode())
        assert body.consumer_table == {"cid": {QUEUE: 3}}
        assert body.encode().decode() == text

    def test_shared_tables_come_as_references(self) -> None:
        text = '{"consumerTable":{"c1":{' + QUEUE_JSON + ':3},"c2":{"$ref":"$.consumerTable.c1"}}}'
        body = GetConsumerStatusBody.decode(text.encode())
        assert body.consumer_table["c2"] == {QUEUE: 3}

    def test_running_info(self) -> None:
        text = (
            '{"jstack":"main","mqPopTable":{},"mqTable":{' + QUEUE_JSON + ':{"cachedMsgCount":4,'
            '"cachedMsgSizeInMiB":1,"droped":true}},"properties":{"PROP_CONSUME_TYPE":'
            '"CONSUME_PASSIVELY"},"statusTable":{"T":{"consumeOKTPS":1.5,"consumeRT":2.0}},'
            '"subscriptionSet":[],"userConsumerInfo":{}}'
        )
        info = ConsumerRunningInfo.decode(text.encode())
        queue = info.mq_table[QUEUE]
        assert (queue.cached_msg_count, queue.cached_msg_size_in_mib, queue.droped) == (4, 1, True)
        assert info.status_table["T"].consume_ok_tps == 1.5
        assert ConsumerRunningInfo.decode(info.encode()) == info

    def test_time_spans(self) -> None:
        text = (
            '{"consumeTimeSpanSet":[{"consumeTimeStamp":1,"consumeTimeStampStr":"x",'
            '"messageQueue":' + QUEUE_JSON + ',"minTimeStamp":2}]}'
        )
        (span,) = QueryConsumeTimeSpanBody.decode(text.encode()).consume_time_span_set
        assert (span.message_queue, span.consume_time_stamp, span.min_time_stamp) == (QUEUE, 1, 2)

    @pytest.mark.parametrize(
        ("cls", "text"),
        [
            (ResetOffsetBody, '{"offsetTable":{"x":1}}'),
            (ResetOffsetBody, '{"offsetTable":[1]}'),
            (ResetOffsetBody, '{"offsetTable":[[{},7]]}'),
            (ResetOffsetBody, '{"offsetTable":[{"topic":"T"}]}'),
            (ResetOffsetBody, '{"offsetTable":{' + QUEUE_JSON + ':"x"}}'),
            (LockBatchRequestBody, '{"mqSet":[3]}'),
            (LockBatchRequestBody, '{"mqSet":{}}'),
            (ConsumeStats, '{"offsetTable":3}'),
            (ConsumeStats, '{"offsetTable":[3]}'),
            (QueryConsumeTimeSpanBody, '{"consumeTimeSpanSet":3}'),
            (QueryConsumeTimeSpanBody, '{"consumeTimeSpanSet":[{"messageQueue":3}]}'),
            (GetConsumerStatusBody, '{"consumerTable":{"c":3}}'),
        ],
    )
    def test_other_shapes_are_errors(self, cls: type[Body], text: str) -> None:
        with pytest.raises(BodyError):
            cls.decode(text.encode())


def test_consumer_offsets() -> None:
    text = (
        '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2},"groupTopicMap":{"G":["T"]},'
        '"offsetTable":{"T@G":{0:5,1:6}}}'
    )
    body = ConsumerOffsetSerializeWrapper.decode(text.encode())
    assert body.offset_table == {"T@G": {0: 5, 1: 6}}
    assert body.encode().decode() == text


class TestPop:
    ACK = BatchAck(
        bit_set="BQ==",
        consumer_group="G",
        invisible_time=60_000,
        pop_time=7,
        queue_id=1,
        retry="0",
        revive_queue_id=3,
        start_offset=100,
        topic="T",
    )

    def test_batch_ack_of_the_java_client(self) -> None:
        text = (
            '{"acks":[{"b":"BQ==","c":"G","it":60000,"pt":7,"q":1,"r":"0","rq":3,"so":100,"t":"T"}]'
            ',"brokerName":"b0"}'
        )
        body = BatchAckMessageRequestBody.decode(text.encode())
        assert body == BatchAckMessageRequestBody(acks=[self.ACK], broker_name="b0")
        assert body.encode().decode() == text
        assert self.ACK.offsets(32) == [100, 102]

    def test_batch_ack_with_long_names(self) -> None:
        text = (
            '{"acks":[{"bitSet":"BQ==","consumerGroup":"G","invisibleTime":60000,"popTime":7,'
            '"queueId":1,"retry":"0","reviveQueueId":3,"startOffset":100,"topic":"T"}]}'
        )
        assert BatchAckMessageRequestBody.decode(text.encode()).acks == [self.ACK]

    @given(st.integers(0, 2**40), st.sets(st.integers(0, 1000), max_size=32))
    def test_bit_sets(self, start: int, differences: set[int]) -> None:
        offsets = sorted(start + difference for difference in differences)
        ack = BatchAck(start_offset=start, bit_set=bit_set_of(start, offsets))
        assert ack.offsets(32) == offsets

    @pytest.mark.parametrize("bits", ["///////", "BQ=", "é", "//////8=", "A" * 100_000])
    def test_bit_sets_that_are_refused(self, bits: str) -> None:
        with pytest.raises(BodyError, match="BatchAck"):
            BatchAck(bit_set=bits).offsets(32)

    def test_assignments(self) -> None:
        text = (
            '{"clientId":"c","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG",'
            '"topic":"T"}'
        )
        body = QueryAssignmentRequestBody.decode(text.encode())
        assert (body.client_id, body.strategy_name) == ("c", "AVG")
        text = f'{{"messageQueueAssignments":[{{"messageQueue":{QUEUE_JSON},"mode":"POP"}}]}}'
        answer = QueryAssignmentResponseBody(
            message_queue_assignments=[MessageQueueAssignment(message_queue=QUEUE, mode="POP")]
        )
        assert answer.encode().decode() == text
        assert QueryAssignmentResponseBody.decode(text.encode()) == answer

    def test_request_modes(self) -> None:
        text = '{"consumerGroup":"G","mode":"POP","popShareQueueNum":-1,"topic":"T"}'
        body = SetMessageRequestModeRequestBody.decode(text.encode())
        assert body.encode().decode() == text
        table = MessageRequestModeSerializeWrapper(message_request_mode_map={"T": {"G": body}})
        assert table.encode().decode() == f'{{"messageRequestModeMap":{{"T":{{"G":{text}}}}}}}'


def test_connections() -> None:
    text = (
        '{"connectionSet":[{"clientAddr":"1.1.1.1:5","clientId":"cid","language":"JAVA",'
        '"version":479}],"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":'
        '"CONSUME_PASSIVELY","messageModel":"CLUSTERING","subscriptionTable":{}}'
    )
    assert ConsumerConnection.decode(text.encode()).encode().decode() == text
    text = (
        '{"data":{"PG":[{"clientId":"c","language":"JAVA","lastUpdateTimestamp":1,'
        '"remoteIP":"/1.1.1.1:5","version":479}]}}'
    )
    assert ProducerTableInfo.decode(text.encode()).encode().decode() == text


def test_subscription_group_defaults() -> None:
    text = (
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        '"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        '"whichBrokerWhenConsumeSlowly":1}'
    )
    assert SubscriptionGroupConfig(group_name="G").encode().decode() == text
    assert SubscriptionGroupConfig.decode(text.encode()).group_name == "G"


def sample(kind: Any) -> st.SearchStrategy[Any]:
    """Values of an annotation, small ones."""
    arguments: tuple[Any, ...] = getattr(kind, "__args__", ())
    if kind is MessageQueue:
        return st.builds(MessageQueue, st.sampled_from("TU"), st.just("b0"), st.integers(0, 3))
    if isinstance(kind, type) and issubclass(kind, Body):
        return st.builds(kind, **{f.name: sample(f.type) for f in msgspec.structs.fields(kind)})
    if getattr(kind, "__origin__", None) is list:
        return st.lists(sample(arguments[0]), max_size=2)
    if getattr(kind, "__origin__", None) is dict:
        return st.dictionaries(sample(arguments[0]), sample(arguments[1]), max_size=2)
    if kind == I32:
        return st.integers(-(2**31), 2**31 - 1)
    if arguments:
        return st.one_of(*map(sample, arguments))
    return {
        str: st.text(st.characters(codec="utf-8", exclude_characters="$"), max_size=4),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(0, 1e9),
        bool: st.booleans(),
        Any: st.just({"k": 1}),
        type(None): st.none(),
    }[kind]


@given(st.sampled_from(all_bodies()).flatmap(sample), st.booleans())
@settings(deadline=None)
def test_every_body_reads_back(body: Body, standard: bool) -> None:
    assert type(body).decode(body.encode(standard)) == body


def test_a_body_that_was_decoded_ahead_is_taken_once() -> None:
    body = LockBatchRequestBody(client_id="a", consumer_group="G").encode()
    request = Request(0, Header(), body=body)
    ahead = LockBatchRequestBody.decode_ahead(request)
    assert LockBatchRequestBody.of(request) is ahead
    assert request.decoded is None, "a request that waits keeps only the bytes"
    again = LockBatchRequestBody.of(request)
    assert again == ahead
    assert again is not ahead
    LockBatchRequestBody.decode_ahead(request)
    with pytest.raises(BodyError):
        TopicList.of(request)
