"""The queue locks of ordered consumers: codes 41 and 42.

A lock belongs to (group, queue) and names a client id. It lives 60 s after its last renewal; the
holder renews it by taking it again, and an expired lock goes to the first client that asks. Setting
the wall clock neither ends a lock nor prolongs it. A lock may also be bound to a connection, and is
then released with it.
Reference: broker RebalanceLockManager, which binds no lock to a connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.monotonic import MonotonicClock, MonotonicMs

LOCK_LIVE_MS: Final = 60_000

MOST_LOCKS: Final = 200_000
"""Locks of all groups together; beyond them, only those that are there change hands."""

_LONGEST_NAMES: Final = 1024
"""Characters of the names that a lock keeps: topic, broker, group and client."""


class _Lock(NamedTuple):
    client_id: str
    renewed: MonotonicMs
    connection: Any  # whose end releases the lock, or None


class QueueLocks:
    """The lock table of one broker."""

    def __init__(
        self, clock: MonotonicClock, live_ms: int = LOCK_LIVE_MS, *, most: int = MOST_LOCKS
    ) -> None:
        self._clock = clock
        self._live_ms = live_ms
        self._most = most
        self._count = 0
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        # What may be bound to a connection still.
        self._bound: dict[Any, set[tuple[str, MessageQueue]]] = {}

    def lock(
        self,
        group: str,
        queues: Iterable[MessageQueue],
        client_id: str,
        connection: Any = None,
    ) -> set[MessageQueue]:
        """Take or renew `queues` for `client_id`; returns those it holds now. They are bound to
        `connection` (None: to none) until they are renewed over another one."""
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
                known = _Lock(client_id, now, None)
            if known.client_id == client_id or now - known.renewed > self._live_ms:
                self._unbind(group, queue, known)
                locks[queue] = _Lock(client_id, now, connection)
                held.add(queue)
                if connection is not None:
                    self._bound.setdefault(connection, set()).add((group, queue))
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
            if held is not None and held.client_id == client_id:
                self._forget(group, queue)

    def release(self, connection: Any) -> None:
        """Give up what is bound to `connection`."""
        for group, queue in self._bound.pop(connection, ()):
            self._forget(group, queue)

    def _forget(self, group: str, queue: MessageQueue) -> None:
        locks = self._groups[group]
        self._unbind(group, queue, locks.pop(queue))
        self._count -= 1
        if not locks:
            del self._groups[group]

    def _unbind(self, group: str, queue: MessageQueue, lock: _Lock) -> None:
        bound = self._bound.get(lock.connection)
        if bound is not None:
            bound.discard((group, queue))
            if not bound:
                del self._bound[lock.connection]

    def has_live_locks(self, group: str) -> bool:
        """Tell whether a member of `group` holds a lock, that is, whether the group consumes in
        order.
        """
        now = self._clock()
        locks = self._groups.get(group, {})
        return any(now - lock.renewed <= self._live_ms for lock in locks.values())

    def expire(self) -> None:
        """Forget expired locks, so that groups that went away cost no memory."""
        now = self._clock()
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if now - lock.renewed > self._live_ms:
                    self._forget(group, queue)
