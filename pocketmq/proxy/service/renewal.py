"""Renewal: messages that push consumers are processing stay invisible while the consumers live.

A push consumer gives no invisible time (`auto_renew`). So the proxy pops with one minute, and
extends the time before it ends, repeatedly, for up to three hours. When the client reports the
outcome of the message, the proxy uses the renewed handle. When the client is gone, its messages are
made visible. All of this is in memory only: after a crash of the proxy, messages become visible
when their time ends.

Users (without authentication: addresses) alternate: a handle of one does not wait, and end, while a
hundred thousand of another are renewed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from itertools import islice
from typing import Any, Final

from pocketmq.limited_log import LimitedLog
from pocketmq.message.receipt_handle import ReceiptHandle
from pocketmq.proxy.service.clients import Client
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.serving.rotation import Rotation

log = logging.getLogger("pocketmq.proxy")

#: Seconds between two searches through all handles.
INTERVAL: Final = 5.0
#: Handles that expire within this many ms are renewed.
AHEAD: Final = 10_000
#: Duration of the 1st, 2nd, ... renewal in ms; the last one also applies to all later ones.
DURATIONS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
MAX_FAILURES: Final = 3
#: Time after which a message is made visible and no longer renewed, in ms.
MAX_AGE: Final = 3 * 3_600_000
#: Time after which the messages of a client that is gone become visible, in ms.
SOON: Final = 1_000
#: Concurrent requests to brokers.
AT_ONCE: Final = 100
#: The most handles of one client; further messages become visible after a minute.
MAX_HANDLES: Final = 100_000

#: `await change(client, group, topic, handle, invisible ms)` returns the new handle. Raises
#: RemotingError.
Change = Callable[[Client, str, str, ReceiptHandle, int], Awaitable[ReceiptHandle]]

#: `may(client, group, topic)`
May = Callable[[Client, str, str], bool]


class _Renewed:
    """A handle that is renewed.

    Attributes:
        ended: set when the renewal in progress has ended; None if none is in progress.
        is_due: it was found to be due, and waits for its turn.
    """

    __slots__ = ("begun", "ended", "failures", "group", "handle", "is_due", "renewals", "topic")

    def __init__(self, group: str, topic: str, handle: ReceiptHandle) -> None:
        self.group = group
        self.topic = topic
        self.handle = handle
        self.begun = handle.pop_time
        self.renewals = 0
        self.failures = 0
        self.ended: asyncio.Event | None = None
        self.is_due = False

    async def counting(self) -> ReceiptHandle:
        """Return the current handle, after any renewal in progress."""
        if self.ended is not None:
            await self.ended.wait()
        return self.handle


_Key = tuple[str, str, str, int, int, int]


def _key(group: str, topic: str, handle: ReceiptHandle) -> _Key:
    """Return the key of a message: all topics of a group have the same queues and offsets."""
    place = handle.broker_name, int(handle.kind), handle.queue_id, handle.queue_offset
    return (group, topic, *place)


class Renewal:
    """All renewed handles of a proxy.

    `change` sets the invisible time of a message; `now` returns ms; `may` tells whether a client
    may have messages of a group and topic now.
    """

    def __init__(self, change: Change, now: Callable[[], int], may: May) -> None:
        self._may = may
        self._change = change
        self._now = now
        self._log = LimitedLog(log)
        self._of: dict[Client, dict[_Key, _Renewed]] = {}
        self._due: Rotation[Callable[[], Awaitable[None]]] = Rotation()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def add(self, client: Client, group: str, topic: str, handle: ReceiptHandle) -> None:
        """Renew a handle from now on."""
        handles = self._of.setdefault(client, {})
        if len(handles) < MAX_HANDLES:
            handles[_key(group, topic, handle)] = _Renewed(group, topic, handle)

    async def take(
        self, client: Client, group: str, topic: str, handle: ReceiptHandle
    ) -> ReceiptHandle:
        """Stop renewing a handle; return the current handle of the message.

        Waits for a renewal in progress, because an acknowledgement with the previous handle would
        have no effect. A handle of an earlier delivery is returned unchanged, and refused by the
        broker.
        """
        handles = self._of.get(client)
        if handles is None:
            return handle
        key = _key(group, topic, handle)
        renewed = handles.get(key)
        if renewed is None or renewed.begun != handle.pop_time:
            return handle
        del handles[key]
        if not handles:
            del self._of[client]
        return await renewed.counting()

    async def round(self) -> None:
        """Renew the handles that are due; drop those that are too old, that cannot be renewed, or
        whose client lost the right to them.

        If that takes long, it includes handles that become due meanwhile. One round at a time.
        """
        searched = self._now()
        self._search(searched)
        while self._due:
            await asyncio.gather(*(change() for change in islice(self._due, AT_ONCE)))
            now = self._now()
            if now - searched >= INTERVAL * 1000:
                searched = now
                self._search(now)

    def _search(self, now: int) -> None:
        """Find the handles that are due, or have to be dropped."""
        for client, handles in tuple(self._of.items()):
            may = functools.cache(functools.partial(self._may, client))
            for key, renewed in tuple(handles.items()):
                change = None
                if renewed.failures >= MAX_FAILURES:
                    handles.pop(key, None)
                elif now - renewed.begun > MAX_AGE or not may(renewed.group, renewed.topic):
                    handles.pop(key, None)
                    change = functools.partial(self._release, client, renewed)
                elif not renewed.is_due and renewed.handle.next_visible_time - now <= AHEAD:
                    renewed.is_due = True
                    change = functools.partial(self._renew, client, handles, key, renewed)
                if change is not None:
                    self._due.add(client.counted_for, change)
            if not handles and self._of.get(client) is handles:
                del self._of[client]

    async def _renew(
        self,
        client: Client,
        handles: dict[_Key, _Renewed],
        key: _Key,
        renewed: _Renewed,
    ) -> None:
        renewed.is_due = False
        if handles.get(key) is not renewed:
            return  # taken while others were renewed
        duration = DURATIONS[min(renewed.renewals, len(DURATIONS) - 1)]
        renewed.ended = asyncio.Event()
        try:
            renewed.handle = await self._change(
                client, renewed.group, renewed.topic, renewed.handle, duration
            )
            renewed.renewals += 1
            renewed.failures = 0
        except RemotingError as error:
            renewed.failures += 1
            self._log.warning("a message of group %s cannot be renewed: %s", renewed.group, error)
            if renewed.handle.next_visible_time <= self._now():
                handles.pop(key, None)  # it is visible already
        finally:
            renewed.ended.set()
            renewed.ended = None

    async def release(self, client: Client) -> None:
        """Make the messages of a client that is gone visible."""
        handles = self._of.pop(client, {})
        released = [self._release(client, renewed) for renewed in handles.values()]
        handles.clear()  # for a round in progress
        await _some_at_a_time(released)

    async def _release(self, client: Client, renewed: _Renewed) -> None:
        try:
            handle = await renewed.counting()
            await self._change(client, renewed.group, renewed.topic, handle, SOON)
        except RemotingError as error:
            self._log.warning(
                "a message of group %s stays invisible until its time is over: %s",
                renewed.group,
                error,
            )

    async def release_all(self) -> None:
        """Make all messages visible, when the proxy stops."""
        for client in tuple(self._of):
            await self.release(client)


async def _some_at_a_time(work: list[Coroutine[Any, Any, None]]) -> None:
    for at in range(0, len(work), AT_ONCE):
        await asyncio.gather(*work[at : at + AT_ONCE])
