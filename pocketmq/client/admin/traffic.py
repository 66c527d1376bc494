"""How fast topics and consumer groups move: the difference of two looks at their offsets."""

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

#: Topics and groups that are asked for at the same time.
_AT_ONCE: Final = 16

T = TypeVar("T")


class Progress(NamedTuple):
    """A group over all its queues: the sums of their ends, of its offsets, and of its lag."""

    end: int
    consumed: int
    lag: int

    @classmethod
    def of(cls, queues: Collection[OffsetWrapper]) -> Progress:
        """The sums over some queues."""
        return cls(
            sum(queue.broker_offset for queue in queues),
            sum(queue.consumer_offset for queue in queues),
            sum(queue.lag for queue in queues),
        )


class Look(NamedTuple):
    """What there was at `time`, in seconds of the event loop's clock.

    `topics` has the sum of the ends of a topic's queues: how many messages it ever got.
    """

    time: float
    topics: dict[str, int]
    groups: dict[str, Progress]


class Speed(NamedTuple):
    """How a group moved between two looks, in messages a second.

    `seconds_to_catch_up` is what the lag takes at these rates: 0 without lag, None if it does not
    shrink.
    """

    arriving: float
    consuming: float
    seconds_to_catch_up: int | None


async def look(admin: Admin, *, most: int | None = None) -> Look:
    """Ask for every topic's ends and every group's offsets, of at most `most` topics and groups.

    Leaves out what brokers refuse, such as a topic that was deleted meanwhile.
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
    """What `ask` says of each name, some at a time, in the order of the names.

    Leaves out what brokers refuse; raises NoPermission if they refuse all of them for that reason.
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
    """Per second; 0 for offsets that went back, as by a reset or a topic that was made anew."""
    return round(max(now - before, 0) / seconds, 1) if seconds > 0 else 0.0


def speed(before: Progress, now: Progress, seconds: float) -> Speed:
    """The rates of a group between two looks that are `seconds` apart."""
    arriving = rate(before.end, now.end, seconds)
    consuming = rate(before.consumed, now.consumed, seconds)
    gained = consuming - arriving
    left = 0 if not now.lag else round(now.lag / gained) if gained > 0 else None
    return Speed(arriving, consuming, left)
