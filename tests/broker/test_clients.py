"""Heartbeats, leaving, consumer lists, locks: what keeps a consumer group together."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pocketmq.broker.broker import Broker
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
)
from pocketmq.remoting.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody
from pocketmq.remoting.bodies.subscription_group import SubscriptionGroupWrapper
from pocketmq.remoting.codes import VERSION, RequestCode
from pocketmq.remoting.frames.frame import encode_command
from pocketmq.remoting.headers import BatchRequestHeader
from pocketmq.remoting.serving.body_limits import (
    MOST,
    MOST_LABORIOUS,
    MOST_OBJECTS,
    MOST_UNUSUAL,
    MOST_VALUES,
)
from tests.broker.conftest import Client, Connect, NameServerStub, StartBroker, subscription

SYSTEM_ERROR, NOT_ONLINE = 1, 206


async def members(client: Client, group: str = "G") -> list[str] | str | None:
    """The client ids of a group, or the remark that says there are none."""
    answer = await client.request(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": group}
    )
    if answer.code == SYSTEM_ERROR:
        return answer.remark
    assert answer.code == 0
    ids: list[str] = msgspec.json.decode(answer.body)["consumerIdList"]
    return ids


async def told(client: Client) -> str:
    async with asyncio.timeout(60):
        return await client.notified.get()


async def test_heartbeats_of_the_first_version(client: Client, topic: str) -> None:
    answer = await client.heartbeat("c1", subscription(topic), producer="PG")

    assert answer.code == 0
    assert answer.version == VERSION
    assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    assert answer.ext_fields["IS_SUB_CHANGE"] == "true"
    assert await members(client) == ["c1"]


async def test_a_broker_that_knows_no_subscriptions_asks_for_them(
    client: Client, topic: str
) -> None:
    # As after a restart: the client believes that the broker knows what it subscribes to.
    answer = await client.heartbeat("c1", heartbeat_fingerprint=11, without_sub=True)
    assert answer.ext_fields["IS_SUB_CHANGE"] == "true"

    await client.heartbeat("c1", subscription(topic), heartbeat_fingerprint=11)
    answer = await client.heartbeat("c1", heartbeat_fingerprint=11, without_sub=True)
    assert answer.ext_fields["IS_SUB_CHANGE"] == "false"


async def test_heartbeats_of_the_second_version(client: Client, topic: str) -> None:
    async def changed(fingerprint: int, *topics: str, without_sub: bool = False) -> str:
        answer = await client.heartbeat(
            "c1",
            *map(subscription, topics),
            heartbeat_fingerprint=fingerprint,
            without_sub=without_sub,
        )
        return answer.ext_fields["IS_SUB_CHANGE"]

    assert await changed(11, topic) == "false"
    assert await changed(11, without_sub=True) == "false"
    assert (await client.pull(topic + "x", sys_flag=0)).code == 17
    assert await changed(12, topic, topic + "x") == "true"
    assert await changed(12, without_sub=True) == "false"


async def test_an_unknown_group_has_no_members(client: Client) -> None:
    assert await members(client) == "no consumer for this group, G"


async def test_joining_leaving_and_dying_are_told_to_the_group(
    client: Client, broker: Broker, connect: Connect, topic: str
) -> None:
    first, second, third = [await connect(broker) for _ in range(3)]
    await first.heartbeat("c1", subscription(topic))
    assert await told(first) == "G"
    await second.heartbeat("c2", subscription(topic))
    assert await told(first) == await told(second) == "G"
    await third.heartbeat("c3", subscription(topic))
    assert [await told(c) for c in (first, second, third)] == ["G"] * 3
    assert await members(client) == ["c1", "c2", "c3"]

    fields = {"clientID": "c2", "consumerGroup": "G", "producerGroup": "PG"}
    assert (await second.request(RequestCode.UNREGISTER_CLIENT, ext_fields=fields)).code == 0
    assert await told(first) == await told(third) == "G"
    assert await members(client) == ["c1", "c3"]

    await third.close()
    assert await told(first) == "G"
    assert await members(client) == ["c1"]
    assert second.notified.empty()


async def test_groups_that_do_not_want_to_be_told(client: Client, topic: str) -> None:
    body = b'{"groupName":"G","notifyConsumerIdsChangedEnable":false}'
    await client.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    await client.heartbeat("c1", subscription(topic))
    await client.heartbeat("c1", subscription(topic), group="H")

    assert await told(client) == "H"
    assert client.notified.empty()


async def test_a_group_gets_its_retry_topic(
    start_broker: StartBroker, connect: Connect, name_server: NameServerStub, topic: str
) -> None:
    broker = await start_broker(namesrv_addr=name_server.address)
    name_server.registered.get_nowait()
    client = await connect(broker)
    await client.heartbeat("c1", subscription(topic))

    async with asyncio.timeout(60):
        _, body = await name_server.registered.get()
    [retry] = body.topic_config_serialize_wrapper.topic_config_table.values()
    assert (retry.topic_name, retry.read_queue_nums, retry.perm) == ("%RETRY%G", 1, 6)


async def test_a_heartbeat_of_many_groups_is_one_registration(
    start_broker: StartBroker, connect: Connect, name_server: NameServerStub, topic: str
) -> None:
    broker = await start_broker(namesrv_addr=name_server.address)
    name_server.registered.get_nowait()
    client = await connect(broker)
    groups = [f"G{n}" for n in range(50)]
    body = HeartbeatData(
        client_id="c1",
        consumer_data_set=[
            ConsumerData(group_name=group, subscription_data_set=[subscription(topic)])
            for group in groups
        ],
    )

    assert (await client.request(RequestCode.HEART_BEAT, None, body.encode())).code == 0

    async with asyncio.timeout(60):
        _, registered = await name_server.registered.get()
    wrapper = registered.topic_config_serialize_wrapper
    assert set(wrapper.topic_config_table) == {f"%RETRY%{group}" for group in groups}
    answer = await client.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    stored = SubscriptionGroupWrapper.decode(answer.body)
    assert set(groups) <= set(stored.subscription_group_table)
    assert name_server.registered.empty()


async def test_groups_that_may_not_be_created_are_skipped(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(await start_broker(auto_create_subscription_group=False))

    assert (await client.heartbeat("c1", subscription(topic))).code == 0
    assert await members(client) == "no consumer for this group, G"


async def test_silent_consumers_are_dropped(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(channel_expired_timeout=1, options={"housekeeping_seconds": 0.01})
    client, other = await connect(broker), await connect(broker)
    await client.heartbeat("c1", subscription(topic), producer="PG")
    async with asyncio.timeout(60):
        while await members(other) == ["c1"]:
            pass

    fields = {"producerGroup": "PG"}
    answer = await client.request(RequestCode.GET_PRODUCER_CONNECTION_LIST, ext_fields=fields)
    assert answer.code == SYSTEM_ERROR


async def test_broken_heartbeats(client: Client) -> None:
    for body in (b"", b"[]", b"{", b'{"clientID":1,"consumerDataSet":7}'):
        assert (await client.request(RequestCode.HEART_BEAT, None, body)).code == SYSTEM_ERROR
    assert (await client.heartbeat("c1")).code == 0


async def test_subscriptions_that_can_be_served(client: Client, topic: str) -> None:
    async def check(expression_type: str) -> tuple[int, str | None]:
        body = CheckClientRequestBody(
            client_id="c1",
            group="G",
            subscription_data=subscription(topic, expression_type=expression_type),
        )
        answer = await client.request(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())
        return answer.code, answer.remark

    assert await check("TAG") == (0, None)
    assert await check("SQL92") == (
        SYSTEM_ERROR,
        "The broker does not support consumer to filter message by SQL92: it has "
        "enablePropertyFilter=false",
    )


async def test_queues_are_locked_and_unlocked(client: Client, topic: str) -> None:
    queues = [MessageQueue(topic, "b0", queue_id) for queue_id in range(2)]

    async def lock(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> bytes:
        body = LockBatchRequestBody(client_id=client_id, consumer_group="G", mq_set=queues)
        answer = await client.request(code, None, body.encode())
        assert answer.code == 0
        return bytes(answer.body)

    assert LockBatchResponseBody.decode(await lock("c1")).lock_ok_mq_set == queues
    assert LockBatchResponseBody.decode(await lock("c2")).lock_ok_mq_set == []
    assert await lock("c1", RequestCode.UNLOCK_BATCH_MQ) == b""
    assert LockBatchResponseBody.decode(await lock("c2")).lock_ok_mq_set == queues


async def test_a_lock_of_very_many_queues_is_refused(client: Client, topic: str) -> None:
    """Others wait while it is decoded."""
    queues = [MessageQueue(topic, "b0", queue_id) for queue_id in range(8000)]
    body = LockBatchRequestBody(client_id="c", consumer_group="G", mq_set=queues)
    answer = await client.request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
    assert answer.code == SYSTEM_ERROR


OF_NAME_SERVER = {RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_TOPIC_IN_NAMESRV}


@pytest.mark.parametrize("code", sorted(MOST.keys() - OF_NAME_SERVER))
async def test_bodies_that_are_too_long_are_refused(client: Client, code: RequestCode) -> None:
    answer = await client.request(code, body=b" " * (MOST[code] + 1))
    assert answer.code == SYSTEM_ERROR
    assert f"{MOST[code] + 1} bytes, {MOST[code]} are allowed" in (answer.remark or "")


async def test_long_bodies_have_to_be_standard_json(client: Client) -> None:
    """Others are read too, but their work is a hundred times as much."""
    for size, code in ((MOST_UNUSUAL, 0), (MOST_UNUSUAL + 1, SYSTEM_ERROR)):
        body = b'{clientID:"c"}'.ljust(size)
        answer = await client.request(RequestCode.HEART_BEAT, body=body)
        assert answer.code == code
    assert f"{MOST_UNUSUAL + 1} bytes and is not standard JSON" in (answer.remark or "")
    answer = await client.request(RequestCode.HEART_BEAT, body=b'{"a":' * 15_000)
    assert "is not standard JSON: maximum recursion depth" in (answer.remark or "")


@pytest.mark.parametrize("code", sorted(MOST_LABORIOUS))
async def test_lists_of_things_that_are_much_work_are_shorter(
    client: Client, code: RequestCode
) -> None:
    body = b'{"list":[' + b"{}," * MOST_LABORIOUS[code] + b"{}]}"
    answer = await client.request(code, body=body)
    assert answer.code == SYSTEM_ERROR
    assert f"objects, {MOST_LABORIOUS[code]} are allowed" in (answer.remark or "")


async def test_bodies_of_very_many_objects_are_refused(client: Client) -> None:
    """They cost more than their bytes say, also in the children of one parent."""
    groups = [ProducerData(group_name=f"p{n}") for n in range(MOST_OBJECTS)]
    body = HeartbeatData(client_id="c", producer_data_set=groups).encode()
    answer = await client.request(RequestCode.HEART_BEAT, body=body)
    assert answer.code == SYSTEM_ERROR
    assert f"{MOST_OBJECTS + 1} objects, {MOST_OBJECTS} are allowed" in (answer.remark or "")


@pytest.mark.parametrize("values", ["[],", '"1",'])
async def test_bodies_of_very_many_values_are_refused(client: Client, values: str) -> None:
    codes = values * (MOST_VALUES // values.count(",") // (1 + values.count("[")) + 1)
    body = f'{{"clientID":"c","consumerDataSet":[{{"x":[{codes}0]}}]}}'.encode()
    answer = await client.request(RequestCode.HEART_BEAT, body=body)
    assert answer.code == SYSTEM_ERROR
    assert f"values, {MOST_VALUES} are allowed" in (answer.remark or "")


async def test_references_in_a_short_body_expand_to_little(client: Client) -> None:
    same = '{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}'
    first = f'{{"groupName":"g","subscriptionDataSet":[{{"topic":"T"}},{same}]}}'
    group = '{"$ref":"$.consumerDataSet[0]"}'
    body = f'{{"clientID":"c","consumerDataSet":[{first}{f",{group}" * 50}]}}'.encode()
    assert (await client.request(RequestCode.HEART_BEAT, body=body)).code == 0
    twice = '"x{}":[{{"$ref":"$.x{}"}},{{"$ref":"$.x{}"}}]'
    levels = ",".join(twice.format(n, n - 1, n - 1) for n in range(1, 15))
    body = f'{{"clientID":"c","x0":[1,1],{levels}}}'.encode()
    answer = await client.request(RequestCode.HEART_BEAT, body=body)
    assert answer.code == SYSTEM_ERROR
    assert "expand to more than 10000 values" in (answer.remark or "")


@pytest.mark.parametrize(("count", "code"), [(10, 0), (11, SYSTEM_ERROR)])
async def test_children_share_what_a_body_may_have(client: Client, count: int, code: int) -> None:
    body = HeartbeatData(client_id="c").encode().ljust(MOST[RequestCode.HEART_BEAT] // 10)
    children = [encode_command(RequestCode.HEART_BEAT, n, body=body) for n in range(count)]
    header = BatchRequestHeader(dispatch_code=RequestCode.HEART_BEAT)
    answer = await client.request(RequestCode.COMMON_BATCH_REQUEST, header, body=b"".join(children))
    assert answer.code == code, answer.remark
