"""An offset reset moves running consumers, whatever they have read ahead or have in work."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import pytest

from pocketmq import Admin, ConsumedMessage, Message, Producer, PullConsumer, PushConsumer
from pocketmq.errors import IllegalOperation
from pocketmq.message.message import MessageQueue
from tests.client.real_cluster import RealCluster
from tests.client.waiting import until

QUEUE = MessageQueue("T", "b0", 0)
To = Literal["begin", "end"] | int
#: Where the reset goes (an offset stands for the time of its message), and what is handled then.
TARGETS = pytest.mark.parametrize(
    ("to", "following"),
    [("begin", range(100)), (40, range(40, 100)), (7, range(7, 100)), ("end", range(0))],
    ids=["begin", "forward", "back", "end"],
)


@pytest.fixture(params=["true", "false"], ids=["by the broker", "by the consumer"])
async def admin(real: RealCluster, request: pytest.FixtureRequest) -> AsyncIterator[Admin]:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.update_broker_config({"useServerSideResetOffset": request.param})
        await admin.create_topic("T", queues=1, broker="b0")
        async with Producer("P", namesrv=real.namesrv) as producer:
            for part in (range(7), range(7, 40), range(40, 100)):
                messages = [Message("T", b"%d" % n) for n in part]
                await producer.send_batch(messages, queue=QUEUE)
                last = await admin.message_at(QUEUE, part.stop - 1)
                assert last is not None
                await until(partial(_is_past, last.store_timestamp))
        yield admin


@asynccontextmanager
async def handling(
    real: RealCluster, gate: asyncio.Event, seen: list[int], **options: Any
) -> AsyncIterator[PushConsumer]:
    """A push consumer whose handlers stop at the tenth message until the gate opens."""

    async def handle(message: ConsumedMessage) -> None:
        if len(seen) >= 10:
            await gate.wait()
        seen.append(int(message.body))

    async with PushConsumer(
        "G",
        {"T": "*"},
        handler=handle,
        namesrv=real.namesrv,
        start="begin",
        commit_interval=0.05,
        **options,
    ) as consumer:
        yield consumer


@TARGETS
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_handlers_go_on_where_the_group_was_reset_to(
    real: RealCluster,
    admin: Admin,
    to: To,
    following: range,
    orderly: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pocketmq")
    gate, seen = asyncio.Event(), list[int]()
    async with handling(real, gate, seen, orderly=orderly, concurrency=1):
        await until(lambda: len(seen) == 10)
        await reset(admin, to)
        await until(lambda: "reset" in caplog.text)
        gate.set()
        marker = await sent_last(real)
        await until(lambda: marker in seen)
    # The eleventh was in work during the reset and may end; nothing else that was read ahead does.
    assert seen[:10] == list(range(10))
    assert seen[10:] in ([*following, marker], [10, *following, marker])
    assert await admin.group_offset("G", QUEUE) == 101


@TARGETS
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_a_batch_that_waits_to_be_full_is_dropped(
    real: RealCluster,
    admin: Admin,
    to: To,
    following: range,
    orderly: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """64 of the 100 messages are handled, and the others wait for more."""
    caplog.set_level(logging.INFO, "pocketmq")
    seen: list[int] = []
    consumer = PushConsumer(
        "G", namesrv=real.namesrv, start="begin", commit_interval=0.05, orderly=orderly
    )

    @consumer.on("T", max_batch=64, max_wait=3600)
    async def handle(messages: list[ConsumedMessage]) -> None:
        seen.extend(int(message.body) for message in messages)

    async with consumer:
        await until(lambda: len(seen) == 64 and consumer.cached["T"][0] == 36)
        await reset(admin, to)
        await until(lambda: "reset" in caplog.text)
        last = range(100, 100 + (-len(following) % 64 or 64))
        async with Producer("P", namesrv=real.namesrv) as producer:
            messages = [Message("T", b"%d" % number) for number in last]
            await producer.send_batch(messages, queue=QUEUE)
        expected = [*range(64), *following, *last]
        await until(lambda: len(seen) >= len(expected))
    assert seen == expected
    assert await admin.group_offset("G", QUEUE) == last.stop


@TARGETS
async def test_iteration_goes_on_where_the_group_was_reset_to(
    real: RealCluster, admin: Admin, to: To, following: range, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq")
    async with PushConsumer(
        "G", {"T": "*"}, namesrv=real.namesrv, start="begin", commit_interval=0.05
    ) as consumer:
        seen: list[int] = []

        async def take(count: int) -> None:
            for _ in range(count):
                message = await anext(consumer)
                async with message:
                    seen.append(int(message.body))

        await take(10)
        await reset(admin, to)
        await until(lambda: "reset" in caplog.text)
        marker = await sent_last(real)
        await take(len(following) + 1)
    assert seen == [*range(10), *following, marker]


@TARGETS
async def test_polls_go_on_where_the_group_was_reset_to(
    real: RealCluster, admin: Admin, to: To, following: range
) -> None:
    async with PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer:
        await consumer.assign("T")
        seen = [int(message.body) for message in await consumer.poll(10, timeout=10)]
        await consumer.commit()
        await reset(admin, to)
        await until(lambda: consumer.position(QUEUE) == (following.start if following else 100))
        marker = await sent_last(real)
        while marker not in seen:
            seen += [int(message.body) for message in await consumer.poll(timeout=10)]
        await consumer.commit()
    assert seen == [*range(10), *following, marker]
    assert await admin.group_offset("G", QUEUE) == 101


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
async def test_a_reset_of_a_quiet_group_to_the_end_warns_of_nothing(
    real: RealCluster, admin: Admin, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pocketmq")
    gate, seen = asyncio.Event(), list[int]()
    gate.set()
    async with handling(real, gate, seen, orderly=orderly):
        await until(lambda: len(seen) == 100)
        await reset(admin, "end")
        await until(lambda: "reset" in caplog.text)
        marker = await sent_last(real)
        await until(lambda: marker in seen)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == []


def _is_past(timestamp: int) -> bool:
    return time.time_ns() // 1_000_000 > timestamp


async def reset(admin: Admin, to: To) -> None:
    async with asyncio.timeout(10):
        # A broker that tells consumers of resets knows only groups that have committed.
        while await admin.group_offset("G", QUEUE) is None:  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.01)
    if isinstance(to, str):
        await admin.reset_offsets("G", "T", to)
        return
    message = await admin.message_at(QUEUE, to)
    assert message is not None
    at = datetime.fromtimestamp(message.store_timestamp / 1000, UTC)
    await admin.reset_offsets("G", "T", at)


async def sent_last(real: RealCluster) -> int:
    async with Producer("P", namesrv=real.namesrv) as producer:
        await producer.send(Message("T", b"100"), queue=QUEUE)
    return 100


async def test_a_running_group_that_cannot_follow_says_so(real: RealCluster) -> None:
    async with Admin(namesrv=real.namesrv) as admin:
        await admin.create_topic("T", queues=1, broker="b0")
        await admin.update_broker_config({"useServerSideResetOffset": "false"})
        async with PullConsumer("G", namesrv=real.namesrv, start="begin") as consumer:
            await consumer.assign("T")
            with pytest.raises(IllegalOperation, match="cannot move the running consumers of grou"):
                await admin.reset_offsets("G", "T", 0)
        assert await admin.reset_offsets("G", "T", 0) == {QUEUE: 0}
