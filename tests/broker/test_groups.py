"""Consumer groups as admins create, change, look at and delete them."""

from __future__ import annotations

import json

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.remoting.bodies.subscription_group import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from tests.broker.conftest import Client, Connect, StartBroker, subscription

SYSTEM_ERROR, NO_PERMISSION, NO_GROUP, INVALID = 1, 16, 26, 29


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


@pytest.mark.parametrize("name", ["", "a b", "G" * 121])
async def test_illegal_names(client: Client, name: str) -> None:
    assert await update(client, SubscriptionGroupConfig(group_name=name)) == INVALID


async def test_long_names(client: Client, broker: Broker) -> None:
    """From 5.4 on they have 120 characters; those that exist already may be longer."""
    longest, older = "G" * 120, "G" * 255
    assert await config_of(client, older) is None
    assert await config_of(client, longest) is not None
    broker.tables.groups.update([SubscriptionGroupConfig(group_name=older)])
    changed = SubscriptionGroupConfig(group_name=older, retry_max_times=3)
    assert await update(client, changed) == 0
    assert await config_of(client, older) == changed


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


@pytest.mark.parametrize("clean", [False, True])
async def test_several_go_at_once(
    start_broker: StartBroker, connect: Connect, topic: str, clean: bool
) -> None:
    broker = await start_broker(
        auto_create_subscription_group=False, batch_delete_subscription_group_max_rate=1e6
    )
    client = await connect(broker)
    for name in ("G", "G2", "G3"):
        await update(client, SubscriptionGroupConfig(group_name=name))
    await client.send(topic)
    await client.pull(topic, sys_flag=5, commit_offset=1)

    async def delete(*names: str) -> Command:
        body = json.dumps({"groupNameList": names, "cleanOffset": clean}).encode()
        return await client.request(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, None, body)

    for names, text in (((), "group name list is blank."), (("G", ""), "group name is blank.")):
        answer = await delete(*names)
        assert (answer.code, answer.remark) == (INVALID, f"The specified {text}")
        assert await config_of(client, "G") is not None
    assert (await delete("G", "G2", "G", "unknown")).code == 0
    assert [await config_of(client, name) is None for name in ("G", "G2", "G3")] == [1, 1, 0]
    assert set(broker.tables.offsets.table) == (set() if clean else {f"{topic}@G"})


async def test_several_at_once_or_none(client: Client) -> None:
    async def update_list(*names: str) -> int:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        groups = [SubscriptionGroupConfig(group_name=name, retry_max_times=3) for name in names]
        body = SubscriptionGroupList(group_config_list=groups).encode()
        return (await client.request(code, None, body)).code

    async def table() -> dict[str, SubscriptionGroupConfig]:
        answer = await client.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.decode(answer.body).subscription_group_table

    assert await update_list("G1", "not a name") == INVALID
    assert "G1" not in await table()
    assert await update_list() == 0
    assert await update_list("G1", "G2") == 0
    assert [(await table())[name].retry_max_times for name in ("G1", "G2")] == [3, 3]


async def test_no_attribute_is_known(client: Client) -> None:
    group = SubscriptionGroupConfig(group_name="G", attributes={"+a": "1"})

    assert await update(client, group) == SYSTEM_ERROR
    group.attributes = {}
    assert await update(client, group) == 0


async def test_a_group_that_may_not_read_a_topic(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    async def readable(client: Client, group: str, value: str | None = None) -> bool:
        fields = {"group": group, "topic": topic} | ({"readable": value} if value else {})
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        answer = await client.request(code, ext_fields=fields)
        assert answer.code == 0
        body = GroupForbidden.decode(answer.body)
        assert (body.group, body.topic) == (group, topic)
        return body.readable

    broker = await start_broker()
    client = await connect(broker)
    await client.send(topic)
    assert await readable(client, "G")

    # Checked where the broker knows the group's subscription from its heartbeats.
    await client.heartbeat("c1", subscription(topic))
    assert (await client.pull(topic, sys_flag=0)).code == 0
    assert not await readable(client, "G", "false")
    assert (await client.pull(topic, sys_flag=0)).code == NO_PERMISSION
    assert await readable(client, "other")
    await broker.stop()

    client = await connect(await start_broker())
    assert not await readable(client, "G")
    assert await readable(client, "G", "true")
    await client.heartbeat("c1", subscription(topic))
    assert (await client.pull(topic, sys_flag=0)).code == 0
