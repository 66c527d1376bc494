"""The broker as admins see it: settings, runtime figures, statistics, single messages."""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec
import pytest

from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.record import decode
from pocketmq.remoting.bodies.cluster import HARuntimeInfo
from pocketmq.remoting.bodies.table import BrokerStatsData, KVTable
from pocketmq.remoting.codes import VERSION, RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.settings.properties_file import parse_properties
from tests.broker.conftest import Client, Connect, StartBroker

PHYSICAL_OFFSET: Final = Struct(">q")
PHYSICAL_OFFSET_AT: Final = 28  # in a record
SYSTEM_ERROR = 1


async def runtime_info(client: Client) -> dict[str, str]:
    answer = await client.request(RequestCode.GET_BROKER_RUNTIME_INFO)
    assert answer.code == 0
    return KVTable.decode(answer.body).table


async def test_settings(start_broker: StartBroker, connect: Connect) -> None:
    broker = await start_broker(broker_permission=6, auto_create_topic_enable=False)
    client = await connect(broker)

    answer = await client.request(RequestCode.GET_BROKER_CONFIG)

    text = bytes(answer.body).decode()
    settings = parse_properties(text)
    assert settings["brokerName"] == "b0"
    assert settings["autoCreateTopicEnable"] == "false"
    assert settings["flushDiskType"] == "ASYNC_FLUSH"
    assert settings["brokerIP1"] == ""
    lines = text.splitlines()
    assert lines == sorted(lines)
    version = msgspec.json.decode(answer.ext_fields["version"])
    assert set(version) == {"counter", "stateVersion", "timestamp"}


@pytest.mark.parametrize("jump", [-10 * 86_400_000, 10 * 86_400_000])
async def test_the_uptime_does_not_follow_a_clock_that_is_set(
    start_broker: StartBroker, connect: Connect, jump: int
) -> None:
    moments = [1_700_000_000_000]
    broker = await start_broker(options={"clock": lambda: moments[0]})
    moments[0] += jump
    told = await runtime_info(await connect(broker))
    assert told["runtime"].startswith("[ 0 days, 0 hours, ")


async def test_runtime_info_counts(client: Client, topic: str) -> None:
    before = await runtime_info(client)
    for _ in range(3):
        await client.send(topic, b"x" * 100)
    await client.pulled(topic, max_msg_nums=2)

    after = await runtime_info(client)

    assert before["putMessageTimesTotal"] == "0"
    assert before["earliestMessageTimeStamp"] == "-1"
    assert after["putMessageTimesTotal"] == after["msgPutTotalTodayNow"] == "3"
    assert after["msgGetTotalTodayNow"] == "2"
    assert int(after["putMessageSizeTotal"]) > 300
    assert int(after["commitLogMaxOffset"]) == int(after["putMessageSizeTotal"])
    assert int(after["earliestMessageTimeStamp"]) > 0
    assert after["brokerVersion"] == str(VERSION)
    assert after["brokerVersionDesc"] == "V5_5_0"
    assert after["brokerActive"] == "true"
    for name in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"):
        assert len([float(word) for word in after[name].split()]) == 3
    ratio = float(after["commitLogDiskRatio"])
    assert 0 < ratio <= 1
    assert ratio == round(ratio, 2)
    assert "Total : " in after["commitLogDirCapacity"]


async def test_a_broker_is_the_only_copy(client: Client, topic: str) -> None:
    await client.send(topic)

    answer = await client.request(RequestCode.GET_BROKER_HA_STATUS)

    body = HARuntimeInfo.decode(answer.body)
    assert (body.master, body.in_sync_slave_nums) == (True, 0)
    assert body.master_commit_log_max_offset > 0


async def test_statistics(client: Client, topic: str) -> None:
    async def figures(name: str, key: str) -> tuple[int, float]:
        fields = {"statsName": name, "statsKey": key}
        answer = await client.request(RequestCode.VIEW_BROKER_STATS_DATA, ext_fields=fields)
        assert answer.code == 0
        data = BrokerStatsData.decode(answer.body)
        assert data.stats_minute.sum == data.stats_hour.sum == data.stats_day.sum
        return data.stats_minute.sum, data.stats_minute.tps

    for _ in range(4):
        await client.send(topic)
    await client.pulled(topic)

    assert (await figures("TOPIC_PUT_NUMS", topic))[0] == 4
    assert (await figures("TOPIC_PUT_NUMS", topic))[1] > 0
    assert (await figures("TOPIC_PUT_SIZE", topic))[0] > 400
    assert (await figures("GROUP_GET_NUMS", f"{topic}@G"))[0] == 4
    assert (await figures("BROKER_PUT_NUMS", "DefaultCluster"))[0] == 4
    fields = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "unknown"}
    answer = await client.request(RequestCode.VIEW_BROKER_STATS_DATA, ext_fields=fields)
    assert (answer.code, answer.remark) == (
        SYSTEM_ERROR,
        "The stats <TOPIC_PUT_NUMS> <unknown> not exist",
    )


async def test_one_message_by_its_place(client: Client, topic: str) -> None:
    await client.send(topic, b"first")
    sent = await client.send(topic, b"second")
    place = decode_offset_msg_id(sent.ext_fields["msgId"]).physical_offset
    view = RequestCode.VIEW_MESSAGE_BY_ID

    answer = await client.request(view, ext_fields={"offset": str(place), "topic": topic})

    assert answer.code == 0
    record = decode(answer.body)
    assert bytes(record.body) == b"second"
    assert record.physical_offset == place


@pytest.mark.parametrize("offset", ["-1", "1", "99999999999"])
async def test_places_without_a_message(client: Client, topic: str, offset: str) -> None:
    await client.send(topic)
    view = RequestCode.VIEW_MESSAGE_BY_ID

    answer = await client.request(view, ext_fields={"offset": offset})

    assert answer.code == SYSTEM_ERROR
    assert f"can not find message by the offset, {offset}" in (answer.remark or "")


async def test_bytes_in_a_body_that_look_like_a_record_are_no_message(
    client: Client, topic: str
) -> None:
    """They could reach over the messages of others that follow."""

    async def send(body: bytes) -> tuple[int, bytes]:
        sent = await client.send(topic, body)
        place = decode_offset_msg_id(sent.ext_fields["msgId"]).physical_offset
        return place, bytes((await view(place)).body)

    async def view(place: int) -> Command:
        fields = {"offset": str(place)}
        return await client.request(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=fields)

    _, record = await send(b"of somebody else")
    place, second = await send(b"-" * len(record))
    # Where the next record with such a body begins is easy to foresee.
    forged = place + len(second) + second.index(b"-" * len(record))
    made_up = bytearray(record)
    PHYSICAL_OFFSET.pack_into(made_up, PHYSICAL_OFFSET_AT, forged)
    _, third = await send(bytes(made_up))
    assert decode(third[second.index(b"-" * len(record)) :]).physical_offset == forged

    answer = await view(forged)

    assert answer.code == SYSTEM_ERROR
    assert f"can not find message by the offset, {forged}" in (answer.remark or "")


async def test_codes_that_are_not_served(client: Client) -> None:
    for code in (RequestCode.POP_ROLLBACK, 999):
        answer = await client.request(code, ext_fields={})
        assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")
