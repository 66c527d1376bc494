"""Consumer and producer groups as admins create, change, look at and delete them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.broker import Broker
from message.message import MessageQueue
from remoting.bodies.consumer import ConsumerConnection, ConsumeStats, ProducerConnection
from remoting.bodies.subscription_group import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from remoting.codes import RequestCode
from tests.broker.conftest import Client, Connect, StartBroker, subscription

SYSTEM_ERROR, NOT_ONLINE, NO_GROUP, INVALID = 1, 206, 26, 29


async def update(client: Client, group: SubscriptionGroupConfig) -> int:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return (await client.request(code, None, group.encode())).code


async def config_of(client: Client, group: str) -> SubscriptionGroupConfig | None:
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    answer = await client.request(code, ext_fields={"group": group})
    if answer.code == NO_GROUP:
        return None
    assert answer.code == 0
    return SubscriptionGroupConfig.decode(answer.body)


async def test_create_change_delete(start_broker: StartBroker, connect: Connect) -> None:
    client = await connect(await start_broker(auto_create_subscription_group=False))
    assert await config_of(client, "G") is None
    group = SubscriptionGroupConfig(group_name="G", retry_max_times=3, consume_enable=False)
    assert await update(client, group) == 0
    assert await config_of(client, "G") == group

    answer = await client.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    wrapper = SubscriptionGroupWrapper.decode(answer.body)
    assert wrapper.subscription_group_table["G"] == group
    assert "TOOLS_CONSUMER" in wrapper.subscription_group_table
    assert wrapper.data_version.counter == 1

    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP
    for _ in range(2):
        assert (await client.request(delete, ext_fields={"groupName": "G"})).code == 0
    assert await config_of(client, "G") is None


async def test_asking_for_a_group_may_create_it(client: Client) -> None:
    assert await config_of(client, "G") == SubscriptionGroupConfig(group_name="G")
    assert await config_of(client, "not a name") is None


@pytest.mark.parametrize("name", ["", "a b", "G" * 256])
async def test_illegal_names(client: Client, name: str) -> None:
    assert await update(client, SubscriptionGroupConfig(group_name=name)) == INVALID


async def test_a_body_that_is_no_group(client: Client) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    for body in (b"", b"[1]", b'{"retryMaxTimes":"many"}'):
        assert (await client.request(code, None, body)).code == SYSTEM_ERROR


async def test_a_group_may_go_with_its_offsets(client: Client, topic: str) -> None:
    async def offset() -> str | None:
        fields = {"consumerGroup": "G", "topic": topic, "queueId": "0"}
        fields["setZeroIfNotFound"] = "false"
        answer = await client.request(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        return answer.ext_fields.get("offset")

    await client.send(topic)
    await client.pull(topic, sys_flag=5, commit_offset=1)
    delete = RequestCode.DELETE_SUBSCRIPTIONGROUP

    await client.request(delete, ext_fields={"groupName": "G"})
    assert await offset() == "1"
    await client.request(delete, ext_fields={"groupName": "G", "cleanOffset": "true"})
    assert await offset() is None


async def test_who_is_online(client: Client, broker: Broker, connect: Connect, topic: str) -> None:
    async def online(code: int, **ext: str) -> Any:
        return await client.request(code, ext_fields=ext)

    consumers, producers = (
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
    )
    answer = await online(consumers, consumerGroup="G")
    assert (answer.code, answer.remark) == (NOT_ONLINE, "the consumer group[G] not online")
    answer = await online(producers, producerGroup="PG")
    assert (answer.code, answer.remark) == (SYSTEM_ERROR, "the producer group[PG] not exist")

    member = await connect(broker)
    await member.heartbeat("c1", subscription(topic, "A"), producer="PG")

    answer = await online(consumers, consumerGroup="G")
    body = ConsumerConnection.decode(answer.body)
    [connection] = body.connection_set
    assert (connection.client_id, connection.language) == ("c1", "PYTHON")
    assert connection.client_addr.startswith("127.0.0.1:")
    assert connection.version > 0
    assert body.consume_type == "CONSUME_PASSIVELY"
    assert body.message_model == "CLUSTERING"
    assert body.subscription_table[topic].sub_string == "A"
    answer = await online(producers, producerGroup="PG")
    assert ProducerConnection.decode(answer.body).connection_set == [connection]

    await member.close()
    while (await online(consumers, consumerGroup="G")).code == 0:
        pass
    assert (await online(producers, producerGroup="PG")).code == SYSTEM_ERROR


async def stats(client: Client, **ext: str) -> ConsumeStats:
    fields = {"consumerGroup": "G"} | ext
    answer = await client.request(RequestCode.GET_CONSUME_STATS, ext_fields=fields)
    assert answer.code == 0
    return ConsumeStats.decode(answer.body)


async def test_how_far_a_group_is(client: Client, topic: str) -> None:
    assert (await stats(client)).offset_table == {}
    for _ in range(5):
        await client.send(topic)
    records = await client.pulled(topic, max_msg_nums=3, sys_flag=5, commit_offset=2)

    table = (await stats(client)).offset_table

    assert set(table) == {MessageQueue(topic, "b0", queue_id) for queue_id in range(4)}
    first = table[MessageQueue(topic, "b0", 0)]
    assert (first.broker_offset, first.consumer_offset, first.pull_offset) == (5, 2, 3)
    assert first.last_timestamp == records[1].store_timestamp
    other = table[MessageQueue(topic, "b0", 1)]
    assert (other.broker_offset, other.consumer_offset, other.last_timestamp) == (0, 0, 0)
    assert (await stats(client, topic=topic)).consume_tps > 0
    assert (await stats(client, topic="unknown")).offset_table == {}


async def test_only_subscribed_topics_of_an_online_group(client: Client, topic: str) -> None:
    for name in (topic, topic + "_old"):
        await client.send(name)
        await client.pull(name, sys_flag=5, commit_offset=1)
    await client.heartbeat("c1", subscription(topic))

    assert {queue.topic for queue in (await stats(client)).offset_table} == {topic}
    listed = await stats(client, topicList=f"{topic};{topic}_old")
    assert {queue.topic for queue in listed.offset_table} == {topic, topic + "_old"}
