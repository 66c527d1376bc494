"""The queue locks of ordered consumers: codes 41 and 42.

A lock is for a group and a queue, and is held by a client id. It expires 60 s after its last
renewal; the holder renews it by acquiring it again, and an expired lock goes to the first client
that requests it. Setting the wall clock neither shortens nor extends a lock. A lock may also be
bound to a connection; then it is released when the connection ends.
Reference: broker RebalanceLockManager, which binds no lock to a connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import Any, Final, NamedTuple

from pocketmq.message.message import MessageQueue
from pocketmq.remoting.monotonic import MonotonicClock, MonotonicMs
from pocketmq.remoting.serving.long_requests import Steps
from pocketmq.remoting.shares import Shares

LOCK_LIVE_MS: Final = 60_000

MOST_LOCKS: Final = 200_000
"""The most locks of all groups, half of them of one owner; above that, only existing locks can be
acquired."""

_LONGEST_NAMES: Final = 1024
"""The most bytes of the names in a lock: topic, broker, group and client."""

_EXPIRED_AT_ONCE: Final = 1000
"""Locks that are looked at in one step."""

_EMPTY: Final = getsizeof("")


class _Lock(NamedTuple):
    client_id: str
    renewed: MonotonicMs
    connection: Any  # the lock is released when it ends; None: not bound
    owner: str


class QueueLocks:
    """The lock table of one broker."""

    def __init__(
        self, clock: MonotonicClock, live_ms: int = LOCK_LIVE_MS, *, most: int = MOST_LOCKS
    ) -> None:
        self._clock = clock
        self._live_ms = live_ms
        self._most = most
        self._counts = Shares()
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        # Locks by the connection to which they are bound.
        self._bound: dict[Any, set[tuple[str, MessageQueue]]] = {}

    def lock(
        self,
        group: str,
        queues: Iterable[MessageQueue],
        client_id: str,
        connection: Any = None,
        owner: str = "",
    ) -> list[MessageQueue]:
        """Acquire or renew the locks of `queues` for `client_id`; return those of the queues that
        it holds now. The locks are bound to `connection` (None: not bound) until they are renewed
        over another one. `owner`, a user or an address, shares the table with the others."""
        now = self._clock()
        locks = self._groups.setdefault(group, {})
        held = []
        names = _size(group) + _size(client_id)
        for queue in queues:
            if names + _size(queue.topic) + _size(queue.broker_name) > _LONGEST_NAMES:
                continue
            known = locks.get(queue)
            if known is None:
                mine, most = self._counts.of(owner), self._most
                if self._counts.total >= most or mine >= most // 2:
                    continue
                self._counts.add(owner)
                known = _Lock(client_id, now, None, owner)
            if known.client_id == client_id or now - known.renewed > self._live_ms:
                self._unbind(group, queue, known)
                if known.owner != owner:
                    self._counts.remove(known.owner)
                    self._counts.add(owner)
                locks[queue] = _Lock(client_id, now, connection, owner)
                held.append(queue)
                if connection is not None:
                    self._bound.setdefault(connection, set()).add((group, queue))
        if not locks:
            del self._groups[group]
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Release the locks of `queues`, except those held by other clients."""
        locks = self._groups.get(group)
        if locks is None:
            return
        for queue in queues:
            held = locks.get(queue)
            if held is not None and held.client_id == client_id:
                self._forget(group, queue)

    def release(self, connection: Any) -> None:
        """Release the locks bound to `connection`."""
        for group, queue in self._bound.pop(connection, ()):
            self._forget(group, queue)

    def _forget(self, group: str, queue: MessageQueue) -> None:
        locks = self._groups[group]
        lock = locks.pop(queue)
        self._unbind(group, queue, lock)
        self._counts.remove(lock.owner)
        if not locks:
            del self._groups[group]

    def _unbind(self, group: str, queue: MessageQueue, lock: _Lock) -> None:
        bound = self._bound.get(lock.connection)
        if bound is not None:
            bound.discard((group, queue))
            if not bound:
                del self._bound[lock.connection]

    def has_live_locks(self, group: str) -> bool:
        """Tell whether a member of `group` holds a lock, so that the group consumes in order."""
        now = self._clock()
        locks = self._groups.get(group, {})
        return any(now - lock.renewed <= self._live_ms for lock in locks.values())

    def expire(self) -> Steps[None]:
        """Remove expired locks in steps, so that groups that no longer exist take no memory."""
        now = self._clock()
        seen = 0
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                seen += 1
                if not seen % _EXPIRED_AT_ONCE:
                    yield
                # It may have been renewed, or released, since the last step.
                if now - lock.renewed > self._live_ms and locks.get(queue) is lock:
                    self._forget(group, queue)


def _size(name: str) -> int:
    """Return the bytes of a name in memory, without those of its object."""
    return getsizeof(name) - _EMPTY if not name.isascii() else len(name)
