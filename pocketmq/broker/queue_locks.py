"""The queue locks of ordered consumers: codes 41 and 42.

A lock belongs to (group, queue) and names a client id. It lives 60 s after its last renewal; the
holder renews it by taking it again, and an expired lock goes to the first client that asks. Setting
the wall clock neither ends a lock nor prolongs it.
Reference: broker RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.monotonic import MonotonicClock, MonotonicMs

LOCK_LIVE_MS: Final = 60_000

MOST_LOCKS: Final = 200_000
"""Locks of all groups together; beyond them, only those that are there change hands."""

_LONGEST_NAMES: Final = 1024
"""Characters of the names that a lock keeps: topic, broker, group and client."""


class QueueLocks:
    """The lock table of one broker."""

    def __init__(
        self, clock: MonotonicClock, live_ms: int = LOCK_LIVE_MS, *, most: int = MOST_LOCKS
    ) -> None:
        self._clock = clock
        self._live_ms = live_ms
        self._most = most
        self._count = 0
        # group → queue → (client id, time of the last renewal)
        self._groups: dict[str, dict[MessageQueue, tuple[str, MonotonicMs]]] = {}

    def lock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> set[MessageQueue]:
        """Take or renew `queues` for `client_id`; returns those it holds now."""
        now = self._clock()
        locks = self._groups.setdefault(group, {})
        held = set()
        names = len(group) + len(client_id)
        for queue in queues:
            if names + len(queue.topic) + len(queue.broker_name) > _LONGEST_NAMES:
                continue
            known = locks.get(queue)
            if known is None:
                if self._count >= self._most:
                    continue
                self._count += 1
                known = client_id, now
            holder, renewed = known
            if holder == client_id or now - renewed > self._live_ms:
                locks[queue] = (client_id, now)
                held.add(queue)
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up `queues`; those that another client holds are left alone."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held[0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            del self._groups[group]

    def has_live_locks(self, group: str) -> bool:
        """Tell whether a member of `group` holds a lock, that is, whether the group consumes in
        order.
        """
        now = self._clock()
        return any(
            now - renewed <= self._live_ms for _, renewed in self._groups.get(group, {}).values()
        )

    def expire(self) -> None:
        """Forget expired locks, so that groups that went away cost no memory."""
        now = self._clock()
        for group, locks in list(self._groups.items()):
            for queue, (_, renewed) in list(locks.items()):
                if now - renewed > self._live_ms:
                    del locks[queue]
                    self._count -= 1
            if not locks:
                del self._groups[group]
