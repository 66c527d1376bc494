"""Rates of topics and consumer groups: the difference of two snapshots of their offsets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterable
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from pocketmq.client.admin.admin import Admin
from pocketmq.client.admin.system_names import is_users_group, users_topics
from pocketmq.client.errors import NoPermission, RemotingError
from pocketmq.remoting.bodies.consumer import OffsetWrapper

#: Topics and groups that are requested at the same time.
_AT_ONCE: Final = 16

T = TypeVar("T")


class Progress(NamedTuple):
    """The progress of a group in all its queues: the sums of their ends, offsets, and lag."""

    end: int
    consumed: int
    lag: int

    @classmethod
    def of(cls, queues: Collection[OffsetWrapper]) -> Progress:
        """Return the sums of some queues."""
        return cls(
            sum(queue.broker_offset for queue in queues),
            sum(queue.consumer_offset for queue in queues),
            sum(queue.lag for queue in queues),
        )


class Look(NamedTuple):
    """A snapshot at `time`, in seconds of the event loop's clock.

    `topics`: topic → sum of the ends of its queues, which is the number of messages it ever got.
    """

    time: float
    topics: dict[str, int]
    groups: dict[str, Progress]


class Speed(NamedTuple):
    """The rates of a group between two snapshots, in messages per second.

    `seconds_to_catch_up`: how long the lag takes at these rates; 0 without lag, None if it does not
    shrink.
    """

    arriving: float
    consuming: float
    seconds_to_catch_up: int | None


async def look(admin: Admin, *, most: int | None = None) -> Look:
    """Request the ends of every topic and the offsets of every group, at most `most` of each.

    Leaves out those for which brokers return an error, such as a topic that was just deleted.
    """
    time = asyncio.get_running_loop().time()

    async def end(topic: str) -> int:
        stats = await admin.topic_stats(topic)
        return sum(queue.max_offset for queue in stats.offset_table.values())

    async def progress(group: str) -> Progress:
        return Progress.of((await admin.consume_stats(group)).offset_table.values())

    topics = await each(islice(await users_topics(admin), most), end)
    groups = await each(islice(filter(is_users_group, await admin.groups()), most), progress)
    return Look(time, topics, groups)


async def each(names: Iterable[str], ask: Callable[[str], Coroutine[Any, Any, T]]) -> dict[str, T]:
    """Call `ask` for each name, some at a time; return the results in the order of the names.

    Leaves out those for which brokers return an error. If there is no result at all, and permission
    was refused, raises NoPermission.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    found: dict[str, T] = {}
    refused: list[NoPermission] = []

    async def one(name: str) -> None:
        async with gate:
            with contextlib.suppress(RemotingError):
                try:
                    found[name] = await ask(name)
                except NoPermission as error:
                    refused.append(error)

    asked = list(names)
    await asyncio.gather(*map(one, asked))
    if refused and not found:
        raise refused[0]
    return {name: found[name] for name in asked if name in found}


def rate(before: int, now: int, seconds: float) -> float:
    """Return the change per second; 0 if the offset decreased, as after a reset or if a topic was
    created again."""
    return round(max(now - before, 0) / seconds, 1) if seconds > 0 else 0.0


def speed(before: Progress, now: Progress, seconds: float) -> Speed:
    """Return the rates of a group between two snapshots that are `seconds` apart."""
    arriving = rate(before.end, now.end, seconds)
    consuming = rate(before.consumed, now.consumed, seconds)
    gained = consuming - arriving
    left = 0 if not now.lag else round(now.lag / gained) if gained > 0 else None
    return Speed(arriving, consuming, left)
