"""SQL92 filters in pulls, long polls, heartbeats and checks of a running broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.tables import consumer_filter
from pocketmq.broker.tables.consumer_filter import AT_ONCE, NEW_CHARACTERS
from pocketmq.message.sql_filter import SqlFilter, compile_sql, known_sql
from pocketmq.remoting.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from tests.broker.batch.batches import batch, pull
from tests.broker.conftest import (
    SUBSCRIPTION,
    SUSPEND,
    Client,
    Connect,
    StartBroker,
    position,
)

FOUND, NOT_FOUND, RETRY = 0, 19, 20
PARSE_FAILED, FILTER_NOT_EXIST, FILTER_NOT_LATEST = 23, 27, 28


@pytest.fixture
async def broker(start_broker: StartBroker) -> Broker:
    return await start_broker(enable_property_filter=True)


async def send(client: Client, topic: str, *ages: str) -> None:
    for age in ages:
        properties = {"age": age} if age else {}
        answer = await client.send(topic, age.encode() or b"none", properties=properties)
        assert answer.code == 0, answer.remark


def sql(topic: str, expression: str, version: int = 1, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=expression, expression_type=kind, sub_version=version
    )


async def held(broker: Broker, count: int = 1) -> None:
    async with asyncio.timeout(60):
        while len(broker.components.pulls.holds) < count:  # noqa: ASYNC110 (what is looked at has no event)
            await asyncio.sleep(0.001)


async def bodies(client: Client, topic: str, **fields: Any) -> list[bytes]:
    return [bytes(record.body) for record in await client.pulled(topic, **fields)]


async def test_a_pull_with_an_expression(client: Client, topic: str) -> None:
    await send(client, topic, "17", "18", "", "70", "no number")
    expression = "age BETWEEN 18 AND 65.5 OR age IS NULL"
    asked: dict[str, Any] = {"subscription": expression, "expression_type": "SQL92"}

    answer = await client.pull(topic, **asked)

    assert await bodies(client, topic, **asked) == [b"18", b"none"]
    assert position(answer) == (5, 0, 5)


async def test_messages_side_by_side_come_together(client: Client, topic: str) -> None:
    await send(client, topic, "1", "5", "6", "2", "7")

    found = await bodies(client, topic, subscription="age > 4", expression_type="SQL92")

    assert found == [b"5", b"6", b"7"]


async def test_expressions_of_some_length(client: Client, topic: str) -> None:
    """They are compiled between other requests, wherever they come."""
    await send(client, topic, "1", "500")
    text = " OR ".join(f"age = {number}" for number in range(400, 600))
    asked: dict[str, Any] = {"subscription": text, "expression_type": "SQL92"}
    assert await bodies(client, topic, **asked) == [b"500"]
    children = [
        pull(topic, 0, subscription=f"{text} OR age = {number}", expression_type="SQL92")
        for number in (1, 2)
    ]
    # The first answer is that of the batch. The other expression is compiled soon after it.
    async with asyncio.timeout(60):
        while [answer.code for answer in await batch(client, children)] != [FOUND, FOUND]:
            pass
    assert (await client.pull(topic, subscription=f"{text} OR", expression_type="SQL92")).code == (
        PARSE_FAILED
    )
    await client.heartbeat("c1", sql(topic, f"{text} OR age IS NULL", version=7))
    assert await bodies(client, topic, sys_flag=0, sub_version=7) == [b"500"]
    assert (await check(client, f"{text} OR age = 3")).code == 0
    assert (await check(client, f"{text} AND")).code == PARSE_FAILED


async def test_nothing_matches(client: Client, topic: str) -> None:
    await send(client, topic, "1", "2")

    answer = await client.pull(
        topic, subscription="age > 4", expression_type="SQL92", sys_flag=SUBSCRIPTION | SUSPEND
    )

    assert (answer.code, answer.remark) == (RETRY, "NO_MATCHED_MESSAGE")
    assert position(answer) == (2, 0, 2)


async def test_one_pull_looks_at_a_bounded_number_of_messages(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = await start_broker(enable_property_filter=True, max_filter_message_size=40 * 20)
    client = await connect(broker)
    await send(client, topic, *["1"] * 50, "9")

    answer = await client.pull(topic, subscription="age > 4", expression_type="SQL92")

    assert (answer.code, position(answer)) == (RETRY, (40, 0, 51))
    answer = await client.pull(topic, 40, subscription="age > 4", expression_type="SQL92")
    assert (answer.code, position(answer)) == (FOUND, (51, 0, 51))


@pytest.mark.parametrize(
    ("expression", "kind", "remark"),
    [
        ("age >", "SQL92", "line 1, column 6: unexpected end"),
        ("age > 1 AND\n#", "SQL92", "line 2, column 1: unexpected '#'"),
        ("", "SQL92", "it is empty"),
        ("age > 1", "XPATH", "no expression type XPATH"),
    ],
)
async def test_bad_expressions_of_a_pull(
    client: Client, topic: str, expression: str, kind: str, remark: str
) -> None:
    await send(client, topic, "1")

    answer = await client.pull(topic, subscription=expression, expression_type=kind)

    assert answer.code == PARSE_FAILED
    assert remark in (answer.remark or "")


async def test_long_polls_wake_only_for_what_they_want(
    client: Client, broker: Broker, connect: Connect, topic: str
) -> None:
    await send(client, topic, "0")
    waiting = []
    for expression in ("age > 4", "age < 3", "age = 'x'"):
        consumer = await connect(broker)
        pull = consumer.pull(
            topic,
            1,
            subscription=expression,
            expression_type="SQL92",
            sys_flag=SUBSCRIPTION | SUSPEND,
        )
        waiting.append(asyncio.ensure_future(pull))
    await held(broker, 3)

    await send(client, topic, "2")
    assert (await waiting[1]).code == FOUND
    await send(client, topic, "3")
    assert len(broker.components.pulls.holds) == 2
    await send(client, topic, "5")
    old = await waiting[0]

    assert len(broker.components.pulls.holds) == 1
    assert (old.code, position(old)) == (FOUND, (4, 0, 4))
    assert not waiting[2].done()


async def test_children_of_a_batch_wake_by_their_filters(
    client: Client, broker: Broker, connect: Connect, topic: str
) -> None:
    await send(client, topic, "0")
    consumer = await connect(broker)
    children = [
        pull(topic, 1, hold=20_000, subscription=expression, expression_type="SQL92")
        for expression in ("age > 4", "age > 400")
    ]
    answers = asyncio.ensure_future(batch(consumer, children))
    await held(broker, 2)

    await send(client, topic, "3")
    assert len(broker.components.pulls.holds) == 2
    await send(client, topic, "50")
    woken, other = await answers

    assert (woken.code, position(woken)) == (FOUND, (3, 0, 3))
    assert other.code == NOT_FOUND
    assert len(broker.components.pulls.holds) == 0


# --- expressions that heartbeats bring --------------------------------------------------------


async def test_a_pull_without_expression_uses_the_group_s(client: Client, topic: str) -> None:
    await send(client, topic, "1", "5")
    await client.heartbeat("c1", sql(topic, "age > 4", version=7))

    assert await bodies(client, topic, sys_flag=0, sub_version=7) == [b"5"]
    newer = await client.pull(topic, sys_flag=0, sub_version=8)
    assert newer.code == 25  # the subscription itself is not the latest

    await client.heartbeat("c1", sql(topic, "age < 4", version=9))
    assert await bodies(client, topic, sys_flag=0, sub_version=9) == [b"1"]


async def test_a_bad_expression_leaves_the_group_without(client: Client, topic: str) -> None:
    await send(client, topic, "1")
    await client.heartbeat("c1", sql(topic, "age > 4"))
    await client.heartbeat("c1", sql(topic, "age >>", version=2))

    answer = await client.pull(topic, sys_flag=0, sub_version=2)

    assert answer.code == FILTER_NOT_EXIST
    assert "expression may be wrong" in (answer.remark or "")


async def test_filter_data_that_is_older_than_the_pull(client: Client, topic: str) -> None:
    await send(client, topic, "1")
    await client.heartbeat("c1", sql(topic, "age > 4", version=5))
    # By tag, then by SQL92 again, but with an expression that is not taken: the data stays at 5.
    await client.heartbeat("c1", SubscriptionData(topic=topic, sub_string="*", sub_version=6))
    await client.heartbeat("c1", sql(topic, "", version=7))

    answer = await client.pull(topic, sys_flag=0, sub_version=7)

    assert answer.code == FILTER_NOT_LATEST


async def test_never_by_a_java_class(client: Client, topic: str) -> None:
    await send(client, topic, "1")
    by_class = SubscriptionData(topic=topic, sub_string="my.Filter", class_filter_mode=True)
    await client.heartbeat("c1", by_class)

    answer = await client.pull(topic, sys_flag=0)

    assert answer.code == 1
    assert "Java class" in (answer.remark or "")


async def test_a_restart_keeps_expressions(
    start_broker: StartBroker, connect: Connect, topic: str, tmp_path: Path
) -> None:
    broker = await start_broker(enable_property_filter=True)
    client = await connect(broker)
    await client.heartbeat("c1", sql(topic, "age > 4", version=3))
    await broker.stop()

    written = json.loads((tmp_path / "store/config/consumerFilter.json").read_text())
    data = written["filterDataByTopic"][topic]["groupFilterData"]["G"]
    assert (data["expression"], data["clientVersion"]) == ("age > 4", 3)
    # The last member left when the broker stopped.
    assert data["dead"]

    client = await connect(await start_broker(enable_property_filter=True))
    await send(client, topic, "1", "5")
    await client.heartbeat("c1", sql(topic, "age > 4", version=3))
    assert await bodies(client, topic, sys_flag=0, sub_version=3) == [b"5"]


async def retried(client: Client, topic: str, *ages: str, group: str = "G") -> str:
    """Messages in the group's retry topic, as coming from `topic`; its name."""
    for age in ages:
        properties = {"age": age, "RETRY_TOPIC": topic}
        await client.send(f"%RETRY%{group}", age.encode(), properties=properties)
    return f"%RETRY%{group}"


async def test_retry_topics_have_the_filter_of_where_messages_came_from(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(
        await start_broker(enable_property_filter=True, filter_support_retry=True)
    )
    await client.heartbeat("c1", sql(topic, "age > 4"), sql("%RETRY%G", "age = 2"))
    retry_topic = await retried(client, topic, "1", "2", "5")
    await retried(client, "another", "3")

    assert await bodies(client, retry_topic, sys_flag=0, sub_version=1) == [b"5", b"3"]
    asked = {"subscription": "age = 1", "expression_type": "SQL92"}
    assert await bodies(client, retry_topic, **asked) == [b"5", b"3"]
    # What asks for tags gets by tags, and other topics are as ever.
    assert len(await bodies(client, retry_topic, subscription="*")) == 4
    await send(client, topic, "1", "5")
    assert await bodies(client, topic, **asked) == [b"1"]


async def test_retry_topics_have_a_filter_of_their_own_unless_told_otherwise(
    client: Client, topic: str
) -> None:
    await client.heartbeat("c1", sql(topic, "age > 4"), sql("%RETRY%G", "age = 2"))
    retry_topic = await retried(client, topic, "1", "2", "5")

    assert await bodies(client, retry_topic, sys_flag=0, sub_version=1) == [b"2"]


# --- CHECK_CLIENT_CONFIG ----------------------------------------------------------------------


async def test_many_short_expressions_of_a_heartbeat_are_compiled_in_steps(
    broker: Broker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all its groups together, or one turn of the event loop took seconds."""
    at_once: list[str] = []

    def noted(text: str) -> SqlFilter:
        if known_sql(text) is None:
            at_once.append(text)
        return compile_sql(text)

    monkeypatch.setattr(consumer_filter, "compile_sql", noted)
    groups = [
        ConsumerData(
            group_name=f"G{group}",
            subscription_data_set=[sql(f"T{n}", f"a{group} = {n}") for n in range(100)],
        )
        for group in range(8)
    ]
    body = HeartbeatData(client_id="c", consumer_data_set=groups).encode()
    known = 0
    while known < 800:
        assert (await client.request(RequestCode.HEART_BEAT, body=body)).code == 0
        before, known = (
            known,
            sum(
                broker.tables.filters.get(f"G{group}", f"T{n}") is not None
                for group in range(8)
                for n in range(100)
            ),
        )
        assert 0 < known - before <= NEW_CHARACTERS // AT_ONCE
    assert not at_once


async def check(client: Client, expression: str, kind: str = "SQL92") -> Command:
    body = CheckClientRequestBody(
        client_id="c1", group="G", subscription_data=sql("T", expression, kind=kind)
    )
    return await client.request(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())


async def test_expressions_are_checked_before_use(client: Client) -> None:
    assert (await check(client, "age > 4 AND name CONTAINS 'x'")).code == 0
    assert (await check(client, "A || B", "TAG")).code == 0

    bad = await check(client, "age > 4 AND > 5")
    assert bad.code == PARSE_FAILED
    assert "Invalid MessageSelector. line 1, column 13: unexpected '>'" in (bad.remark or "")
    other = await check(client, "age > 4", "XPATH")
    assert (other.code, other.remark) == (
        PARSE_FAILED,
        "Invalid MessageSelector. line 1, column 1: no expression type XPATH: TAG or SQL92",
    )
