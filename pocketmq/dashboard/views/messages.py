"""Messages: found by key, id, position or time, and one message with its body."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.dead_letters import Death, death_of
from pocketmq.dashboard.body_preview import BodyPreview, Form, preview
from pocketmq.message.compression import CompressionError, decompress
from pocketmq.message.message import MessageExt, MessageQueue
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.bodies.topic import TopicOffset

MOST_MESSAGES: Final = 50
#: Queues that are read at the same time.
_AT_ONCE: Final = 16
#: The most messages read from a queue for one page.
_MOST_READ: Final = 32
_NEVER: Final = 2**63


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a page.

    `later` is the time from which the next page continues; None if this is the last page, or the
    messages were not found by time. `is_cut`: more messages exist than are shown.
    """

    messages: Sequence[MessageExt]
    later: dt.datetime | None = None
    is_cut: bool = False


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One message, and its body in one form; the previous and next offsets, if they exist."""

    message: MessageExt
    death: Death
    body: BodyPreview
    previous: int | None
    next: int | None


async def by_key(admin: Admin, topic: str, key: str) -> Found:
    """Return the newest messages of a topic with a key. Raises TopicNotExist."""
    found = await admin.messages_by_key(topic, key, max_messages=MOST_MESSAGES + 1)
    newest = found[::-1]
    return Found(messages=newest[:MOST_MESSAGES], is_cut=len(newest) > MOST_MESSAGES)


async def by_id(admin: Admin, topic: str, msg_id: str) -> Found:
    """Return the messages with an id; an id that contains the position needs no topic. Raises
    TopicNotExist."""
    if topic:
        return Found(messages=await admin.messages_by_id(topic, msg_id))
    message = await admin.message_by_offset_id(msg_id)
    return Found(messages=[] if message is None else [message])


async def newest(admin: Admin, topic: str) -> Found:
    """Return the newest messages of a topic, the newest first. Raises TopicNotExist."""
    queues = await _queues(admin, topic)
    # The newest messages are in the queues that were written to last.
    latest = sorted(queues, key=lambda queue: -queues[queue].last_update_timestamp)

    async def read(queue: MessageQueue) -> list[MessageExt]:
        bounds = queues[queue]
        first = max(bounds.min_offset, bounds.max_offset - _MOST_READ)
        return await _read(admin, queue, first, _MOST_READ)

    parts = await _of_all(latest[:MOST_MESSAGES], read)
    cut = [
        part[0].store_timestamp
        for queue, part in parts.items()
        if part[0].queue_offset > queues[queue].min_offset
    ]
    # Each queue may have messages older than the oldest one read from it.
    horizon = max(cut, default=0)
    messages = [m for part in parts.values() for m in part if m.store_timestamp >= horizon]
    messages.sort(key=_age, reverse=True)
    stored = sum(bounds.max_offset - bounds.min_offset for bounds in queues.values())
    shown = messages[:MOST_MESSAGES]
    return Found(messages=shown, is_cut=stored > len(shown))


async def from_time(admin: Admin, topic: str, time: dt.datetime) -> Found:
    """Return the messages of a topic stored at a time or later, the oldest first.

    Raises TopicNotExist.
    """
    wanted = int(time.timestamp() * 1000)
    queues = {
        queue: bounds
        for queue, bounds in (await _queues(admin, topic)).items()
        if bounds.last_update_timestamp >= wanted
    }

    async def read(queue: MessageQueue) -> list[MessageExt]:
        return await _read(admin, queue, await admin.offset_at(queue, time), _MOST_READ)

    parts = await _of_all(queues, read)
    cut = [
        part[-1].store_timestamp
        for queue, part in parts.items()
        if part[-1].queue_offset + 1 < queues[queue].max_offset
    ]
    # These queues have more messages, as new as the newest one read from them or newer.
    horizon = min(cut, default=_NEVER)
    messages = [
        m for part in parts.values() for m in part if wanted <= m.store_timestamp <= horizon
    ]
    messages.sort(key=_age)
    shown = messages[:MOST_MESSAGES]
    if not shown or not (cut or len(messages) > MOST_MESSAGES):
        return Found(messages=shown)
    # The next page begins at the store time at which this one ends; if all messages of this page
    # have the same time, after that.
    last = shown[-1].store_timestamp
    last += last == shown[0].store_timestamp
    later = dt.datetime.fromtimestamp(last / 1000, dt.UTC)
    return Found(messages=shown, later=later, is_cut=True)


async def message_view(
    admin: Admin, queue: MessageQueue, offset: int, form: Form | None
) -> MessageView | None:
    """Return the message at a queue offset; None if it does not exist. Raises TopicNotExist."""
    message = await message_at(admin, queue, offset)
    if message is None:
        return None
    low, high = await admin.min_offset(queue), await admin.max_offset(queue)
    return MessageView(
        message=message,
        death=death_of(message),
        body=preview(message.body, form),
        previous=offset - 1 if offset > low else None,
        next=offset + 1 if offset + 1 < high else None,
    )


async def message_at(admin: Admin, queue: MessageQueue, offset: int) -> MessageExt | None:
    """Return a message with its whole body; None if it does not exist. Raises TopicNotExist."""
    message = await admin.message_at(queue, offset)
    if message is not None and message.sys_flag & COMPRESSED:
        # Of a large body this takes a while, and holds no lock of Python.
        with contextlib.suppress(CompressionError):
            message.body = await asyncio.to_thread(decompress, message.body, message.sys_flag)
    return message


def _age(message: MessageExt) -> tuple[int, str, int]:
    """Return the sort key of a message: its store time, then its order on the broker."""
    return message.store_timestamp, message.broker_name, message.physical_offset


async def _queues(admin: Admin, topic: str) -> dict[MessageQueue, TopicOffset]:
    """Return the queues of a topic that have messages, with their bounds."""
    stats = await admin.topic_stats(topic)
    return {
        queue: bounds
        for queue, bounds in stats.offset_table.items()
        if bounds.max_offset > bounds.min_offset
    }


async def _read(admin: Admin, queue: MessageQueue, offset: int, most: int) -> list[MessageExt]:
    """Return messages of a queue from an offset on: as many as the broker returns at once."""
    return (await admin.read(queue, offset, max_messages=most)).messages[:most]


async def _of_all(
    queues: Iterable[MessageQueue], read: Callable[[MessageQueue], Awaitable[list[MessageExt]]]
) -> dict[MessageQueue, list[MessageExt]]:
    """Return the results of `read` for each queue, several at a time, without the empty ones."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(queue: MessageQueue) -> list[MessageExt]:
        async with gate:
            return await read(queue)

    names = list(queues)
    parts = await asyncio.gather(*map(one, names))
    return {queue: part for queue, part in zip(names, parts, strict=True) if part}
