"""Requests of clients that leave fields out or spell them in another way, as the official broker
takes them. tests/interop/test_leniency.py compares many more with the official one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pocketmq.message.record import iter_records
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import COMMIT, SUBSCRIPTION, SUSPEND, Client

SUCCESS, SYSTEM_ERROR = 0, 1

PULL = {
    "consumerGroup": "G",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": str(SUBSCRIPTION),
    "subscription": "*",
}
SEND = {
    "producerGroup": "PG",
    "defaultTopic": "TBW102",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "5",
    "flag": "0",
}
SHORT = dict(zip("aefghc", ("PG", "0", "0", "5", "0", "TBW102"), strict=True))


async def ok(
    client: Client, code: int, fields: dict[str, str] | None = None, body: Any = b""
) -> Any:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    answer = await client.request(code, None, data, ext_fields=fields or {})
    assert answer.code == SUCCESS, answer.remark
    return answer


async def refused(client: Client, code: int, fields: dict[str, str], body: bytes = b"") -> str:
    answer = await client.request(code, None, body, ext_fields=fields)
    assert answer.code == SYSTEM_ERROR
    return answer.remark or ""


class TestSends:
    @pytest.mark.parametrize(
        ("code", "fields", "topic_field"),
        [
            (RequestCode.SEND_MESSAGE, SEND, "topic"),
            (RequestCode.SEND_MESSAGE_V2, SHORT, "b"),
        ],
    )
    async def test_the_number_of_queues_is_needed_for_a_new_topic_only(
        self, client: Client, topic: str, code: int, fields: dict[str, str], topic_field: str
    ) -> None:
        text = await refused(client, code, {**fields, topic_field: topic}, b"x")
        assert "defaultTopicQueueNums" in text
        await client.send(topic)
        answer = await ok(client, code, {**fields, topic_field: topic}, b"x")
        assert answer.ext_fields["queueOffset"] == "1"

    @pytest.mark.parametrize("queue", ["00", "+0", "-0"])
    async def test_numbers_as_java_reads_them(self, client: Client, topic: str, queue: str) -> None:
        await client.send(topic)
        await ok(client, RequestCode.SEND_MESSAGE_V2, {**SHORT, "b": topic, "e": queue}, b"x")
        await ok(client, RequestCode.SEND_MESSAGE, {**SEND, "topic": topic, "queueId": queue}, b"x")
        assert len(await client.pulled(topic)) == 3

    async def test_nonsense_in_the_long_header_counts_as_missing(
        self, client: Client, topic: str
    ) -> None:
        await client.send(topic)
        odd = {"reconsumeTimes": "abc", "maxReconsumeTimes": "", "defaultTopicQueueNums": "9" * 20}
        await ok(client, RequestCode.SEND_MESSAGE, {**SEND, "topic": topic, **odd}, b"x")
        text = await refused(
            client, RequestCode.SEND_MESSAGE, {**SEND, "topic": topic, "queueId": "abc"}, b"x"
        )
        assert "queueId" in text

    @pytest.mark.parametrize("value", ["abc", "", "9" * 20])
    async def test_nonsense_in_the_short_header_is_refused(
        self, client: Client, topic: str, value: str
    ) -> None:
        await client.send(topic)
        fields = {**SHORT, "b": topic, "j": value}
        assert "$.j" in await refused(client, RequestCode.SEND_MESSAGE_V2, fields, b"x")


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
class TestPulls:
    async def test_without_offset_time_and_version(
        self, client: Client, topic: str, code: int
    ) -> None:
        await client.send(topic, b"1")
        answer = await ok(client, code, {**PULL, "topic": topic})
        assert [bytes(record.body) for record in iter_records(answer.body)] == [b"1"]

    async def test_an_offset_to_commit_has_to_be_there(
        self, client: Client, topic: str, code: int
    ) -> None:
        await client.send(topic)
        flag = str(SUBSCRIPTION | COMMIT)
        text = await refused(client, code, {**PULL, "topic": topic, "sysFlag": flag})
        assert "commitOffset" in text
        fields = {
            "consumerGroup": "G",
            "topic": topic,
            "queueId": "0",
            "setZeroIfNotFound": "false",
        }
        stored = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        assert "offset" not in stored.ext_fields

    async def test_a_pull_to_be_held_has_to_say_how_long(
        self, client: Client, topic: str, code: int
    ) -> None:
        await client.send(topic)
        fields = {
            **PULL,
            "topic": topic,
            "queueOffset": "1",
            "sysFlag": str(SUBSCRIPTION | SUSPEND),
        }
        assert "suspendTimeoutMillis" in await refused(client, code, fields)


class TestAdministration:
    async def test_a_topic_without_default_topic(self, client: Client, topic: str) -> None:
        fields = {"readQueueNums": "2", "writeQueueNums": "3", "perm": "6"}
        fields |= {"topic": topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "abc"}
        await ok(client, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        answer = await ok(client, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        assert json.loads(answer.body)["writeQueueNums"] == 3

    async def test_the_stats_of_all_groups_without_a_flag(self, client: Client) -> None:
        await ok(client, RequestCode.GET_BROKER_CONSUME_STATS)

    async def test_a_reset_without_time_and_force(self, client: Client, topic: str) -> None:
        await client.send(topic)
        await client.pulled(topic)
        fields = {"topic": topic, "group": "G", "queueId": "0", "offset": ""}
        answer = await ok(client, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)
        assert b":0}" in bytes(answer.body)

    async def test_leaving_without_a_name(self, client: Client, topic: str) -> None:
        await client.heartbeat("c1", producer="PG")
        await ok(client, RequestCode.UNREGISTER_CLIENT, {"producerGroup": "PG"})
        answer = await client.request(
            RequestCode.GET_PRODUCER_CONNECTION_LIST, ext_fields={"producerGroup": "PG"}
        )
        assert answer.code == SYSTEM_ERROR

    async def test_a_negative_number_of_messages(self, client: Client, topic: str) -> None:
        fields = {"topic": topic, "key": "k", "beginTimestamp": "0", "endTimestamp": "1"}
        text = await refused(client, RequestCode.QUERY_MESSAGE, {**fields, "maxNum": "-1"})
        assert "maxNum is -1" in text


class TestBodies:
    async def test_a_heartbeat_in_capitals(self, client: Client, topic: str) -> None:
        subscription = {"Topic": topic, "SubString": "*", "sub_version": 1}
        consumer = {"GroupName": "G", "consume_type": 0, "SubscriptionDataSet": [subscription]}
        body = {"ClientID": "c9", "ConsumerDataSet": [consumer]}
        await ok(client, RequestCode.HEART_BEAT, body=body)
        answer = await ok(client, RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"})
        online = json.loads(answer.body)
        assert [one["clientId"] for one in online["connectionSet"]] == ["c9"]
        assert online["consumeType"] == "CONSUME_ACTIVELY"
        assert online["subscriptionTable"][topic]["subString"] == "*"

    async def test_a_heartbeat_that_is_no_json(self, client: Client, topic: str) -> None:
        body = b"{clientID:'c8',consumerDataSet:Set[{'groupName':'G',},],}\n\0"
        await ok(client, RequestCode.HEART_BEAT, body=body)
        answer = await ok(client, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
        assert json.loads(answer.body) == {"consumerIdList": ["c8"]}

    async def test_locks_in_capitals(self, client: Client, topic: str) -> None:
        queue = {"Topic": topic, "BrokerName": "b", "QueueId": "00"}
        for client_id, held in (("c1", 1), ("c2", 0)):
            body = {"ClientId": client_id, "ConsumerGroup": "G", "mq_set": [queue]}
            answer = await ok(client, RequestCode.LOCK_BATCH_MQ, body=body)
            assert len(json.loads(answer.body)["lockOKMQSet"]) == held
        body = {"client-id": "c1", "consumer-group": "G", "MqSet": [queue]}
        await ok(client, RequestCode.UNLOCK_BATCH_MQ, body=body)
        body = {"clientId": "c2", "consumerGroup": "G", "mqSet": [queue]}
        answer = await ok(client, RequestCode.LOCK_BATCH_MQ, body=body)
        assert len(json.loads(answer.body)["lockOKMQSet"]) == 1

    async def test_a_group_and_topics_in_capitals(self, client: Client, topic: str) -> None:
        await ok(
            client,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body={"GroupName": "Capitals", "RetryMaxTimes": "+3"},
        )
        answer = await ok(client, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "Capitals"})
        assert json.loads(answer.body)["retryMaxTimes"] == 3
        config = {"TopicName": topic, "ReadQueueNums": 5, "TopicFilterType": 0}
        await ok(
            client,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            body={"TopicConfigList": [config]},
        )
        answer = await ok(client, RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
        assert json.loads(answer.body)["readQueueNums"] == 5

    async def test_an_expression_in_capitals(self, client: Client, topic: str) -> None:
        data = {"Topic": topic, "ExpressionType": "SQL92", "SubString": "a >"}
        body = msgspec.json.encode({"ClientId": "c", "group": "G", "SubscriptionData": data})
        # This broker filters by tags only, which it could not say had it not read the type.
        assert "SQL92" in await refused(client, RequestCode.CHECK_CLIENT_CONFIG, {}, body)

    @pytest.mark.parametrize(
        ("code", "body", "field"),
        [
            (RequestCode.HEART_BEAT, b'{"producerDataSet":[{"groupName":"PG"}]}', "clientID"),
            (RequestCode.HEART_BEAT, b'{"nothing":1}', "clientID"),
            (RequestCode.HEART_BEAT, b'{"clientID":"c","consumerDataSet":[{"x":1}]}', "groupName"),
            (RequestCode.LOCK_BATCH_MQ, b'{"clientId":"c","mqSet":[]}', "consumerGroup"),
            (RequestCode.LOCK_BATCH_MQ, b'{"consumerGroup":"G","mqSet":[]}', "clientId"),
            (RequestCode.UNLOCK_BATCH_MQ, b"{}", "consumerGroup"),
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b"{}", "topicConfigList"),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b"{}", "groupConfigList"),
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, b'{"topics":[]}', "topicConfigList"),
        ],
    )
    async def test_what_would_do_nothing_is_refused_by_name(
        self, client: Client, code: int, body: bytes, field: str
    ) -> None:
        assert field in await refused(client, code, {}, body)
