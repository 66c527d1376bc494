"""Who is connected, and what a group subscribes to, as admins see it."""

from __future__ import annotations

from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies.consumer import (
    ConsumerConnection,
    ProducerConnection,
    ProducerTableInfo,
    QuerySubscriptionResponseBody,
)
from pocketmq.remoting.codes import RequestCode
from tests.broker.conftest import Client, Connect, subscription

SYSTEM_ERROR, NOT_ONLINE = 1, 206


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


async def producers(client: Client) -> ProducerTableInfo:
    answer = await client.request(RequestCode.GET_ALL_PRODUCER_INFO)
    assert answer.code == 0
    return ProducerTableInfo.decode(answer.body)


async def subscribed(client: Client, group: str, topic: str) -> QuerySubscriptionResponseBody:
    answer = await client.request(
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, ext_fields={"group": group, "topic": topic}
    )
    assert answer.code == 0
    return QuerySubscriptionResponseBody.decode(answer.body)


async def test_all_producers(broker: Broker, connect: Connect, client: Client) -> None:
    assert (await producers(client)).data == {}
    other = await connect(broker)
    await client.heartbeat("p1", producer="PG")
    await other.heartbeat("p2", producer="PG")

    [first, second] = (await producers(client)).data["PG"]

    assert (first.client_id, second.client_id) == ("p1", "p2")
    assert first.remote_ip.startswith("/127.0.0.1:")
    assert first.last_update_timestamp > 1_700_000_000_000


async def test_one_subscription(client: Client, topic: str) -> None:
    assert (await subscribed(client, "G", topic)).subscription_data is None
    await client.heartbeat("c1", subscription(topic, "A", "B"))

    found = await subscribed(client, "G", topic)

    assert (found.group, found.topic) == ("G", topic)
    assert found.subscription_data is not None
    assert found.subscription_data.tags_set == ["A", "B"]
    assert (await subscribed(client, "G", "other")).subscription_data is None
