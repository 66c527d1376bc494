"""Offsets of a consumer group, from the progress that Spark reports; without Spark."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.client.admin import Admin
from pocketmq.message.message import Message, MessageQueue
from pocketmq.sync import Producer
from pocketmq.testing import RocketMQ

pytest.importorskip("pyspark")

from pocketmq.spark import GroupOffsets
from pocketmq.spark.options.option_error import OptionError


def progress(end: int, name: str = "orders") -> Any:
    """A progress of a query that reads T, and another source."""
    ours = json.dumps({"T": {"broker-a": {"0": end}}})
    sources = [SimpleNamespace(endOffset=text) for text in ('{"T":{"0":99}}', ours, None)]
    return SimpleNamespace(sources=sources, name=name, id="1234")


def event(progress: Any) -> Any:
    return SimpleNamespace(progress=progress)


@pytest.fixture
def server(rocketmq: RocketMQ) -> RocketMQ:
    rocketmq.sync.create_topic("T", queues=1)
    with Producer("tests", namesrv=rocketmq.namesrv) as producer:
        producer.send_batch([Message("T", b"-") for _ in range(10)])
    return rocketmq


def seen(server: RocketMQ) -> tuple[int, int | None]:
    """The lag of the group G, and its offset."""

    async def ask() -> tuple[int, int | None]:
        async with Admin(namesrv=server.namesrv) as admin:
            await admin.topic_route("%RETRY%G")
            offset = await admin.group_offset("G", MessageQueue("T", "broker-a", 0))
            return await admin.lag("G"), offset

    return asyncio.run(ask())


def test_the_end_of_a_batch_is_committed(server: RocketMQ) -> None:
    listener = GroupOffsets("G", namesrv=server.namesrv)
    listener.commit(progress(4))
    assert seen(server) == (6, 4)
    listener.onQueryProgress(event(progress(10)))
    assert seen(server) == (0, 10)
    GroupOffsets("G", namesrv=server.namesrv).commit(progress(7))
    assert seen(server) == (3, 7)


def test_other_queries_do_not_count(server: RocketMQ) -> None:
    listener = GroupOffsets("G", query="orders", namesrv=server.namesrv)
    listener.onQueryProgress(event(progress(4)))
    listener.onQueryProgress(event(progress(9, "another")))
    assert seen(server) == (6, 4)


def test_a_commit_that_fails_is_made_up_for(
    server: RocketMQ, caplog: pytest.LogCaptureFixture
) -> None:
    listener = GroupOffsets("G", namesrv=server.namesrv)
    with server.fail("UPDATE_CONSUMER_OFFSET", "NO_PERMISSION"):
        listener.onQueryProgress(event(progress(4)))
    assert "the offsets of the group G were not committed: NO_PERMISSION" in caplog.text
    listener.onQueryProgress(event(progress(4)))
    assert seen(server) == (6, 4)


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match=r"secret = '\(hidden\)': there is no such option"):
        GroupOffsets("G", namesrv="a:1", secret="hunter2")
