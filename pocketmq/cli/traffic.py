"""How fast topics and consumer groups move: the difference of two looks at their offsets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from pocketmq.cli.groups import is_users_group
from pocketmq.cli.topics import users_topics
from pocketmq.client.admin import Admin
from pocketmq.client.errors import RemotingError

#: Topics and groups that are asked for at the same time.
_AT_ONCE = 16

T = TypeVar("T")


class Progress(NamedTuple):
    """A group over all its queues: the sums of their ends, of its offsets, and of its lag."""

    end: int
    consumed: int
    lag: int


class Look(NamedTuple):
    """What there was at `time`, in seconds of the event loop's clock."""

    time: float
    topics: dict[str, int]
    groups: dict[str, Progress]


async def look(admin: Admin) -> Look:
    """Ask for every topic's ends and every group's offsets; leaves out what brokers refuse, such
    as a topic that was deleted meanwhile."""
    time = asyncio.get_running_loop().time()

    async def end(topic: str) -> int:
        stats = await admin.topic_stats(topic)
        return sum(queue.max_offset for queue in stats.offset_table.values())

    async def progress(group: str) -> Progress:
        queues = (await admin.consume_stats(group)).offset_table.values()
        return Progress(
            sum(queue.broker_offset for queue in queues),
            sum(queue.consumer_offset for queue in queues),
            sum(max(queue.broker_offset - queue.consumer_offset, 0) for queue in queues),
        )

    topics = await _each(await users_topics(admin), end)
    groups = await _each(filter(is_users_group, await admin.groups()), progress)
    return Look(time, topics, groups)


async def _each(names: Iterable[str], ask: Callable[[str], Coroutine[Any, Any, T]]) -> dict[str, T]:
    gate = asyncio.Semaphore(_AT_ONCE)
    found: dict[str, T] = {}

    async def one(name: str) -> None:
        async with gate:
            with contextlib.suppress(RemotingError):
                found[name] = await ask(name)

    await asyncio.gather(*map(one, names))
    return found


def topic_rows(before: Look, now: Look) -> list[dict[str, Any]]:
    """A row for each topic, the fastest first: messages in per second, and stored ever."""
    seconds = now.time - before.time
    rows = [
        {
            "topic": topic,
            "inPerSecond": _rate(before.topics.get(topic, end), end, seconds),
            "end": end,
        }
        for topic, end in now.topics.items()
    ]
    return sorted(rows, key=lambda row: (-row["inPerSecond"], row["topic"]))


def group_rows(before: Look, now: Look) -> list[dict[str, Any]]:
    """A row for each group, the one that is furthest behind first.

    `secondsToCatchUp` is what the lag takes at these rates: 0 without lag, None if it does not
    shrink.
    """
    seconds = now.time - before.time
    rows = []
    for group, progress in now.groups.items():
        earlier = before.groups.get(group, progress)
        arrive = _rate(earlier.end, progress.end, seconds)
        consume = _rate(earlier.consumed, progress.consumed, seconds)
        gained = consume - arrive
        left = 0 if not progress.lag else round(progress.lag / gained) if gained > 0 else None
        rows.append(
            {
                "group": group,
                "lag": progress.lag,
                "inPerSecond": arrive,
                "outPerSecond": consume,
                "secondsToCatchUp": left,
            }
        )
    return sorted(rows, key=lambda row: (-row["lag"], row["group"]))


def _rate(before: int, now: int, seconds: float) -> float:
    """Per second; 0 for offsets that went back, as by a reset or a topic that was made anew."""
    return round(max(now - before, 0) / seconds, 1) if seconds > 0 else 0.0
