"""Long polls of all kinds on one queue, woken by many messages that arrive at once."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import pytest

from pocketmq.message import properties as names
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.headers import (
    GetMaxOffsetRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from tests.interop.harness.cluster import Cluster

ROUNDS: Final = 150
HOLD_SECONDS: Final = 12
#: A woken poll is answered within milliseconds, one that was missed at its deadline. The official
#: broker looks at all of its polls every 5 s.
LATE_SECONDS: Final = 4.0
#: For polls to arrive before the messages do. One that comes later finds them at once.
PAUSE_SECONDS: Final = 0.01

SUSPEND_WITH_SUBSCRIPTION: Final = 6
RETRY: Final = 20
POLLS: Final[tuple[dict[str, Any], ...]] = (
    {"subscription": "*"},
    {"subscription": "a > 5", "expression_type": "SQL92"},
    {"subscription": "A"},
)


def poll(topic: str, offset: int, **wanted: Any) -> PullMessageRequestHeader:
    return PullMessageRequestHeader(
        consumer_group="wake_ups",
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=SUSPEND_WITH_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=HOLD_SECONDS * 1000,
        sub_version=0,
        **wanted,
    )


def send(topic: str, tag: str, a: int) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="wake_ups",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=names.encode({"TAGS": tag, "a": str(a)}),
    )


async def sent(producer: Connection, headers: list[SendMessageRequestHeaderV2]) -> None:
    """All in one write: a connection writes once per turn of the event loop."""
    answers = await asyncio.gather(
        *(producer.request(RequestCode.SEND_MESSAGE_V2, header, b"body") for header in headers)
    )
    assert {answer.code for answer in answers} == {0}


async def waited(consumer: Connection, topic: str, offset: int, wanted: dict[str, Any]) -> None:
    """Returns when the poll has found what it wants."""
    code = RETRY
    while code == RETRY:  # it came later than messages that it does not want
        answer = await consumer.request(
            RequestCode.PULL_MESSAGE, poll(topic, offset, **wanted), timeout=HOLD_SECONDS + 5
        )
        code = answer.code
        offset = int(answer.ext_fields["nextBeginOffset"])
    assert code == 0, answer


async def readable(producer: Connection, topic: str, end: int) -> None:
    """Returns when the queue ends there: the official broker answers a send a little earlier."""
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
    found = -1
    while found < end:
        answer = await producer.request(RequestCode.GET_MAX_OFFSET, header)
        found = int(answer.ext_fields["offset"])


@pytest.mark.timeout(120)
async def test_no_poll_misses_its_wake_up(cluster: Cluster, topic: str) -> None:
    choice = random.Random(23)
    async with AsyncExitStack() as stack:
        producer = await Connection.open(cluster.broker.address)
        stack.push_async_callback(producer.close)
        consumer = await Connection.open(cluster.broker.address)
        stack.push_async_callback(consumer.close)
        await sent(producer, [send(topic, "B", 0)])
        end = 1
        for _ in range(ROUNDS):
            await readable(producer, topic, end)
            polls = [
                asyncio.ensure_future(waited(consumer, topic, end, wanted)) for wanted in POLLS * 2
            ]
            await asyncio.sleep(PAUSE_SECONDS)
            messages = [
                send(topic, choice.choice("AB"), choice.randrange(10))
                for _ in range(choice.randint(11, 49))
            ]
            messages.insert(choice.randrange(len(messages)), send(topic, "A", 9))
            began = time.monotonic()
            await sent(producer, messages)
            await asyncio.gather(*polls)
            assert time.monotonic() - began < LATE_SECONDS
            end += len(messages)
