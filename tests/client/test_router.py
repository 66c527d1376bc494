"""Handlers at module level, consumers made later, started again, and pointed elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pocketmq import sync
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.consumer.router import Router
from pocketmq.client.errors import InvalidName, NoNameServer, NotRunning
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until

PROJECT = Path(__file__).parents[2]

router = Router()
seen: list[bytes] = []


@router.on("T", "a || b")
async def handle(message: ConsumedMessage) -> None:
    seen.append(message.body)


@pytest.fixture(autouse=True)
def nothing_is_seen() -> None:
    seen.clear()


async def test_a_module_level_router_serves_any_consumer(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"1", "TAGS\x01a\x02")
    for group in ("G1", "G2"):
        async with PushConsumer(group, router, namesrv=cluster.namesrv, start="begin"):
            await until(lambda: seen == [b"1"])
        seen.clear()


async def test_a_consumer_starts_again_after_its_shutdown(cluster: FakeCluster) -> None:
    consumer = PushConsumer("G", router, namesrv=cluster.namesrv, start="begin", trace=True)
    for body in (b"1", b"2", b"3"):
        cluster["a"].store("T", 0, body, "TAGS\x01a\x02")
        async with consumer:
            await until(lambda body=body: seen == [body])  # type: ignore[misc]
        seen.clear()
        assert len(consumer.hooks) == 0
    assert cluster["a"].offsets["G", "T", 0] == 3


async def test_a_start_during_a_shutdown_waits_for_its_end(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"1", "TAGS\x01a\x02")
    consumer = PushConsumer("G", router, namesrv=cluster.namesrv, start="begin")
    await consumer.start()
    await until(lambda: seen == [b"1"])
    shutdown = asyncio.create_task(consumer.shutdown())
    await asyncio.sleep(0)
    await consumer.start()
    assert shutdown.done()
    assert cluster["a"].offsets["G", "T", 0] == 1
    cluster["a"].store("T", 0, b"2", "TAGS\x01a\x02")
    await until(lambda: seen == [b"1", b"2"])
    await consumer.shutdown()


async def test_a_pull_consumer_starts_again(cluster: FakeCluster) -> None:
    cluster["a"].store("T", 0, b"1")
    consumer = PullConsumer("G", namesrv=cluster.namesrv, start="begin")
    for _ in range(2):
        async with consumer:
            with pytest.raises(NotRunning, match="reads no topic"):
                await consumer.poll()
            await consumer.assign("T")
            await consumer.seek("begin")
            assert [m.body for m in await consumer.poll(timeout=10)] == [b"1"]


async def test_the_name_server_may_be_told_later(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    cluster["a"].store("T", 0, b"1", "TAGS\x01a\x02")
    consumer = PushConsumer("G", router, start="begin")
    with pytest.raises(NoNameServer, match="namesrv="):
        await consumer.start()
    consumer.namesrv = cluster.namesrv
    async with consumer:
        await until(lambda: seen == [b"1"])
    reader = PullConsumer("G2")
    with pytest.raises(NoNameServer, match="namesrv="):
        await reader.start()
    reader.namesrv = cluster.namesrv
    async with reader:
        assert len(await reader.queues("T")) == 4


async def test_handlers_that_are_added_after_the_consumer_was_made(cluster: FakeCluster) -> None:
    late = Router()
    consumer = PushConsumer("G", late, namesrv=cluster.namesrv, start="begin")
    bodies: list[bytes] = []

    @late.on("T")
    def first(message: ConsumedMessage) -> None:
        bodies.append(message.body)

    cluster["a"].store("T", 0, b"1")
    async with consumer:
        await until(lambda: bodies == [b"1"])


async def test_handlers_of_a_consumer_do_not_reach_its_router(cluster: FakeCluster) -> None:
    shared = Router()
    shared.on("T")(handle)
    consumer = PushConsumer("G", shared, namesrv=cluster.namesrv)
    consumer.on("T2")(handle)
    assert repr(shared) == "Router(T)"
    with pytest.raises(ValueError, match="topic T is subscribed to already: a topic has one"):
        consumer.on("T")(lambda message: None)


def test_one_topic_has_one_handler() -> None:
    own = Router()
    own.on("T")(handle)
    own.on("T")(handle)  # the same again changes nothing
    with pytest.raises(ValueError, match="topic T is subscribed to already"):
        own.on("T")(lambda message: None)
    other = Router()
    other.on("T", "a")(handle)
    with pytest.raises(ValueError, match="topic T is subscribed to already"):
        own.include(other)
    with pytest.raises(ValueError, match="topic T is subscribed to already"):
        other.on("T", "b")(handle)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"topic": "not a topic"}, InvalidName, "not a topic"),
        ({"topic": 3}, TypeError, "topic must be a text"),
        ({"topic": "T", "tags": ["a"]}, TypeError, "tags must be a text"),
        ({"topic": "T", "sql": 3}, TypeError, "sql must be a text"),
        ({"topic": "T", "tags": "a", "sql": "b > 3"}, InvalidName, "not both"),
        (
            {"topic": "T", "max_batch": 0},
            ValueError,
            "max_batch must be a whole number from 1 to 1024",
        ),
        (
            {"topic": "T", "max_batch": 2.0},
            TypeError,
            "max_batch must be a whole number from 1 to 1024",
        ),
        ({"topic": "T", "max_batch": 2, "payload": dict}, ValueError, "payload and max_batch"),
        ({"topic": "T", "payload": 3}, TypeError, "not a type that can be decoded"),
    ],
)
def test_wrong_arguments_fail_before_the_function_is_given(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    for made in (Router(), PushConsumer("G", namesrv="127.0.0.1:1")):
        with pytest.raises(error, match=match):
            made.on(**arguments)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (lambda: None, {}),
        (lambda message, more: None, {}),
        (lambda message: None, {"payload": dict}),
        (lambda first, second: None, {"max_batch": 3}),
        ("handle", {}),
        (None, {}),
    ],
)
def test_functions_that_can_not_be_called_are_refused(
    function: Any, options: dict[str, Any]
) -> None:
    for made in (
        Router(),
        PushConsumer("G", namesrv="127.0.0.1:1"),
        sync.PushConsumer("G", namesrv="127.0.0.1:1"),
    ):
        with pytest.raises(TypeError, match="handler"):
            made.on("T", **options)(function)


def test_built_in_functions_are_handlers() -> None:
    Router().on("T")([].append)
    Router().on("T")(print)
