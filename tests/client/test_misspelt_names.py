"""Consumers of topics and tags that are not written as they are."""

from __future__ import annotations

import logging

import pytest

from pocketmq import PullConsumer, PushConsumer, Router
from pocketmq.errors import InvalidName
from pocketmq.testing import RocketMQ
from tests.client.waiting import until


async def test_a_push_consumer_of_a_misspelt_topic_names_similar_ones(
    rocketmq: RocketMQ, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("orders", "Order", "payments"):
        await rocketmq.create_topic(topic)
    async with PushConsumer("G", {"oders": "*"}, namesrv=rocketmq.namesrv):
        await until(lambda: "does not exist" in caplog.text)
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [
        "topic oders does not exist; the consumer gets no messages from it until it is created; "
        "similar topics: orders, Order"
    ]


@pytest.mark.parametrize("shared", [False, True])
async def test_a_poll_of_a_misspelt_topic_in_a_namespace(
    rocketmq: RocketMQ, caplog: pytest.LogCaptureFixture, shared: bool
) -> None:
    for topic in ("shop%orders", "orders"):
        await rocketmq.create_topic(topic)
    async with PullConsumer("G", namesrv=rocketmq.namesrv, namespace="shop") as consumer:
        await (consumer.subscribe if shared else consumer.assign)("ordersX")
        assert await consumer.poll(timeout=0) == []
        await until(lambda: "does not exist" in caplog.text)
    assert caplog.text.count("topic ordersX does not exist") == 1
    assert caplog.text.rstrip().endswith("similar topics: orders")


@pytest.mark.parametrize("tags", ["a | b", "a|b", "a || b | c", "a ||| b"])
def test_tags_with_a_single_pipe_are_refused(tags: str) -> None:
    with pytest.raises(InvalidName, match=r"single \|: write 'a ?\|\|"):
        Router().on("T", tags=tags)
