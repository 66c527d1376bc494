"""Handlers that get decoded payloads."""

from __future__ import annotations

import msgspec
import pytest

from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.consumer.router import Router
from pocketmq.message.message import Message
from tests.client.fake_cluster import FakeCluster
from tests.client.waiting import until


class Order(msgspec.Struct, forbid_unknown_fields=True):
    id: int


async def test_the_handler_gets_the_message_and_its_payload(cluster: FakeCluster) -> None:
    seen: list[tuple[str, Order]] = []
    router = Router()

    @router.on("T", payload=Order)
    async def handle(message: ConsumedMessage, order: Order) -> None:
        assert message.payload(Order) == order
        assert message.payload() == {"id": order.id}
        seen.append((message.msg_id, order))

    cluster["a"].store("T", 0, Message.of("T", Order(7)).body, "UNIQ_KEY\x01ID\x02")
    async with PushConsumer("G", router, namesrv=cluster.namesrv, start="begin"):
        await until(lambda: seen == [("ID", Order(7))])


async def test_a_body_that_does_not_fit_is_retried(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Order] = []
    consumer = PushConsumer("G", namesrv=cluster.namesrv, start="begin")

    @consumer.on("T", payload=Order)
    def handle(message: ConsumedMessage, order: Order) -> None:
        seen.append(order)

    cluster["a"].store("T", 0, b'{"id": 1, "extra": 2}', "UNIQ_KEY\x01BAD\x02")
    cluster["a"].store("T", 0, b'{"id": 2}', "UNIQ_KEY\x01GOOD\x02")
    async with consumer:
        await until(lambda: seen and cluster["a"].sent_back)
        await consumer.subscribe(
            "U", handler=lambda message, order: seen.append(order), payload=Order
        )
    assert seen == [Order(2)]
    [header] = cluster["a"].sent_back
    assert header.origin_msg_id == "BAD"
    [record] = [each for each in caplog.records if "redelivering" in each.getMessage()]
    assert "unknown field `extra`" in record.getMessage()
    assert record.exc_info is None
    assert cluster["a"].offsets["G", "T", 0] == 2
